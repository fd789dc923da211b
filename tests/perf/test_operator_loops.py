"""No operator is computed on single numbers, lane by lane, or by functions of the C library, unless a reason is given.

The kernels of every operator at an ordinary size are compiled for one named machine and the loop that does most of the
work is looked at, as ``weft inspect --stage loops`` does. A cliff that a new operator, rule or rewriting brings fails
here, without any timing.
"""

from __future__ import annotations

import pytest
from operator_loops import groups, kernels

import weft.lowering.kernel.common.intrinsics as intrinsics
from benchmarks.operators.cases import recipes
from weft.ops.catalogue import OPERATORS
from weft.pipeline import operators_in

OPS = sorted({r.op for r in recipes()})

_ORDERED = "a comparison decides where the next number goes"
_IN_ORDER = "each number needs the one before it; sums of rows run side by side"
_SCATTERED = "several numbers may go to one place, so they are written in order"
_LOOKED_UP = "every number is looked up at a place that the data say"
_ROWS = "rows of 40 numbers or fewer are whole multiples of a narrower vector only"
_PLACES = "places have 64 bits: half as many fit beside the values"
_COPIED = "whole rows are copied: the loop is bound by memory"
_TURNED = "parts of vectors are put together where the innermost axis changes"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("AffineGrid", "narrow"): _ROWS,
    ("ArgMax", "narrow"): _PLACES,
    ("ArgMin", "narrow"): _PLACES,
    ("AveragePool", "narrow"): "windows of 4, three apart, 13 in a row: too few for a vector (not yet by channels)",
    ("Compress", "narrow"): _IN_ORDER,
    ("Conv", "lanes"): _TURNED,
    ("ConvInteger", "lanes"): _TURNED,
    ("ConvTranspose", "lanes"): _TURNED,
    ("ConvTranspose", "narrow"): _TURNED,
    ("CumProd", "narrow"): _IN_ORDER,
    ("CumSum", "narrow"): _IN_ORDER,
    ("DeformConv", "lanes"): _LOOKED_UP,
    ("DeformConv", "narrow"): _PLACES,
    ("DepthToSpace", "lanes"): _TURNED,
    ("Det", "lanes"): "matrices are small: rows of 4",
    ("Det", "narrow"): "matrices are small: rows of 4",
    ("Einsum", "lanes"): _TURNED,
    ("Gather", "lanes"): _LOOKED_UP,
    ("Gather", "narrow"): _COPIED,
    ("GatherElements", "lanes"): _LOOKED_UP,
    ("GatherND", "narrow"): _COPIED,
    ("GridSample", "narrow"): _PLACES,
    ("Hardmax", "narrow"): _PLACES,
    ("LpPool", "narrow"): _ROWS,
    ("MaxPool", "narrow"): _ROWS,
    ("Mod", "lanes"): "processors have no division of vectors of whole numbers",
    ("NegativeLogLikelihoodLoss", "lanes"): _LOOKED_UP,
    ("NonMaxSuppression", "lanes"): _ORDERED,
    ("NonMaxSuppression", "narrow"): _ORDERED,
    ("NonZero", "narrow"): _IN_ORDER,
    ("PRelu", "lanes"): "a vector may reach from one channel into the next: slopes are looked up",
    ("QLinearConv", "lanes"): _TURNED,
    ("QLinearConv", "narrow"): _TURNED,
    ("Resize", "lanes"): "positions along a line are looked up",
    ("Resize", "narrow"): _PLACES,
    ("ReverseSequence", "narrow"): _COPIED,
    ("RoiAlign", "lanes"): _LOOKED_UP,
    ("RoiAlign", "narrow"): _PLACES,
    ("STFT", "lanes"): "frames overlap: samples are looked up",
    ("STFT", "narrow"): _PLACES,
    ("ScatterElements", "narrow"): _SCATTERED,
    ("ScatterND", "narrow"): _SCATTERED,
    ("SoftmaxCrossEntropyLoss", "lanes"): _LOOKED_UP,
    ("TopK", "narrow"): _ORDERED,
    ("Transpose", "lanes"): _TURNED,
    ("Transpose", "narrow"): _TURNED,
    ("Unique", "lanes"): _ORDERED,
    ("Unique", "narrow"): _ORDERED,
}
"""ONNX operator and kind of problem → why it is as it should be."""

NOT_IN_KERNELS: dict[str, str] = {
    **dict.fromkeys(("identity", "dropout", "reshape", "squeeze", "unsqueeze"), "compute nothing: memory is shared"),
    **dict.fromkeys(
        ("bind_sizes", "require_sizes", "from_sizes", "in_range"), "sizes: the host computes and checks them"
    ),
    **dict.fromkeys(("batch_norm", "conv_transpose", "flip", "rsqrt"), "rewritten in terms of others, or from others"),
    **dict.fromkeys(("dynamic_slice", "linear_recurrence", "resample"), "of loops, recurrences and lines of pictures"),
    **dict.fromkeys(("eye", "full"), "constant when compiled"),
    **dict.fromkeys(("mask_channels", "packed_matmul", "winograd_conv"), "made by passes for shapes of whole models"),
    **dict.fromkeys(("max_pool_with_indices", "scaled_dot_product_attention"), "tested by tests/perf/perf_cases"),
    **dict.fromkeys((n for n in OPERATORS if n.startswith("text_")), "strings are computed by the host"),
}
"""Operators of the catalogue that no kernel here consists of, and why."""


@pytest.mark.parametrize("op", OPS)
def test_hot_loops_use_whole_vectors(op: str) -> None:
    found = [p for kernel in kernels(op) for p in kernel.problems()]
    told = [text for kind, text in found if (op, kind) not in EXCEPTIONS]
    assert not told, "\n".join(told)
    stale = {k for k in EXCEPTIONS if k[0] == op} - {(op, kind) for kind, _ in found}
    assert not stale, f"no longer needed: {stale}"


def test_exceptions_name_operators_that_exist() -> None:
    assert {op for op, _ in EXCEPTIONS} <= set(OPS)


def test_every_operator_of_the_catalogue_is_looked_at() -> None:
    seen = {name for op in OPS for _, group in groups(op) for name in operators_in(group)}
    assert set(OPERATORS) - seen == set(NOT_IN_KERNELS)


def test_a_function_of_the_c_library_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(intrinsics.EXPANSIONS, "atan")
    assert "calls" in {kind for kernel in kernels("Atan") for kind, _ in kernel.problems()}


def test_a_narrow_loop_is_found() -> None:
    assert {kind for kernel in kernels("Neg", "zen3") for kind, _ in kernel.problems()} == {"narrow"}
