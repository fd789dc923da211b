"""Every kernel of the zoo that matters costs at most twice what it must: see ``weft.static_cost``. No clock is read.

A class of equal kernels is judged by itself, so that one which reads single numbers does not hide behind products.
"""

from __future__ import annotations

import models_zoo as zoo
import pytest

import weft
from benchmarks.zoo import cache
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.lists import ENTRIES
from weft.pipeline import optimize
from weft.static_cost.judge import Judgement, judge, kernels
from weft.target import Target

MIN_SHARE = 0.02
"""Least share of a model's estimated time from which on a kernel is judged."""
QUICK = ("gcn", "lstm-words")
"""Models that are judged in each run; the others with ``--slow``."""
EXCEPTIONS: tuple[tuple[str, str, float, str], ...] = (
    ("topk", "", 400.0, "a comparison decides where the next number goes"),
    ("scatter_", "", 15.0, "several numbers may go to one place: they are written in order"),
    ("gather", "", 30.0, "rows are as short as the tables of graphs: places are computed for each"),
    ("reduce_", "", 30.0, "reductions over a middle axis or over rows shorter than a vector"),
    ("softmax", "", 6.0, "rows shorter than two vectors"),
    ("layout_transform", "gather", 30.0, "blocks of channels by single lanes"),
    ("layout_transform", "single-lane move", 30.0, "blocks of channels by single lanes"),
)  # fmt: skip
"""Part of a kernel's name, part of a reason, the largest ratio, and why. A class that is mended comes off."""


def excused(v: Judgement) -> bool:
    return any(
        name in v.kernel and any(part in reason for reason in v.reasons) and v.ratio <= most
        for name, part, most, _ in EXCEPTIONS
    )


def told(v: Judgement) -> str:
    return f"{v.kernel}: {100 * v.share:.0f} % of the time, {v.ratio:.1f} times its bound: {'; '.join(v.reasons)}"


@pytest.mark.parametrize(
    "entry", [e if e.name in QUICK else pytest.param(e, marks=pytest.mark.slow) for e in ENTRIES], ids=lambda e: e.name
)
def test_kernels_do_what_they_must(entry: Entry) -> None:
    machine = Target("zen4")
    model = optimize(weft.load(zoo.or_skip(cache.model, entry)), machine)
    slow = [v for v in judge(kernels(model), machine) if v.slow and v.share >= MIN_SHARE and not excused(v)]
    assert not slow, "\n".join([entry.name, *map(told, slow)])


def test_quick_models_are_of_the_zoo() -> None:
    assert {e.name for e in ENTRIES} >= set(QUICK)
    assert all(most > 2 and why for *_, most, why in EXCEPTIONS)
