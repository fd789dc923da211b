"""Random schedules of random programs: whatever the primitives accept computes the same, verifies and replays."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program
from schedule_cases import check, inputs_for

from weft import te
from weft.expr.nodes import Const, maximum, minimum
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import BlockRef, LoopRef, Schedule, Trace
from weft.schedule.tree import statements_of
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tensor_expr.nodes import Tensor
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import Program
from weft.tir.text import to_text


def random_program(rng: random.Random, symbolic: bool = False) -> Program:
    """A chain of stages over small matrices: maps, shifts, windows, products, row reductions and broadcasts."""
    rows: Any = te.var("n") if symbolic else rng.randint(2, 7)
    columns = rng.randint(2, 7)
    a, b = te.placeholder((rows, columns), name="A"), te.placeholder((rows, columns), name="B")
    square = te.placeholder((columns, columns), name="W")
    live: list[Tensor] = [a, b]
    for n in range(rng.randint(1, 4)):
        live.append(random_stage(rng, f"s{n}", live[-1], rng.choice(live), square))
    last = live[-1]
    return te_to_tir("random", [a, b, square], [te.compute(last.shape, lambda i, j: last[i, j] * 2.0, name="out")])


def random_stage(rng: random.Random, name: str, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    rows, columns = x.shape
    k = te.reduce_axis((0, columns), f"{name}k")
    h = te.reduce_axis((0, 2), f"{name}h")
    kinds: dict[str, Callable[[], Tensor]] = {
        "map": lambda: te.compute(x.shape, lambda i, j: maximum(x[i, j], 0.0) + y[i, j], name=name),
        "transpose": lambda: te.compute((columns, rows), lambda i, j: x[j, i] + 1.0, name=name),
        "shift": lambda: te.compute(
            x.shape, lambda i, j: te.if_then_else(te.all(i >= 1, j >= 2), x[i - 1, j - 2], 0.0) + y[i, j], name=name
        ),
        "product": lambda: te.compute(x.shape, lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name=name),
        "window": lambda: te.compute(
            (rows, columns - 1), lambda i, j: te.sum(x[i, j + h] * w[h, h], axis=h), name=name
        ),
        "strided": lambda: te.compute(
            ((rows + 1) // 2, columns),
            lambda i, j: te.max(te.if_then_else(i * 2 + h < rows, x[minimum(i * 2 + h, rows - 1), j], -9.0), axis=h),
            name=name,
        ),
        "best": lambda: best_of_row(name, x),
        "row": lambda: te.compute((rows, 1), lambda i, j: te.max(x[i, k] - y[i, k], axis=k), name=name),
    }
    if [str(d) for d in x.shape] != [str(d) for d in y.shape]:
        y = x
    if str(columns) != str(w.shape[0]):
        kinds.pop("product")
    if str(columns) == "1":
        kinds.pop("window")
    if not isinstance(rows, Const) or not isinstance(columns, Const):
        kinds.pop("window", None)
        kinds.pop("strided")
    return kinds[rng.choice(sorted(kinds))]()


def best_of_row(name: str, x: Tensor) -> Tensor:
    """The largest value of each row plus its position, the first of several: a reduction of pairs."""
    k = te.reduce_axis((0, x.shape[1]), f"{name}k")
    larger = te.comm_reducer(
        lambda a, b: (
            te.select(te.any(a[1] > b[1], te.all(a[1] == b[1], a[0] < b[0])), a[0], b[0]),
            te.max(a[1], b[1]),
        ),
        lambda i, v: (te.max_value(i), te.min_value(v)),
        name="larger",
    )
    at, most = te.compute(
        (x.shape[0], 1), lambda i, j: larger((k.var.astype("int32"), x[i, k]), axis=k), name=f"{name}best"
    )
    return te.compute(most.shape, lambda i, j: most[i, j] + at[i, j].astype("float32"), name=name)


Move = Callable[[Schedule, random.Random], object]


def some_block(s: Schedule, rng: random.Random) -> BlockRef:
    return rng.choice(s.get_blocks())


def some_loop(s: Schedule, rng: random.Random) -> LoopRef:
    return rng.choice([loop for b in s.get_blocks() for loop in s.get_loops(b)])


def near(s: Schedule, rng: random.Random, others: tuple[BlockRef, ...]) -> LoopRef:
    """A loop around one of ``others``, if there is one."""
    return rng.choice([loop for b in others for loop in s.get_loops(b)] or [some_loop(s, rng)])


def nest_of(s: Schedule, rng: random.Random) -> list[LoopRef]:
    return list(s.get_loops(some_block(s, rng)))


def fuse_two(s: Schedule, rng: random.Random) -> object:
    loops = nest_of(s, rng)
    at = rng.randrange(max(1, len(loops) - 1))
    return s.fuse(*loops[at : at + 2])


def reorder_some(s: Schedule, rng: random.Random) -> object:
    loops = nest_of(s, rng)
    return s.reorder(*rng.sample(loops, min(len(loops), rng.randint(2, 3))))


def change_layout(s: Schedule, rng: random.Random) -> object:
    block = some_block(s, rng)
    found = s.state.block(block)
    buffer = rng.choice([r.buffer for r in (*found.reads, *found.writes)])
    maps = [lambda i, j: (j, i), lambda i, j: (j // 2, i, j % 2), lambda i, j: (i // 3, j, i % 3)]
    return s.transform_layout(block, buffer.name, rng.choice(maps), pad=rng.choice([None, 0.0]))


def slide(s: Schedule, r: random.Random) -> None:
    """A producer in a loop of its consumers, kept there and folded as far as that is accepted."""
    b = some_block(s, r)
    loop = near(s, r, s.get_consumers(b))
    s.compute_at(b, loop)
    try:
        s.store_at(b, loop)
        s.fold_storage(b, *s.window(b))
    except ScheduleError:
        pass  # what was accepted so far stays


def overlap(s: Schedule, r: random.Random) -> None:
    """The statements of some loop, in stages that seldom fall."""
    loops = [x for b in s.get_blocks() for x in s.get_loops(b) if len(statements_of(s.state.loop(x))) > 1]
    loop = r.choice(loops or [some_loop(s, r)])
    count = len(statements_of(s.state.loop(loop)))
    stages = sorted(r.randint(0, 2) for _ in range(count)) if r.random() < 0.9 else [r.randint(0, 2)] * count
    order = list(range(count))
    r.shuffle(order)
    s.pipeline(loop, stages, order)


MOVES: dict[str, Move] = {
    "split": lambda s, r: s.split(some_loop(s, r), factor=r.randint(1, 4)),
    "split3": lambda s, r: s.split(some_loop(s, r), factors=r.choice([(None, 2, 2), (2, None, 3), (2, 2, None)])),
    "fuse": fuse_two,
    "reorder": reorder_some,
    "parallel": lambda s, r: s.parallel(some_loop(s, r)),
    "vectorize": lambda s, r: s.vectorize(some_loop(s, r)),
    "unroll": lambda s, r: s.unroll(some_loop(s, r)),
    "compute_at": lambda s, r: s.compute_at(b := some_block(s, r), near(s, r, s.get_consumers(b))),
    "compute_at_any": lambda s, r: s.compute_at(some_block(s, r), some_loop(s, r)),
    "sampled_at": lambda s, r: s.compute_at(b := some_block(s, r), s.sample_location(b)),
    "reverse_compute_at": lambda s, r: s.reverse_compute_at(b := some_block(s, r), near(s, r, s.get_producers(b))),
    "compute_root": lambda s, r: s.compute_root(some_block(s, r)),
    "compute_inline": lambda s, r: s.compute_inline(some_block(s, r)),
    "reverse_compute_inline": lambda s, r: s.reverse_compute_inline(some_block(s, r)),
    "cache_read": lambda s, r: s.cache_read(some_block(s, r), r.randrange(2), "local"),
    "cache_read_for": lambda s, r: s.cache_read(some_block(s, r), r.randrange(2), "local", [some_block(s, r)]),
    "cache_write": lambda s, r: s.cache_write(some_block(s, r), 0, "local"),
    "set_scope": lambda s, r: s.set_scope(some_block(s, r), 0, "local"),
    "decompose_reduction": lambda s, r: s.decompose_reduction(
        b := some_block(s, r), r.choice(s.get_loops(b) or (some_loop(s, r),))
    ),
    "rfactor": lambda s, r: s.rfactor(some_loop(s, r), r.randint(0, 2), reassociate=True),
    "transform_layout": change_layout,
    "partition": lambda s, r: s.partition(some_loop(s, r), r.randint(1, 3)),
    "blockize": lambda s, r: s.blockize(some_loop(s, r)),
    "store_at": lambda s, r: s.store_at(b := some_block(s, r), r.choice(s.get_loops(b) or (some_loop(s, r),))),
    "slide": slide,
    "fold_storage": lambda s, r: s.fold_storage(some_block(s, r), r.randrange(2), r.randint(1, 3)),
    "double_buffer": lambda s, r: s.double_buffer(some_block(s, r)),
    "storage_align": lambda s, r: s.storage_align(
        some_block(s, r), 0, r.randrange(2), r.choice([4, 16]), r.randrange(3)
    ),
    "prefetch": lambda s, r: s.prefetch(
        some_loop(s, r), r.choice(s.program.params).name, r.randint(1, 3), r.choice((None, some_loop(s, r)))
    ),
    "pad_einsum": lambda s, r: s.pad_einsum(
        b := some_block(s, r), [r.choice([1, 2, 4]) for _ in s.state.block(b).iters]
    ),
    "pipeline": overlap,
    "stream": lambda s, r: s.stream(some_block(s, r)),
    "run_once": lambda s, r: s.run_once(some_block(s, r), some_loop(s, r), 0),
}


def random_moves(s: Schedule, rng: random.Random, tries: int, accepted: Counter[str]) -> None:
    for _ in range(tries):
        name = rng.choice(sorted(MOVES))
        before = s.program
        try:
            MOVES[name](s, rng)
        except ScheduleError as refusal:
            assert s.program is before, f"{name} refused and yet changed the program"
            assert refusal.code != "S001"
            continue
        accepted[name] += 1


def one_case(seed: int, case: int, accepted: Counter[str], compiled: bool) -> None:
    rng = random.Random(1000 * seed + case)
    symbolic = case % 5 == 4
    original = random_program(rng, symbolic)
    s = Schedule(original, seed=case)
    random_moves(s, rng, 14, accepted)
    try:
        check(original, s.program, {"n": 5} if symbolic else None)
        if compiled:
            check_compiled(original, s.program, symbolic)
    except Exception:  # shown, and raised on
        print(s.trace.to_python(), to_text(original), to_text(s.program), sep="\n\n")
        raise
    replayed = Schedule(original, seed=99).replay(Trace.from_json(s.trace.to_json()))
    assert to_text(replayed.program) == to_text(s.program)


def check_compiled(original: Program, scheduled: Program, symbolic: bool) -> None:
    given = inputs_for(original, {"n": 5} if symbolic else None)
    expected = run(original, given, {"n": 5} if symbolic else None)
    sizes = [5] * len(scheduled.sizes)
    judged = Interpreter(tir_to_kernel(scheduled, Target("cpu")), races=True).run(given, {"n": 5} if symbolic else None)
    for want, got in zip(expected, judged.outputs, strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)
    for want, got in zip(expected, run_program(scheduled, given, sizes), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_schedules(seed: int) -> None:
    accepted: Counter[str] = Counter()
    for case in range(25):
        one_case(seed, case, accepted, compiled=case % 5 in (0, 4))
    assert len(accepted) > len(MOVES) // 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_thousands_of_random_schedules(seed: int) -> None:
    """Five thousand traces, each on the interpreter and compiled."""
    accepted: Counter[str] = Counter()
    for case in range(50):
        one_case(seed, case, accepted, compiled=True)
    assert len(accepted) > len(MOVES) // 2
