"""Random moves: calls of primitives with arguments that are sometimes valid."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Select
from weft.schedule import BlockRef, IndexMap, LoopRef, Schedule, TensorIntrinsic
from weft.schedule.primitives.kinds import THREAD_AXES
from weft.schedule.tree import statements_of
from weft.support.errors import ScheduleError
from weft.tir.nodes import Store
from weft.tir.text import parse

SIZES: Final = range(1, 8)
"""Extents of the loops that the intrinsics of these tests replace."""

_SUM: Final = """
program "row_sum_{n}"(A: f32[{n}], B: f32[{n}, 1]) -> (C: f32[1]):
  for k in serial(0, {n}):
"""
_SUM_DESCRIPTION: Final = """    block "C"(x: spatial 1 = 0, r: reduce {n} = k):
      reads A[r], B[r, 0]
      writes C[x]
      init:
        C[x] = f32(0)
      body:
        C[x] = C[x] + A[r] * B[r, 0]
"""
_SUM_CALL: Final = "    C[0] = C[0] + A[k] * B[k, 0]\n"
_MAP: Final = """
program "row_map_{n}"(A: f32[{n}], B: f32[{n}]) -> (C: f32[{n}]):
  for k in serial(0, {n}):
"""
_MAP_DESCRIPTION: Final = """    block "C"(x: spatial {n} = k):
      reads A[x], B[x]
      writes C[x]
      body:
        C[x] = max(A[x], f32(0)) + B[x]
