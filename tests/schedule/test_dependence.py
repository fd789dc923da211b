"""Which loops carry dependences, and which instances run again: programs written by hand, each fact both ways."""

from __future__ import annotations

import pytest

from weft import te
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.schedule.dependence import (
    carried_loops,
    check_lanes_apart,
    inherit_carried,
    is_dense,
    partial_blocks,
    repeats,
    runs_once,
)
from weft.schedule.refs import LoopRef
from weft.support.errors import ScheduleError
from weft.tir.text import parse


def carried(reads: str, writes: str = "x", extent: str = "8", where: str = "") -> bool:
    """Whether the loop around two blocks carries a dependence; the first writes T, the second reads it."""
    text = f"""
program "p"(A: f32[8], K: i64[8]) -> (B: f32[8]):
  alloc T: f32[64]
  for i in serial(0, {extent}):
    block "T"(x: spatial {extent} = i):
{where}      reads A[x]
      writes T[{writes}]
      body:
        T[{writes}] = A[x] * 2.0
    block "B"(x: spatial {extent} = i):
      reads T[{reads}], K[x]
      writes B[x]
      body:
        B[x] = T[{reads}]
"""
    found = carried_loops(parse(text))
    return "i" in {v.name for v in found}


@pytest.mark.parametrize(
    ("reads", "writes", "answer"),
    [
        ("x", "x", False),
        ("x + 1", "x", True),
        ("x - 1 + 1", "x", False),
        ("max(x - 1, 0)", "x", True),
        ("7 - x", "x", True),
        ("x * x", "x", True),
        ("x", "x * 1", False),
        ("2 * x", "2 * x", False),
        ("2 * x + 1", "2 * x", True),
        ("x", "0", True),
        ("0", "0", False),
    ],
)
def test_a_read_of_another_iteration_is_carried(reads: str, writes: str, answer: bool) -> None:
    assert carried(reads, writes) == answer


def test_a_writer_below_its_reader_carries() -> None:
    text = """
program "p"(A: f32[8]) -> (B: f32[8]):
  alloc T: f32[8]
  for i in serial(0, 8):
    block "B"(x: spatial 8 = i):
      reads T[x]
      writes B[x]
      body:
        B[x] = T[x]
    block "T"(x: spatial 8 = i):
      reads A[x]
      writes T[x]
      body:
        T[x] = A[x]
"""
    assert {v.name for v in carried_loops(parse(text))} == {"i"}


def nested(index: str, extents: tuple[int, int] = (2, 4)) -> Schedule:
    """One block ``T`` of eight instances, at ``index`` of the loops i and j."""
    a, b = extents
    return Schedule(
        parse(
            f"""
program "p"(A: f32[64]) -> (T: f32[64]):
  for i in serial(0, {a}):
    for j in serial(0, {b}):
      block "T"(x: spatial 64 = {index}):
        reads A[x]
        writes T[x]
        body:
          T[x] = A[x]
"""
        )
    )


def once_in_loops(text: str) -> bool:
    """Whether each spatial instance of the block T of a program runs at most once, as if the block had been moved."""
    state = Schedule(parse(text))._state
    (block,) = state.tree.blocks.values()
    state.partial = frozenset({"T"})
    return runs_once(state, block, state.tree.loops_around(block))


@pytest.mark.parametrize(
    ("unused", "extent", "once"),
    [
        ("0, 1", "4", True),
        ("3, 1", "4", True),
        ("0, 2", "4", False),
        ("-5, 2", "4", False),
        ("-1, 2", "4", False),
        ("n, 1", "n", True),
        ("n, 2", "n", False),
    ],
)
def test_a_loop_that_no_index_mentions_may_have_one_step(unused: str, extent: str, once: bool) -> None:
    text = f"""
program "p"[n](A: f32[n + 4]) -> (T: f32[{extent}]):
  for j in serial({unused}):
    for i in serial(0, {extent}):
      block "T"(x: spatial {extent} = i):
        reads A[x]
        writes T[x]
        body:
          T[x] = A[x]
"""
    assert once_in_loops(text) == once


