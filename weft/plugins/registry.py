"""The package's own parts and those of plugins, as one immutable value that is passed down explicitly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from secrets import token_hex
from typing import Any, Final

from weft.backends.catalogue import BACKENDS, backend_of
from weft.backends.protocol import Backend
from weft.expr.added import adding
from weft.expr.intrinsic_table import INTRINSICS
from weft.graph.nodes import Module
from weft.ir.passes import Pass
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import OpDef
from weft.plugins.discover import installed
from weft.plugins.identity import identity
from weft.plugins.plugin import Frontend, Plugin
from weft.support.errors import UserError
from weft.target import KINDS, Target, TargetKind
from weft.target.machines import MACHINES
from weft.target.target import parse_target

_SUFFIXES = (".onnx", ".graph", ".weft")
_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")


@dataclass(frozen=True)
class Registry:
    """Everything that may be named: the package's own values and those that ``plugins`` add.

    Raises UserError X012 if a plugin adds a name that exists already, or two plugins add the same name.
    """

    plugins: tuple[Plugin, ...] = ()
    operators: Mapping[str, OpDef] = field(init=False)

    def __post_init__(self) -> None:
        _unique("plugin", ((p, p.name) for p in self.plugins), ())
        _unique("graph pass", ((p, s.step.name) for p in self.plugins for s in p.graph_passes), ())
        _unique("schedule rule", ((p, r.name) for p in self.plugins for r in p.schedule_rules), ())
        _unique("intrinsic", ((p, i.name) for p in self.plugins for i in p.intrinsics), ())
        scalars = [(p, i) for p in self.plugins for i in p.scalar_intrinsics]
        _unique("scalar intrinsic", ((p, i.name) for p, i in scalars), INTRINSICS)
        _unique("back end", ((p, b.kind.name) for p in self.plugins for b in p.backends), (*KINDS, *MACHINES, "cpu"))
        _unique("device", ((p, d.kind) for p in self.plugins for d in p.devices), ("cpu",))
        _unique("machine", ((p, m.name) for p in self.plugins for m in p.machines), (*KINDS, *MACHINES, "cpu"))
        _unique("front end", ((p, f.suffix) for p in self.plugins for f in p.frontends), _SUFFIXES)
        converters = [(p, c) for p in self.plugins for c in p.onnx_converters]
        _unique("ONNX converter", ((p, f"{c.domain}.{c.op_type}") for p, c in converters), ())
        for p, c in converters:
            if c.domain in _STANDARD_DOMAINS:
                raise UserError(
                    f"the plugin '{p}' converts '{c.op_type}' of the domain '{c.domain}', which is Weft's own",
                    code="X012",
                    hint="operators of a domain of one's own, such as 'com.example', may be converted",
                )
        brought = [(p, o) for p in self.plugins for o in p.operators]
        _unique("operator", ((p, o.name) for p, o in brought), OPERATORS)
        object.__setattr__(self, "operators", {**OPERATORS, **{o.name: o for _, o in brought}})

    # -- models -------------------------------------------------------------------------------------------------------

    @cached_property
    def converters(self) -> Mapping[tuple[str, str], Callable[[Any], Any]]:
        """Converters of ONNX nodes that plugins add, by domain and operator."""
        return {(c.domain, c.op_type): c.convert for p in self.plugins for c in p.onnx_converters}

    def frontend(self, suffix: str) -> Frontend | None:
        """The front end of a plugin that reads files with this suffix."""
        return next((f for p in self.plugins for f in p.frontends if f.suffix == suffix), None)

    # -- machines -----------------------------------------------------------------------------------------------------

    def target(self, target: str | Target) -> Target:
        """A target from its text, which may name machines and back ends of plugins. Raises TargetError."""
        if isinstance(target, Target):
            return target
        words = target.split(maxsplit=1) if isinstance(target, str) else []
        machines = {m.name: m.target for p in self.plugins for m in p.machines}
        if words and words[0] in machines:
            target = " ".join((machines[words[0]], *words[1:]))
        return parse_target(target, self.kinds)

    @cached_property
    def kinds(self) -> Mapping[str, TargetKind]:
        """The kinds of targets, by name."""
        return {**KINDS, **{b.kind.name: b.kind for p in self.plugins for b in p.backends}}

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """All back ends, those of plugins too, each with the rules and intrinsics that plugins add for it."""
        return tuple(map(self._extended, (*BACKENDS, *(b for p in self.plugins for b in p.backends))))

    def backend_of(self, target: Target) -> Backend:
        """The back end of a target. Raises TargetError G023 if there is none."""
        return backend_of(target, self.backends)

    def _extended(self, backend: Backend) -> Backend:
        kind = backend.kind.name
        rules = tuple(r.apply for p in self.plugins for r in p.schedule_rules if kind in r.kinds)
        intrinsics = tuple(i for p in self.plugins for i in p.intrinsics)
        changed = replace(backend, origin=self._origin(kind), intrinsics=intrinsics)
        if not rules:
            return changed
        return replace(changed, schedule=partial(backend.schedule, rules=rules, intrinsics=intrinsics))

    def _origin(self, kind: str) -> str:
        """Distinguishes kernels of this kind from those of the package without plugins; empty if they are equal."""
        return "; ".join(
            f"{p} {self._identities[p.name] or f'unknown {token_hex(16)}'}"
            for p in self.plugins
            if any(kind in r.kinds for r in p.schedule_rules) or any(b.kind.name == kind for b in p.backends)
        )

    @cached_property
    def _identities(self) -> Mapping[str, str | None]:
        return {p.name: identity(p) for p in self.plugins if p.changes_kernels}

    @property
    def keeps_kernels(self) -> bool:
        """Whether kernels may be kept on disk: the source of all plugins that decide their code is known."""
        return None not in self._identities.values()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Expressions may call the plugins' scalar intrinsics inside of the ``with`` statement."""
        with adding(i for p in self.plugins for i in p.scalar_intrinsics):
            yield

    # -- the pipeline -------------------------------------------------------------------------------------------------

    def passes(self, at: str) -> tuple[Pass[Module], ...]:
        """The graph passes of plugins that run at a place of the pipeline."""
        return tuple(s.step for p in self.plugins for s in p.graph_passes if s.at == at)

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        """Name and version of each plugin."""
        return tuple((p.name, p.version) for p in self.plugins)


def _unique(what: str, named: Iterable[tuple[Plugin, str]], taken: Iterable[str]) -> None:
    known = dict.fromkeys(taken, "Weft")
    for plugin, name in named:
        if name in known:
            whose = "Weft has" if known[name] == "Weft" else f"'{known[name]}' has"
            raise UserError(
                f"the plugin '{plugin}' brings the {what} '{name}', which {whose} already",
                code="X012",
                hint="give it another name, or leave one of them out",
            )
        known[name] = str(plugin)


STOCK: Final = Registry()
"""The package without plugins."""


def registry_of(plugins: Sequence[Plugin] = ()) -> Registry:
    """The registry of installed plugins, followed by the given ones; a plugin that is in both is used once."""
    found = installed()
    return Registry((*(p for p in found if p not in plugins), *plugins))


@contextmanager
def using(*plugins: Plugin) -> Iterator[None]:
    """Inside of the ``with`` statement, expressions may call the scalar intrinsics of ``plugins`` and of installed
    plugins: for tensor expressions and schedules without a model (:mod:`weft.te`). :func:`weft.compile` does so by
    itself."""
    with registry_of(plugins).scope():
        yield