"""
_MAP_CALL: Final = "    C[k] = max(A[k], f32(0)) + B[k]\n"


def _intrinsic(name: str, head: str, description: str, call: str, n: int) -> TensorIntrinsic:
    made = [parse((head + body).format(n=n)) for body in (description, call)]
    return TensorIntrinsic(f"{name}_{n}", made[0], made[1])


INTRINSICS: Final = (
    *(_intrinsic("row_sum", _SUM, _SUM_DESCRIPTION, _SUM_CALL, n) for n in SIZES),
    *(_intrinsic("row_map", _MAP, _MAP_DESCRIPTION, _MAP_CALL, n) for n in SIZES),
)
"""Instructions for rows of every length: what the stages "product" and "map" of random programs compute."""

Move = Callable[[Schedule, random.Random], object]


def some_block(s: Schedule, rng: random.Random) -> BlockRef:
    return rng.choice(s.get_blocks())


def some_loop(s: Schedule, rng: random.Random) -> LoopRef:
    loops = [loop for b in s.get_blocks() for loop in s.get_loops(b)]
    if not loops:
        raise ScheduleError("a program of scalars has no loops", code="S002")
    return rng.choice(loops)


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
    maps = [
        lambda i, j: (j, i),
        lambda i, j: (j // 2, i, j % 2),
        lambda i, j: (i // 3, j, i % 3),
        lambda *i: i[::-1],
        IndexMap.of(lambda i, j, width: (i, j // width, j % width), width=s.sample_choice([2, 3])),
    ]
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
    """Software pipelining of some loop: its statements in stages that rarely decrease."""
    loops = [x for b in s.get_blocks() for x in s.get_loops(b) if len(statements_of(s.state.loop(x))) > 1]
    loop = r.choice(loops or [some_loop(s, r)])
    count = len(statements_of(s.state.loop(loop)))
    stages = sorted(r.randint(0, 2) for _ in range(count)) if r.random() < 0.9 else [r.randint(0, 2)] * count
    order = list(range(count))
    r.shuffle(order)
    s.pipeline(loop, stages, order)


def once(s: Schedule, r: random.Random) -> object:
    """A producer in a loop of its consumers, in the first iteration of a loop around it."""
    b = some_block(s, r)
    s.compute_at(b, near(s, r, s.get_consumers(b)))
    try:
        return s.run_once(b, r.choice(s.get_loops(b) or (some_loop(s, r),)), 0)
    except ScheduleError:
        return None  # the place that was accepted stays


def merge_two(s: Schedule, r: random.Random) -> object:
    """Loops of neighbouring statements, the outermost of two nests or loops inside of one."""
    blocks = s.get_blocks()
    at = r.randrange(len(blocks))
    nests = [s.get_loops(b) for b in blocks[at : at + 2]]
    depth = r.choice([0, 0, 0, 1])
    return s.merge(*(loops[depth] for loops in nests if len(loops) > depth))


def widen(s: Schedule, r: random.Random) -> None:
    """An intermediate result in a type that holds all its values."""
    wider = {"float32": "float64", "float16": "float32", "int8": "int32", "uint8": "int32", "int32": "int64"}
    block = some_block(s, r)
    dtype = str(s.state.block(block).writes[0].buffer.dtype)
    s.unsafe_set_dtype(block, 0, wider.get(dtype, dtype))


def pad_first(s: Schedule, r: random.Random) -> object:
    """A stage that chooses between a value and a constant, if there is one."""
    bodies = {b: s.state.block(b).body for b in s.get_blocks()}
    choosing = [b for b, body in bodies.items() if isinstance(body, Store) and isinstance(body.value, Select)]
    block = r.choice(choosing or [some_block(s, r)])
    return s.decompose_padding(block, r.choice(s.get_loops(block) or (some_loop(s, r),)))


def permute_variables(s: Schedule, r: random.Random) -> None:
    block = some_block(s, r)
    count = len(s.state.block(block).iters)
    s.reorder_block_iter_var(block, r.sample(range(count), count))


def change_variables(s: Schedule, r: random.Random) -> object:
    maps = [
        lambda *i: i[::-1],
        lambda i, j: (j // 2, i, j % 2),
        lambda i, j: (i * 3 + j,),
        lambda i, j, k: (k, j, i),
        lambda i, j, k: (i, k // 2, j, k % 2),
    ]
    return s.transform_block_layout(some_block(s, r), r.choice(maps))


def fetch_together(s: Schedule, r: random.Random) -> None:
    """A producer in shared memory, in a loop of threads around its consumers, which share its loops where they can."""
    b = some_block(s, r)
    loop = near(s, r, s.get_consumers(b))
    s.set_scope(b, 0, "shared")
    try:
        s.bind(loop, "threadIdx.x")
        s.compute_at(b, r.choice([loop, near(s, r, s.get_consumers(b))]))
        outer, _ = s.split(r.choice(s.get_loops(b)[1:]), nparts=int(str(s.state.loop(loop).extent)))
        s.bind(outer, "threadIdx.x")
    except (ScheduleError, ValueError, IndexError):
        pass  # what was accepted so far stays


def tensorize(s: Schedule, r: random.Random) -> object:
    """The innermost loop of some block, by an intrinsic of its extent that computes the same, if there is one."""
    innermost = [loops[-1] for b in s.get_blocks() if (loops := s.get_loops(b))]
    pairs = [(x, i.name) for x in innermost for i in INTRINSICS if i.name.endswith(f"_{s.state.loop(x).extent}")]
    for loop, name in r.sample(pairs, len(pairs)):
        with suppress(ScheduleError):
            return s.tensorize(loop, name)
    return s.tensorize(some_loop(s, r), "row_sum_1")


def marked(s: Schedule, r: random.Random) -> None:
    """An annotation set, and sometimes taken away."""
    target = r.choice([some_block(s, r), *(s.get_loops(some_block(s, r)))])
    s.annotate(target, "mark", r.choice([True, 3, 2.5, float("inf"), "text", (1, ("a", 2.0)), s.sample_choice([4, 5])]))
    if r.random() < 0.5:
        s.unannotate(target, "mark")


def sampled_split(s: Schedule, r: random.Random) -> object:
    """Factors drawn, or computed from a drawn one."""
    loop = some_loop(s, r)
    if r.random() < 0.5:
        return s.split(loop, s.sample_tile(loop, r.randint(1, 3)))
    width = s.sample_choice([1, 2, 3])
    return s.split(loop, factor=r.choice([width * 2, 1 + width // 2, 5 - width]))


def keep_state(s: Schedule, r: random.Random) -> BlockRef:
    """The state of a recurrence, if there is one."""
    ordered = [b for b in s.get_blocks() if any(it.kind == IterVar.ORDERED for it in s.state.block(b).iters)]
    return s.cache_state(r.choice(ordered or [some_block(s, r)]))


def split_by_size(s: Schedule, r: random.Random) -> object:
    """A factor computed from sizes of the program, or a new size."""
    size = s.size(r.choice(["t", *(v.name for v in s.program.sizes)]))
    factor = r.choice([size, size // 2, size + 2])
    return s.split(some_loop(s, r), factors=r.choice([(None, factor), (factor, None), (2, None, factor)]))


MOVES: dict[str, Move] = {
    "split_by_size": split_by_size,
    "split": lambda s, r: s.split(some_loop(s, r), factor=r.randint(1, 4)),
    "split3": lambda s, r: s.split(some_loop(s, r), factors=r.choice([(None, 2, 2), (2, None, 3), (2, 2, None)])),
    "fuse": fuse_two,
    "reorder": reorder_some,
    "parallel": lambda s, r: s.parallel(some_loop(s, r)),
    "vectorize": lambda s, r: s.vectorize(some_loop(s, r)),
    "unroll": lambda s, r: s.unroll(some_loop(s, r), r.choice([None, 0, 3])),
    "bind": lambda s, r: s.bind(some_loop(s, r), r.choice(THREAD_AXES), r.random() < 0.5),
    "fetch_together": fetch_together,
    "virtual_thread": lambda s, r: s.virtual_thread(some_loop(s, r)),
    "annotate": marked,
    "tensorize": tensorize,
    "sampled_split": sampled_split,
    "sampled_order": lambda s, r: s.reorder(*s.sample_order(nest_of(s, r))),
    "lanes of a sum": lambda s, r: s.vectorize(some_loop(s, r), reassociate=True),
    "inner": lambda s, r: s.vectorize(s.get_loop(some_block(s, r), -1)),
    "block": lambda s, r: s.get_block(some_block(s, r).name),
    "compute_at": lambda s, r: s.compute_at(b := some_block(s, r), near(s, r, s.get_consumers(b))),
    "compute_at_any": lambda s, r: s.compute_at(some_block(s, r), some_loop(s, r)),
    "sampled_at": lambda s, r: s.compute_at(b := some_block(s, r), s.sample_location(b)),
    "reverse_compute_at": lambda s, r: s.reverse_compute_at(b := some_block(s, r), near(s, r, s.get_producers(b))),
    "add_unit_loop": lambda s, r: s.add_unit_loop(r.choice([some_block(s, r), some_loop(s, r)])),
    "compute_at_with_units": lambda s, r: s.compute_at(
        b := some_block(s, r), near(s, r, s.get_consumers(b)), preserve_unit_loops=True
    ),
    "reverse_compute_at_with_units": lambda s, r: s.reverse_compute_at(
        b := some_block(s, r), near(s, r, s.get_producers(b)), preserve_unit_loops=True
    ),
    "cache_read_with_units": lambda s, r: s.cache_read(
        some_block(s, r), r.randrange(2), "local", preserve_unit_loops=True
    ),
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
    "rfactor": lambda s, r: s.rfactor(some_loop(s, r), r.randint(0, 2), reassociate=True, share_loops=r.random() < 0.5),
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
    "normalize": lambda s, r: s.normalize(some_loop(s, r)),
    "merge": merge_two,
    "reindex": lambda s, r: s.reindex(some_block(s, r), r.randrange(2), r.random() < 0.3),
    "cache_index": lambda s, r: s.cache_index(some_block(s, r), r.randrange(2), r.randrange(3)),
    "cache_operand": lambda s, r: s.cache_operand(some_block(s, r), r.randrange(2)),
    "cache_state": keep_state,
    "unsafe_set_dtype": widen,
    "decompose_padding": pad_first,
    "reorder_block_iter_var": permute_variables,
    "transform_block_layout": change_variables,
    "read_at": lambda s, r: s.read_at(some_loop(s, r), some_block(s, r), r.randrange(2), "local"),
    "write_at": lambda s, r: s.write_at(some_loop(s, r), some_block(s, r)),
    "pipeline": overlap,
    "stream": lambda s, r: s.stream(some_block(s, r)),
    "run_once": once,
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
