"""A schedule as data: the list of primitives that were applied, with their inputs, options and decisions.

A :class:`Trace` serializes to JSON, prints as runnable Python and is replayed on a fresh program by
``Schedule.replay``. References appear as slots: ``b0`` for a block, ``l3`` for a loop, ``v1`` for a sampled number.
Numbers computed from slots appear as formulas. Intrinsics appear by name. Each sampling instruction carries its
decision, so that replay repeats the decision and search can change it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Final

from weft.schedule.index_map import IndexMap
from weft.schedule.numbers import OPERATIONS
from weft.schedule.primitives.registry import PRIMITIVES
from weft.schedule.primitives.sampling import factorizations
from weft.schedule.refs import BlockRef
from weft.schedule.size_texts import SizeText
from weft.support.errors import MALFORMED, ScheduleError
from weft.support.html import TextInNotebooks

FORMAT_VERSION = 2
MAX_PERMUTED_LOOPS: Final = 5
"""Limit on the number of loops for which all orders are candidates. For more loops, the candidates swap two loops."""
MAX_ARGUMENT_DEPTH: Final = 100
"""Limit on the nesting depth of tuples and formulas in one argument."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A result of an earlier instruction, by name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Formula:
    """A number computed from slots. ``operation`` is a name in :data:`~weft.schedule.numbers.OPERATIONS`."""

    operation: str
    operands: tuple[Any, ...]

    def __repr__(self) -> str:
        return OPERATIONS[self.operation].text.format(*self.operands)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One applied primitive. ``args`` are pairs of name and value; values may hold slots, formulas, numbers, strings,
    tuples and index maps."""

    name: str
    args: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...] = ()
    decision: Any = None
    among: int | None = None
    """For a sampling instruction whose arguments do not determine the possible decisions: the missing number, which is
    the extent to factor or the number of loops."""

    def to_python(self) -> str:
        """The instruction as a statement on a schedule ``s``."""
        primitive = PRIMITIVES.get(self.name)
        variadic = primitive.variadic if primitive is not None else None
        parts: list[str] = []
        for position, (key, value) in enumerate(self.args):
            if key == variadic:
                parts.extend(map(_python, value))
            elif position == 0:
                parts.append(_python(value))
            elif value is not None:
                parts.append(f"{key}={_python(value)}")
        if self.decision is not None:
            parts.append(f"decision={_python(self.decision)}")
        call = f"s.{self.name}({', '.join(parts)})"
        if not self.outputs:
            return call
        comma = "," if len(self.outputs) == 1 and primitive is not None and primitive.returns_tuple else ""
        return f"{', '.join(self.outputs)}{comma} = {call}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the sampling instruction at ``position`` of a trace, and the alternatives."""

    position: int
    name: str
    candidates: tuple[Any, ...]
    """The decisions that ``Trace.with_decision`` accepts. Changing an earlier decision may change the candidates of
    later ones."""
    values: tuple[Any, ...]
    """The meaning of each candidate: for a choice the chosen number or text, otherwise the candidate itself."""
    decision: Any


