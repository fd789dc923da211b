"""Finds the stage and the kernel that cause a wrong result.

The interpreter of graphs computes the expected results of a module. If the compiled program gives others, the graph
is computed again after each pass. Then the machine code of each fused group is run alone, on arguments from the
interpreter. The first group with a wrong result is computed stage by stage: its tensor expressions, element by element,
then its plain loops, its scheduled loops and its kernel form. Every stage gets the same inputs, so rounding does not
accumulate over the stages. Of tensor expressions and of large loops a sample is computed, which the verdict describes.

Numbers agree if they differ by no more than a tolerance times the largest finite magnitude among the expected results
of an array: sums in another order and Winograd's algorithm round in proportion to the largest terms. NaN and infinities
must be at the expected positions. Integers and bools must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from weft.backends.protocol import Backend, Code
from weft.expr.nodes import Const, Expr, ExprLike, Var
from weft.graph.interpret import run, run_group
from weft.graph.nodes import Function, Module
from weft.ir.passes import Pass
from weft.kernels.cache import KernelCache
from weft.kernels.machine_code import lowered, scheduled
from weft.pipeline.blame_stages import check_expressions, check_loops
from weft.pipeline.graph import graph_passes
from weft.pipeline.kernels import unscheduled
from weft.pipeline.options import Options
from weft.pipeline.program import compile_module
from weft.plugins.registry import STOCK, Registry
from weft.runtime.direct_call import call_kernel, unwritten
from weft.runtime.executable import Executable
from weft.support.data import Data
from weft.support.differences import difference, errors
from weft.support.errors import InputError, ProgramError
from weft.target import Target
from weft.tir.nodes import Buffer, Program
from weft.tir.visit import substitution

TOLERANCES: Final = {"f32": 1e-3, "bf16": 3e-2}
"""By precision: the largest difference that counts as rounding, relative to the largest magnitude of an array."""
MAX_INTERPRETED_FLOPS: Final = 50_000_000
"""Of larger kernels only some iterations are interpreted: all would take minutes for each stage."""
MAX_EVALUATED_FLOPS: Final = 200_000
"""As many elements of tensor expressions are evaluated, one by one, as take no more floating-point operations."""
TOO_LARGE: Final = "kernel too large to interpret"
STAGES: Final = ("graph", "te", "tir", "scheduled", "kernel", "machine code", TOO_LARGE, "program")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Verdict:
    """The result of the search. ``stage`` is one of :data:`STAGES`, or empty if the results agree.

    ``name`` is the pass of the graph or the kernel. ``error`` is the largest difference, relative to the largest
    magnitude (infinite for misplaced NaN or infinities, and for errors). ``text`` describes a failure other than
    different numbers. ``before`` is the module before the pass, ``group`` the fused group of the kernel, ``program``
    its plain loops; ``inputs`` are the inputs of the stage and ``wanted`` its expected results.
    """

    stage: str
    name: str = ""
    error: float = 0.0
    text: str = ""
    before: Module | None = None
    group: Function | None = None
    program: Program | None = None
    inputs: tuple[Any, ...] = ()
    wanted: tuple[Array, ...] = ()


def blame(
    module: Module,
    target: Target,
    inputs: Sequence[Any],
    options: Options | None = None,
    tolerance: float | None = None,
    registry: Registry = STOCK,
) -> Verdict:
    """Compare the compiled ``module`` with the interpreter on ``inputs`` (arrays in the order of its parameters), and
    find the first stage with a difference larger than ``tolerance`` (default: :data:`TOLERANCES`).

    The machine code runs here, so ``target`` must be the current machine or one whose code it can run. ``registry``
    holds the values of plugins. Raises InputError I034 for a target with a device besides the CPU.
    """
    if target.host is not None:
        raise InputError(
            f"'{target.kind.name}' is a device besides the CPU, whose kernels cannot be called one by one here",
            code="I034",
            hint=f"find out with the target of its host ('{target.host.kind.name}') whether the CPU's part is right",
        )
    options = options or Options()
    chosen = TOLERANCES[options.precision_on(target)] if tolerance is None else tolerance
    with registry.scope():
        return _blamed(module, inputs, _Search(target, options, chosen, registry))


def _blamed(module: Module, inputs: Sequence[Any], search: _Search) -> Verdict:
    chosen = search.tolerance
    wanted = arrays(run(module, inputs))
    whole = search.compare(lambda: search.compiled(module, inputs), wanted)
    if whole.agrees(chosen):
        return Verdict("", error=whole.error)
    fused = module
    for step in graph_passes(search.target, search.options, search.registry):
        before = fused
        found, fused = search.after(step, before, inputs, wanted)
        if not found.agrees(chosen):
            return Verdict(
                "graph", step.name, found.error, found.text, before=before, inputs=tuple(inputs), wanted=wanted
            )
    verdict = search.groups(fused, inputs)
    if verdict is not None:
        return verdict
    chain = search.compare(lambda: arrays(run(fused, inputs, groups=search.machine)), wanted)
    if not chain.agrees(chosen):
        text = "every stage of every kernel agrees by itself: rounding adds up over the kernels"
        return Verdict("", error=whole.error, text=text)
    return Verdict("program", error=whole.error, text=whole.text, before=fused, inputs=tuple(inputs), wanted=wanted)


def arrays(value: Any) -> tuple[Array, ...]:
    """All arrays in a result, in order."""
    if isinstance(value, (tuple, list)):
        return tuple(a for v in value for a in arrays(v))
    if isinstance(value, Data):
        return tuple(a for v in value.fields for a in arrays(v))
    return (np.asarray(value),)


@dataclass(frozen=True)
class _Comparison:
    error: float
    text: str = ""

    def agrees(self, tolerance: float) -> bool:
        return self.error <= tolerance


@dataclass
class _Search:
    """State that the stages of one search share."""

    target: Target
    options: Options
    tolerance: float
    registry: Registry
    codes: dict[Function, tuple[Program, Any]] = field(default_factory=dict)

    @property
    def backend(self) -> Backend:
        """The back end of the target, with the additions of plugins."""
        return self.registry.backend_of(self.target)

    def compare(self, made: Callable[[], Sequence[Array]], wanted: Sequence[Array]) -> _Comparison:
        """The error of ``made``; a program that accesses memory outside its buffers is wrong, too."""
        try:
            return _Comparison(difference(made(), wanted))
        except ProgramError as error:
            return _Comparison(np.inf, str(error))

    def compiled(self, module: Module, inputs: Sequence[Any]) -> tuple[Array, ...]:
        artifact, _ = compile_module(
            module, [self.target], options=self.options, cache=KernelCache(None), registry=self.registry
        )
        return arrays(Executable(artifact, 1)(*inputs))

    def after(
        self, step: Pass[Module], before: Module, inputs: Sequence[Any], wanted: Sequence[Array]
    ) -> tuple[_Comparison, Module]:
        """Check the module after a pass."""
        after = step.run(before)
        if after is before:
            return _Comparison(0.0), after
        return self.compare(lambda: arrays(run(after, inputs)), wanted), after

    def machine(self, group: Function, args: Sequence[Any], sizes: Mapping[Var, ExprLike]) -> Any:
        """The result of the machine code of a fused group."""
        if group not in self.codes:
            kernel = lowered(unscheduled(group)[0], self.target, backend=self.backend)
            self.codes[group] = kernel, self.backend.emit(kernel, self.target)
        kernel, code = self.codes[group]
        made = _called(kernel, code, unscheduled(group)[0], args, sizes)
        return made[0] if len(made) == 1 else made

    def groups(self, fused: Module, inputs: Sequence[Any]) -> Verdict | None:
        """The first fused group whose machine code is wrong, on the arguments that the interpreter gives it."""
        found: list[Verdict] = []
        seen: set[Function] = set()

        def watch(group: Function, args: Sequence[Any], sizes: Mapping[Var, ExprLike]) -> Any:
            wanted = run_group(group, args, sizes)
            if group not in seen and not found:
                seen.add(group)
                flat = arrays(wanted)
                made = self.compare(lambda: arrays(self.machine(group, args, sizes)), flat)
                if not made.agrees(self.tolerance):
                    found.append(self.stage(group, args, sizes, flat, made))
            return wanted

        run(fused, inputs, groups=watch)
        return found[0] if found else None

    def stage(
        self, group: Function, args: Sequence[Any], sizes: Mapping[Var, ExprLike], wanted: tuple[Array, ...], last: Any
    ) -> Verdict:
        """The first stage of a group that is wrong."""
        program, work = unscheduled(group)
        known = {v: _number(sizes[v]) for v in program.sizes}
        parts: dict[str, Any] = {"group": group, "program": program, "inputs": tuple(args), "wanted": wanted}
        flops = _number(substitution({v: Const(n) for v, n in known.items()})(work.flops))
        wrong = self._wrong_elements(group, args, sizes, wanted)
        per_element = max(1, flops // max(1, sum(a.size for a in wanted)))
        te = check_expressions(group, args, known, wanted, wrong, MAX_EVALUATED_FLOPS // per_element)
        if te.error > self.tolerance:
            return Verdict("te", program.name, te.error, te.text, **parts)
        notes, complete = [te.text] if te.text else [], True
        for name, made in self._stages(program):
            found = check_loops(made, args, known, wanted, wrong, flops, MAX_INTERPRETED_FLOPS)
            if found.error > self.tolerance:
                return Verdict(name, program.name, found.error, found.text, **parts)
            complete = complete and found.complete
            if found.text:
                notes.append(f"{name}: {found.text}")
        text = "; ".join([last.text, *notes] if last.text else notes)
        return Verdict("machine code" if complete else TOO_LARGE, program.name, last.error, text, **parts)

    def _wrong_elements(
        self, group: Function, args: Sequence[Any], sizes: Mapping[Var, ExprLike], wanted: Sequence[Array]
    ) -> tuple[Array, ...]:
        """For each output which elements of the machine code's are wrong; all, if it failed."""
        try:
            made = arrays(self.machine(group, args, sizes))
        except ProgramError:
            return tuple(np.ones(w.shape, bool) for w in wanted)
        return tuple(errors(g, w) > self.tolerance for g, w in zip(made, wanted, strict=True))

    def _stages(self, program: Program) -> Iterator[tuple[str, Program]]:
        yield "tir", program
        made = scheduled(program, self.target, backend=self.backend).program
        yield "scheduled", made
        yield "kernel", self.backend.lower(made, self.target)


