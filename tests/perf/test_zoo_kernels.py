"""Kernels of the zoo do about as much as they must: no scalar or strided code anywhere that matters, without a clock.

The operations of all kernels in their final form (vectors count as one, see ``perf_operations``) stand beside a lower
bound: two floating-point operations in each lane, or 64 bytes of operands, per operation. A well-tiled product takes 4
to 5 times the bound, since it also loads and counts; one number at a time takes 60 times the bound.
"""

from __future__ import annotations

import models_zoo as zoo
import pytest
from perf_metrics import TARGET, groups_of
from perf_operations import count

import weft
from benchmarks.zoo import cache
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.lists import ENTRIES
from weft.expr.nodes import Const
from weft.graph.nodes import Function
from weft.ir.structural import structural_hash
from weft.kernels.machine_code import lowered
from weft.pipeline import operators_in, optimize, unscheduled
from weft.target import Target

FLOPS_PER_OPERATION = 32
BYTES_PER_OPERATION = 64
MAX_RATIO_TO_BOUND = 7.0
SPECIAL: dict[str, tuple[float, str]] = {
    "dgcnn": (25.0, "the nearest neighbours are sorted, which compares one number at a time"),
    "deepar": (10.0, "vectors end with the one number that each row of a product gives"),
    "gat": (11.0, "the softmax over edges scatters four numbers at a time"),
}
SIZES_OF_DATA: dict[str, str] = {}
"""Models whose kernels have no bound: sizes that the data of a run decide, and what decides them."""
EVERY = [
    e if e.sample else pytest.param(e, marks=pytest.mark.slow) for e in ENTRIES if not any(i.open for i in e.inputs)
]


def kernels_of(entry: Entry, machine: Target) -> list[Function]:
    return list(groups_of(optimize(weft.load(zoo.or_skip(cache.model, entry)), machine)))


def without_bound(groups: list[Function]) -> list[str]:
    """The operators of kernels whose work is not a number before a run."""
    works = [(group, unscheduled(group)[1]) for group in groups]
    return ["+".join(operators_in(g)) for g, w in works if not all(isinstance(v, Const) for v in (w.flops, w.bytes))]


def costs(groups: list[Function], machine: Target) -> list[tuple[int, float, str]]:
    """Operations, bound and operators of each kernel."""
    found, counted = [], {}
    for group in groups:
        program, work = unscheduled(group)
        key = structural_hash(program)
        if key not in counted:
            counted[key] = count(lowered(program, machine, None)).operations
        bound = max(int(work.flops) / FLOPS_PER_OPERATION, int(work.bytes) / BYTES_PER_OPERATION)
        found.append((counted[key], bound, "+".join(operators_in(group))))
    return found


@pytest.mark.parametrize("entry", EVERY, ids=lambda e: e.name)
def test_kernels_do_what_they_must(entry: Entry) -> None:
    machine = Target(TARGET)
    groups = kernels_of(entry, machine)
    unknown = without_bound(groups)
    if entry.name in SIZES_OF_DATA:
        assert unknown, f"{entry.name}: all its kernels have a bound now; take it off the list"
        return
    assert not unknown, f"{entry.name}: kernels without a bound: {', '.join(unknown)}"
    kernels = costs(groups, machine)
    limit, _ = SPECIAL.get(entry.name, (MAX_RATIO_TO_BOUND, ""))
    done, bound = sum(k[0] for k in kernels), sum(k[1] for k in kernels)
    worst = sorted(kernels, key=lambda k: k[1] - k[0])[:5]
    lines = [f"{k[0] / max(k[1], 1):.1f}× its bound, {100 * k[0] / done:.0f}% of all: {k[2]}" for k in worst]
    assert done <= limit * bound, "\n".join([f"{entry.name}: {done / bound:.1f}× the bound, at most {limit}×", *lines])


def test_special_limits_are_for_models_of_the_zoo() -> None:
    assert {*SPECIAL, *SIZES_OF_DATA} <= {p.name for p in ENTRIES if not any(i.open for i in p.inputs)}
    assert not SPECIAL.keys() & SIZES_OF_DATA.keys()
    assert all(limit > MAX_RATIO_TO_BOUND and why for limit, why in SPECIAL.values())
