"""A schedule as data: the list of primitives that were applied, with their inputs, options and decisions.

A :class:`Trace` serializes to JSON, prints as runnable Python and is replayed on a fresh program by
``Schedule.replay``. References appear as slots: ``b0`` for a block, ``l3`` for a loop, ``v1`` for a sampled number.
Sampling instructions carry their decision, so that replay repeats it and search can mutate it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.schedule.index_map import IndexMap
from weft.schedule.refs import BlockRef
from weft.support.errors import ScheduleError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Slot:
    """A result of an earlier instruction, by name."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Instruction:
    """One applied primitive. ``args`` are by name and may hold slots, numbers, strings, tuples and index maps."""

    name: str
    args: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...] = ()
    decision: Any = None

    def to_python(self, variadic: str | None = None) -> str:
        """The instruction as a statement on a schedule ``s``."""
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
        comma = "," if len(self.outputs) == 1 and self.name in _RETURNS_TUPLE else ""
        return f"{', '.join(self.outputs)}{comma} = {call}"


_RETURNS_TUPLE = frozenset(
    ("get_blocks", "get_loops", "get_producers", "get_consumers", "split", "partition", "sample_tile")
)


@dataclass(frozen=True, slots=True)
class Trace:
    """The instructions of a schedule, in order."""

    instructions: tuple[Instruction, ...] = ()
    variadic: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.instructions)

    def with_decision(self, position: int, decision: Any) -> Trace:
        """A trace whose instruction at ``position`` (a sampling one) decides differently."""
        made = list(self.instructions)
        if made[position].decision is None:
            raise ScheduleError(
                f"instruction {position} ({made[position].name}) takes no decision",
                code="S005",
                hint="only sampling instructions decide",
            )
        made[position] = dataclasses.replace(made[position], decision=decision)
        return dataclasses.replace(self, instructions=tuple(made))

    def to_python(self) -> str:
        """Runnable Python: statements on a schedule named ``s``."""
        return "\n".join(i.to_python(self.variadic.get(i.name)) for i in self.instructions)

    def to_json(self) -> str:
        """One line of JSON; :meth:`from_json` reads it back."""
        rows = [
            {
                "name": i.name,
                "args": {k: _encode(v) for k, v in i.args},
                "outputs": list(i.outputs),
                **({} if i.decision is None else {"decision": _encode(i.decision)}),
            }
            for i in self.instructions
        ]
        return json.dumps({"version": FORMAT_VERSION, "instructions": rows})

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Read what :meth:`to_json` wrote. Raises ``ScheduleError`` (S006) for anything else."""
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
                )
                for row in data["instructions"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ScheduleError(f"this is not a schedule trace: {problem}", code="S006") from problem
        return cls(rows)


def _encode(value: Any) -> Any:
    if isinstance(value, Slot):
        return {"slot": value.name}
    if isinstance(value, BlockRef):
        return {"block": value.name}
    if isinstance(value, IndexMap):
        inputs, outputs = value.texts()
        return {"index_map": {"inputs": inputs, "outputs": outputs}}
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ScheduleError(f"a trace cannot hold {type(value).__name__} '{value}'", code="S006")


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if "slot" in value:
            return Slot(str(value["slot"]))
        if "block" in value:
            return BlockRef(str(value["block"]))
        return IndexMap.from_texts(value["index_map"]["inputs"], value["index_map"]["outputs"])
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    return value


def _python(value: Any) -> str:
    if isinstance(value, BlockRef):
        return repr(value.name)
    if isinstance(value, IndexMap):
        inputs, outputs = value.texts()
        comma = "," if len(outputs) == 1 else ""
        return f"lambda {', '.join(inputs)}: ({', '.join(outputs)}{comma})"
    if isinstance(value, tuple):
        inner = ", ".join(_python(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