@pytest.mark.parametrize(
    ("index", "dense", "once"),
    [
        ("i * 4 + j", True, True),
        ("j * 2 + i", True, True),
        ("i * 5 + j", False, True),
        ("i * 3 + j", True, False),
        ("i * 8 + j * 2", False, True),
        ("i + j", True, False),
        ("j", True, False),
        ("i * 4 + j + 7", True, True),
        ("(1 - i) * 4 + j", None, True),
        ("i * 4 + j // 2", None, False),
        ("i * 4 + j - j // 2", None, False),  # 0, 1, 1, 2: a loop and a part of it in one index
        ("i * 4 - j // 2 + j", None, False),
        ("i * 4 + j + j // 2", None, False),
        ("i * 8 + j + j // 2", None, True),
        ("i * 8 + j * 2 - (i * 4 + j) // 2 * 2", None, False),
        ("j - i // 2 + i * 4", None, True),
    ],
)
def test_numbers_of_loops_are_dense_and_run_once(index: str, dense: bool | None, once: bool) -> None:
    s = nested(index)
    state = s._state
    (block,) = state.tree.blocks.values()
    loops = state.tree.loops_around(block)
    if dense is not None:
        assert is_dense(state.tree, None, block, block.writes[0]) == dense
    state.partial = frozenset({"T"})
    assert runs_once(state, block, loops) == once
    assert repeats(state, loops[0], block) == (not once)
    state.partial = frozenset()
    assert runs_once(state, block, loops), "a block that was never moved"


@pytest.mark.parametrize("start", [-9, -5, -1, 0, 3])
@pytest.mark.parametrize(("factor", "once"), [(1, False), (2, False), (3, False), (4, True), (5, True)])
def test_loops_may_start_anywhere(start: int, factor: int, once: bool) -> None:
    """Whether digits overlap depends on the number of steps, not on where they begin."""
    text = f"""
program "p"(A: f32[64]) -> (T: f32[64]):
  for i in serial({start}, 3):
    for j in serial({start}, 4):
      block "T"(x: spatial 64 = i * {factor} + j):
        reads A[x]
        writes T[x]
        body:
          T[x] = A[x]
"""
    assert once_in_loops(text) == once


def test_one_iteration_repeats_nothing() -> None:
    state = nested("j", (1, 4))._state
    (block,) = state.tree.blocks.values()
    state.partial = frozenset({"T"})
    assert not repeats(state, state.tree.loops_around(block)[0], block)
    state = nested("j", (2, 4))._state
    (block,) = state.tree.blocks.values()
    state.partial = frozenset({"T"})
    assert repeats(state, state.tree.loops_around(block)[0], block)


def test_widths_that_are_not_known() -> None:
    n = te.var("n")
    a = te.placeholder((4, n), name="A")
    s = Schedule(te_to_tir("p", [a], [te.compute((4, n), lambda i, j: a[i, j], name="C")]))
    fused = s.fuse(*s.get_loops("C"))
    s.split(fused, [None, 4])
    state = s._state
    (block,) = state.tree.blocks.values()
    state.partial = frozenset({"C"})
    assert runs_once(state, block, []) and not partial_of("n")
    assert partial_of("n", "j + 1"), "the first is left out"


def partial_of(extent: str, value: str = "j") -> frozenset[str]:
    text = f"""
program "p"[n](A: f32[n]) -> (B: f32[n]):
  for j in serial(0, {extent}):
    block "B"(x: spatial n = {value}):
      reads A[x]
      writes B[x]
      body:
        B[x] = A[x]
"""
    return partial_blocks(parse(text))


def swept(index: str) -> bool:
    """Whether the outer loop is carried; in each iteration, the second block reads T at ``index`` of an inner loop."""
    text = f"""
program "p"(A: f32[4, 8]) -> (B: f32[4, 8]):
  alloc T: f32[8]
  for i in serial(0, 4):
    for j in serial(0, 8):
      block "T"(x: spatial 4 = i, y: spatial 8 = j):
        reads A[x, y]
        writes T[y]
        body:
          T[y] = A[x, y]
    for k in serial(0, 8):
      block "B"(x: spatial 4 = i, y: spatial 8 = k):
        reads T[{index}]
        writes B[x, y]
        body:
          B[x, y] = T[{index}]
"""
    return "i" in {v.name for v in carried_loops(parse(text))}


@pytest.mark.parametrize(
    ("index", "answer"), [("y", False), ("7 - y", False), ("y + 1", True), ("y * y", True), ("y * y % 8", False)]
)
def test_all_that_an_inner_loop_reads_was_written(index: str, answer: bool) -> None:
    assert swept(index) == answer, "what cannot be expressed may be anywhere"


