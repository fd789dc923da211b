"""Illegal moves, each refused with its rule, its place and what would work (golden text), and nothing changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedule_cases import conv2d_relu, matmul_relu, softmax

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule, TensorIntrinsic
from weft.schedule.errors import RULES
from weft.schedule.intrinsics.dot_products import DOT_U8S8
from weft.support.errors import ScheduleError
from weft.tir.text import parse

Move = Callable[[Schedule], object]


def product() -> Schedule:
    return Schedule(matmul_relu(rows=14, columns=37, depth=9))


def window() -> Schedule:
    return Schedule(conv2d_relu())


def rows() -> Schedule:
    return Schedule(softmax(4, 5))


def symbolic() -> Schedule:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    return Schedule(te_to_tir("symbolic", [a], [te.compute((n,), lambda i: b[i] * 2.0, name="C")]))


def blur() -> Schedule:
    a = te.placeholder((14, 10), name="A")
    across = te.compute((14, 8), lambda y, x: a[y, x] + a[y, x + 1] + a[y, x + 2], name="across")
    down = te.compute((12, 8), lambda y, x: across[y, x] + across[y + 1, x] + across[y + 2, x], name="down")
    return Schedule(te_to_tir("blur", [a], [down]))


def recurrence() -> Schedule:
    x = te.placeholder((6, 4), name="x")
    state = te.placeholder((6, 4), name="state")
    start = te.compute((1, 4), lambda _, i: x[0, i], name="start")
    step = te.compute((6, 4), lambda t, i: state[t - 1, i] + x[t, i], name="step")
    return Schedule(te_to_tir("recurrence", [x], [te.scan(start, step, state, [x], name="sums")]))


def crossing(*, kept: bool = False) -> Schedule:
    """A recurrence whose columns depend on each other: one that reads the mirrored column, or two columns at once."""
    x = te.placeholder((6, 4), name="x")
    state = te.placeholder((6, 4), name="state")
    start = te.compute((1, 4), lambda _, i: x[0, i], name="start")
    other = (lambda t, i: state[t - 1, i] + state[t - 1, 0]) if kept else (lambda t, i: state[t - 1, 3 - i])
    step = te.compute((6, 4), lambda t, i: other(t, i) + x[t, i], name="step")
    return Schedule(te_to_tir("crossing", [x], [te.scan(start, step, state, [x], name="sums")]))


def argmax() -> Schedule:
    x = te.placeholder((5, 8), name="x")
    k = te.reduce_axis((0, 8), "k")
    larger = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
        name="larger",
    )
    index, _ = te.compute((5,), lambda i: larger((k.var.astype("int32"), x[i, k]), axis=k), name="best")
    return Schedule(te_to_tir("argmax", [x], [index]))


def reducing(name: str, combine: Callable[..., object], identity: float) -> Schedule:
    x = te.placeholder((5, 8), name="x")
    k = te.reduce_axis((0, 8), "k")
    reducer = te.comm_reducer(combine, lambda t: te.const(identity, t), name=name)
    return Schedule(te_to_tir(name, [x], [te.compute((5,), lambda i: reducer(x[i, k], axis=k), name=name)]))


def decay() -> Schedule:
    return reducing("last", lambda a, b: a * 0.5 + b, 0.0)


def off_by_one() -> Schedule:
    return reducing("most", lambda a, b: te.select(a > b, a, b), 9.0)


def kept() -> Schedule:
    s = blur()
    row = s.get_loops("down")[0]
    s.compute_at("across", row)
    s.store_at("across", row)
    return s


def flow() -> Schedule:
    return Schedule(
        parse(
            """
program "flow"(A: f32[8]) -> (B: f32[8]):
  alloc T: f32[8]
  for i in serial(0, 8):
    block "T"(x: spatial 8 = i):
      reads A[x]
      writes T[x]
      body:
        T[x] = A[x] * 2.0
    block "B"(x: spatial 8 = i):
      reads T[max(x - 1, 0)]
      writes B[x]
      body:
        B[x] = T[max(x - 1, 0)]