@dataclass(frozen=True, slots=True)
class Trace(TextInNotebooks):
    """The instructions of a schedule, in order."""

    instructions: tuple[Instruction, ...] = ()

    def __len__(self) -> int:
        return len(self.instructions)

    def __str__(self) -> str:
        return self.to_python()

    @property
    def intrinsics(self) -> tuple[str, ...]:
        """Names of the tensor intrinsics that replay may need, for any decisions."""
        choices = {o: dict(i.args).get("candidates", ()) for i in self.instructions for o in i.outputs}
        named = [value for i in self.instructions for key, value in i.args if key == "intrinsic"]
        found = (name for v in named for name in (choices.get(v.name, ()) if isinstance(v, Slot) else (v,)))
        return tuple(dict.fromkeys(map(str, found)))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decisions of the sampling instructions, in order."""
        return tuple(
            Decision(n, i.name, *_candidates(i), decision=i.decision)
            for n, i in enumerate(self.instructions)
            if i.decision is not None
        )

    def with_decision(self, position: int, decision: Any) -> Trace:
        """A copy of the trace in which the sampling instruction at ``position`` has another decision."""
        made = list(self.instructions)
        if not 0 <= position < len(made) or made[position].decision is None:
            what = f"({made[position].name}) " if 0 <= position < len(made) else ""
            raise ScheduleError(
                f"instruction {position} {what}takes no decision",
                code="S005",
                hint="only sampling instructions decide: see Trace.decisions",
            )
        made[position] = dataclasses.replace(made[position], decision=decision)
        return Trace(tuple(made))

    def used_only(self) -> tuple[Trace, dict[str, str]]:
        """The trace without look-ups and sampling instructions whose results are unused, and with its slots renumbered
        in order. Also a map from the old name of each remaining slot to its new name."""
        used: set[str] = set()
        kept: list[Instruction] = []
        for instruction in reversed(self.instructions):
            primitive = PRIMITIVES.get(instruction.name)
            free = primitive is not None and (primitive.looks_up or primitive.samples)
            if free and used.isdisjoint(instruction.outputs):
                continue
            used.update(slot.name for _, value in instruction.args for slot in _slots(value))
            kept.append(instruction)
        names = {old: f"{old[0]}{n}" for n, old in enumerate(o for i in reversed(kept) for o in i.outputs)}
        made = [
            dataclasses.replace(
                i,
                args=tuple((key, _renamed(value, names)) for key, value in i.args),
                outputs=tuple(names[o] for o in i.outputs),
            )
            for i in reversed(kept)
        ]
        return Trace(tuple(made)), names

    def to_python(self) -> str:
        """Runnable Python: the imports that the statements need, then statements on a schedule named ``s``. Intrinsics
        that are not built in must have been declared to that schedule."""
        lines = [i.to_python() for i in self.instructions]
        names = [n for n in ("IndexMap.of", "maximum", "minimum") if any(f"{n}(" in line for line in lines)]
        imported = ", ".join(n.removesuffix(".of") for n in names)
        return "\n".join([f"from weft.schedule import {imported}", *lines] if names else lines)

    def to_json(self) -> str:
        """One line of JSON; :meth:`from_json` reads it back."""
        rows = [
            {
                "name": i.name,
                "args": {k: _encode(v) for k, v in i.args},
                "outputs": list(i.outputs),
                **({} if i.decision is None else {"decision": _encode(i.decision)}),
                **({} if i.among is None else {"among": i.among}),
            }
            for i in self.instructions
        ]
        return json.dumps({"version": FORMAT_VERSION, "instructions": rows}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read the output of :meth:`to_json`. Raises ``ScheduleError`` (S006) for any other text."""
        try:
            data = json.loads(text)
            if data["version"] != FORMAT_VERSION:
                raise ValueError(f"format version {data['version']} is not {FORMAT_VERSION}")
            rows = tuple(
                Instruction(
                    str(row["name"]),
                    tuple((str(k), _decode(v)) for k, v in row["args"].items()),
                    tuple(map(str, row["outputs"])),
                    _decode(row.get("decision")),
                    None if row.get("among") is None else int(row["among"]),
                )
                for row in data["instructions"]
            )
        except MALFORMED as problem:
            raise ScheduleError(f"this is not a schedule trace: {problem}", code="S006") from problem
        return cls(rows)