def test_instances_beyond_a_width_that_is_not_known_may_repeat() -> None:
    text = """
program "p"[n](A: f32[n]) -> (T: f32[n]):
  for i in serial(0, 4):
    for j in serial(0, n):
      block "T"(x: spatial n = INDEX):
        reads A[x]
        writes T[x]
        body:
          T[x] = A[x]
"""
    for index, once in (("i * 100 + j", False), ("j * 4 + i", True), ("j", False), ("j * 4 + i + n", True)):
        assert once_in_loops(text.replace("INDEX", index)) == once, index


@pytest.mark.parametrize(
    ("index", "apart"), [("x % 4", False), ("0", False), ("x", True), ("x // 2", True), ("x + 1", True)]
)
def test_lanes_that_share_a_remainder_are_not_apart(index: str, apart: bool) -> None:
    text = f"""
program "p"(A: f32[8]) -> (T: f32[16]):
  for i in serial(0, 8):
    block "T"(x: spatial 8 = i):
      reads A[x]
      writes T[{index}]
      body:
        T[{index}] = A[x]
"""
    state = Schedule(parse(text))._state
    (block,) = state.tree.blocks.values()
    (loop,) = state.tree.loops_around(block)
    if apart:
        check_lanes_apart(state, loop, block)
        return
    with pytest.raises(ScheduleError, match="S018"):
        check_lanes_apart(state, loop, block)
    state.kept = {"T": loop.var}  # the window of one iteration
    check_lanes_apart(state, loop, block)


def two_nests() -> Schedule:
    return Schedule(
        parse(
            """
program "p"(A: f32[8]) -> (B: f32[8], C: f32[8]):
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
  for j in serial(0, 8):
    block "C"(x: spatial 8 = j):
      reads A[x]
      writes C[x]
      body:
        C[x] = A[x]
"""
        )
    )


def test_only_loops_made_from_carried_ones_are_carried() -> None:
    s = two_nests()
    outer, inner = s.split(s.get_loops("C")[0], [None, 4])
    s.parallel(outer)
    s.vectorize(inner)
    outer, _ = s.split(s.get_loops("B")[0], [None, 4])
    with pytest.raises(ScheduleError, match="S015"):
        s.parallel(outer)


def test_carried_is_inherited_by_name() -> None:
    s = two_nests()
    state = s._state
    (i,), (j,) = ([x.var for x in state.tree.loops_around(state.tree.blocks[n])] for n in "BC")
    assert state.carried == {i}
    new = te.var("new")
    inherit_carried(state, [j], [LoopRef(new)])
    assert state.carried == {i}
    inherit_carried(state, [j, i], [LoopRef(new)])
    assert state.carried == {i, new}


def whole_of(value: str, loops: str = "0, 3", inner: str = "0, 4", extent: str = "12") -> bool:
    """Whether each instance of a block below two loops is proved to run exactly once."""
    text = f"""
program "p"[n](A: f32[{extent}]) -> (B: f32[{extent}]):
  for i in serial({loops}):
    for j in serial({inner}):
      block "B"(x: spatial {extent} = {value}):
        reads A[x]
        writes B[x]
        body:
          B[x] = A[x]
"""
    return not partial_blocks(parse(text))


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ({"value": "i * 4 + j"}, True),
        ({"value": "i * 4 + j", "extent": "13"}, False),
        ({"value": "i * 5 + j"}, False),
        ({"value": "(i - 5) * 4 + (j - 2)", "loops": "5, 3", "inner": "2, 4"}, True),
        ({"value": "(i - 5) * 4 + (j - 2)", "loops": "5, 3", "inner": "2, 4", "extent": "40"}, False),
        ({"value": "(i + 1) * 4 + j", "loops": "-1, 3"}, True),  # the last step is 1, the first -1
        ({"value": "(i - 3) * 7 + j", "loops": "3, 1", "extent": "4"}, True),  # one step, any factor
        ({"value": "(i - 3) * 7 + j", "loops": "3, 2", "extent": "8"}, False),
        ({"value": "i * 4 + j", "inner": "0, n + 4"}, False),  # digits overlap if n is not 0
        ({"value": "j", "loops": "0, 1", "inner": "n, 4", "extent": "4"}, False),  # begins at n
        ({"value": "i + j", "loops": "0, 1", "inner": "0, n", "extent": "n"}, True),
        ({"value": "i * n + j", "inner": "0, n", "extent": "3 * n"}, False),  # not an integer factor: not proved
    ],
)
def test_blocks_that_run_each_instance_once(arguments: dict[str, str], whole: bool) -> None:
    assert whole_of(**arguments) == whole


