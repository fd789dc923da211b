"""Many small programs: what is said of their memory plans against what happens on every path through them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from seeds import run_seed, seeds

from weft import te
from weft.graph.passes.memory import MemoryPlan, plan_lives
from weft.lowering.control_parts import Goto, Label, Place
from weft.lowering.lifetimes import Lifetimes
from weft.lowering.verify_memory import verify_memory
from weft.runtime.program import CallKernel, Check, CheckRange, Copy, Return, SetSize
from weft.support.errors import InternalError

STEP = 64
"""Bytes: all places begin and end at multiples of it."""


@dataclass
class Code:
    """Items over places: number 0 is the input, 1 the output, the others lie in the arena."""

    places: list[Place]
    items: list[Any] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)
    exchanges: dict[int, list[tuple[Place, Place]]] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def kernel(self, reads: Sequence[int], *writes: int, over: int | None = None) -> None:
        """A kernel; it may write its first result over the operand ``over``."""
        self.written[len(self.items)] = len(writes)
        if over is not None:
            self.exchanges[len(self.items)] = [(self.places[over], self.places[writes[0]])]
        self.items.append(CallKernel(0, (*reads, *writes)))


def new_places(sizes: Sequence[Any]) -> list[Place]:
    ends = [Place(0, "input", STEP, "uint8"), Place(1, "output", STEP, "uint8")]
    return ends + [Place(n, "arena", size, "uint8") for n, size in enumerate(sizes, 2)]


def paths(items: Sequence[Any], turns: int = 2) -> Iterator[list[int]]:
    """The items that run, in order, for each way through jumps; each label is passed at most ``turns`` times."""
    at_label = {item: n for n, item in enumerate(items) if isinstance(item, Label)}
    waiting: list[tuple[int, list[int], dict[int, int]]] = [(0, [], {})]
    while waiting:
        at, done, passed = waiting.pop()
        if at == len(items) or isinstance(items[at], Return):
            yield done
            continue
        item = items[at]
        if isinstance(item, Check) and item.condition == (0,):
            yield done
            continue
        if isinstance(item, Label):
            passed = {**passed, at: passed.get(at, 0) + 1}
            if passed[at] > turns:
                continue
        if isinstance(item, Goto):
            waiting.append((at_label[item.label], done, passed))
            if item.condition is None:
                continue
        waiting.append((at + 1, [*done, at], passed))


def accessed(code: Code, at: int) -> tuple[list[Place], list[Place]]:
    """What an item reads and what it writes."""
    item, places = code.items[at], code.places
    if isinstance(item, CallKernel):
        cut = len(item.buffers) - code.written[at]
        return [places[n] for n in item.buffers[:cut]], [places[n] for n in item.buffers[cut:]]
    if isinstance(item, Copy):
        return [places[item.source]], [places[item.target]]
    if isinstance(item, (CheckRange, SetSize)) and item.buffer is not None:
        return [places[item.buffer]], []
    return [], []


def steps_of(p: Place, offsets: Mapping[Place, int]) -> range:
    """The steps of the arena that a place covers."""
    if p.root.kind != "arena":
        return range(0)
    start = (offsets.get(p.memory, 0) + p.offset) // STEP
    return range(start, start + int(p.nbytes) // STEP)  # type: ignore[call-overload]  # a number here


def is_wrong(code: Code, offsets: Mapping[Place, int]) -> bool:
    """Whether on some path an item reads what another place has overwritten, or overwrites what it reads itself."""
    jumps = any(isinstance(i, Goto) for i in code.items)
    ever = {p.root for at in range(len(code.items)) for p in accessed(code, at)[1]}
    for path in paths(code.items):
        holder: dict[int, Place] = {}
        for at in path:
            reads, writes = accessed(code, at)
            for p in reads:
                for step in steps_of(p, offsets) if p.root in ever else ():
                    if holder.get(step, p.root) is not p.root:
                        return True
                    if step not in holder and not jumps:
                        return True  # read before it is written
            for n, q in enumerate(writes):
                may = [p for p, to in code.exchanges.get(at, ()) if to is q]
                taken = [p for p in may if steps_of(p, offsets) == steps_of(q, offsets)]
                beside = [p for p in reads if p.root in ever and not any(p is t for t in taken)] + list(writes[:n])
                beside = [p for p in beside if p.root is not q.root]
                if any(set(steps_of(q, offsets)) & set(steps_of(p, offsets)) for p in beside):
                    return True
                holder.update(dict.fromkeys(steps_of(q, offsets), q.root))
    return False


def verdict(code: Code, offsets: Mapping[Place, Any], size: int = 1 << 20) -> bool:
    """Whether the verifier refuses the plan."""
    try:
        verify_memory(code.items, code.places, offsets, MemoryPlan((), size, 0, 0), code.written, code.exchanges)
    except InternalError as error:
        assert error.code == "W013"
        return True
    return False


def some_code(pick: random.Random, jumps: bool, sizes: Sequence[Any] = (STEP, 2 * STEP)) -> Code:
    """Two to five kernels, over two or three places in the arena; with loops, branches and ends if ``jumps``."""
    code = Code(new_places([pick.choice(sizes) for _ in range(pick.choice((2, 3)))]))
    numbers = range(2, len(code.places))
    for n in numbers:
        if pick.random() < 0.9:
            code.kernel([0], n)
    open_: list[tuple[Label, int]] = []
    for _ in range(pick.randint(2, 4)):
        kind = pick.random()
        if jumps and kind < 0.25:
            open_.append((Label(), len(code.items)))
            code.items.append(open_[-1][0])
        elif jumps and kind < 0.5 and open_:
            label, begin = open_.pop()
            code.ranges.append((begin, len(code.items)))
            code.items.append(Goto(label, ("n",)))
        elif kind < 0.6:
            code.items.append(pick.choice((SetSize("k", buffer=pick.choice(numbers)), SetSize("k", (1,)))))
        elif kind < 0.7:
            source, target = pick.sample(numbers, 2)
            code.items.append(Copy(source, target, (STEP,)))
        else:
            reads = pick.sample(numbers, pick.randint(1, len(numbers) - 1))
            (rest,) = pick.sample([n for n in numbers if n not in reads] or [1], 1)
            code.kernel(reads, rest, over=pick.choice((None, reads[0])))
    for label, begin in reversed(open_):
        code.ranges.append((begin, len(code.items)))
        code.items.append(Goto(label, ("n",)))
    code.kernel([pick.choice(numbers)], 1)
    return code


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("seed", seeds(1, 7))
def test_the_verifier_refuses_exactly_what_goes_wrong(seed: int, jumps: bool) -> None:
    pick, told = random.Random(seed), {True: 0, False: 0}
    for _ in range(500):
        code = some_code(pick, jumps)
        arena = code.places[2:]
        for at in itertools.product((0, STEP, 2 * STEP), repeat=len(arena)):
            if jumps and pick.random() < 0.6:
                continue
            offsets = dict(zip(arena, at, strict=True))
            wrong = is_wrong(code, offsets)
            assert verdict(code, offsets) == wrong, (code.items, code.exchanges, at)
            told[wrong] += 1
    assert min(told.values()) > 400


def with_stretches(pick: random.Random) -> Code:
    """A place that is written in two halves, and another one; what is read are the whole and the halves."""
    code = Code(new_places([2 * STEP, pick.choice((STEP, 2 * STEP))]))
    whole = code.places[2]
    code.places += [Place(4 + n, "arena", STEP, "uint8", parent=whole, start=n * STEP) for n in range(2)]
    code.kernel([0], 4)
    code.kernel([0], 5)
    for _ in range(4):
        code.kernel([0], pick.choice((2, 3, 3, 4, 5)))
    for read in pick.sample((2, 3, 4, 5), 2):
        code.kernel([read], 1)
    return code


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_what_goes_wrong_with_halves_is_refused(seed: int) -> None:
    """The verifier takes a half for the whole where only the other half is read, so it may refuse what is right."""
    pick, told = random.Random(seed), {(w, r): 0 for w in (False, True) for r in (False, True)}
    for _ in range(400):
        code = with_stretches(pick)
        for at in (0, STEP, 2 * STEP):
            offsets = {code.places[2]: 0, code.places[3]: at}
            wrong = is_wrong(code, offsets)
            told[wrong, verdict(code, offsets)] += 1
    assert told[True, False] == 0
    assert told[True, True] > 150
    if run_seed() == 0:  # how often it refuses what is right was counted for this sample
        assert told[False, True] <= 0.03 * told[False, False] and told[True, True] > 200


def test_edges_of_the_arena() -> None:
    for sizes in itertools.product((0, STEP, 2 * STEP), repeat=2):
        code = Code(new_places(sizes))
        code.kernel([0], 2)
        code.kernel([0], 3)
        code.kernel([2, 3], 1)
        offsets = {code.places[2]: 0, code.places[3]: 2 * STEP}
        for size in range(0, 6 * STEP, STEP // 2):
            inside = sizes[0] <= size and 2 * STEP + sizes[1] <= size
            assert verdict(code, offsets, size) == (not inside), (sizes, size)


# ---- symbolic sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_plans_of_symbolic_sizes_are_refused_if_they_are_wrong_for_some(seed: int, jumps: bool) -> None:
    """Sizes and offsets are sums of two symbols, or the larger of them, and trying numbers decides."""
    n, m = te.var("n"), te.var("m")
    numbers = [*itertools.product((0, 1, 2, 3, 7), repeat=2), (16, 16), (16, 17), (2, 40), (40, 2)]
    told = {True: 0, False: 0}
    for at in range(60):
        draws = f"{seed} {at}"
        code = some_code(random.Random(draws), jumps, (STEP * n, STEP * m))
        concrete = {v: some_code(random.Random(draws), jumps, (STEP * v[0], STEP * v[1])) for v in numbers}
        pick = random.Random(draws)
        for _ in range(5):
            kinds = [pick.randrange(8) for _ in code.places[2:]]
            offsets = {p: starts(n, m)[k] for p, k in zip(code.places[2:], kinds, strict=True)}
            wrong = any(
                is_wrong(c, {p: starts(*v)[k] for p, k in zip(c.places[2:], kinds, strict=True)})
                for v, c in concrete.items()
            )
            assert verdict(code, offsets, 1 << 40) == wrong, (code.items, code.exchanges, kinds)
            told[wrong] += 1
    assert min(told.values()) > 15, told


def starts(n: Any, m: Any) -> list[Any]:
    """Offsets of places, for numbers and for symbols."""
    larger, smaller = (max(n, m), min(n, m)) if isinstance(n, int) else (te.max(n, m), te.min(n, m))
    return [STEP * v for v in (0 * n, n, m, n + m, 2 * n, larger, smaller, 2 * (n + m))]


# ---- planning --------------------------------------------------------------------------------------------------------


def planned(code: Code) -> tuple[dict[Place, int], int, int]:
    """Offsets of a plan for the arena, its size, and the largest live set."""
    lifetimes = Lifetimes(code.places)
    lifetimes.places, lifetimes.items, lifetimes.ranges = code.places, code.items, code.ranges
    lifetimes.written, lifetimes.exchanges = code.written, code.exchanges
    lifetimes.measure()
    lifetimes.exchange()
    stretches = lifetimes.stretches_of_memory(0)
    lives = plan_lives([(p.nbytes, first, last) for p, first, last in stretches])
    offsets = {p: int(o) for (p, _, _), o in zip(stretches, lives.offsets, strict=True)}  # type: ignore[call-overload]
    return offsets, int(lives.total), lives.largest  # type: ignore[call-overload]


def least_size(code: Code, places: Sequence[Place], below: int) -> int:
    """The smallest arena, if it is below ``below``, in which nothing goes wrong, found by trying all offsets."""
    for size in range(0, below, STEP):
        choices = [range(0, size - int(p.nbytes) + 1, STEP) for p in places]  # type: ignore[call-overload]
        if any(not is_wrong(code, dict(zip(places, at, strict=True))) for at in itertools.product(*choices)):
            return size
    return below


@pytest.mark.parametrize(("jumps", "at_most"), [(False, 9), (True, 24)])
@pytest.mark.parametrize("seed", seeds(1, 11))
def test_plans_are_right_and_nearly_as_small_as_they_can_be(seed: int, jumps: bool, at_most: int) -> None:
    """Few plans of tiny programs are larger than the smallest arena that works for them: a place keeps its memory from
    its first use to its last, also where what it holds in between is not needed."""
    pick, sizes = random.Random(seed), []
    for _ in range(250):
        code = some_code(pick, jumps)
        offsets, size, largest = planned(code)
        jumping = any(isinstance(i, Goto) for i in code.items)
        written = {p for at in range(len(code.items)) for p in accessed(code, at)[1]}
        if not jumping and any(p not in written for p in offsets):
            continue
        assert largest <= size
        assert not is_wrong(code, offsets) or not_written(code), (code.items, offsets)
        fresh = [p for p in code.places[2:] if p in offsets]
        sizes.append((size, least_size(code, fresh, size) if size else 0))
    larger = sum(size > least for size, least in sizes)
    assert len(sizes) > 150
    if run_seed() == 0:  # how many are larger was counted for this sample
        assert larger <= at_most, (larger, len(sizes))


def not_written(code: Code) -> bool:
    """Whether the program reads what it has not written."""
    done: set[Place] = set()
    for at in range(len(code.items)):
        reads, writes = accessed(code, at)
        if any(p.kind == "arena" and p not in done for p in reads):
            return True
        done |= {*writes}
    return False


def test_kernels_of_two_results_take_each_operand_once() -> None:
    """Every order of what may be exchanged, and everything that may be read later: a result that nobody reads, too."""
    wishes = list(itertools.product((2, 3), (4, 5)))
    lists = [w for count in (1, 2, 3, 4) for w in itertools.permutations(wishes, count)]
    taken = set()
    for wished, read in itertools.product(lists, itertools.product((False, True), repeat=4)):
        code = Code(new_places([STEP] * 4))
        code.kernel([0], 2)
        code.kernel([0], 3)
        code.exchanges[2] = [(code.places[a], code.places[b]) for a, b in wished]
        code.kernel([2, 3], 4, 5)
        code.kernel([0, *(n for n, r in enumerate(read, 2) if r)], 1)
        offsets, size, _ = planned(code)
        assert not is_wrong(code, offsets) and not verdict(code, offsets, size), (wished, read)
        taken.add(sum(p.takes is not None for p in code.places))
    assert taken == {0, 1, 2}
