"""A plugin is one value: everything that it adds, by kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.backends.protocol import Backend
from weft.expr.intrinsic_table import Intrinsic
from weft.graph.nodes import Module
from weft.ir.passes import Pass
from weft.ops.definition import OpDef
from weft.plugins.scalar import verify_intrinsic
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.refs import BlockRef
from weft.support.arguments import checked_fields
from weft.support.errors import UserError

if TYPE_CHECKING:
    from weft.runtime.devices import DeviceTable
    from weft.schedule.rules.common.context import Context

AT: Final = ("imported", "simplified", "before-fusion", "fused")
"""Where in the pipeline a graph pass may run: on the graph as imported, with its functions inlined; after
constants are folded and operators simplified; after layouts are chosen, directly before fusion; on the
graph of fused groups."""


@dataclass(frozen=True, slots=True)
class PlacedPass:
    """A graph pass and where it runs, one of :data:`AT`. Several at one place run in the order of the plugins."""

    step: Pass[Module]
    at: str = "simplified"

    def __post_init__(self) -> None:
        if self.at not in AT:
            raise UserError(f"a graph pass cannot stand at '{self.at}'", code="X010", hint=f"one of {', '.join(AT)}")


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """A default schedule rule: ``apply(context, block)`` schedules the block and returns True, or returns False if the
    rule does not apply. It is tried before the package's own rules, on targets of the ``kinds`` of back ends, and may
    name the intrinsics of plugins."""

    name: str
    apply: Callable[[Context, BlockRef], bool]
    kinds: tuple[str, ...] = ("llvm",)


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """A kind of devices. ``open(index)`` opens one and returns an object that implements
    :class:`weft.runtime.devices.PythonDevice`, or raises an exception that says why there is none. For devices written
    in C, ``open`` is a :class:`weft.runtime.devices.DeviceTable`."""

    kind: str
    open: Callable[[int], Any] | DeviceTable


@dataclass(frozen=True, slots=True)
class NamedMachine:
    """A machine that may be named as a target; ``target`` is the full text of the target (``"llvm -mcpu=…"``)."""

    name: str
    target: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Frontend:
    """Reads models from files that end in ``suffix`` (``".toy"``): ``load(path)`` gives a graph module, or raises
    ModelError with what is wrong with the file."""

    suffix: str
    load: Callable[[Path], Module]
    doc: str = ""

    def __post_init__(self) -> None:
        if not self.suffix.startswith(".") or self.suffix != self.suffix.lower():
            raise UserError(
                f"a front end cannot have the suffix '{self.suffix}'", code="X010", hint="small letters after a dot"
            )


@dataclass(frozen=True, slots=True)
class OnnxConverter:
    """How nodes of ONNX with this domain and operator are imported: ``convert(node)`` gives the values of a
    :class:`weft.frontends.onnx.node.Node`. The standard domains belong to the package."""

    domain: str
    op_type: str
    convert: Callable[[Any], Any]


@checked_fields("X010")
@dataclass(frozen=True, slots=True)
class Plugin:
    """Extends Weft, where it is passed to :func:`weft.compile` or installed (entry-point group ``weft.plugins``).

    ``name`` and ``version`` are for messages and for the record in artifacts. Graphs may call ``operators`` in addition
    to those of the catalogue. ``graph_passes`` run with the package's own passes, ``schedule_rules`` before its own
    rules. Rules and traces may name ``intrinsics``; expressions may call ``scalar_intrinsics`` (``te.call``). Targets
    may name ``backends`` and ``machines``; their code runs on ``devices``. ``frontends`` and ``onnx_converters`` read
    models. Raises UserError X010 or X014 for fields that cannot be right.
    """

    name: str
    version: str
    operators: tuple[OpDef, ...] = ()
    graph_passes: tuple[PlacedPass, ...] = ()
    schedule_rules: tuple[ScheduleRule, ...] = ()
    intrinsics: tuple[TensorIntrinsic, ...] = ()
    scalar_intrinsics: tuple[Intrinsic, ...] = ()
    backends: tuple[Backend, ...] = ()
    devices: tuple[PluginDevice, ...] = ()
    machines: tuple[NamedMachine, ...] = ()
    frontends: tuple[Frontend, ...] = ()
    onnx_converters: tuple[OnnxConverter, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "version"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise UserError(f"Plugin: '{name}' must be a text, not {value!r}", code="X010")
        for field in fields(self)[2:]:
            value, kind = getattr(self, field.name), _KINDS[field.name]
            if not isinstance(value, (tuple, list)) or not all(isinstance(v, kind) for v in value):
                raise UserError(
                    f"Plugin '{self.name}': '{field.name}' must be a tuple of {kind.__name__}, not {value!r}",
                    code="X010",
                )
            object.__setattr__(self, field.name, tuple(value))
        for scalar in self.scalar_intrinsics:
            verify_intrinsic(scalar, self.name)

    @property
    def changes_kernels(self) -> bool:
        """Whether the plugin can change the code of a kernel for an equal program."""
        return bool(self.schedule_rules or self.backends)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


_KINDS: Final[dict[str, type]] = {
    "operators": OpDef,
    "graph_passes": PlacedPass,
    "schedule_rules": ScheduleRule,
    "intrinsics": TensorIntrinsic,
    "scalar_intrinsics": Intrinsic,
    "backends": Backend,
    "devices": PluginDevice,
    "machines": NamedMachine,
    "frontends": Frontend,
    "onnx_converters": OnnxConverter,
}