def test_reductions_may_start_anywhere() -> None:
    a, k = te.placeholder((4, 12), name="A"), te.reduce_axis((2, 10), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    assert not partial_blocks(te_to_tir("p", [a], [c]))


def test_blocks_of_different_buffers_carry_nothing() -> None:
    """Not even if one of them writes only some elements."""
    text = """
program "p"(A: f32[8]) -> (B: f32[8], C: f32[8]):
  for i in serial(0, 8):
    block "B"(x: spatial 8 = i):
      reads A[x]
      writes B[x]
      where i < 5
      body:
        B[x] = A[x]
    block "C"(x: spatial 8 = i):
      reads A[x]
      writes C[x]
      body:
        C[x] = A[x]
"""
    assert not carried_loops(parse(text))


def test_a_reduction_begins_anew_in_a_loop_that_it_does_not_mention() -> None:
    text = """
program "p"(A: f32[8]) -> (B: f32[1]):
  for r in serial(0, 2):
    for k in serial(0, 8):
      block "B"(x: spatial 1 = 0, y: reduce 8 = k):
        reads B[x], A[y]
        writes B[x]
        init:
          B[x] = 0.0
        body:
          B[x] = B[x] + A[y]
    block "C"(x: spatial 1 = 0):
      reads B[x]
      writes B[x]
      body:
        B[x] = B[x] * 2.0
"""
    assert "r" not in {v.name for v in carried_loops(parse(text))}


@pytest.mark.parametrize(("start", "factor", "dense"), [(0, 4, True), (3, 4, True), (3, 6, False), (3, 5, False)])
def test_dense_boxes_of_loops_that_start_anywhere(start: int, factor: int, dense: bool) -> None:
    text = f"""
program "p"(A: f32[64]) -> (T: f32[64]):
  for i in serial(0, 3):
    for j in serial({start}, 4):
      block "T"(x: spatial 64 = i * {factor} + j):
        reads A[x]
        writes T[x]
        body:
          T[x] = A[x]
"""
    tree = Schedule(parse(text))._state.tree
    (block,) = tree.blocks.values()
    assert is_dense(tree, None, block, block.writes[0]) == dense


@pytest.mark.parametrize(
    ("extent", "filled", "factor", "dense"),
    [
        ("n", True, 1, True),
        ("n", True, 2, False),
        ("n", False, 1, False),
        ("1", False, 1, True),
        ("2", True, 2, True),
        ("2", True, 3, False),
    ],
)
def test_regions_of_open_sizes(extent: str, filled: bool, factor: int, dense: bool) -> None:
    """An instruction writes all of its region, however long that is."""
    text = f"""
program "p"[n](A: f32[64]) -> (T: f32[64]):
  for i in serial(0, 4):
    block "T"(x: spatial 16 = i):
      reads A[x]
      writes T[x * {factor} : +{extent}]
      body:
        T[x * {factor}] = A[x]
"""
    note = '      annotations {tensorized = "copy"}\n' if filled else ""
    tree = Schedule(parse(text.replace("      body:", f"{note}      body:")))._state.tree
    (block,) = tree.blocks.values()
    assert is_dense(tree, None, block, block.writes[0]) == dense


def test_a_spatial_instance_is_repeated_by_what_a_reduction_shares() -> None:
    """The loop drives a reduce variable and one of two spatial ones."""
    text = """
program "p"(A: f32[4, 4]) -> (T: f32[2, 4]):
  for i in serial(0, 4):
    for j in serial(0, 4):
      block "T"(x: spatial 2 = i // 2, y: spatial 4 = j, k: reduce 4 = i):
        reads T[x, y], A[k, y]
        writes T[x, y]
        init:
          T[x, y] = 0.0
        body:
          T[x, y] = T[x, y] + A[k, y]
"""
    assert not once_in_loops(text)


def test_reordering_around_several_blocks() -> None:
    a, k = te.placeholder((6, 5), name="A"), te.reduce_axis((0, 5), "k")
    s = Schedule(te_to_tir("p", [a], [te.compute((6, 4), lambda i, j: te.sum(a[i, k] + j, axis=k), name="C")]))
    i, j, k_loop = s.get_loops("C")
    s.decompose_reduction("C", k_loop)
    s.reorder(j, i)
    assert [loop.name for loop in s.get_loops("C")][:2] == ["j", "i"]
