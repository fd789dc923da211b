"""How long places are needed, and what may overwrite what: small programs written by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from seeds import seeds

from weft.lowering.control_parts import Goto, Label, Place
from weft.lowering.lifetimes import Lifetimes
from weft.runtime.program import CallKernel, Free, Return


def kernel(*buffers: int) -> CallKernel:
    return CallKernel(0, buffers)


def arena(number: int, nbytes: int = 64, **more: Any) -> Place:
    return Place(number, "arena", nbytes, "uint8", **more)


def lifetimes(items: Sequence[Any], places: Sequence[Place], ranges: Sequence[tuple[int, int]] = ()) -> Lifetimes:
    made = Lifetimes(list(places))
    made.places, made.items, made.ranges = list(places), list(items), list(ranges)
    made.written = {at: 1 for at, item in enumerate(items) if isinstance(item, CallKernel)}
    made.measure()
    return made


def four() -> list[Place]:
    return [Place(0, "input", 64, "uint8"), Place(1, "output", 64, "uint8"), arena(2), arena(3)]


LOOP = Label()


@pytest.mark.parametrize(
    ("ranges", "first", "last", "want"),
    [
        ([(2, 7)], 1, 3, 7),  # needed before the loop and in it
        ([(2, 7)], 1, 2, 7),  # last by the label
        ([(2, 7)], 2, 3, 7),  # first by the label
        ([(2, 7)], 3, 5, 5),  # only in the loop
        ([(2, 7)], 0, 1, 1),  # only before
        ([(2, 7)], 1, 8, 8),  # behind it, too
        ([(2, 7)], 8, 9, 9),
        ([(3, 5), (2, 7)], 1, 4, 7),  # loops in loops, in any order
        ([(2, 7), (3, 5)], 1, 4, 7),
        ([(3, 5), (2, 7)], 2, 3, 7),
        ([(4, 6), (2, 8)], 3, 5, 6),  # made in the outer loop
    ],
)
def test_what_comes_from_before_a_loop_is_needed_until_its_end(
    ranges: list[tuple[int, int]], first: int, last: int, want: int
) -> None:
    places = four()
    items: list[Any] = [kernel(0, 1) for _ in range(10)]
    items[first] = kernel(0, 2)
    items[last] = kernel(2, 1)
    lifetimes(items, places, ranges)
    assert (places[2].first, places[2].last) == (first, want)


def test_a_stretch_is_part_of_a_place() -> None:
    whole = arena(2, 128)
    part = arena(3, 64, parent=whole, start=64)
    lifetimes([kernel(0, 3), kernel(0, 1), kernel(2, 1)], [*four()[:2], whole, part])
    assert (part.first, part.last, whole.first, whole.last) == (0, 0, 0, 2)


def exchanged(buffers: tuple[int, ...], pairs: Sequence[tuple[int, int]], places: list[Place]) -> list[Place | None]:
    """The memory that results take in a kernel that is the last to read its operands."""
    makes = [kernel(0, n) for n in (2, 3)]
    made = lifetimes([*makes, kernel(*buffers), kernel(4, 1), kernel(5, 1)], places)
    made.written[2] = sum(n > 3 for n in buffers)
    made.exchanges = {2: [(places[a], places[b]) for a, b in pairs]}
    made.exchange()
    return [p.takes for p in places]


def six(**more: Any) -> list[Place]:
    return [*four(), arena(4, **more), arena(5)]


def test_a_result_takes_what_is_no_longer_needed() -> None:
    places = six()
    assert exchanged((2, 3, 4), [(2, 4)], places)[4] is places[2]
    places = six()
    assert exchanged((2, 3, 4), [(2, 4), (3, 4)], places)[4] is places[2], "the first that fits"
    places = six()
    assert exchanged((2, 3, 4, 5), [(2, 4), (2, 5)], places)[4:] == [places[2], None], "once"
    places = six()
    assert exchanged((2, 2, 4), [(2, 4)], places)[4] is None, "read twice, perhaps at different places"


def test_results_that_do_not_fit_take_nothing() -> None:
    for more in ({"nbytes": 640}, {"space": 1}, {"late": True}):
        places = six(**more)
        assert exchanged((2, 3, 4), [(2, 4)], places)[4] is None, more


def test_every_space_has_its_own_arena() -> None:
    places = [*four()[:2], arena(2), arena(3, space=1)]
    made = lifetimes([kernel(0, 2), kernel(0, 3), kernel(2, 3, 1)], places)
    assert [p for p, _, _ in made.stretches_of_memory(0)] == [places[2]]
    assert [p for p, _, _ in made.stretches_of_memory(1)] == [places[3]]
    assert made.stretches_of_memory(2) == []


def test_steps_are_items_that_access_memory() -> None:
    places = four()
    made = lifetimes([LOOP, kernel(0, 2), Goto(LOOP, ("n",)), kernel(0, 3), kernel(2, 3, 1)], places)
    assert made.stretches_of_memory(0) == [(places[2], 1, 3), (places[3], 2, 3)]
    places[3].takes = places[2]
    assert made.stretches_of_memory(0) == [(places[2], 1, 3)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_late_places_are_freed_behind_their_last_use(count: int) -> None:
    """And all places keep pointing to the items that they pointed to."""
    for uses in itertools.product(range(1, 4), repeat=count):
        places = [Place(0, "input", 64, "uint8"), Place(1, "output", 64, "uint8")]
        places += [arena(n, late=True) for n in range(2, 2 + count)] + [arena(2 + count)]
        items: list[Any] = [kernel(0, *range(2, 2 + count)), *(kernel(0, 1) for _ in range(3)), Return(())]
        for n, at in enumerate(uses, 2):
            items[at] = kernel(n, *items[at].buffers)
        made = lifetimes(items, places)
        touched = {p: (made.items[p.first], made.items[p.last]) for p in places if p.first >= 0}
        made.free_late()
        assert {p: (made.items[p.first], made.items[p.last]) for p in touched} == touched
        assert (places[-1].first, places[-1].last) == (-1, -1), "never used"
        for n, at in enumerate(uses, 2):
            where = [k for k, item in enumerate(made.items) if isinstance(item, Free) and item.buffer == n]
            assert len(where) == 1
            before = [item for item in made.items[: where[0]] if not isinstance(item, Free)]
            assert before[-1] is items[at]


def test_nothing_is_freed_behind_a_return() -> None:
    places = [*four()[:2], arena(2, late=True)]
    made = lifetimes([kernel(0, 2), Return((2,))], places)
    made.free_late()
    assert not [item for item in made.items if isinstance(item, Free)]


@pytest.mark.parametrize("seed", seeds(20))
def test_lives_in_random_loops(seed: int) -> None:
    """As by the rule, applied to every pair of a loop and a place."""
    rng = random.Random(seed)
    ranges: list[tuple[int, int]] = []

    def nest(low: int, high: int) -> None:
        while high - low >= 2 and rng.random() < 0.85:
            begin = rng.randrange(low, high - 1)
            end = rng.randrange(begin + 1, high)
            if rng.random() < 0.7:
                nest(begin, end)
            ranges.append((begin, end))
            low = end + 1

    nest(0, 60)
    places = [arena(n) for n in range(40)]
    items = [kernel(*rng.sample(range(40), rng.randrange(3))) for _ in range(60)]
    made = lifetimes(items, places, ranges)
    for place in made.places:
        touched = [at for at, item in enumerate(items) if place.number in item.buffers]
        if not touched:
            assert (place.first, place.last) == (-1, -1)
            continue
        last = touched[-1]
        for begin, end in ranges:
            if begin <= last < end and touched[0] <= begin:
                last = end
        assert (place.first, place.last) == (touched[0], last)
