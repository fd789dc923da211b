"""Arguments of everything in ``weft.te``, of ``weft.lower`` and ``weft.build``: a UserError, or something valid."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.support.errors import UserError
from weft.tir.nodes import Buffer

ODD: list[Any] = [
    None, "x", "float31", 3.5, -1, 0, 7, True, object(), [], (1, 2), (None,), [object()], np.int64(3), 2**70, {}, b"x",
    float("nan"), float("inf"), int, np.zeros(3), {"a": 1},
]  # fmt: skip


class Case:
    """A product, and valid arguments for every function, by the names of parameters."""

    def __init__(self) -> None:
        a, k = te.placeholder((4, 4), name="A"), te.reduce_axis((0, 4), "k")
        c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="C")
        whole, real = te.var("n"), te.placeholder((), name="r")()
        state, start = te.placeholder((4, 4), name="state"), te.compute((1, 4), lambda t, i: a[t, i], name="start")
        step = te.compute((4, 4), lambda t, i: state[t - 1, i] + a[t, i], name="step")
        larger = te.comm_reducer(lambda x, y: te.max(x, y), lambda t: te.min_value(t))
        self.good: dict[str, Any] = {
            "shape": (4, 4), "fn": lambda i, j: a[i, j], "dtype": "float32", "name": "T", "dom": (0, 4), "expr": real,
            "axis": k, "condition": whole > 2, "then": real, "otherwise": 0.0, "init": start, "update": step,
            "state": state, "inputs": [a], "value": whole, "base": a, "extents": (4,), "count": 2, "size": 4,
            "before": lambda p, q, i: p < q, "x": whole, "y": whole, "z": whole, "a": whole, "b": whole,
            "operands": whole, "tag": "threadIdx.x", "outputs": c, "output": c, "lowering": lambda *_: None,
            "fcombine": lambda p, q: p + q, "fidentity": lambda t: te.const(0, t), "schedule": te.create_schedule(c.op),
            "args": [a, c], "target": "llvm",
        }  # fmt: skip
        self.special: dict[str, dict[str, Any]] = {
            "extern": {"fn": lambda ins, outs: None},
            "update": {"fn": lambda s, i: ((i, i), 1.0)},
            "named_reducer": {"name": "sum"},
            "decl_tensor_intrin": {"inputs": [a]},
            "all": {"operands": whole > 2},
            "any": {"operands": whole > 2},
            "const": {"value": 2.5},
            "reinterpret": {"x": real},
            "thread_axis": {"tag": "threadIdx.x", "dom": (0, 4)},
            "logical_not": {"a": whole > 2},
            "call": {"name": "pow", "args": real},
            "ldexp": {"x": real, "power": whole},
            "extern_function": {"name": "memcpy"},
            "call_extern": {"result": "void", "function": "memcpy", "args": whole},
            "call_packed": {"function": lambda *_: None, "args": Buffer("P", (), "float32")},
        }
        self.larger = larger


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(te, name) for name in dir(te) if inspect.isfunction(getattr(te, name))
}
FUNCTIONS |= {"weft.lower": weft.lower, "weft.build": weft.build}


def arguments(case: Case, function: str, parameters: list[inspect.Parameter], changed: str, value: Any) -> Any:
    known = {**case.good, **case.special.get(function, {}), changed: value}
    row: list[Any] = []
    named: dict[str, Any] = {}
    for p in parameters:
        special = case.special.get(function, {})
        wanted = p.default is p.empty or p.name == changed or p.name in special
        given = known[p.name] if p.name in known and wanted else p.default
        if p.kind is p.VAR_POSITIONAL:
            row += [given, known[p.name]] if p.name != changed else [given, value]
        elif p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            row.append(given)
        elif p.name == changed or p.name in special:
            named[p.name] = given
    return row, named


@pytest.mark.parametrize("name", FUNCTIONS)
def test_whatever_is_given(name: str) -> None:
    function = FUNCTIONS[name]
    parameters = list(inspect.signature(function).parameters.values())
    failures = []
    for p in parameters:
        for value in ODD:
            case = Case()
            row, named = arguments(case, name, parameters, p.name, value)
            try:
                function(*row, **named)
            except UserError:
                continue
            except Exception as e:  # each of them is a failure
                failures.append(f"{p.name}={value!r}: {type(e).__name__}: {e}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_good_arguments_are_taken(name: str) -> None:
    """Otherwise the test above might check the same refusal again and again."""
    function = FUNCTIONS[name]
    row, named = arguments(Case(), name, list(inspect.signature(function).parameters.values()), "", None)
    function(*row, **named)
