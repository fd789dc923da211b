"""Reductions that start at a value: ``te.sum(…, axis=k, init=…)``, and those by reducers of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule.rules.cpu import default_schedule
from weft.schedule.schedule import Schedule
from weft.support.errors import UserError
from weft.target import Target
from weft.tensor_expr.evaluate import Elements
from weft.tensor_expr.text import parse, to_text
from weft.tir.interpret import run

KINDS: dict[str, tuple[Any, Any]] = {
    "sum": (te.sum, np.add),
    "prod": (te.prod, np.multiply),
    "max": (te.max, np.maximum),
    "min": (te.min, np.minimum),
}


def made(kind: str, dtype: str, extent: Any, rows: Any = 5, guard: bool = False) -> tuple[list[Any], Any]:
    a, first = te.placeholder((rows, extent), dtype, name="A"), te.placeholder((rows,), dtype, name="first")
    k = te.reduce_axis((0, extent), name="k")
    where = k % 2 > 0
    reduce = KINDS[kind][0]
    c = te.compute(
        (rows,), lambda i: reduce(a[i, k], axis=k, where=where if guard else None, init=first[rows - 1 - i]), name="C"
    )
    return [a, first], c


def arrays(dtype: str, extent: int, rows: int = 5) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, s).astype(dtype) for s in ((rows, extent), (rows,))]


def wanted(kind: str, x: Any, first: Any, guard: bool = False) -> Any:
    values = np.concatenate([first[::-1, None], x[:, 1::2] if guard else x], 1)
    return KINDS[kind][1].reduce(values, axis=1, dtype=x.dtype)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("extent", [0, 1, 7, 32])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_values(kind: str, dtype: str, extent: int, guard: bool, target: str) -> None:
    (a, first), c = made(kind, dtype, extent, guard=guard)
    given = arrays(dtype, extent)
    right = wanted(kind, *given, guard=guard)
    elements = Elements({a: given[0], first: given[1]}, {})
    assert [elements.at(c, (i,)) for i in range(5)] == list(right)
    np.testing.assert_array_equal(run(te_to_tir("main", [a, first], [c]), given)[0], right)
    np.testing.assert_array_equal(weft.build(te.create_schedule(c.op), [a, first, c], target)(*given), right)


@pytest.mark.parametrize("kind", KINDS)
def test_open_ranges(kind: str) -> None:
    (a, first), c = made(kind, "int32", te.var("n"), te.var("m"))
    f = weft.build(te.create_schedule(c.op), [a, first, c])
    for rows, extent in ((5, 0), (5, 1), (0, 3), (4, 9)):
        given = arrays("int32", extent, rows)
        np.testing.assert_array_equal(f(*given), wanted(kind, *given))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("primitive", ["split", "rfactor", "decompose", "parallel", "unit"])
def test_schedules(kind: str, primitive: str) -> None:
    (a, first), c = made(kind, "int32", 12)
    s = Schedule(te_to_tir("main", [a, first], [c]))
    i, k = s.get_loops("C")
    outer, inner = s.split(k, (None, 4))
    if primitive == "rfactor":
        s.rfactor(outer)
    elif primitive == "decompose":
        s.decompose_reduction("C", outer)
    elif primitive == "parallel":
        s.parallel(i)
        s.unroll(inner)
    elif primitive == "unit":
        s.reorder(i, inner, outer)
    given = arrays("int32", 12)
    np.testing.assert_array_equal(run(s.program, given)[0], wanted(kind, *given))
    np.testing.assert_array_equal(weft.classic.build.executable(s.program)(*given), wanted(kind, *given))


@pytest.mark.parametrize("rows", [4, 64])
def test_default_rules(rows: int) -> None:
    """A product of matrices that starts at a bias."""
    a, b, bias = te.placeholder((rows, 32)), te.placeholder((32, 48)), te.placeholder((48,))
    k = te.reduce_axis((0, 32))
    c = te.compute((rows, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, init=bias[j]), name="C")
    given = [np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((rows, 32), (32, 48), (48,))]
    s = default_schedule(te_to_tir("main", [a, b, bias], [c]), Target("llvm"))
    found = weft.classic.build.executable(getattr(s, "program", s))(*given)
    np.testing.assert_allclose(found, given[0] @ given[1] + given[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", ["root", "inline", "at", "cache", "scope", "rfactor"])
def test_producers_of_the_first_value(how: str) -> None:
    a, b = te.placeholder((6, 8), "int32", name="A"), te.placeholder((6,), "int32", name="B")
    first = te.compute((6,), lambda i: b[i] * 3, name="first")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k, init=first[i] + 1), name="C")
    d = te.compute((6,), lambda i: c[i] * 2, name="D")
    s = te.create_schedule(d.op)
    if how == "inline":
        s[first].compute_inline()
    elif how == "at":
        s[c].compute_at(s[d], d.op.axis[0])
        s[first].compute_at(s[d], d.op.axis[0])
    elif how == "cache":
        cached = s.cache_read(first, "local", [c])
        s[cached].compute_at(s[c], c.op.axis[0])
    elif how == "scope":
        s.cache_write(c, "local")
    elif how == "rfactor":
        s.rfactor(c, s[c].split(c.op.reduce_axis[0], 4)[0])
        s[first].compute_inline()
    given = [np.arange(48, dtype=np.int32).reshape(6, 8), np.arange(6, dtype=np.int32)]
    right = 2 * (given[0].sum(1) + given[1] * 3 + 1)
    np.testing.assert_array_equal(run(weft.lower(s, [a, b, d]).program, given)[0], right)
    np.testing.assert_array_equal(weft.build(s, [a, b, d])(*given), right)


JOINED = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="joined")
LARGER = te.comm_reducer(
    lambda a, b: (te.select(b[1] > a[1], b[0], a[0]), te.max(a[1], b[1])),
    lambda i, v: (te.max_value(i), te.min_value(v)),
    name="larger",
)


def users(extent: Any, rows: Any, guard: bool) -> tuple[list[Any], list[Any]]:
    """A reduction of single values and one of pairs by reducers of users, both from given values."""
    a, first = te.placeholder((rows, extent), "int32", name="A"), te.placeholder((rows,), "int32", name="first")
    k, h = te.reduce_axis((0, extent), name="k"), te.reduce_axis((0, extent), name="h")
    one = te.compute(
        (rows,),
        lambda i: JOINED(a[i, k], axis=k, where=k % 2 > 0 if guard else None, init=first[rows - 1 - i]),
        name="one",
    )
    two = te.compute(
        (rows,),
        lambda i: LARGER(
            (h.var.astype("int32"), a[i, h]), axis=h, where=h % 2 > 0 if guard else None, init=(-1, first[i] + 1)
        ),
        name="two",
    )
    return [a, first], [one, *two]


def wanted_of_users(x: Any, first: Any, guard: bool) -> list[Any]:
    one, at, most = first[::-1].copy(), np.full(len(first), -1, np.int32), first + 1
    for k in range(1 if guard else 0, x.shape[1], 2 if guard else 1):
        one = one + x[:, k] + one * x[:, k]
        at, most = np.where(x[:, k] > most, k, at), np.maximum(most, x[:, k])
    return [one, at, most]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("extent", [0, 1, 7, 16])
def test_reducers_of_users(extent: int, guard: bool, target: str) -> None:
    ins, outs = users(extent, 5, guard)
    given = arrays("int32", extent)
    right = wanted_of_users(*given, guard)
    elements = Elements(dict(zip(ins, given, strict=True)), {})
    for t, values in zip(outs, right, strict=True):
        assert [elements.at(t, (i,)) for i in range(5)] == list(values)
    inputs, outputs = parse(to_text(outs, ins))
    assert to_text(outputs, inputs) == to_text(outs, ins)
    assert " init " in to_text(outs, ins)
    for got in (
        run(te_to_tir("main", ins, outs), given),
        run(te_to_tir("main", list(inputs), list(outputs)), given),
        weft.build(te.create_schedule([outs[0].op, outs[1].op]), [*ins, *outs], target)(*given),
    ):
        for r, w in zip(got, right, strict=True):
            np.testing.assert_array_equal(r, w)


def test_reducers_of_users_over_open_ranges() -> None:
    ins, outs = users(te.var("n"), te.var("m"), guard=False)
    f = weft.build(te.create_schedule([outs[0].op, outs[1].op]), [*ins, *outs])
    for rows, extent in ((5, 0), (5, 1), (0, 3), (4, 9)):
        given = arrays("int32", extent, rows)
        for r, w in zip(f(*given), wanted_of_users(*given, False), strict=True):
            np.testing.assert_array_equal(r, w)


def test_text() -> None:
    _, c = made("sum", "float32", 7, guard=True)
    text = to_text([c])
    inputs, outputs = parse(text)
    assert " init first[" in text and to_text(outputs, inputs) == text


def test_numbers_take_the_dtype() -> None:
    a, k = te.placeholder((3,), "int8", name="A"), te.reduce_axis((0, 3))
    c = te.compute((), lambda: te.sum(a[k], axis=k, init=5))
    assert weft.build(te.create_schedule(c.op), [a, c])(np.ones(3, np.int8)) == 8


@pytest.mark.parametrize(
    ("init", "code"),
    [
        (lambda a, k: 0.5, "E135"),
        (lambda a, k: te.cast(a[0], "float32"), "E135"),
        (lambda a, k: "x", "E002"),
        (lambda a, k: a[k], "E206"),
    ],
)
def test_refuses(init: Any, code: str) -> None:
    a, k = te.placeholder((3,), "int8", name="A"), te.reduce_axis((0, 3))
    with pytest.raises(UserError) as caught:
        te.create_schedule(te.compute((), lambda: te.sum(a[k], axis=k, init=init(a, k))).op)
    assert caught.value.code == code, caught.value


@pytest.mark.parametrize(
    ("init", "code"),
    [
        ((1, 2, 3), "E135"),
        (1, "E135"),
        ((1, 0.5), "E135"),
        ((1, lambda a, k: te.cast(a[0], "float32")), "E135"),
        ((1, lambda a, k: a[k]), "E206"),
        ((1, "x"), "E002"),
    ],
)
def test_refuses_starts_of_pairs(init: Any, code: str) -> None:
    a, k = te.placeholder((3,), "int32", name="A"), te.reduce_axis((0, 3))
    given = tuple(v(a, k) if callable(v) else v for v in init) if isinstance(init, tuple) else init
    with pytest.raises(UserError) as caught:
        te.create_schedule(te.compute((), lambda: LARGER((k.var.astype("int32"), a[k]), axis=k, init=given))[0].op)
    assert caught.value.code == code, caught.value


def test_refuses_a_tuple_for_one_value() -> None:
    a, k = te.placeholder((3,), "int32", name="A"), te.reduce_axis((0, 3))
    with pytest.raises(UserError, match="starts at one value; init is a tuple of 1") as caught:
        JOINED(a[k], axis=k, init=(1,))
    assert caught.value.code == "E135"


def test_text_with_too_few_starts() -> None:
    ins, outs = users(4, 3, guard=False)
    text = to_text(outs, ins)
    assert " init -1i32, first[i] + 1" in text
    with pytest.raises(UserError, match="starts at 2 values, not 1"):
        parse(text.replace(" init -1i32, first[i] + 1", " init first[i] + 1"))


def test_one_number_of_an_open_range_is_used_on() -> None:
    """The init of a reduction to one number is one statement wherever it runs; its memory is allocated all the same."""
    n = te.var("n")
    a, k = te.placeholder((n,), name="A"), te.reduce_axis((0, n), name="k")
    total = te.compute((), lambda: te.sum(a[k], axis=k), name="total")
    b = te.compute((n,), lambda i: a[i] - total[()], name="B")
    for target in ("llvm", "c"):
        f = weft.build(te.create_schedule(b.op), [a, b], target)
        for size in (0, 1, 5):
            x = np.arange(size, dtype=np.float32)
            np.testing.assert_array_equal(f(x), x - x.sum())
