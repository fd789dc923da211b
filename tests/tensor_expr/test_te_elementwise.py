"""Functions of numbers on whole tensors give what the stage that computes them element by element gives."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.support.errors import UserError
from weft.tensor_expr import elementwise
from weft.tensor_expr.text import parse, to_text
from weft.tensor_expr.verify import verify
from weft.tir.interpret import run

BITS = ("bitnot", "popcount", "clz", "bitand", "bitor", "bitxor", "shl", "shr")
NO_FUNCTIONS = ("elementwise", "of_tensors", "checked", "overload", "wraps")
SPECIAL = ("cast", "reinterpret", "call", "if_then_else", "select", "fma", "logical_not", "likely", "ldexp")
FUNCTIONS = sorted(
    name
    for name, made in vars(elementwise).items()
    if inspect.isfunction(made) and not name.startswith("_") and name not in (*NO_FUNCTIONS, *SPECIAL)
)
rng = np.random.default_rng(0)


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Values at which every function is defined, from 1 on."""
    return (1 + rng.integers(0, 5, shape)).astype(dtype)


def agrees(fn: Callable[..., Any], *arrays: np.ndarray[Any, Any], compiled: bool = False) -> te.Tensor:
    """``fn`` of tensors, with the results of ``fn`` of their elements; shapes are those to which NumPy broadcasts."""
    tensors = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    whole = fn(*tensors)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    wide = [np.broadcast_to(a, shape).copy() for a in arrays]
    each = [te.placeholder(shape, t.dtype, name=t.name) for t in tensors]
    single = te.compute(shape, lambda *i: fn(*(t[i] if i else t() for t in each)), name="single")
    assert tuple(int(e.value) for e in whole.shape) == shape
    assert whole.dtype == single.dtype
    verify([whole], tensors)
    wanted = run(te_to_tir("single", each, [single]), wide)[0]
    np.testing.assert_array_equal(run(te_to_tir("whole", tensors, [whole]), list(arrays))[0], wanted)
    text = to_text([whole], tensors)
    inputs, outputs = parse(text)
    assert to_text(outputs, inputs) == text
    if compiled:
        got = weft.build(te.create_schedule(whole.op), [*tensors, whole])(*arrays)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    return whole


def test_every_function_is_in_te() -> None:
    assert len(FUNCTIONS) > 40
    for name in (*FUNCTIONS, *SPECIAL):
        assert getattr(te, name) is getattr(elementwise, name)
        assert name in te.__all__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_whole_tensors(name: str) -> None:
    fn = getattr(te, name)
    dtype = "int32" if name in BITS else "float32"
    count = len(inspect.signature(fn).parameters)
    agrees(fn, *(drawn((2, 3), dtype) for _ in range(count)))
    if count == 2:
        agrees(fn, drawn((2, 1), dtype), drawn((3,), dtype))
        agrees(lambda x: fn(x, 2 if dtype == "int32" else 2.0), drawn((5,), dtype))
        agrees(lambda x: fn(2 if dtype == "int32" else 2.0, x), drawn((5,), dtype))


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "cast": (lambda a: te.cast(a, "int8"), ((4, 3),)),
    "astype": (lambda a: a.astype("float64"), ((4, 3),)),
    "reinterpret": (lambda a: te.reinterpret(a, dtype="int32"), ((4, 3),)),
    "call": (lambda a, b: te.call("pow", a, b), ((4, 1), (3,))),
    "if_then_else": (lambda a, b: te.if_then_else(a > b, a, b * 2.0), ((4, 1), (1, 3))),
    "if_then_else of scalars": (lambda a: te.if_then_else(a > 2.0, 1.0, -1.0), ((7,),)),
    "by keyword": (lambda a, b: te.if_then_else(otherwise=b, condition=a > b, then=a), ((2, 3), (2, 3))),
    "select": (lambda a, b: te.select(te.logical_not(a > b), a, b), ((4, 1), (1, 3))),
    "fma": (lambda a, b: te.fma(a, b, 1.0), ((3,), (2, 3))),
    "likely": (lambda a: te.likely(a > 2.0), ((3,),)),
    "ldexp": (lambda a: te.ldexp(a, 3), ((3,),)),
    "one function of another": (lambda a, b: te.exp(-te.maximum(a, b)) + te.sqrt(a), ((2, 1), (3,))),
    "rank 0": (lambda a: te.exp(a), ((),)),
    "rank 0 and rank 2": (lambda a, b: te.minimum(a, b), ((), (2, 3))),
    "no elements": (lambda a, b: te.maximum(a, b), ((0, 3), (1, 3))),
}


