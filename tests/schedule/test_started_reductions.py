"""Schedules of reductions that start at data: whatever the primitives accept computes the same."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from random_moves import INTRINSICS, random_moves
from schedule_cases import check
from seeds import seeds
from test_schedule_random import OPEN_SIZES, check_compiled

from weft import te
from weft.expr.nodes import Const
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ProgramError, ScheduleError
from weft.tensor_expr.nodes import Tensor
from weft.tir.nodes import For, Program
from weft.tir.text import parse, to_text
from weft.tir.verify import verify
from weft.tir.visit import walk

JOINED: Final = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="joined")
"""(1 + x)(1 + y) - 1: the start must be taken once only."""
LARGER: Final = te.comm_reducer(
    lambda a, b: (
        te.select(te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0])), a[0], b[0]),
        te.max(a[1], b[1]),
    ),
    lambda i, v: (te.max_value(i), te.min_value(v)),
    name="larger",
)
MOMENTS: Final = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda s, t: (te.const(0, s), te.const(0, t)), name="moments"
)


def started(rng: random.Random, name: str, x: Tensor, v: Tensor) -> Tensor:
    """A reduction of ``x`` over its columns that starts at values made of ``v`` and ``x``. Shape as ``x``."""
    rows, columns = x.shape
    k = te.reduce_axis((0, columns), f"{name}k")
    where = rng.choice([None, k % 2 < 1, v[k % rows] < 2])
    starts: list[Callable[[Any], Any]] = [lambda i: v[i], lambda i: te.const(3, x.dtype)]
    if isinstance(columns, Const):  # an open row may be empty
        starts.append(lambda i: v[i] * 2 + x[i, 0])
    start = rng.choice(starts)
    simple: Callable[..., Any] = rng.choice([te.sum, te.max, te.min, JOINED])
    kind = rng.choice(["one", "pair", "sums", "plain"])
    if kind == "one":
        made = te.compute((rows,), lambda i: simple(x[i, k], axis=k, where=where, init=start(i)), name=f"{name}r")
        return te.compute(x.shape, lambda i, j: made[i] + x[i, j], name=name)
    if kind == "plain":  # a stage without a start, which reads what others have started
        made = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name=f"{name}r")
        return te.compute(x.shape, lambda i, j: te.min(made[i], x[i, j]), name=name)
    if kind == "pair":
        pair = te.compute(
            (rows,),
            lambda i: LARGER(
                (k.var.astype("int32"), x[i, k]), axis=k, where=where, init=(-i.astype("int32"), start(i))
            ),
            name=f"{name}p",
        )
    else:
        pair = te.compute(
            (rows,),
            lambda i: MOMENTS((x[i, k], x[i, k] * v[i]), axis=k, where=where, init=(start(i), v[rows - 1 - i])),
            name=f"{name}p",
        )
    return te.compute(x.shape, lambda i, j: pair[0][i].astype(x.dtype) - pair[1][i] * x[i, j], name=name)


def random_program(rng: random.Random) -> Program:
    symbolic = rng.random() < 0.3
    rows: Any = te.var("n") if symbolic else rng.randint(1, 6)
    columns: Any = te.var("m") if symbolic else rng.randint(1, 8)
    a, b = te.placeholder((rows, columns), "int32", name="A"), te.placeholder((rows,), "int32", name="B")
    v = te.compute((rows,), lambda i: b[i] + 1, name="V")
    last = a
    for n in range(rng.randint(1, 3)):
        last = started(rng, f"s{n}", last, v)
    return te_to_tir("random", [a, b], [last])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(40))
def test_random_schedules(seed: int) -> None:
    rng = random.Random(seed)
    original = random_program(rng)
    s = Schedule(original, seed=seed, intrinsics=INTRINSICS)
    random_moves(s, rng, 16, Counter())
    threads = any(isinstance(x, For) and x.kind == "thread" for x in walk(s.program.body))
    try:
        for size in OPEN_SIZES if original.sizes else OPEN_SIZES[:1]:
            sizes = {v.name: n for v, n in zip(original.sizes, size, strict=False)}
            check(original, s.program, sizes)
            if not threads:
                check_compiled(original, s.program, sizes)
        assert to_text(parse(to_text(s.program))) == to_text(s.program)
    except Exception:
        print(s.trace.to_python(), to_text(original), to_text(s.program), sep="\n\n")
        raise


def program(kind: str, own: bool = False) -> Program:
    """Rows of 12 values, reduced from a computed start (``own``: one that reads the reduced tensor too)."""
    a, b = te.placeholder((6, 12), "int32", name="A"), te.placeholder((6,), "int32", name="B")
    first = te.compute((6,), lambda i: b[i] * 3, name="first")
    k = te.reduce_axis((0, 12), name="k")

    def start(i: Any) -> Any:
        return first[i] + (a[i, 2] if own else 1)

    if kind == "joined":
        c = te.compute((6,), lambda i: JOINED(a[i, k], axis=k, init=start(i)), name="C")
        return te_to_tir("main", [a, b], [c])
    if kind == "larger":
        c = te.compute(
            (6,),
            lambda i: LARGER((k.var.astype("int32"), a[i, k]), axis=k, init=(-i.astype("int32"), start(i))),
            name="C",
        )
        return te_to_tir("main", [a, b], list(c))
    c = te.compute((6,), lambda i: te.sum(a[i, k], axis=k, init=start(i)), name="C")
    return te_to_tir("main", [a, b], [c])


KINDS = ("sum", "joined", "larger")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("how", ["rfactor", "rfactor twice", "inner", "threads", "lanes", "decompose", "blockize"])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_start_at_the_identity(kind: str, how: str, own: bool) -> None:
    original = program(kind, own)
    s = Schedule(original)
    _i, k = s.get_loops("C")
    outer, inner = s.split(k, (None, 4))
    if how.startswith("rfactor"):
        s.rfactor(outer, reassociate=True)
        if how == "rfactor twice":
            s.rfactor(s.get_loops("C_rf")[-1], reassociate=True)
    elif how == "inner":
        s.rfactor(inner, reassociate=True)
    elif how == "threads":
        s.bind(inner, "threadIdx.x", reassociate=True)
    elif how == "lanes":
        s.vectorize(inner, reassociate=True)
    elif how == "decompose":
        s.decompose_reduction("C", outer)
    else:
        s.blockize(outer)
    check(original, s.program)
    if how not in ("threads",):
        check_compiled(original, s.program, {})


@pytest.mark.parametrize("how", ["decompose", "outside", "blockize", "rfactor"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_start_reads_is_computed_before_it(kind: str, how: str) -> None:
    """Each block states the reads of the start, so that its producer stays before it."""
    original = program(kind)
    s = Schedule(original)
    i, k = s.get_loops("C")
    outer, _inner = s.split(k, (None, 4))
    if how == "blockize":
        s.blockize(outer)
    elif how == "rfactor":
        s.rfactor(outer, reassociate=True)
    else:
        s.decompose_reduction("C", outer if how == "decompose" else i)
    verify(s.program)
    for loop in {x for b in ("C", "C_init", "C_o", "C_rf") for x in loops_of(s, b)}:
        before = s.program
        trial = Schedule(before)
        try:
            trial.compute_at("first", loop)
        except ScheduleError:
            continue
        check(original, trial.program)


def loops_of(s: Schedule, block: str) -> list[Any]:
    try:
        return list(s.get_loops(block))
    except ScheduleError:
        return []


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_does_not_move_before_its_producer(kind: str) -> None:
    original = program(kind)
    s = Schedule(original)
    i, k = s.get_loops("C")
    s.compute_at("first", i)
    with pytest.raises(ScheduleError, match="the init reads 'first', which block 'first' computes inside"):
        s.decompose_reduction("C", i)
    s.decompose_reduction("C", k)
    check(original, s.program)


def test_data_is_no_identity() -> None:
    """Without a note, parts of a reduction cannot start at the data at which the whole starts."""
    text = to_text(program("joined"))
    noted = next(line for line in text.splitlines() if "reduction_identity" in line)
    plain = parse(text.replace(noted + "\n", ""))
    s = Schedule(plain)
    with pytest.raises(ScheduleError, match="starts at data") as caught:
        s.rfactor(s.get_loops("C")[-1], reassociate=True)
    assert caught.value.code == "S053"


@pytest.mark.parametrize(
    ("note", "what"),
    [
        ("3", "is not a list"),
        ("[3]", "is not a list"),
        ("[(0i8)]", "has the dtypes int8, not int32"),
        ("[(0i32), (0i32)]", "has the dtypes int32, int32, not int32"),
        ("[(B[0])]", "is not constant"),
    ],
)
def test_verifies_the_note(note: str, what: str) -> None:
    text = to_text(program("joined"))
    noted = next(line for line in text.splitlines() if "reduction_identity" in line)
    with pytest.raises(ProgramError, match=what) as caught:
        verify(parse(text.replace(noted, f"        annotations {{reduction_identity = {note}}}")))
    assert caught.value.code == "V027"


def test_another_type_drops_the_note() -> None:
    s = Schedule(program("joined"))
    s.cache_write("C", 0, "local")
    for b in ("C", "C_local"):
        trial = Schedule(s.program)
        try:
            trial.unsafe_set_dtype(b, 0, "int64")
        except ScheduleError:
            continue
        verify(trial.program)
