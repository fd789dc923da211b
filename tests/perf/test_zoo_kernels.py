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
HEAVY = ("mamba", "resnet18", "swin", "unet2d-condition", "yolo", "edsr", "wav2vec2", "hifigan")
"""Models of the sample that take more than 5 seconds: with ``--slow``, like those that are not in the sample."""
_ROWS_OF_GRAPHS = "rows are as short as the tables of graphs: places are computed for each"
_SCATTERED = "several numbers may go to one place: they are written in order"
_SHORT_ROWS = "reductions of rows shorter than a vector"
_BLOCKS = "blocks of channels together with a move of their own: single lanes are gathered"
EXCEPTIONS: tuple[tuple[str, str, float, str], ...] = (
    ("dgcnn", "topk", 300.0, "a comparison decides where the next number goes"),
    ("dgcnn", "reduce_max", 25.0, _SHORT_ROWS),
    ("dgcnn", "gather_elements", 4.0, _ROWS_OF_GRAPHS),
    ("gat", "scatter_", 13.0, _SCATTERED),
    ("gat", "reduce_sum", 8.0, _SHORT_ROWS),
    ("gat", "gather_nd", 5.0, _ROWS_OF_GRAPHS),
    ("gcn", "scatter_nd", 5.0, _SCATTERED),
    ("gcn", "gather_nd", 3.0, _ROWS_OF_GRAPHS),
    ("graphsage", "reduce_l2", 3.0, _SHORT_ROWS),
    ("pointnet", "reduce_max", 3.0, _SHORT_ROWS),
    ("textcnn", "reduce_max", 7.0, _BLOCKS),
    ("espcn", "depth_to_space", 20.0, _BLOCKS),
    ("rcan", "depth_to_space", 20.0, _BLOCKS),
    ("convlstm", "concat_layout_transform", 18.0, _BLOCKS),
    ("monodepth", "layout_transform_pad", 22.0, _BLOCKS),
    ("stylegan", "layout_transform_resize", 4.0, _BLOCKS),
    ("patchtsmixer", "softmax", 4.0, _SHORT_ROWS),
    ("patchtst", "softmax", 4.0, _SHORT_ROWS),
    ("ssd", "concat_softmax", 3.0, _SHORT_ROWS),
    ("raft", "slice", 12.0, "coordinates are taken apart and joined again one by one: not looked into"),
    ("mamba", "matmul", 5.0, "products of one column of states: no axis makes vectors of the result and an operand"),
)
"""Model, part of a kernel's name, the largest ratio, and why. A kernel that is mended comes off."""


def excused(model: str, v: Judgement) -> bool:
    return any(of == model and name in v.kernel and v.ratio <= most for of, name, most, _ in EXCEPTIONS)


def told(v: Judgement) -> str:
    return f"{v.kernel}: {100 * v.share:.0f} % of the time, {v.ratio:.1f} times its bound: {'; '.join(v.reasons)}"


EVERY = [
    e if e.sample and e.name not in HEAVY else pytest.param(e, marks=pytest.mark.slow)
    for e in ENTRIES
    if not any(i.open for i in e.inputs)
]


@pytest.mark.parametrize("entry", EVERY, ids=lambda e: e.name)
def test_kernels_do_what_they_must(entry: Entry) -> None:
    machine = Target("zen4")
    model = optimize(weft.load(zoo.or_skip(cache.model, entry)), machine)
    slow = [v for v in judge(kernels(model), machine) if v.slow and v.share >= MIN_SHARE and not excused(entry.name, v)]
    assert not slow, "\n".join([entry.name, *map(told, slow)])


def test_exceptions_are_of_models_of_the_zoo() -> None:
    assert {e.name for e in ENTRIES} >= {*HEAVY, *(model for model, *_ in EXCEPTIONS)}
    assert all(most > 2 and why for *_, most, why in EXCEPTIONS)
