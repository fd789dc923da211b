"""Instructions with parameters of shape (): any value that is the same in the whole tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.expr.nodes import Load, Var
from weft.support.errors import ScheduleError
from weft.tir.nodes import For, Stmt, Store

LANES = 16


def axpy() -> Any:
    alpha = te.var("a", "float32")
    x, y = te.placeholder((LANES,), name="x"), te.placeholder((LANES,), name="y")
    out = te.compute((LANES,), lambda i: alpha * x[i] + y[i], name="o")

    def call(inputs: Any, output: Any) -> Stmt:
        a, x, y = inputs
        i = Var("i", "int64")
        value = Load(a, ()) * Load(x, (i,)) + Load(y, (i,))
        return For(i, te.const(0, "int64"), te.const(LANES, "int64"), Store(output, (i,), value))

    return te.decl_tensor_intrin(out, call, "axpy")


class Case:
    def __init__(self, factor: Callable[..., Any], added: bool = False) -> None:
        n, self.alpha = te.var("n"), te.var("alpha", "float32")
        self.x, self.y = te.placeholder((n, LANES), name="X"), te.placeholder((n, LANES), name="Y")
        self.rows = te.placeholder((n,), name="S")
        self.p = te.compute((n, LANES), lambda i, j: self.x[i, j] + 1.0, name="P") if added else self.x
        self.z = te.compute((n, LANES), lambda i, j: factor(self, i, j) * self.p[i, j] + self.y[i, j], name="Z")
        self.s = te.create_schedule(self.z.op)

    def check(self, wanted: Callable[..., Any]) -> None:
        f = weft.build(self.s, [self.alpha, self.rows, self.x, self.y, self.z])
        assert "tensorized" in f.loops
        rng = np.random.default_rng(0)
        rows = rng.integers(-3, 4, (3,)).astype(np.float32)
        x, y = rng.integers(-3, 4, (2, 3, LANES)).astype(np.float32)
        np.testing.assert_array_equal(f(2.0, rows, x, y), wanted(rows[:, None]) * (x + (self.p is not self.x)) + y)


SCALARS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "argument": (lambda c, i, j: c.alpha, lambda rows: 2.0),
    "element": (lambda c, i, j: c.rows[i], lambda rows: rows),
    "constant": (lambda c, i, j: te.const(2.5), lambda rows: 2.5),
    "expression": (lambda c, i, j: c.rows[i] * c.alpha + 1.0, lambda rows: rows * 2 + 1),
    "position": (lambda c, i, j: te.cast(i, "float32"), lambda rows: np.arange(3)[:, None]),
}


@pytest.mark.parametrize("name", SCALARS)
def test_what_a_scalar_stands_for(name: str) -> None:
    given, wanted = SCALARS[name]
    case = Case(given)
    case.s[case.z].tensorize(case.z.op.axis[1], axpy())
    case.check(wanted)


@pytest.mark.parametrize(
    "given",
    [lambda c, i, j: c.x[i, j], lambda c, i, j: te.cast(j, "float32")],
    ids=["element of the tile", "position in the tile"],
)
def test_what_differs_inside_of_the_tile_is_refused(given: Callable[..., Any]) -> None:
    case = Case(given)
    with pytest.raises(ScheduleError, match="S081"):
        case.s[case.z].tensorize(case.z.op.axis[1], axpy())


def test_two_values_for_one_scalar_are_refused() -> None:
    a = te.var("a", "float32")
    x = te.placeholder((LANES,), name="x")
    out = te.compute((LANES,), lambda i: (x[i] + a) * a, name="o")
    twice = te.decl_tensor_intrin(
        out, lambda inputs, output: Store(output, (te.const(0, "int64"),), te.const(0.0)), "t"
    )
    b, c = te.var("b", "float32"), te.var("c", "float32")
    big = te.placeholder((4, LANES), name="X")
    z = te.compute((4, LANES), lambda i, j: (big[i, j] + b) * c, name="Z")
    s = te.create_schedule(z.op)
    with pytest.raises(ScheduleError, match="'a' would stand for two values"):
        s[z].tensorize(z.op.axis[1], twice)


def test_declarations_after_tensorize() -> None:
    """The stage keeps its other axes, and producers find their place in them."""
    case = Case(lambda c, i, j: c.alpha, added=True)
    s, z = case.s, case.z
    s[z].tensorize(z.op.axis[1], axpy())
    outer, inner = s[z].split(z.op.axis[0], 4)
    s[case.p].compute_at(s[z], inner)
    s[z].parallel(outer)
    case.check(lambda rows: 2.0)


def test_declarations_after_tensorize_of_a_cache() -> None:
    case = Case(lambda c, i, j: c.alpha, added=True)
    s, z = case.s, case.z
    cached = s.cache_write(z, "global")
    s[cached].compute_at(s[z], z.op.axis[0])
    s[cached].tensorize(cached.op.axis[1], axpy())
    s[z].vectorize(z.op.axis[1])
    s[case.p].compute_at(s[cached], cached.op.axis[0])
    case.check(lambda rows: 2.0)
