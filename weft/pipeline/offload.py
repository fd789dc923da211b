"""Decides which fused groups run on a device besides the CPU, by the estimates of the device's back end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.backends.protocol import Backend, Offload
from weft.cost.rates import Rates
from weft.expr.evaluate import evaluate
from weft.expr.nodes import Expr, Var
from weft.expr.visit import free_vars
from weft.graph.nodes import Function, Module
from weft.lowering.place import ASSUMED_SIZE, CPU_ALONE, Placement, place
from weft.pipeline.kernels import unscheduled
from weft.runtime.program import DeviceSpec
from weft.support.errors import TargetError
from weft.target import Target
from weft.tensor_expr.analysis import Work
from weft.tir.nodes import Program


@dataclass
class _Claims:
    """Estimates of a device's back end for fused groups; the device is number 1."""

    target: Target
    offload: Offload
    programs: dict[Function, tuple[Program, Work]] = field(default_factory=dict)

    def _program(self, group: Function) -> tuple[Program, Work]:
        if group not in self.programs:
            self.programs[group] = unscheduled(group)
        return self.programs[group]

    def can_run(self, device: int, group: Function) -> bool:
        return self.offload.can_run(self._program(group)[0], self.target)

    def seconds(self, device: int, group: Function) -> float:
        program, work = self._program(group)
        if device:
            return self.offload.seconds(program, self.target)
        rates = Rates()
        return max(_size(work.flops) / (2 * rates.panel_products), _size(work.bytes) / rates.streamed_bytes)

    def copy_seconds(self, source: int, target: int, nbytes: int) -> float:
        return self.offload.copy_seconds(nbytes)


def _size(e: Expr) -> float:
    """The value of a size if every open size has its assumed value."""
    assumed: dict[Var, int] = dict.fromkeys(free_vars(e), ASSUMED_SIZE)
    return float(evaluate(e, assumed))


def host_of(target: Target) -> Target:
    """The target for groups that do not run on the device: its host, or the target itself if it has no host."""
    return target if target.host is None else target.host


def hosts_of(targets: Sequence[Target]) -> list[Target]:
    """The CPUs of the targets. Raises TargetError G025 if a target other than the first has a device."""
    for target in targets[1:]:
        if target.host is not None:
            raise TargetError(
                f"'{target}' cannot be a further target: it has a device", code="G025", hint="name it as the target"
            )
    return [host_of(t) for t in targets]


def offloaded(fused: Module, target: Target, backend: Backend) -> Placement:
    """Which groups run on the device of ``target``; all run on the CPU if the target has no host. Raises TargetError
    G024 for the back end of a device that does not say what it can compute."""
    if target.host is None:
        return CPU_ALONE
    if backend.offload is None:
        raise TargetError(
            f"the back end '{target.kind.name}' does not say what its device can compute",
            code="G024",
            hint="Backend(offload=Offload(can_run, …))",
        )
    return place(fused, (DeviceSpec(target.kind.device),), _Claims(target, backend.offload))
