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
_SCATTERED = "several numbers may go to one place, so they are combined in order"
_LOOKED_UP = "every number is looked up at a place that the data say"
_ROWS = "rows of 40 numbers or fewer are whole multiples of a narrower vector only"
_PLACES = "places have 64 bits: half as many fit beside the values"
_APART = "windows are three columns apart: the second pass loads single elements of a row"
_BLOCKS = "blocks of channels are turned in tiles as wide as the largest vector that divides a row"
_TURNED = "parts of vectors are put together where the innermost axis changes"

_KNOWN: list[tuple[str, str, str, list[str]]] = [
    ("AffineGrid", "narrow", _ROWS, [""]),
    ("AveragePool", "lanes", _APART, ["4 × 4 / 3"]),
    ("AveragePool", "narrow", _ROWS, ["2 × 2 × 2 / 2"]),
    ("Conv", "lanes", _TURNED, ["3 × 3 × 3"]),
    ("Conv", "narrow", _TURNED, ["3 × 3 × 3"]),
    (
        "Conv",
        "narrow",
        _BLOCKS,
        [
            "3 × 3",
            "3 × 3 / 2",
            "3 × 3, 4 groups, dilated",
            "3 × 3, dilated",
            "5 × 5",
            "5 × 5, by channel",
            "7 × 7",
            "7 × 7, by channel",
        ],
    ),
    ("ConvInteger", "lanes", _TURNED, ["3 × 3"]),
    ("ConvInteger", "narrow", _TURNED, ["3 × 3"]),
    (
        "ConvTranspose",
        "lanes",
        _TURNED,
        ["3 × 3 / 2", "3 × 3 / 2, 4 groups, output padding", "3 × 3 × 3", "4 × 4 / 2", "line of 7 / 2"],
    ),
    ("ConvTranspose", "narrow", _BLOCKS, ["3 × 3, dilated by 3", "line of 3, dilated by 3"]),
    ("ConvTranspose", "narrow", _TURNED, ["3 × 3 × 3"]),
    ("ConvTranspose", "narrow", _BLOCKS, ["3 × 3 / 1"]),
    ("CumProd", "narrow", _IN_ORDER, ["axis -1", "axis 0"]),
    ("CumSum", "narrow", _IN_ORDER, ["axis -1", "axis 0"]),
    ("DeformConv", "lanes", _LOOKED_UP, ["3 × 3"]),
    ("DeformConv", "narrow", _PLACES, ["3 × 3"]),
    ("Det", "lanes", "matrices are small: rows of 4", [""]),
    ("Det", "narrow", "matrices are small: rows of 4", [""]),
    ("Einsum", "lanes", _TURNED, ["bii->bi", "ijk->kji"]),
    ("Gather", "lanes", _LOOKED_UP, ["axis -1", "axis 1"]),
    ("GatherElements", "lanes", _LOOKED_UP, [""]),
    ("LpPool", "lanes", _APART, ["4 × 4 / 3"]),
    ("LpPool", "narrow", _ROWS, ["2 × 2 × 2 / 2"]),
    ("MaxPool", "lanes", _APART, ["4 × 4 / 3"]),
    ("MaxPool", "narrow", _ROWS, ["2 × 2 × 2 / 2"]),
    ("NegativeLogLikelihoodLoss", "lanes", _LOOKED_UP, [""]),
    ("NonMaxSuppression", "lanes", _ORDERED, [""]),
    ("NonMaxSuppression", "narrow", _ORDERED, [""]),
    ("NonZero", "narrow", _IN_ORDER, [""]),
    ("QLinearConv", "lanes", _TURNED, ["3 × 3"]),
    ("QLinearConv", "narrow", _TURNED, ["3 × 3"]),
    ("Resize", "narrow", _PLACES, ["cubic × 0.5", "cubic × 1.5", "cubic × 2"]),
    ("RoiAlign", "lanes", _LOOKED_UP, [""]),
    ("RoiAlign", "narrow", _PLACES, [""]),
    ("STFT", "lanes", "frames overlap: samples are looked up", [""]),
    ("STFT", "narrow", _PLACES, [""]),
    ("ScatterElements", "narrow", _SCATTERED, ["add", "max"]),
    ("SoftmaxCrossEntropyLoss", "lanes", _LOOKED_UP, [""]),
    ("TopK", "narrow", _ORDERED, ["1", "500", "all: a sort", "rows of 300: a sort"]),
    ("Transpose", "lanes", _TURNED, ["3210"]),
    ("Transpose", "narrow", _TURNED, ["03124"]),
    ("Unique", "lanes", _ORDERED, [""]),
    ("Unique", "narrow", _ORDERED, [""]),
]
"""ONNX operator, kind of problem, why it is as it should be, and the choices of attributes that have it."""

EXCEPTIONS = {(op, variant, kind): why for op, kind, why, variants in _KNOWN for variant in variants}

NOT_IN_KERNELS: dict[str, str] = {
    **dict.fromkeys(("identity", "dropout", "reshape", "squeeze", "unsqueeze"), "compute nothing: memory is shared"),
    **dict.fromkeys(
        ("bind_sizes", "require_sizes", "from_sizes", "in_range"), "sizes: the host computes and checks them"
    ),
    **dict.fromkeys(("batch_norm", "conv_transpose", "flip", "rsqrt"), "rewritten in terms of others, or from others"),
    **dict.fromkeys(("dynamic_slice", "linear_recurrence", "resample"), "of loops, recurrences and lines of pictures"),
    "random": "no recipe, as no two engines draw the same numbers",
    **dict.fromkeys(("mask_channels", "packed_matmul"), "made by passes for shapes of whole models"),
    **dict.fromkeys(("max_pool_with_indices", "scaled_dot_product_attention"), "tested by tests/perf/perf_cases"),
    **dict.fromkeys((n for n in OPERATORS if n.startswith("text_")), "strings are computed by the host"),
    **dict.fromkeys(("picture_decode", "picture_size"), "pictures are decoded by the host"),
}
"""Operators of the catalogue that no kernel here consists of, and why."""


@pytest.mark.parametrize("op", OPS)
def test_hot_loops_use_whole_vectors(op: str) -> None:
    found = [(k.variant, kind, text) for k in kernels(op) for kind, text in k.problems()]
    told = [text for variant, kind, text in found if (op, variant, kind) not in EXCEPTIONS]
    assert not told, "\n".join(told)
    stale = {k for k in EXCEPTIONS if k[0] == op} - {(op, variant, kind) for variant, kind, _ in found}
    assert not stale, f"no longer needed: {stale}"


def test_exceptions_name_operators_and_attributes_that_exist() -> None:
    assert {(op, variant) for op, variant, _ in EXCEPTIONS} <= {(r.op, r.variant) for r in recipes()}
    assert sum(len(variants) for *_, variants in _KNOWN) == len(EXCEPTIONS)


def test_every_operator_of_the_catalogue_is_looked_at() -> None:
    seen = {name for op in OPS for _, group in groups(op) for name in operators_in(group)}
    assert set(OPERATORS) - seen == set(NOT_IN_KERNELS)


def test_a_function_of_the_c_library_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(intrinsics.EXPANSIONS, "atan")
    assert "calls" in {kind for kernel in kernels("Atan") for kind, _ in kernel.problems()}


def test_a_narrow_loop_is_found() -> None:
    assert {kind for kernel in kernels("Neg", "zen3") for kind, _ in kernel.problems()} == {"narrow"}
