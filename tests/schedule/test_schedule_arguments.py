"""Arguments of every primitive, in both notations: whatever is given, a ScheduleError or a valid program results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.text import to_text
from weft.tir.verify import verify

ODD: list[Any] = [
    None, "x", "global", 3.5, -1, 0, 7, True, object(), [], (1, 2), np.int64(0), 2**70, len, lambda *a: a, {}, b"x",
    float("nan"),
]  # fmt: skip


class Case:
    """A product and a stage after it, and valid arguments."""

    def __init__(self) -> None:
        a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
        k = te.reduce_axis((0, 16), "k")
        c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        d = te.compute((16, 16), lambda i, j: c[i, j] + 1.0, name="D")
        self.args, self.classic = [a, b, d], te.create_schedule(d.op)
        self.stage, self.blocks = self.classic[c], self.classic.schedule
        i, j, sums = self.blocks.get_loops("C")
        row = self.blocks.get_loops("D")[0]
        self.good: dict[str, Any] = {
            "axis": i, "axes": i, "loop": i, "loops": i, "y": i, "x": j, "target": i, "y_factor": 4, "x_factor": 4,
            "factor": 4, "thread": "threadIdx.x", "parent": self.classic[d], "scope": "local", "key": "note",
            "dimension": 0, "buffer": "A", "index_map": lambda i, j: (j, i), "block": "C", "read_index": 0,
            "write_index": 0, "name": "C", "padding": (4, 4, 4), "intrinsic": "unknown", "stages": (0,), "order": (0,),
            "parts": 2, "candidates": (1, 2), "at": 2, "readers": [d], "outputs": [d], "trace": self.blocks.trace,
            "condition": i.var == 0,
        }  # fmt: skip
        self.special: dict[str, dict[str, Any]] = {
            "compute_at": {"loop": row, "axis": row}, "reverse_compute_at": {"loop": row, "block": "D"},
            "rfactor": {"loop": sums, "axis": 0, "key": c}, "decompose_reduction": {"loop": sums},
            "storage_align": {"axis": 0}, "fold_storage": {"axis": 0}, "cache_write": {"key": c},
            "cache_read": {"key": a}, "buffer_name": {"key": c},
        }  # fmt: skip

    def arguments(self, method: str, parameters: list[inspect.Parameter], changed: str, value: Any) -> Any:
        known = {**self.good, **self.special.get(method, {}), changed: value}
        row, named = [], {}
        for p in parameters:
            given = known.get(p.name, None if p.default is p.empty else p.default)
            if p.kind is p.VAR_POSITIONAL:
                row += [given, given] if p.name != changed else [given]
            elif p.kind is p.KEYWORD_ONLY:
                named[p.name] = given
            else:
                row.append(given)
        return row, named


def methods(kind: type, *without: str) -> list[str]:
    return [n for n, f in inspect.getmembers(kind, inspect.isfunction) if not n.startswith("_") and n not in without]


CLASSIC = te.create_schedule(te.compute((1,), lambda i: te.const(0.0, "float32")).op)
PLACES: dict[str, Callable[[Case], Any]] = {
    "stage": lambda case: case.stage,
    "classic": lambda case: case.classic,
    "blocks": lambda case: case.blocks,
}
KINDS: dict[str, type] = {"stage": type(CLASSIC[CLASSIC.outputs[0]]), "classic": type(CLASSIC), "blocks": Schedule}
METHODS = [(place, name) for place, kind in KINDS.items() for name in methods(kind)]


@pytest.mark.parametrize("place, method", METHODS, ids=[".".join(m) for m in METHODS])
def test_whatever_is_given(place: str, method: str) -> None:
    parameters = list(inspect.signature(getattr(KINDS[place], method)).parameters.values())[1:]
    for p in parameters:
        for value in ODD:
            case = Case()
            row, named = case.arguments(method, parameters, p.name, value)
            before = case.blocks.program
            try:
                getattr(PLACES[place](case), method)(*row, **named)
            except ScheduleError as refusal:
                assert refusal.code != "S001"
                if method != "tile":  # a composition: its first split may be accepted
                    assert case.blocks.program is before
                continue
            verify(case.blocks.program)
            assert to_text(weft.lower(case.classic, case.args).program)


def test_errors_for_wrong_arguments_show_the_signature() -> None:
    s = Case().blocks
    with pytest.raises(ScheduleError) as caught:
        s.split(s.get_loops("C")[0], factor="x")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "error[S004] split: 'factors' must be a row, each of which is a whole number or an expression of sizes or None,"
        " not (None, 'x')\n"
        "  = split(loop, factors)"
    )
    with pytest.raises(ScheduleError, match="'loop' must be a loop, not 'i'\n  = take loops from get_loops"):
        s.parallel("i")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="'write_index' must be a whole number, not True"):
        s.cache_write("C", True, "local")


def test_numbers_of_numpy_are_numbers() -> None:
    s = Case().blocks
    outer, inner = s.split(s.get_loops("C")[0], factor=np.int64(4))  # type: ignore[arg-type]
    s.annotate(outer, "note", np.float32(0.5))
    again = Schedule(Case().blocks.program).replay(type(s.trace).from_json(s.trace.to_json()))
    assert to_text(again.program) == to_text(s.program)
    assert inner.name == "i_1"