@pytest.mark.parametrize("case", CASES)
def test_of_several_kinds(case: str) -> None:
    fn, shapes = CASES[case]
    agrees(fn, *(drawn(shape, "float32") for shape in shapes), compiled=0 not in sum(shapes, ()))


def test_open_sizes() -> None:
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((4,), name="B")
    c = te.tanh(te.maximum(a, b))
    assert c.shape == (n, b.shape[0])
    built = weft.build(te.create_schedule(c.op), [a, b, c])
    for size in (0, 1, 5):
        x, y = drawn((size, 4), "float32"), drawn((4,), "float32")
        np.testing.assert_allclose(built(x, y), np.tanh(np.maximum(x, y)), rtol=2e-6)


def test_what_does_not_fit() -> None:
    a, b = te.placeholder((3,), name="A"), te.placeholder((4,), name="B")
    with pytest.raises(UserError, match=r"E011.*'A' of \[3\] and 'B' of \[4\] do not fit together"):
        te.maximum(a, b)
    with pytest.raises(UserError, match=r"E022.*'popcount' takes integers, not float32"):
        te.popcount(a)
    with pytest.raises(UserError, match=r"E022.*takes a condition, not float32"):
        te.logical_not(a)
    with pytest.raises(UserError, match="E010"):
        te.exp(te.placeholder((2, 3), name="C")[0])


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("sign", BINARY)
def test_scalars_stand_on_both_sides(sign: str, dtype: str) -> None:
    """Arguments, constants and sizes beside tensors of any rank, as NumPy's scalars."""
    fn = BINARY[sign]
    if dtype == "float32" and sign in ("&", "|", "^", "<<", ">>"):
        return
    c, n = te.var("c", dtype), te.var("n")
    for shape in ((), (3,), (2, 3)):
        a = te.placeholder(shape, dtype, name="A")
        x, scalar = drawn(shape, dtype), np.asarray(3, dtype)
        sized = n.astype(dtype) + 1
        for left, right, wanted in (
            (c, a, fn(scalar, x)), (a, c, fn(x, scalar)), (te.const(3, dtype), a, fn(scalar, x)),
            (a, te.const(3, dtype), fn(x, scalar)), (sized, a, fn(scalar, x)), (a, sized, fn(x, scalar)),
            (c + 1, a, fn(scalar + scalar.dtype.type(1), x)), (c * 2, c + a, fn(scalar * 2, scalar + x)),
        ):  # fmt: skip
            made = fn(left, right)
            assert isinstance(made, te.Tensor) and [int(d) for d in made.shape] == list(shape)
            verify([made])
            program = te_to_tir("T", [c.source, a], [made])
            sizes = {"n": 2} if any(v.name == "n" for v in program.sizes) else {}
            found = run(program, [scalar, x], sizes)[0]
            assert found.dtype == (np.float32 if sign == "/" else wanted.dtype)
            np.testing.assert_allclose(found, wanted.astype(found.dtype), rtol=1e-6)


def test_compiled_scalars_on_the_left() -> None:
    c, a = te.var("c", "float32"), te.placeholder((2, 3), name="A")
    made = (c - a) / (c * a) + te.const(2.0) * a
    s = te.create_schedule(made.op)
    x = drawn((2, 3), "float32")
    wanted = (np.float32(0.5) - x) / (np.float32(0.5) * x) + 2 * x
    np.testing.assert_allclose(weft.build(s, [c, a, made])(0.5, x), wanted, rtol=1e-6)


def test_operands_that_are_no_tensors() -> None:
    c, a = te.var("c", "float32"), te.placeholder((2, 3), name="A")
    for wrong in (lambda: c * a[0], lambda: a[0] * c, lambda: a * a[0], lambda: a[0] - a):
        with pytest.raises(UserError, match="E010"):
            wrong()
    assert (c == a) is False and (c != a) is True  # only identities are compared
