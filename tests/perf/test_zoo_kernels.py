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
from weft.ir.structural import structural_hash
from weft.kernels.machine_code import lowered
from weft.pipeline import operators_in, optimize, unscheduled
from weft.support.errors import UserError
from weft.target import Target

FLOPS_PER_OPERATION = 32
BYTES_PER_OPERATION = 64
MOST_TIMES_THE_BOUND = 7.0
SPECIAL: dict[str, tuple[float, str]] = {
    "dgcnn": (25.0, "the nearest neighbours are sorted, which compares one number at a time"),
    "deepar": (10.0, "vectors end with the one number that each row of a product gives"),
    "gat": (11.0, "the softmax over edges scatters four numbers at a time"),
}
EVERY = [
    e if e.sample else pytest.param(e, marks=pytest.mark.slow) for e in ENTRIES if not any(i.open for i in e.inputs)
]


def costs(entry: Entry) -> list[tuple[int, float, str]]:
    """Operations, bound and operators of each kernel. Models whose sizes are decided at run time have no bound."""
    machine = Target(TARGET)
    fused = optimize(weft.load(zoo.or_skip(cache.model, entry)), machine)
    found, counted = [], {}
    for group in groups_of(fused):
        program, work = unscheduled(group)
        key = structural_hash(program)
        if key not in counted:
            counted[key] = count(lowered(program, machine, None)).operations
        bound = max(int(work.flops) / FLOPS_PER_OPERATION, int(work.bytes) / BYTES_PER_OPERATION)
        found.append((counted[key], bound, "+".join(operators_in(group))))
    return found


@pytest.mark.parametrize("entry", EVERY, ids=lambda e: e.name)
def test_kernels_do_what_they_must(entry: Entry) -> None:
    try:
        kernels = costs(entry)
    except (TypeError, UserError) as why:
        pytest.skip(f"sizes are decided at run time: {why}")
    limit, _ = SPECIAL.get(entry.name, (MOST_TIMES_THE_BOUND, ""))
    done, bound = sum(k[0] for k in kernels), sum(k[1] for k in kernels)
    worst = sorted(kernels, key=lambda k: k[1] - k[0])[:5]
    lines = [f"{k[0] / max(k[1], 1):.1f}× its bound, {100 * k[0] / done:.0f}% of all: {k[2]}" for k in worst]
    assert done <= limit * bound, "\n".join([f"{entry.name}: {done / bound:.1f}× the bound, at most {limit}×", *lines])


def test_special_limits_are_for_models_of_the_zoo() -> None:
    assert {*SPECIAL} <= {e.name for e in ENTRIES}
    assert all(limit > MOST_TIMES_THE_BOUND and why for limit, why in SPECIAL.values())