def _called(
    kernel: Program, code: Code, plain: Program, args: Sequence[Array], sizes: Mapping[Var, ExprLike]
) -> tuple[Array, ...]:
    """The outputs of a kernel on ``args``, in one thread. Elements that it does not write have a pattern."""
    numbers = [_number(sizes[v]) for v in plain.sizes]
    swap = substitution({v: Const(n) for v, n in zip(plain.sizes, numbers, strict=True)})
    results = plain.params[len(args) :]
    outputs = [unwritten(_room(b, swap), b.dtype.numpy) for b in results]
    needed = kernel.attrs.get("workspace")
    inputs = [np.array(a) for a in args]  # the call writes back what the kernel left in them
    call_kernel(code.data, code.entry, [*inputs, *outputs], numbers, None if needed is None else _number(swap(needed)))
    parts = [tuple(slice(0, _number(swap(d))) for d in b.shape) for b in results]
    return tuple(np.ascontiguousarray(a[p]) for a, p in zip(outputs, parts, strict=True))


def _room(b: Buffer, swap: Callable[[Expr], Expr]) -> list[int]:
    """The shape of the tensor that a result is part of: each stride is the size of what lies inside of it."""
    shape = [_number(swap(d)) for d in b.shape]
    if b.strides is None:
        return shape
    steps = [_number(swap(d)) for d in b.strides]
    return [shape[0], *(outer // inner for outer, inner in pairwise(steps))] if shape else shape


def _number(size: Any) -> int:
    """A size as an int: at run time all sizes are known."""
    return int(size)


def known_inputs(module: Module, inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs by name in the order of the parameters. Raises InputError if one is missing."""
    missing = [p.name for p in module.main.params if p.name not in inputs]
    if missing:
        raise InputError(f"there is no input '{missing[0]}'", code="I004", hint=f"given: {', '.join(inputs)}")
    return [inputs[p.name] for p in module.main.params]
