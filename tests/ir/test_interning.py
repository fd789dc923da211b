"""Equal expressions are one object, also when threads build them at once."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from weft.expr.nodes import Const, Expr, Load, Var
from weft.support.dtypes import DType


def test_equal_is_identical() -> None:
    i = Var("i")
    assert (i + 1) * 2 is (i + 1) * 2
    assert Const(1) is not Const(1, "int32")
    assert Const(0.0, "float32") is not Const(-0.0, "float32")
    assert Const(float("nan"), "float32") is Const(-float("nan"), "float32")
    assert Const(300, "uint8") is Const(44, "uint8")
    assert Var("i") is not Var("i")
    assert DType("f32") is DType("float32")


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="missing the argument 'indices'"):
        Load(None)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="takes 2 arguments"):
        Const(1, "int32", 3)  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="no argument kind"):
        Const(1, kind=3)  # type: ignore[call-arg]


def test_threads_get_the_same_objects() -> None:
    i, start = Var("i"), Barrier(4)

    def build(_: int) -> list[Expr]:
        start.wait()
        return [i * k + k for k in range(2000, 2400)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(build, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert all(a is b for other in made[1:] for a, b in zip(made[0], other, strict=True))


def test_pickled_expressions_are_interned_again() -> None:
    x = Var("x")
    y, both = pickle.loads(pickle.dumps((x, (x + 1) * Const(-0.0, "float32").astype("int64"))))
    assert y is not x and both is (y + 1) * Const(-0.0, "float32").astype("int64")
