"""Applies primitives by name and records the trace. References are recorded as slots, and slots are resolved on
replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weft.expr.linear import forget_many
from weft.expr.nodes import Expr
from weft.schedule.dependence import check_repeated_private, has_repeated
from weft.schedule.forms import checked
from weft.schedule.index_map import IndexMap
from weft.schedule.numbers import Sampled, SampledText, bare, computed
from weft.schedule.primitives.pipelining import check_pipelined
from weft.schedule.primitives.registry import PRIMITIVES
from weft.schedule.primitives.sampling import Drawn
from weft.schedule.primitives.sliding import check_not_kept
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.size_texts import SizeText, parse_sizes, text_of
from weft.schedule.state import State
from weft.schedule.threads import check_threads
from weft.schedule.trace import Formula, Instruction, Slot, Trace
from weft.support.errors import ScheduleError
from weft.support.words import did_you_mean
from weft.tir.nodes import Block

_SLOTTED = (BlockRef, LoopRef, Stay, Sampled, SampledText)


class Recorder:
    """The instructions so far, and the slot from which every reference came."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._by_identity: dict[int, tuple[str, Any]] = {}
        self._by_value: dict[BlockRef | LoopRef, str] = {}
        self._count = 0

    def copy(self) -> Recorder:
        made = Recorder()
        made.instructions = list(self.instructions)
        made._by_identity = dict(self._by_identity)
        made._by_value = dict(self._by_value)
        made._count = self._count
        return made

    @property
    def trace(self) -> Trace:
        return Trace(tuple(self.instructions))

    def apply(self, state: State, name: str, args: Mapping[str, Any], decision: Any = None) -> Any:
        """Run the primitive and, if it did not refuse, record it."""
        primitive = PRIMITIVES[name]
        given = checked(name, primitive.run, {**args, "decision": decision} if primitive.samples else args)
        decision = given.pop("decision", None) if primitive.samples else None
        recorded = tuple((key, self._encode(value, state)) for key, value in given.items())
        args = {key: bare(value) for key, value in given.items()}
        among = None
        state.running = name
        forget_many()
        if primitive.moves and state.kept:
            check_not_kept(state, _touched(state, args))
        trial = (
            state.copy()
            if state.pipelined or state.threaded or name == "bind" or (primitive.shares and has_repeated(state))
            else state
        )
        if primitive.samples:
            drawn = primitive.run(trial, **args, decision=decision)
            assert isinstance(drawn, Drawn)
            result, decision, among = drawn.value, drawn.decision, drawn.among
        else:
            result = primitive.run(trial, **args)
        if trial is not state:
            check_threads(trial)
            check_pipelined(trial, state.carried)
            if primitive.shares:
                check_repeated_private(trial, state)
            state.adopt(trial)
        self.instructions.append(Instruction(name, recorded, self._outputs(result), decision, among))
        return result

    def forget_unused(self) -> None:
        """Drop look-ups and sampling instructions whose results are unused, and renumber the slots."""
        trace, names = self.trace.used_only()
        self.instructions, self._count = list(trace.instructions), len(names)
        self._by_identity = {key: (names[n], v) for key, (n, v) in self._by_identity.items() if n in names}
        self._by_value = {ref: names[n] for ref, n in self._by_value.items() if n in names}

    def replay(self, state: State, trace: Trace) -> None:
        """Apply all instructions of ``trace`` to another program."""
        values: dict[str, Any] = {}
        for instruction in trace.instructions:
            if instruction.name not in PRIMITIVES:
                raise ScheduleError(
                    f"unknown primitive '{instruction.name}' in a trace",
                    code="S006",
                    hint=did_you_mean(instruction.name, PRIMITIVES, "docs/primitives.md lists all"),
                )
            try:
                args = {key: _resolve(value, values, state) for key, value in instruction.args}
                result = self.apply(state, instruction.name, args, instruction.decision)
            except (TypeError, ZeroDivisionError) as problem:
                raise ScheduleError(f"{instruction.name}: {problem}", code="S006") from problem
            found = _flat(result)
            if len(found) != len(instruction.outputs):
                raise ScheduleError(
                    f"{instruction.name} gave {len(found)} results where the trace has {len(instruction.outputs)}",
                    code="S006",
                    hint="the trace was made for another program",
                )
            values.update(zip(instruction.outputs, found, strict=True))

    def _outputs(self, result: Any) -> tuple[str, ...]:
        names: list[str] = []
        for value in _flat(result):
            letter = "b" if isinstance(value, BlockRef) else "l" if isinstance(value, LoopRef) else "v"
            slot = f"{letter}{self._count}"
            self._count += 1
            names.append(slot)
            self._by_identity[id(value)] = (slot, value)
            if isinstance(value, (BlockRef, LoopRef)):
                self._by_value.setdefault(value, slot)
        return tuple(names)

    def _encode(self, value: Any, state: State) -> Any:
        if isinstance(value, _SLOTTED):
            known = self._by_identity.get(id(value))
            if known is not None:
                return Slot(known[0])
            if isinstance(value, (BlockRef, LoopRef)) and value in self._by_value:
                return Slot(self._by_value[value])
            if isinstance(value, LoopRef):
                raise ScheduleError(
                    f"loop '{value.name}' does not come from this schedule", code="S002", hint="take it from get_loops"
                )
            return self._formula(value, state) if isinstance(value, Sampled) else bare(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._encode(v, state) for v in value)
        if isinstance(value, IndexMap):
            return value.with_numbers(lambda v: self._encode(v, state))
        if isinstance(value, Expr):
            return text_of(value, state.program.sizes)
        if isinstance(value, float) and math.isnan(value):
            return math.nan  # one object, so that equal traces compare equal
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise ScheduleError(f"a schedule cannot record {type(value).__name__} '{value}'", code="S004")

    def _formula(self, value: Sampled, state: State) -> Formula | int:
        """The formula that computes a number from sampled ones; the plain number if no sampled one comes from this
        schedule."""
        operands = tuple(self._encode(x, state) for x in value.operands)
        if all(isinstance(x, int) for x in operands):
            return int(value)
        return Formula(value.operation, operands)


def _touched(state: State, args: Mapping[str, Any]) -> list[Block]:
    """The blocks that a call names, or that are below a loop that it names."""
    if isinstance(args.get("block"), BlockRef):
        others = [b for b in args.get("others") or () if isinstance(b, BlockRef)]
        return [state.block(b) for b in (args["block"], *others)]
    loop = args.get("loop")
    return state.tree.blocks_under(state.loop(loop)) if isinstance(loop, LoopRef) else []


def _flat(result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, tuple) else [result]


def _resolve(value: Any, values: Mapping[str, Any], state: State) -> Any:
    if isinstance(value, Slot):
        if value.name not in values:
            raise ScheduleError(f"the trace uses '{value.name}' before defining it", code="S006")
        return values[value.name]
    if isinstance(value, tuple):
        return tuple(_resolve(v, values, state) for v in value)
    if isinstance(value, IndexMap):
        return value.with_numbers(lambda v: _resolve(v, values, state))
    if isinstance(value, Formula):
        return computed(value.operation, _resolve(value.operands, values, state))
    if isinstance(value, SizeText):
        return parse_sizes(value.text, state.program.sizes)
    return value