"""
        )
    )


def loop(s: Schedule, block: str, n: int):
    return s.get_loops(block)[n]


def chain() -> Schedule:
    """A stage computed in each row of the next."""
    a = te.placeholder((6, 5), name="A")
    p = te.compute((6, 5), lambda i, j: a[i, j] * 2.0, name="P")
    c = te.compute((6, 5), lambda i, j: p[i, 4 - j] + 1.0, name="C")
    s = Schedule(te_to_tir("chain", [a], [c]))
    s.compute_at("P", loop(s, "C", 0))
    return s


def scaled() -> Schedule:
    """Sums over rows, each scaled by a factor that the sum does not run over."""
    a, f = te.placeholder((6, 5), name="A"), te.placeholder((6,), name="F")
    k = te.reduce_axis((0, 5), "k")
    return Schedule(te_to_tir("scaled", [a, f], [te.compute((6,), lambda i: te.sum(a[i, k] * f[i], axis=k), name="C")]))


def remainders() -> Schedule:
    a, b = te.placeholder((6,), "int32", name="A"), te.placeholder((6,), "int32", name="B")
    return Schedule(te_to_tir("remainders", [a, b], [te.compute((6,), lambda i: a[i] % b[i], name="C")]))


def then(*steps: Move) -> Move:
    """All steps; the last is the one to be refused."""

    def run(s: Schedule) -> object:
        for step in steps[:-1]:
            step(s)
        before = s.program
        try:
            return steps[-1](s)
        finally:
            assert s.program is before, "refused and yet changed the program"

    return run


def splitted() -> Schedule:
    s = product()
    s.consumed = loop(s, "C", 0)  # type: ignore[attr-defined]
    s.split(s.consumed, factor=4)  # type: ignore[attr-defined]
    return s


def other_schedule(s: Schedule) -> object:
    return s.unroll(loop(product(), "C", 0))


MOVES: list[tuple[str, Callable[[], Schedule], Move]] = [
    # references and arguments
    ("a block that does not exist", product, lambda s: s.get_block("D")),
    ("a loop that was split", splitted, lambda s: s.unroll(s.consumed)),
    ("a loop of another schedule", product, other_schedule),
    ("a block that was inlined", window, then(lambda s: s.compute_inline("bias"), lambda s: s.get_loops("bias"))),
    ("both factor and nparts", product, lambda s: s.split(loop(s, "C", 0), factor=2, nparts=2)),
    ("two open factors", product, lambda s: s.split(loop(s, "C", 0), factors=(None, None))),
    ("a factor of zero", product, lambda s: s.split(loop(s, "C", 0), factors=(None, 0))),
    ("factors that do not cover", product, lambda s: s.split(loop(s, "C", 0), factors=(2, 3))),
    ("fixed factors of a symbolic extent", symbolic, lambda s: s.split(loop(s, "B", 0), factors=(2, 3))),
    ("the same loop twice", product, lambda s: s.reorder(loop(s, "C", 0), loop(s, "C", 0))),
    ("an unknown thread axis", product, lambda s: s.bind(loop(s, "C", 0), "threadIdx.w")),
    ("an annotation that is not there", product, lambda s: s.unannotate("C", "note")),
    ("a partition outside of the loop", product, lambda s: s.partition(loop(s, "C", 0), 14)),
    # kinds of loops
    ("parallel reduction", product, lambda s: s.parallel(loop(s, "C", 2))),
    ("vectorized reduction", product, lambda s: s.vectorize(loop(s, "C", 2))),
    ("reduction bound to threads", product, lambda s: s.bind(loop(s, "C", 2), "threadIdx.x")),
    ("virtual threads over a reduction", product, lambda s: s.virtual_thread(loop(s, "C", 2))),
    ("vectorized symbolic extent", symbolic, lambda s: s.vectorize(loop(s, "B", 0))),
    ("unrolled symbolic extent", symbolic, lambda s: s.unroll(loop(s, "B", 0))),
    ("marking a marked loop", product,
     then(lambda s: s.parallel(loop(s, "C", 0)), lambda s: s.unroll(loop(s, "C", 0)))),
    ("splitting a parallel loop", product,
     then(lambda s: s.parallel(loop(s, "C", 0)), lambda s: s.split(loop(s, "C", 0), factor=2))),
    ("parallel loop that carries values", flow, lambda s: s.parallel(loop(s, "B", 0))),
    ("vectorized loop that carries values", flow, lambda s: s.vectorize(loop(s, "B", 0))),
    ("parallel time", recurrence, lambda s: s.parallel(loop(s, "step", 0))),
    ("vectorized time", recurrence, lambda s: s.vectorize(loop(s, "step", 0))),
    ("threads that need each other's values", flow, lambda s: s.bind(loop(s, "B", 0), "threadIdx.x")),
    # shapes of nests
    ("fusing loops that are not nested directly", product, lambda s: s.fuse(loop(s, "C", 0), loop(s, "C", 2))),
    ("fusing loops of two nests", product, lambda s: s.fuse(loop(s, "C", 0), loop(s, "relu", 0))),
    ("fusing nothing", product, lambda s: s.fuse()),
    ("reordering loops of two nests", product, lambda s: s.reorder(loop(s, "C", 0), loop(s, "relu", 0))),
    ("reordering time", crossing, lambda s: s.reorder(loop(s, "step", 1), loop(s, "step", 0))),
    ("reordering time, a column read by all", lambda: crossing(kept=True),
     lambda s: s.reorder(loop(s, "step", 1), loop(s, "step", 0))),
    ("reordering pieces of time", recurrence,
     then(lambda s: s.split(loop(s, "step", 0), factors=(None, 5)),
          lambda s: s.reorder(loop(s, "step", 1), loop(s, "step", 0)))),
    ("reordering across another statement", product,
     then(lambda s: s.compute_at("C", loop(s, "relu", 0)),
          lambda s: s.reorder(loop(s, "relu", 1), loop(s, "relu", 0)))),
    # where blocks are computed
    ("an output in a loop", product, lambda s: s.compute_at("relu", loop(s, "C", 0))),
    ("a producer in a loop that holds one of two consumers", rows,
     lambda s: s.compute_at("exps", loop(s, "softmax", 0))),
    ("a block in its own loop", rows, lambda s: s.compute_at("total", loop(s, "total", 0))),
    ("a block in a vectorized loop", product,
     then(lambda s: s.vectorize(loop(s, "relu", 1)), lambda s: s.compute_at("C", loop(s, "relu", 1)))),
    ("a consumer in a reduction", product, lambda s: s.reverse_compute_at("relu", loop(s, "C", 2))),
    ("a consumer where the reduction is outside", product,
     then(lambda s: s.reorder(*(loop(s, "C", n) for n in (2, 0, 1))),
          lambda s: s.reverse_compute_at("relu", loop(s, "C", 1)))),
    ("a consumer of a window in a row of it", blur, lambda s: s.reverse_compute_at("down", loop(s, "across", 0))),
    ("a consumer far from its producer", window, lambda s: s.reverse_compute_at("relu", loop(s, "pad", 0))),
    ("an output at the root", product, lambda s: s.compute_root("relu")),
    ("one of two writers", product,
     then(lambda s: s.decompose_reduction("C", loop(s, "C", 2)), lambda s: s.compute_at("C", loop(s, "relu", 0)))),
    # inlining
    ("inlining a reduction", product, lambda s: s.compute_inline("C")),
    ("inlining an output", product, lambda s: s.compute_inline("relu")),
    ("inlining an epilogue of an in-place producer", product, lambda s: s.reverse_compute_inline("relu")),
    ("inlining a window as an epilogue", blur, lambda s: s.reverse_compute_inline("down")),
    # caches, scopes, layouts
    ("a read region that does not exist", product, lambda s: s.cache_read("C", 7, "local")),
    ("a write region that does not exist", product, lambda s: s.cache_write("C", 3, "local")),
    ("an unknown scope", product, lambda s: s.cache_read("C", 0, "nowhere")),
    ("the scope of a parameter", product, lambda s: s.set_scope("relu", 0, "register")),
    ("another layout of a parameter", product, lambda s: s.transform_layout("C", "B", lambda k, n: (n, k))),
    ("a layout that loses elements", product, lambda s: s.transform_layout("C", "C", lambda i, j: (i // 2, j))),
    ("a layout that leaves the buffer", product, lambda s: s.transform_layout("C", "C", lambda i, j: (i - 1, j))),
    ("two copies of a parameter", product, lambda s: s.double_buffer("relu")),
    ("two copies outside of loops", rows, then(lambda s: s.storage_align("most", 0, 3, 8))),
    ("prefetching what is not read", product, lambda s: s.prefetch(loop(s, "C", 0), "relu", 1)),
    ("streaming what is read back", product, lambda s: s.stream("C")),
    ("streaming what is not written", product, lambda s: s.stream("relu", 1)),
    ("a pipeline of missing stages", product, lambda s: s.pipeline(loop(s, "C", 0), (0, 1), (0, 1))),
    ("a pipeline that turns a dependence round", chain, lambda s: s.pipeline(loop(s, "C", 0), (1, 0), (0, 1))),
    ("a pipeline that reads before it writes", chain, lambda s: s.pipeline(loop(s, "C", 0), (0, 0), (1, 0))),
    ("a pipeline through what lives longer", product,
     then(lambda s: s.decompose_reduction("C", loop(s, "C", 2)),
          lambda s: s.pipeline(loop(s, "C", 1), (0, 1), (0, 1)))),
    ("a pipeline of a parallel loop", chain,
     then(lambda s: s.parallel(loop(s, "C", 0)), lambda s: s.pipeline(loop(s, "C", 0), (0, 1), (0, 1)))),
    ("a pipeline of iterations that need each other", kept, lambda s: s.pipeline(loop(s, "down", 0), (0, 1), (0, 1))),
    ("a pipeline inside of lanes", product,
     then(lambda s: s.decompose_reduction("C", loop(s, "C", 2)), lambda s: s.vectorize(loop(s, "C", 0)),
          lambda s: s.pipeline(loop(s, "C", 1), (0, 0), (0, 1)))),
    ("moving a statement out of a pipeline", chain,
     then(lambda s: s.pipeline(loop(s, "C", 0), (0, 1), (0, 1)), lambda s: s.compute_root("P"))),
    # padding
    ("padding of too few variables", product, lambda s: s.pad_einsum("C", (8, 8))),
    ("padding by nothing", product, lambda s: s.pad_einsum("C", (8, 0, 8))),
    ("padding after a split", product,
     then(lambda s: s.split(loop(s, "C", 0), factor=2), lambda s: s.pad_einsum("C", (8, 8, 8)))),
    ("padding a window", blur, lambda s: s.pad_einsum("down", (8, 8))),
    ("padding a maximum", rows, lambda s: s.pad_einsum("most", (1, 8))),
    ("padding a sum that infinities would spoil", scaled, lambda s: s.pad_einsum("C", (1, 8))),
    ("padding a divisor", remainders, lambda s: s.pad_einsum("C", (8,))),
    # reductions
    ("decomposing what has no init", product, lambda s: s.decompose_reduction("relu", loop(s, "relu", 0))),
    ("decomposing at a loop of another block", product, lambda s: s.decompose_reduction("C", loop(s, "relu", 0))),
    ("decomposing inside the reduction", product,
     then(lambda s: s.reorder(*(loop(s, "C", n) for n in (2, 0, 1))),
          lambda s: s.decompose_reduction("C", loop(s, "C", 1)))),
    ("factoring a float sum unasked", product, lambda s: s.rfactor(loop(s, "C", 2))),
    ("factoring a spatial loop", product, lambda s: s.rfactor(loop(s, "C", 0), reassociate=True)),
    ("factoring a tuple reduction unasked", argmax, lambda s: s.rfactor(loop(s, "best", 1))),
    ("factoring a combination that is not associative", decay,
     lambda s: s.rfactor(loop(s, "last", 1), reassociate=True)),
    ("factoring with a wrong identity", off_by_one, lambda s: s.rfactor(loop(s, "most", 1), reassociate=True)),
    # blocks and intrinsics
    ("blockizing two blocks", product,
     then(lambda s: s.compute_at("C", loop(s, "relu", 0)), lambda s: s.blockize(loop(s, "relu", 0)))),
    ("blockizing a guarded tail", product,
     then(lambda s: s.split(loop(s, "C", 0), factor=4), lambda s: s.blockize(loop(s, "C", 1)))),
    ("an intrinsic that nobody declared", product, lambda s: s.tensorize(loop(s, "C", 2), "mystery")),
    ("tensorizing another computation", product, lambda s: s.tensorize(loop(s, "C", 1), DOT_U8S8)),
    ("tensorizing an element-wise block", product, lambda s: s.tensorize(loop(s, "relu", 1), DOT_U8S8)),
    ("an intrinsic whose halves differ", product,
     lambda s: TensorIntrinsic("odd", DOT_U8S8.description, matmul_relu(2, 2, 2))),
    # sliding windows
    ("keeping values across a loop that is not around", blur, lambda s: s.store_at("across", loop(s, "down", 0))),
    ("keeping an output", blur, lambda s: s.store_at("down", loop(s, "down", 0))),
    ("keeping values across a parallel loop", blur,
     then(lambda s: s.compute_at("across", loop(s, "down", 0)), lambda s: s.parallel(loop(s, "down", 0)),
          lambda s: s.store_at("across", loop(s, "down", 0)))),
    ("keeping values after a split", blur,
     then(lambda s: s.compute_at("across", loop(s, "down", 0)), lambda s: s.split(loop(s, "across", 1), factor=2),
          lambda s: s.store_at("across", loop(s, "across", 0)))),
    ("folding what is not kept", blur,
     then(lambda s: s.compute_at("across", loop(s, "down", 0)), lambda s: s.fold_storage("across", 0, 3))),
    ("folding to less than is alive", kept, lambda s: s.fold_storage("across", 0, 2)),
    ("folding the wrong dimension", kept, lambda s: s.fold_storage("across", 1, 8)),
    ("a parallel loop across which values are kept", kept, lambda s: s.parallel(loop(s, "down", 0))),
    ("reordering a loop across which values are kept", kept,
     lambda s: s.reorder(loop(s, "down", 1), loop(s, "down", 0))),
    ("moving what is kept", kept, lambda s: s.compute_root("across")),
    ("copying what is kept", kept, lambda s: s.cache_read("down", 0, "local")),
    ("a predicate over a loop that matters", product, lambda s: s.run_once("relu", loop(s, "relu", 0), 0)),
]  # fmt: skip


def refusal(make: Callable[[], Schedule], move: Move) -> str | None:
    s = make()
    try:
        move(s)
    except ScheduleError as caught:
        assert caught.code in RULES
        return str(caught)
    return None


def test_illegal_moves(golden: Callable[[str, str], None]) -> None:
    assert len(MOVES) >= 60
    assert len({name for name, *_ in MOVES}) == len(MOVES)
    parts = []
    accepted = []
    for name, make, move in MOVES:
        message = refusal(make, move)
        if message is None:
            accepted.append(name)
        parts.append(f"# {name}\n{message}\n")
    assert not accepted, f"accepted: {accepted}"
    golden("illegal_moves.txt", "\n".join(parts))


@pytest.mark.parametrize("name, make, move", MOVES, ids=[m[0] for m in MOVES])
def test_refusals_change_nothing(name: str, make: Callable[[], Schedule], move: Move) -> None:
    with pytest.raises(ScheduleError):
        then(move)(make()) if "then" not in getattr(move, "__qualname__", "") else move(make())