def _candidates(i: Instruction) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The decisions that an instruction may take, and the value that each stands for."""
    args = dict(i.args)
    found: tuple[Any, ...] = (i.decision,)
    if i.name == "sample_choice":
        values = args["candidates"]
        return tuple(range(len(values))), values
    if i.name == "sample_location" and i.among is not None:
        found = tuple(range(0 if "loops" in args else -1, i.among))
    elif i.name == "sample_order":
        count = len(args["loops"])
        found = tuple(permutations(range(count))) if count <= MAX_PERMUTED_LOOPS else _swapped(count)
    elif i.name == "sample_tile" and i.among is not None:
        parts, most = args["parts"], args["innermost_at_most"]
        if isinstance(parts, int) and isinstance(most, int):
            found = factorizations(i.among, parts, most)
    return found, found


def _swapped(count: int) -> tuple[tuple[int, ...], ...]:
    """The numbers below ``count`` in order, then every order in which two of them are swapped."""
    orders = [tuple(range(count))]
    for a, b in combinations(range(count), 2):
        order = list(range(count))
        order[a], order[b] = b, a
        orders.append(tuple(order))
    return tuple(orders)


def _slots(value: Any) -> Iterator[Slot]:
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from _slots(v)
    elif isinstance(value, Formula):
        yield from _slots(value.operands)
    elif isinstance(value, IndexMap):
        yield from _slots(tuple(number for _, number in value.numbers))


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Slot):
        return Slot(names[value.name])
    if isinstance(value, tuple):
        return tuple(_renamed(v, names) for v in value)
    if isinstance(value, Formula):
        return Formula(value.operation, _renamed(value.operands, names))
    return value.with_numbers(lambda v: _renamed(v, names)) if isinstance(value, IndexMap) else value


def _encode(value: Any) -> Any:
    if isinstance(value, Slot):
        return {"slot": value.name}
    if isinstance(value, Formula):
        return {"formula": value.operation, "of": [_encode(v) for v in value.operands]}
    if isinstance(value, BlockRef):
        return {"block": value.name}
    if isinstance(value, SizeText):
        return {"size": value.text}
    if isinstance(value, IndexMap):
        inputs, outputs, numbers = value.texts()
        named = {"numbers": {k: _encode(v) for k, v in numbers.items()}} if numbers else {}
        return {"index_map": {"inputs": inputs, "outputs": outputs, **named}}
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ScheduleError(f"a trace cannot hold {type(value).__name__} '{value}'", code="S006")


def _decode(value: Any, depth: int = 0) -> Any:
    if depth > MAX_ARGUMENT_DEPTH:
        raise ValueError("an argument is nested too deeply")
    if isinstance(value, list):
        return tuple(_decode(v, depth + 1) for v in value)
    if not isinstance(value, dict):
        return value
    if "slot" in value:
        return Slot(str(value["slot"]))
    if "block" in value:
        return BlockRef(str(value["block"]))
    if "size" in value:
        return SizeText(str(value["size"]))
    if "float" in value:
        return math.nan if value["float"] == "nan" else float(value["float"])
    if "formula" in value:
        operation = OPERATIONS[value["formula"]]
        operands = _decode(value["of"], depth + 1)
        if len(operands) != operation.text.count("{}") or not all(
            isinstance(v, (int, Slot, Formula)) for v in operands
        ):
            raise ValueError(f"'{value['formula']}' does not take {len(operands)} operands of this kind")
        return Formula(str(value["formula"]), operands)
    found = value["index_map"]
    numbers = {str(k): _decode(v, depth + 1) for k, v in found.get("numbers", {}).items()}
    return IndexMap.from_texts(found["inputs"], found["outputs"], numbers)


def _python(value: Any) -> str:
    if isinstance(value, BlockRef):
        return repr(value.name)
    if isinstance(value, IndexMap):
        inputs, outputs, numbers = value.texts()
        comma = "," if len(outputs) == 1 else ""
        function = f"lambda {', '.join((*inputs, *numbers))}: ({', '.join(outputs)}{comma})"
        named = "".join(f", {name}={_python(number)}" for name, number in numbers.items())
        return f"IndexMap.of({function}{named})" if numbers else function
    if isinstance(value, tuple):
        inner = ", ".join(_python(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Formula):
        text = repr(value)
        return text[1:-1] if text.startswith("(") else text
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)
