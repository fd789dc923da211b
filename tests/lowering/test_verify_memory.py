"""The verifier of memory plans on programs written by hand: each wrong plan is found, each right one accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from weft import te
from weft.graph.passes.memory import MemoryPlan
from weft.lowering.control_parts import Goto, Label, Place
from weft.lowering.verify_memory import verify_memory
from weft.runtime.program import CallKernel, Check, CheckRange, Copy, Return, SetSize
from weft.support.errors import InternalError


def kernel(*buffers: int) -> CallKernel:
    return CallKernel(0, buffers, label="it")


def arena(number: int, nbytes: Any = 64, **more: Any) -> Place:
    return Place(number, "arena", nbytes, "uint8", **more)


X, Y = Place(0, "input", 64, "uint8"), Place(1, "output", 64, "uint8")


def wrong(
    items: Sequence[Any],
    offsets: Mapping[int, int],
    places: Sequence[Place] | None = None,
    size: int = 1024,
    written: Mapping[int, int] | None = None,
    exchanges: Mapping[int, Sequence[tuple[Place, Place]]] | None = None,
) -> str:
    """What the verifier says of a program; nothing if it accepts it. Places from 2 on lie in the arena."""
    known = list(places or [X, Y, *(arena(n) for n in range(2, 2 + len(offsets)))])
    one = {at: 1 for at, item in enumerate(items) if isinstance(item, CallKernel)}
    plan = MemoryPlan((), size, 0, 0, (size,))
    at = {known[n]: offset for n, offset in offsets.items()}
    try:
        verify_memory(items, known, at, plan, {**one, **(written or {})}, exchanges or {})
    except InternalError as error:
        assert error.code == "W013"
        return error.message
    return ""


def test_values_that_are_read_later_keep_their_memory() -> None:
    items = [kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)]
    assert not wrong(items, {2: 0, 3: 64})
    for offset in (0, 32):
        assert "overwrites data that is still to be read" in wrong(
            [kernel(0, 2), Copy(0, 3, (64,)), items[2]], {2: 0, 3: offset}
        )
    assert not wrong([kernel(0, 2), kernel(2, 1), kernel(0, 3), kernel(3, 1)], {2: 0, 3: 0}), "not read any more"


@pytest.mark.parametrize(
    "reads", [CheckRange(2, (1,), ((0,),), ((1,),), ""), SetSize("n", buffer=2), Copy(2, 1, (64,))]
)
def test_all_that_reads_counts(reads: Any) -> None:
    items = [kernel(0, 2), kernel(0, 3), reads, kernel(3, 1)]
    assert not wrong(items, {2: 0, 3: 64})
    assert "still to be read" in wrong(items, {2: 0, 3: 0})


def test_a_size_of_no_buffer_reads_nothing() -> None:
    assert not wrong([SetSize("n", (1,)), kernel(0, 2), kernel(2, 1)], {2: 0})


def test_two_results_of_a_kernel_lie_apart() -> None:
    items = [kernel(0, 2, 3), kernel(2, 3, 1)]
    assert not wrong(items, {2: 0, 3: 64}, written={0: 2})
    assert wrong(items, {2: 0, 3: 0}, written={0: 2})
    unread = [kernel(0, 2, 3), kernel(0, 1)]
    assert "writes two results to the same memory" in wrong(unread, {2: 0, 3: 0}, written={0: 2})


def test_results_are_inside_of_the_arena_and_aligned() -> None:
    items = [kernel(0, 2), kernel(2, 1)]
    assert not wrong(items, {2: 64}, size=128)
    assert "outside the arena" in wrong(items, {2: 64}, size=127)
    assert "outside the arena" in wrong(items, {2: -64})
    assert "unaligned" in wrong(items, {2: 32})
    assert not wrong([Copy(0, 2, (64,)), kernel(2, 1)], {2: 32}), "copies go anywhere"


def test_stretches_end_with_their_buffer() -> None:
    whole = arena(2, 128)
    for start, told in ((64, ""), (128, "past the end of its buffer")):
        part = arena(3, 64, parent=whole, start=start)
        assert told in wrong([kernel(0, 3), kernel(0, 2), kernel(2, 1)], {2: 0}, [X, Y, whole, part])
        assert bool(told) == bool(wrong([kernel(0, 3), kernel(3, 1)], {2: 0}, [X, Y, whole, part]))


@pytest.mark.parametrize("at", range(0, 257, 64))
def test_places_without_bytes_disturb_nobody(at: int) -> None:
    """Before, at the edges of, in and behind a place that is still to be read, and where another empty one lies."""
    places = [X, Y, arena(2, 128), arena(3, 0), arena(4, 0)]
    for items, written in (
        ([kernel(0, 3), kernel(0, 2), kernel(3, 4), kernel(2, 3, 4, 1)], 1),
        ([kernel(0, 2), kernel(0, 3, 4), kernel(2, 3, 4, 1)], 2),
        ([kernel(0, 2), kernel(0, 4), Copy(4, 3, (0,)), kernel(2, 3, 1)], 1),
    ):
        assert not wrong(items, {2: 64, 3: at, 4: at}, places, written={1: written})
        full = [*places[:3], arena(3, 64), arena(4, 64)]
        assert wrong(items, {2: 64, 3: at, 4: at}, full, written={1: written}), "with bytes they overlap"


def test_data_is_written_before_it_is_read() -> None:
    assert "reads data before it is written" in wrong([kernel(2, 1), kernel(0, 2)], {2: 0})
    skipped = Label()
    assert not wrong([Goto(skipped, ("n",)), kernel(0, 2), skipped, kernel(2, 1)], {2: 0}), "with jumps nobody knows"


def test_a_part_that_is_copied_leaves_the_rest() -> None:
    first = [kernel(0, 2), Copy(0, 2, (8,), (0,), (8,)), kernel(2, 1)]
    assert not wrong(first, {2: 0})
    assert "before it is written" in wrong(first[1:], {2: 0}), "the rest was never written"
    assert not wrong([Copy(0, 2, (64,)), kernel(2, 1)], {2: 0})


def test_a_loop_needs_again_what_its_next_iteration_reads() -> None:
    """Seen when the walk comes to the head of the loop a second time."""
    head = Label()
    items = [kernel(0, 2), head, kernel(2, 1), kernel(0, 3), Goto(head, ("n",)), kernel(3, 1)]
    assert not wrong(items, {2: 0, 3: 64})
    assert "still to be read" in wrong(items, {2: 0, 3: 0})


def test_inner_loops_are_walked_until_nothing_changes() -> None:
    outer, inner = Label(), Label()
    items = [
        kernel(0, 2), outer, kernel(2, 1), inner, kernel(0, 3), Goto(inner, ("n",)), kernel(3, 1), Goto(outer, ("m",)),
    ]  # fmt: skip
    assert not wrong(items, {2: 0, 3: 64})
    assert "still to be read" in wrong(items, {2: 0, 3: 0})


def test_nothing_is_needed_after_a_jump_away_or_a_failure() -> None:
    end = Label()
    items = [kernel(0, 2), Goto(end), kernel(2, 1), end, kernel(0, 3), kernel(3, 1)]
    assert not wrong(items, {2: 0, 3: 0}), "the reader is jumped over"
    failing = [kernel(0, 2), kernel(0, 3), kernel(3, 1), Check((0,), "no"), kernel(2, 1)]
    assert not wrong(failing, {2: 0, 3: 0})
    assert wrong([*failing[:3], Check((1,), "yes"), failing[4]], {2: 0, 3: 0})


def test_a_kernel_overwrites_what_it_may_and_exactly_that() -> None:
    a, b = arena(2), arena(3)
    items = [kernel(0, 2), kernel(2, 3), kernel(3, 1)]
    allowed = {1: [(a, b)]}
    assert not wrong(items, {2: 0, 3: 0}, [X, Y, a, b], exchanges=allowed)
    assert wrong(items, {2: 0, 3: 0}, [X, Y, a, b])
    assert wrong(items, {2: 0, 3: 0}, [X, Y, a, b], exchanges={1: [(b, a)]})
    wide = arena(2, 128)
    assert wrong(items, {2: 0, 3: 64}, [X, Y, wide, b], exchanges={1: [(wide, b)]}), "a part of it only"
    again = [*items[:2], kernel(2, 3, 1)]
    assert wrong(again, {2: 0, 3: 0}, [X, Y, a, b], exchanges=allowed), "it is read once more"


def test_spaces_and_empty_places_do_not_meet() -> None:
    items = [kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)]
    assert not wrong(items, {2: 0, 3: 0}, [X, Y, arena(2), arena(3, space=1)])
    assert not wrong(items, {2: 0, 3: 0}, [X, Y, arena(2), arena(3, 0)])
    assert not wrong(items, {2: 0, 3: 0}, [X, Y, arena(2), arena(3, late=True)]), "allocated at run time"


def test_neighbours_of_all_sizes() -> None:
    """Every pair of places that are needed at once, at all distances: found exactly where they overlap."""
    for first in (64, 128, 192):
        for second in (64, 128):
            for offset in range(0, 448, 64):
                places = [X, Y, arena(2, first), arena(3, second)]
                found = wrong([kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)], {2: 128, 3: offset}, places)
                assert bool(found) == (offset < 128 + first and offset + second > 128), (first, second, offset)


def test_messages_name_the_kernel_or_the_instruction() -> None:
    late = [kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)]
    assert wrong(late, {2: 0, 3: 32}).startswith("the memory plan is wrong: it ")
    for item, name in ((CallKernel(7, (0, 3)), "kernel 7 "), (Copy(0, 3, (64,)), "Copy ")):
        assert wrong([late[0], item, late[2]], {2: 0, 3: 32}).startswith(f"the memory plan is wrong: {name}")


def test_sizes_for_which_a_place_would_be_negative_are_not_assumed() -> None:
    """The plan is checked for the first assumed sizes for which all places have a size."""
    n = te.var("n")
    items = [kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)]
    for short in (17, 50):
        for other in (64, (n - short) * 64):
            places = [X, Y, arena(2, (n - short) * 64), arena(3, other)]
            assert "still to be read" in wrong(items, {2: 0, 3: 0}, places, 1 << 20), (short, other)
    places = [X, Y, arena(2, n - 17), arena(3)]
    assert "still to be read" in wrong(items, {2: 0, 3: 0}, places, 1 << 20)


def test_only_the_named_result_may_overwrite_an_operand() -> None:
    items = [kernel(0, 2), kernel(2, 3, 4), kernel(3, 4, 1)]
    places = [X, Y, arena(2), arena(3), arena(4)]
    pairs = {1: [(places[2], places[3])]}
    assert not wrong(items, {2: 0, 3: 0, 4: 64}, places, written={1: 2}, exchanges=pairs)
    assert "still to be read" in wrong(items, {2: 0, 3: 64, 4: 0}, places, written={1: 2}, exchanges=pairs)


def test_a_jump_out_of_the_function_needs_nothing() -> None:
    items = [kernel(0, 2), kernel(2, 1), kernel(0, 3), kernel(3, 1), Goto(Label(), ("n",))]
    assert not wrong(items, {2: 0, 3: 0})
    items = [kernel(0, 2), kernel(2, 1), Goto(Label(), ("n",)), kernel(0, 3), kernel(3, 1)]
    assert not wrong(items, {2: 0, 3: 0})


def test_parts_of_an_output_are_checked() -> None:
    whole = Place(1, "output", 192, "uint8")
    parts = [Place(2 + k, "output", 128, "uint8", parent=whole, start=k * 64) for k in range(2)]
    items = [kernel(0, 2), kernel(0, 3), kernel(2, 4)]
    assert "still to be read" in wrong(items, {}, [X, whole, *parts, arena(4)])
    parts = [Place(2 + k, "output", 64, "uint8", parent=whole, start=k * 64) for k in range(2)]
    assert not wrong(items, {}, [X, whole, *parts, arena(4)])


def test_the_first_instruction_is_named() -> None:
    items = [CallKernel(0, (2, 1), label="first"), CallKernel(0, (0, 2), label="second"), kernel(2, 1)]
    assert "first is in a program that reads data before it is written" in wrong(items, {2: 0})


def test_nothing_lies_before_the_arena() -> None:
    items = [Copy(0, 2, (64,)), kernel(2, 1)]
    assert "outside the arena" in wrong(items, {2: -1}) and not wrong(items, {2: 0})


def test_nothing_is_needed_behind_a_return() -> None:
    """The code behind it is reached by a jump, with other values."""
    there = Label()
    items = [kernel(0, 2), Goto(there, ("n",)), kernel(0, 3), kernel(3, 1), Return(()), there, kernel(2, 1)]
    assert not wrong(items, {2: 0, 3: 0})
    assert "still to be read" in wrong([i for i in items if not isinstance(i, Return)], {2: 0, 3: 0})


N, M = te.var("n"), te.var("m")
SECOND = {
    "behind": (N * 64, N * 64, M * 64, False),
    "behind a multiple": (N * 64, N * 192, M * 64, False),
    "behind the larger": (N * 64, te.max(N, M) * 64, M * 64, False),
    "behind whole lines": (N, (N + 63) // 64 * 64, M, False),
    "behind the other size": (N * 64, M * 64, M * 64, True),
    "behind the smaller": (N * 64, te.min(N, M) * 64, M * 64, True),
    "behind a product": (N * 64, N * M * 64, 64, True),  # of which one may be 0
    "behind a quotient": (N * 64, N // M * M * 64, M * 64, True),
    "behind a number": (N * 64, 16 * 64, M * 64, True),
    "behind a large number": (N * 64, 2048 * 64, M * 64, True),
    "behind a difference": ((N - 3) * 64, (N - 3) * 64, M * 64, False),
    "behind less than a difference": ((N - 3) * 64, (N - 4) * 64, M * 64, True),
    "behind half": (N * 128, (N + M) * 64, M * 64, True),
}


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("turned", [False, True])
def test_sizes_that_differ_are_tried(case: str, turned: bool) -> None:
    """A plan that is right where all sizes are equal may be wrong where they are not."""
    first, offset, second, is_wrong = SECOND[case]
    places = [X, Y, arena(2, first), arena(3, second)]
    if turned:  # the symbols are found in the other order
        places = [X, Y, arena(2, second), arena(3, first)]
    at = {2: offset, 3: 0} if turned else {2: 0, 3: offset}
    found = wrong([kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)], at, places, 1 << 40)
    assert ("still to be read" in found) == is_wrong, found


@pytest.mark.parametrize("size", [N * 64 + M * 64, te.max(N, M) * 128, (N + 16) * 64])
def test_the_arena_is_large_enough_for_all_sizes(size: Any) -> None:
    items = [kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)]
    places = [X, Y, arena(2, N * 64), arena(3, M * 64)]
    found = wrong(items, {2: 0, 3: N * 64}, places, size)
    assert ("outside the arena" in found) == ("16" in str(size)), found


def test_an_operand_is_overwritten_where_it_has_the_size_of_the_result_for_all_sizes() -> None:
    items = [kernel(0, 2), kernel(2, 3), kernel(3, 1)]
    for size, right in ((N * 64, True), (M * 64, False), (1024, False)):
        a, b = arena(2, N * 64), arena(3, size)
        found = wrong(items, {2: 0, 3: 0}, [X, Y, a, b], 1 << 40, exchanges={1: [(a, b)]})
        assert bool(found) != right, (size, found)


def test_many_sizes_and_many_places() -> None:
    """Few assignments are tried where there are many places; they still find sizes in the wrong order."""
    names = [te.var(f"n{i}") for i in range(20)]
    for count in (20, 2000):
        blocks = count // 20
        places = [X, Y, *(arena(2 + i, names[i % 20] * 64) for i in range(count))]
        items = [*(kernel(0, 2 + i) for i in range(count)), kernel(*range(2, 2 + count), 1)]
        starts: list[Any] = [0]  # of the places of each size, which lie side by side
        for name in names[:-1]:
            starts.append(starts[-1] + name * (64 * blocks))
        at = {2 + i: starts[i % 20] + names[i % 20] * (64 * (i // 20)) for i in range(count)}
        assert not wrong(items, at, places, 1 << 40)
        for moved, more, less in ((3, 4, 3), (4, 3, 4), (7, 0, 19), (12, 19, 1)):
            found = wrong(items, {**at, 2 + moved: at[2 + moved] + (names[more] - names[less]) * 64}, places, 1 << 40)
            assert found, (count, moved, more, less)
