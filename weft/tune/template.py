"""Templates: schedules with knobs, written as Python functions by people who know their kernel.

A template takes the knobs and a schedule:

    def tiled(cfg: Knobs, s: Schedule) -> None:
        (block,) = s.get_blocks()
        i, j, k = s.get_loops(block)
        i0, i1 = cfg.define_split("i", i, parts=2)
        j0, j1 = cfg.define_split("j", j, parts=2)
        cfg.define_reorder("order", (i1, k, j1), before=(i0, j0))
        cfg.define_annotate("unroll", (i1, k), kinds=("none", "unroll"))

Every call defines one knob and applies the decision that the search has taken for it. The first run finds the knobs;
it takes the default of each. Knobs that are defined only after certain decisions keep their defaults. The decisions
are sampling instructions of the trace, so a template is needed to search, but not to use what was found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from weft.expr.linear import linear
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.primitives.sampling import MAX_PARTS, factorizations
from weft.schedule.refs import LoopRef
from weft.schedule.schedule import Schedule
from weft.schedule.trace import MAX_PERMUTED_LOOPS, Trace
from weft.support.errors import ScheduleError, UserError
from weft.support.words import did_you_mean
from weft.tir.nodes import Program
from weft.tune.space import Knob, nearest, same_instructions

T = TypeVar("T", bound="int | str")

KINDS: Final = ("none", "unroll", "vectorize", "parallel")
"""What :meth:`Knobs.define_annotate` may do with a loop."""

Function = Callable[["Knobs", Schedule], None]


class Knobs:
    """The knobs of a template during one run: each method defines one, and returns what was decided for it.

    Names are unique. Every method raises UserError U032 for a name that was used before, or a knob without candidates.
    """

    def __init__(self, schedule: Schedule, decisions: Mapping[str, Any], followed: Trace | None = None) -> None:
        self._schedule, self._decisions = schedule, decisions
        self._followed = {} if followed is None else {d.position: d for d in followed.decisions}
        self.found: dict[str, Knob] = {}
        self.taken: dict[str, Any] = {}
        """What was decided for each knob."""

    def _decided(self, name: str, values: Sequence[Any], default: int) -> int:
        if name in self.found:
            raise UserError(
                f"the template defines the knob '{name}' twice", code="U032", hint="give every knob a name of its own"
            )
        if not values:
            raise UserError(f"the knob '{name}' has no candidates", code="U032", hint="give one value at least")
        knob = self.found[name] = Knob(name, tuple(values), default)
        wanted = self._decisions.get(name, values[default])
        decision = self._followed.get(len(self._schedule.trace))
        if decision is not None and decision.decision in decision.candidates:
            wanted = decision.values[decision.candidates.index(decision.decision)]
        position = nearest(knob, wanted)
        self.taken[name] = values[position]
        return position

    def define_knob(self, name: str, values: Sequence[T], default: T | None = None) -> T:
        """One of ``values`` (numbers or texts, without repetitions); starts with ``default``, or the first."""
        if len(set(values)) != len(values) or (default is not None and default not in values):
            raise UserError(
                f"the knob '{name}' needs different values, its default among them",
                code="U032",
                hint="define_knob('unroll', (0, 16, 64), default=16)",
            )
        at = self._decided(name, values, 0 if default is None else list(values).index(default))
        chosen: T = self._schedule.sample_choice(tuple(values), decision=at)
        return chosen

    def define_split(
        self,
        name: str,
        loop: LoopRef,
        parts: int = 2,
        innermost_at_most: int = 64,
        default: Sequence[int] | None = None,
    ) -> tuple[LoopRef, ...]:
        """Split ``loop``, whose extent is known, into ``parts`` loops, outermost first: all factorizations whose last
        factor is at most ``innermost_at_most``. ``default`` are the factors to start with; without it, the last factor
        is the largest that is allowed and the others are outside."""
        if not 1 <= parts <= MAX_PARTS:
            raise UserError(f"the knob '{name}' splits into {parts} loops", code="U032", hint=f"1 to {MAX_PARTS}")
        extent = linear(self._schedule.state.loop(loop).extent)
        if not extent.is_constant:
            raise UserError(
                f"the knob '{name}' splits the loop '{loop.name}', whose extent is not known",
                code="U032",
                hint="choose a factor with define_knob, and split with factors=(None, factor)",
            )
        values = factorizations(extent.constant, parts, innermost_at_most)
        if not values:
            raise UserError(
                f"the knob '{name}' has no candidates: {extent.constant} iterations in {parts} loops, the innermost of "
                f"at most {innermost_at_most}",
                code="U032",
                hint="split a loop that runs at least once, into more parts or with a larger innermost_at_most",
            )
        start = tuple(default) if default is not None else max(values, key=lambda f: (f[-1], f[0]))
        if start not in values:
            raise UserError(
                f"the knob '{name}' does not have the default {start}",
                code="U032",
                hint=f"{parts} factors of {extent.constant}, the last at most {innermost_at_most}",
            )
        at = self._decided(name, values, values.index(start))
        factors = self._schedule.sample_tile(loop, parts, innermost_at_most, decision=values[at])
        return self._schedule.split(loop, factors=factors)

    def define_factor(
        self, name: str, loop: LoopRef, factors: Sequence[int], default: int | None = None
    ) -> tuple[LoopRef, LoopRef]:
        """Split ``loop`` into an outer loop and an inner one with one of ``factors`` iterations, which need not divide
        the extent: a rest is guarded."""
        factor = self.define_knob(name, tuple(factors), default)
        outer, inner = self._schedule.split(loop, factors=(None, factor))
        return outer, inner

    def define_reorder(
        self, name: str, loops: Sequence[LoopRef], before: Sequence[LoopRef] = (), after: Sequence[LoopRef] = ()
    ) -> tuple[LoopRef, ...]:
        """Reorder ``loops`` (directly nested together with ``before`` and ``after``, which stay outside and inside of
        them); returns them in their new order. At most :data:`MAX_PERMUTED_LOOPS` loops are permuted freely."""
        if not 2 <= len(loops) <= MAX_PERMUTED_LOOPS:
            raise UserError(
                f"the knob '{name}' orders {len(loops)} loops", code="U032", hint=f"2 to {MAX_PERMUTED_LOOPS} loops"
            )
        values = tuple(itertools.permutations(range(len(loops))))
        at = self._decided(name, values, 0)
        ordered = self._schedule.sample_order(tuple(loops), decision=values[at])
        self._schedule.reorder(*before, *ordered, *after)
        return tuple(ordered)

    def define_annotate(self, name: str, loops: Sequence[LoopRef], kinds: Sequence[str] = ("none", "unroll")) -> str:
        """Do the same with each of ``loops``: ``none``, ``unroll``, ``vectorize`` or ``parallel``. Returns which."""
        for kind in kinds:
            if kind not in KINDS:
                hint = did_you_mean(kind, KINDS, ", ".join(KINDS))
                raise UserError(f"the knob '{name}' knows no '{kind}'", code="U032", hint=hint)
        if len(set(kinds)) != len(kinds):
            raise UserError(f"the knob '{name}' repeats a kind", code="U032", hint="give each kind once")
        at = self._decided(name, kinds, 0)
        kind = kinds[at]
        self._schedule.sample_choice(tuple(kinds), decision=at)
        for loop in loops if kind != "none" else ():
            getattr(self._schedule, kind)(loop)
        return kind


@dataclass(frozen=True)
class TemplateSketch:
    """The schedules that a template makes of ``program``. Other functions are other sketches: the name is that of the
    function unless given."""

    program: Program
    function: Function
    title: str = ""
    intrinsics: tuple[TensorIntrinsic, ...] = ()

    @property
    def name(self) -> str:
        """The given title, or the function's name."""
        return self.title or getattr(self.function, "__name__", "template")

    @cached_property
    def _all(self) -> dict[str, Knob]:
        return self._run({})[0].found

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs that the template defines when every knob has its default. Raises ScheduleError where a primitive
        refuses that."""
        return tuple(k for k in self._all.values() if len(k.values) > 1)

    def trace(self, positions: Sequence[int]) -> Trace:
        """The trace of the template's run with these decisions."""
        return self._run({k.name: k.values[p] for k, p in zip(self.knobs, positions, strict=True)})[1]

    def positions(self, trace: Trace) -> tuple[int, ...] | None:
        """Those of the decisions of ``trace``, if the template's run with them has the same instructions otherwise."""
        try:
            knobs, made = self._run({}, trace)
        except ScheduleError:  # decisions of another kernel, which are refused here
            return None
        if not same_instructions(made, trace):
            return None
        return tuple(nearest(k, knobs.taken[k.name]) if k.name in knobs.taken else k.default for k in self.knobs)

    def _run(self, decisions: Mapping[str, Any], followed: Trace | None = None) -> tuple[Knobs, Trace]:
        """A run with decisions by the names of the knobs, or with those of a trace."""
        schedule = Schedule(self.program, intrinsics=self.intrinsics)
        knobs = Knobs(schedule, decisions, followed)
        self.function(knobs, schedule)
        return knobs, schedule.trace


__all__ = ["KINDS", "Function", "Knobs", "TemplateSketch"]
