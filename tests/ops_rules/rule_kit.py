"""Building blocks of the tests of rewrite rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, GraphExpr, Module, Var, call
from weft.graph.operator import Operator
from weft.graph.passes.rewrite import Rewrite
from weft.graph.pattern import GraphRule
from weft.graph.verify import verify
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.ops.rules import SIMPLIFY_RULES

RULES = {rule.name: rule for rule in SIMPLIFY_RULES}
_rng = np.random.default_rng(7)


def o(name: str, *args: GraphExpr, **attrs: Any) -> GraphExpr:
    """A call of an operator by name; Python numbers become scalars of the first operand's dtype."""
    first = next(a for a in args if isinstance(a, GraphExpr))
    given = [a if isinstance(a, GraphExpr) else k(a, first.tensor.dtype) for a in args]
    return call(op(name), given, attrs)


def x(*shape: Any, dtype: str = "float32", name: str = "x") -> Var:
    return build.var(name, shape, dtype)


def k(value: Any, dtype: str = "float32") -> GraphExpr:
    """A constant."""
    return build.constant(np.asarray(value), dtype)


def r(*shape: int, low: float = 0.5, high: float = 1.5, dtype: str = "float32") -> GraphExpr:
    """A constant of random values."""
    return build.constant(_rng.uniform(low, high, shape), dtype)


@dataclass(frozen=True)
class Case:
    """``body`` must change by the rule alone, and have ``result`` as operators afterwards (None: whatever)."""

    rule: str
    body: GraphExpr
    result: str | None = None
    low: float = -2.0
    high: float = 2.0
    special: bool = False


def operators(function: Function) -> str:
    """Names of the operators called, in order of execution."""
    calls = [e for e in post_order(function) if isinstance(e, Call) and isinstance(e.target, Operator)]
    return " ".join(c.target.name for c in calls)  # type: ignore[union-attr]


def rewritten(body: GraphExpr, *rules: GraphRule) -> tuple[Function, Function]:
    """The function of ``body`` before and after."""
    before = build.function(None, body)
    module = Rewrite(rules or SIMPLIFY_RULES).run(Module.of(before))
    verify(module)
    return before, module.main


def inputs(function: Function, low: float, high: float, special: bool) -> list[np.ndarray]:
    """Random inputs; ``special``: with infinities, NaN, zeros of both signs and huge numbers among them."""
    made = []
    for p in function.params:
        shape, dtype = p.tensor.shape, p.tensor.dtype
        values = _rng.uniform(low, high, shape) if dtype.is_float else _rng.integers(-3, 4, shape)
        data = np.asarray(values).astype(dtype.numpy)
        if special and dtype.is_float:
            flat = data.reshape(-1)
            extremes = [np.inf, -np.inf, np.nan, 0.0, -0.0, 6e4, 1e30, -1e30][: 6 if dtype.bits < 32 else flat.size]
            flat[: len(extremes)] = extremes
        made.append(data)
    return made


def agree(before: Function, after: Function, low: float = -2.0, high: float = 2.0, special: bool = False) -> None:
    """Both give the same, up to rounding."""
    given = inputs(before, low, high, special)
    with np.errstate(all="ignore"):
        want, got = run(before, given), run(after, given)
    want, got = (v if isinstance(v, tuple) else (v,) for v in (want, got))
    for a, b in zip(want, got, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)
            if special:
                np.testing.assert_array_equal(np.signbit(b)[a == 0], np.signbit(a)[a == 0])
        else:
            np.testing.assert_array_equal(b, a)
