"""Graphs that each rule must change, and graphs that it must not change."""

from __future__ import annotations

import math

import numpy as np
from rule_kit import Case, k, o, r, x

from weft.graph.nodes import GraphExpr, Project

X = x(2, 3, 4)
M = x(6, 8, name="m")
B = x(2, 3, dtype="bool", name="b")
N = x(3, 4, dtype="int64", name="i")
D = x(2, 4, 5, 5, name="d")
H = x(2, 4, dtype="float16", name="h")


def norm(e: GraphExpr, rank: int, name: str = "batch_norm") -> GraphExpr:
    channels = e.tensor.shape[1]
    parameters = [r(channels) for _ in range(4 if name == "batch_norm" else 2)]
    return o(name, e, *parameters)


def gelu_erf(e: GraphExpr, order: int) -> GraphExpr:
    tail = o("add", o("erf", o("div", e, math.sqrt(2)) if order else o("mul", e, math.sqrt(0.5))), 1.0)
    if order == 0:
        return o("mul", o("mul", e, 0.5), tail)
    return o("mul", o("mul", e, tail), 0.5) if order == 1 else o("mul", e, o("mul", tail, 0.5))


def gelu_tanh(e: GraphExpr, form: str) -> GraphExpr:
    s = math.sqrt(2 / math.pi)
    if form == "pow":
        inner = o("mul", o("add", e, o("mul", o("pow", e, 3.0), 0.044715)), s)
    elif form == "fast":
        inner = o("mul", e, o("add", o("mul", o("mul", e, e), 0.044715 * s), s))
    else:
        inner = o("mul", o("mul", e, s), o("add", o("mul", o("mul", e, 0.044715), e), 1.0))
    return o("mul", o("mul", e, 0.5), o("add", o("tanh", inner), 1.0))


def centred(e: GraphExpr, axes: tuple[int, ...] = (-1,)) -> GraphExpr:
    return o("sub", e, o("reduce_mean", e, axes=axes))


def layer_norm(e: GraphExpr, form: str, axes: tuple[int, ...] = (-1,)) -> GraphExpr:
    d = centred(e, axes)
    other = centred(e, axes) if form == "twice" else d
    squares = o("mul", other, other) if form == "mul" else o("pow", other, 2.0)
    total = o("add", o("reduce_mean", squares, axes=axes), 1e-5)
    if form == "rsqrt":
        return o("mul", d, o("rsqrt", total))
    if form == "reciprocal":
        return o("mul", d, o("reciprocal", o("sqrt", total)))
    return o("div", d, o("pow", total, 0.5) if form == "pow" else o("sqrt", total))


def exponentials(e: GraphExpr, axis: int = -1, sum_axis: int = -1) -> tuple[GraphExpr, GraphExpr, GraphExpr]:
    below = o("sub", e, o("reduce_max", e, axes=(axis,)))
    powers = o("exp", below)
    return below, powers, o("reduce_sum", powers, axes=(sum_axis,))


def part(e: GraphExpr, sizes: tuple[int, ...], index: int, axis: int = -1) -> GraphExpr:
    return Project(o("split", e, axis=axis, sizes=sizes), index)


def heads(name: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> GraphExpr:
    return o("transpose", x(1, 5, 2, 3, name=name), perm=perm)


_below, _powers, _total = exponentials(X)
_halved = o("mul", X, 0.5)
_halves = o("split", X, axis=2, sizes=(1, 3))
_group = o("instance_norm", o("reshape", D, shape=(2, 2, -1)), k([1.0, 1.0]), k([0.0, 0.0]))
_attention = [x(1, 2, 5, 3, name=n) for n in "qkv"]

FIRES: tuple[Case, ...] = (
    # Cleanup.
    Case("identity", o("dropout", X), "", special=True),
    Case("cast-to-itself", o("cast", X, to="float32"), "", special=True),
    Case("cast-twice", o("cast", o("cast", x(3, dtype="int32"), to="float64"), to="int64"), "cast"),
    Case("cast-twice", o("cast", o("cast", H, to="float32"), to="float16"), "cast", special=True),
    Case("cast-twice", o("cast", o("cast", B, to="float32"), to="int64"), "cast"),
    Case("known-choice", o("where", k([True, True, True, True], "bool"), X, o("neg", X)), ""),
    Case("known-choice", o("where", k(False, "bool"), o("neg", X), X), ""),
    Case("equal-choices", o("where", x(4, dtype="bool", name="b"), X, X), ""),
    Case("and-true", o("logical_and", k(True, "bool"), B), ""),
    Case("or-false", o("logical_or", B, k([False, False, False], "bool")), ""),
    Case("not-twice", o("logical_not", o("logical_not", B)), ""),
    Case("no-limits", o("clip", X), "", special=True),
    Case("clip-at-zero", o("clip", X, min=0.0), "relu", special=True),
    Case("clip-twice", o("clip", o("relu", X), max=1.0), "clip"),
    Case("clip-twice", o("relu", o("clip", X, min=-1.0, max=1.0)), "clip"),
    Case("clip-twice", o("relu", o("relu", X)), "relu", special=True),
    Case("clip-twice", o("clip", o("clip", X, min=-1.0, max=0.5), min=1.0, max=2.0), "clip"),
    Case("minimum-with-constant", o("minimum", X, 0.5), "clip", special=True),
    Case("maximum-with-constant", o("maximum", k([-0.5]), X), "clip", special=True),
    Case("maximum-with-constant", o("maximum", X, 0.0), "relu"),
    Case("multiply-by-one", o("mul", X, k([[1.0]])), "", special=True),
    Case("multiply-by-one", o("mul", k(1, "int64"), N), ""),
    Case("divide-by-one", o("div", X, 1.0), "", special=True),
    Case("add-zero", o("add", X, -0.0), "", special=True),
    Case("add-zero", o("add", N, k([0], "int64")), ""),
    Case("subtract-zero", o("sub", X, 0.0), "", special=True),
    Case("negate-twice", o("neg", o("neg", X)), "", special=True),
    Case("add-negative", o("add", o("neg", X), x(4, name="y")), "sub", special=True),
    Case("subtract-negative", o("sub", X, o("neg", x(4, name="y"))), "add", special=True),
    Case("subtract-constant", o("sub", X, 3.0), "add", special=True),
    Case("subtract-constant", o("sub", N, k(3, "int64")), "add"),
    Case("divide-by-constant", o("div", X, 8.0), "mul", special=True),
    Case("divide-by-constant", o("div", X, k([2.0, -4.0, 0.125, 1.0])), "mul", special=True),
    Case("divide-by-constant", o("div", H, k(4.0, "float16")), "mul"),
    Case("add-twice", o("add", o("add", N, k(3, "int64")), k([4], "int64")), "add"),
    Case("multiply-integers-twice", o("mul", o("mul", N, k(3, "int64")), k(4, "int64")), "mul"),
    Case("multiply-twice", o("mul", o("mul", X, 3.0), 0.1), "mul", special=True),
    Case("first-power", o("pow", X, 1.0), "", special=True),
    Case("square", o("pow", X, k(2, "int64")), "mul", special=True),
    Case("cube", o("pow", X, 3.0), "mul mul", special=True),
    Case("power-of-minus-one", o("pow", X, -1.0), "reciprocal", special=True),
    Case("power-of-a-half", o("pow", o("exp", X), 0.5), "exp sqrt"),
    Case("power-of-minus-a-half", o("pow", o("add", o("mul", X, X), 1e-3), -0.5), "mul add rsqrt"),
    # Movement.
    Case("view-of-nothing", o("reshape", X, shape=(2, -1, 4)), ""),
    Case("view-twice", o("unsqueeze", o("reshape", X, shape=(6, 4)), axes=(0,)), "reshape"),
    Case("squeeze-as-reshape", o("squeeze", x(1, 3)), "reshape"),
    Case("transpose-of-nothing", o("transpose", X, perm=(0, 1, -1)), ""),
    Case("transpose-as-view", o("transpose", x(1, 3, 1, 4), perm=(1, 2, 0, 3)), "reshape"),
    Case("transpose-twice", o("transpose", o("transpose", X), perm=(1, 0, 2)), "transpose"),
    Case(
        "transpose-of-view-of-transpose",
        o("transpose", o("reshape", o("transpose", x(2, 5, 3, 4), perm=(0, 2, 1, 3)), shape=(6, 5, 4)), perm=(0, 2, 1)),
        "transpose transpose reshape",
    ),
    Case(
        "transpose-between-views",
        o("reshape", o("transpose", o("reshape", x(1, 2, 5, 3), shape=(2, 5, 3)), perm=(0, 2, 1)), shape=(1, 2, 3, 5)),
        "transpose",
    ),
    Case(
        "transpose-between-views",
        o("reshape", o("transpose", o("reshape", x(2, 3, 4, 5), shape=(6, 20)), perm=(1, 0)), shape=(4, 5, 2, 3)),
        "transpose",
    ),
    Case("sink-transpose", o("relu", o("transpose", X)), "relu transpose"),
    Case("sink-transpose-binary", o("add", o("transpose", X), o("transpose", x(2, 3, 4, name="y"))), "add transpose"),
    Case("sink-transpose-binary", o("sub", o("transpose", X), r(3, 2)), "sub transpose"),
    Case("sink-transpose-second", o("div", 2.0, o("transpose", X, perm=(1, 2, 0))), "div transpose", 0.5, 2),
    Case("slice-of-all", o("slice", X, begin=(0,), end=(9,), axes=(1,)), ""),
    Case("pad-by-nothing", o("pad", X, pads=(0,) * 6), ""),
    Case("tile-once", o("tile", X, repeats=(1, 1, 1)), ""),
    Case("broadcast-to-itself", o("broadcast_to", X, shape=(1, 4)), ""),
    Case("flip-of-nothing", o("flip", X, axes=()), ""),
    Case("split-into-whole", part(X, (4,), 0), ""),
    Case("split-into-whole", part(X, (0, 4, 0), 1), ""),
    Case(
        "concat-with-nothing",
        o("concat", X, x(2, 3, 0, name="y"), r(2, 3, 1), x(2, 3, 0, name="z"), axis=-1),
        "concat",
    ),
    Case("concat-with-nothing", o("concat", x(2, 0, 4, name="y"), X, axis=1), "concat"),
    Case("concat-with-nothing", o("concat", x(2, 0, 4, name="y"), x(2, 0, 4, name="z"), axis=1), "concat"),
    Case("concat-of-one", o("concat", X, axis=1), ""),
    Case("concat-of-one", o("concat", Project(_halves, 0), Project(_halves, 1), axis=-1), ""),
    Case(
        "concat-of-many",
        o("concat", *(x(2, 3, 4, name=f"x{i}") for i in range(50)), axis=-1),
        "concat concat concat concat",
    ),
    Case("gather-one", o("gather", X, k(-1, "int64"), axis=1), "slice reshape"),
    Case("gather-one", o("gather", X, k([1, 2], "int64"), axis=2), "slice reshape"),
    Case("reduce-nothing", o("reduce_mean", x(2, 1, 3), axes=(1,), keepdims=False), "reshape"),
    Case("broadcast-before-first", o("add", o("broadcast_to", x(4, name="y"), shape=(2, 3, 4)), X), "add"),
    Case("broadcast-before-second", o("matmul", X, o("broadcast_to", x(1, 4, 5, name="y"), shape=(2, 4, 5))), "matmul"),
    # Decomposed forms.
    *(Case("gelu-by-erf", gelu_erf(X, order), "gelu", special=True) for order in range(3)),
    *(Case("gelu-by-tanh", gelu_tanh(X, form), "gelu", special=form == "pow") for form in ("pow", "fast", "keras")),
    Case("sigmoid-by-exp", o("reciprocal", o("add", o("exp", o("neg", X)), 1.0)), "sigmoid", special=True),
    Case("sigmoid-by-exp", o("div", 1.0, o("add", o("exp", o("neg", X)), 1.0)), "sigmoid", special=True),
    Case("silu", o("mul", o("sigmoid", X), X), "silu", -9, 9),
    Case("mish", o("mul", X, o("tanh", o("softplus", X))), "mish"),
    Case("hard-swish", o("mul", X, o("hard_sigmoid", X, alpha=1 / 6, beta=0.5)), "hard_swish", -5, 5),
    Case(
        "hard-swish-by-clip",
        o("div", o("mul", X, o("clip", o("add", X, 3.0), min=0.0, max=6.0)), 6.0),
        "hard_swish",
        -5,
        5,
    ),
    Case("reciprocal-of-root", o("reciprocal", o("sqrt", X)), "rsqrt", special=True),
    Case("one-over-root", o("div", 1.0, o("sqrt", X)), "rsqrt", special=True),
    Case("softmax", o("div", _powers, _total), "softmax"),
    Case("softmax", o("mul", _powers, o("reciprocal", _total)), "softmax"),
    Case("log-softmax", o("sub", _below, o("log", _total)), "log_softmax"),
    *(
        Case("layer-norm", layer_norm(X, form), "layer_norm")
        for form in ("sqrt", "mul", "rsqrt", "reciprocal", "twice")
    ),
    Case("layer-norm", layer_norm(X, "pow", (1, 2)), "layer_norm"),
    Case("rms-norm", o("mul", X, o("rsqrt", o("add", o("reduce_mean", o("mul", X, X), axes=(2,)), 1e-6))), "rms_norm"),
    Case("scale-of-norm", o("mul", r(1, 4), o("layer_norm", X)), "layer_norm"),
    Case("scale-of-norm", o("mul", o("rms_norm", X, axis=1), r(3, 4)), "rms_norm"),
    Case("bias-of-norm", o("add", o("layer_norm", X, r(4)), r(4)), "layer_norm"),
    Case("group-norm", o("reshape", _group, shape=(2, 4, 5, 5)), "group_norm"),
    Case("scale-of-channel-norm", o("mul", norm(D, 4, "instance_norm"), r(4, 1, 1)), "instance_norm"),
    Case("bias-of-channel-norm", o("add", o("group_norm", D, r(4), r(4), num_groups=2), r(4, 1, 1)), "group_norm"),
    # Normalization.
    Case("batch-norm-to-scale-and-shift", norm(D, 4), "mul add"),
    Case("batch-norm-to-scale-and-shift", norm(M, 2), "mul add"),
    Case("scale-into-weights", o("mul", o("conv", D, r(6, 2, 3, 3), groups=2), r(6, 1, 1)), "conv"),
    Case("scale-into-weights", o("mul", o("conv_transpose", D, r(4, 3, 2, 2), groups=2), r(6, 1, 1)), "conv_transpose"),
    Case("scale-into-weights", o("mul", o("matmul", M, r(8, 3)), r(3)), "matmul"),
    Case("scale-into-weights", o("mul", o("matmul", M, r(3, 8), transpose_b=True), r(1, 3)), "matmul"),
    Case("scale-into-weights", o("mul", o("conv", D, r(6, 4, 1, 1)), 0.25), "conv"),
    Case("scale-of-sum-into-weights", o("mul", o("add", o("matmul", M, r(8, 3)), r(3)), r(3)), "matmul add"),
    Case(
        "terms-after-contraction", o("add", o("add", o("conv", D, r(3, 4, 1, 1)), r(3, 1, 1)), r(3, 1, 1)), "conv add"
    ),
    Case("terms-after-scale", o("add", o("add", o("mul", D, r(4, 1, 1)), r(4, 1, 1)), 1.0), "mul add"),
    Case("affine-twice", o("mul", o("add", o("mul", D, r(4, 1, 1)), 2.0), r(1, 4, 1, 1)), "mul add"),
    Case(
        "input-scale-into-weights", o("conv", o("mul", D, r(4, 1, 1)), r(6, 2, 3, 3), groups=2, pads=(1,) * 4), "conv"
    ),
    Case("input-scale-into-weights", o("conv_transpose", o("mul", D, r(4, 1, 1)), r(4, 2, 3, 3)), "conv_transpose"),
    Case("input-scale-into-weights", o("matmul", o("mul", M, r(8)), r(8, 3)), "matmul"),
    Case("input-scale-into-weights", o("matmul", o("mul", M, 3.0), r(3, 8), transpose_b=True), "matmul"),
    Case(
        "pad-into-window",
        o("conv", o("pad", D, pads=(0, 0, 1, 0, 0, 0, 0, 2)), r(3, 4, 3, 3), pads=(1, 1, 1, 1)),
        "conv",
    ),
    Case(
        "pad-into-window", o("max_pool", o("pad", D, pads=(0, 0, 1, 1) * 2, value=-np.inf), kernel=(3, 3)), "max_pool"
    ),
    Case(
        "pad-into-window", o("avg_pool", o("pad", D, pads=(0, 0, 1, 1) * 2), kernel=(3, 3), strides=(2, 2)), "avg_pool"
    ),
    # Contractions.
    Case(
        "attention-in-parts",
        o("scaled_dot_product_attention", *_attention, causal=True),
        "matmul mul trilu softmax einsum",
    ),
    Case(
        "attention-in-parts",
        o("scaled_dot_product_attention", *_attention, x(5, 5, name="mask"), scale=0.3),
        "matmul mul add softmax matmul",
    ),
    Case(
        "attention-in-parts",
        o("scaled_dot_product_attention", *_attention, k(np.tri(5, dtype=bool), "bool")),
        "matmul mul where softmax matmul",
    ),
    Case("matmul-of-transposed-first", o("matmul", heads("q"), x(2, 3, 4, name="b")), "einsum"),
    Case("matmul-of-transposed-second", o("matmul", heads("q"), heads("k", (0, 2, 3, 1))), "einsum"),
    Case("matmul-of-transposed-second", o("matmul", M, o("transpose", x(8, 6, name="n")), transpose_b=True), "einsum"),
    Case("transpose-of-matmul", o("transpose", o("matmul", X, x(2, 4, 5, name="y")), perm=(1, 0, 2)), "einsum"),
    Case("shared-labels-first", o("einsum", X, x(2, 5, 4, name="y"), equation="bij,bkj->ikb"), "einsum transpose"),
    Case("shared-labels-first", o("einsum", X, x(4, 5, 2, name="y"), equation="bij,jkb->kib"), "einsum transpose"),
    Case(
        "shared-labels-first",
        o("einsum", x(2, 3, 4, 5, name="v"), x(2, 3, 6, 5, name="w"), equation="abij,abkj->ikba"),
        "einsum transpose",
    ),
    Case(
        "shared-labels-first",
        o("einsum", x(1, 2, 3, 4, name="v"), x(1, 2, 5, 4, name="w"), equation="abij,abkj->ikba"),
        "einsum transpose",
    ),
    Case(
        "shared-labels-first",
        o("einsum", x(20, 30, 3, name="v"), x(40, 30, 3, name="w"), equation="ijb,kjb->ikb"),
        "einsum transpose",
    ),
    Case(
        "transpose-of-einsum",
        o("transpose", o("einsum", X, x(2, 4, 5, name="y"), equation="bij,bjk->bik"), perm=(2, 0, 1)),
        "einsum",
    ),
    Case("einsum-of-transposed", o("einsum", o("transpose", X), x(2, 5, name="y"), equation="ijb,bk->ijk"), "einsum"),
    Case("factor-behind-einsum-first", o("einsum", _halved, _halved, equation="bij,bkj->bik"), "mul einsum mul"),
    Case(
        "factor-behind-einsum-first",
        o("einsum", o("mul", X, 0.3), x(4, 5, name="y"), equation="bij,jk->bik"),
        "einsum mul",
    ),
    Case(
        "factor-behind-einsum-second",
        o("einsum", x(5, 2, name="y"), o("mul", X, 0.3), equation="ki,ibj->kbj"),
        "einsum mul",
    ),
    Case("view-behind-product", o("matmul", o("reshape", X, shape=(6, 4)), r(4, 5)), "matmul reshape"),
    Case(
        "view-before-product",
        o("reshape", o("matmul", o("reshape", x(2, 3, 2, 2), shape=(6, 4)), r(4, 5)), shape=(2, 3, 5)),
        "reshape matmul",
    ),
    Case("part-of-product", part(o("matmul", M, r(8, 40)), (16, 24), 1), "matmul"),
    Case(
        "part-of-product", part(o("add", o("matmul", M, r(40, 8), transpose_b=True), r(40)), (16, 24), 0), "matmul add"
    ),
)

_used_twice = o("conv", D, r(4, 4, 1, 1))

STAYS: tuple[Case, ...] = (
    Case("cast-twice", o("cast", o("cast", X, to="int64"), to="float32")),
    Case("cast-twice", o("cast", o("cast", N, to="float32"), to="int64")),
    Case("cast-twice", o("cast", o("cast", X, to="float16"), to="float32")),
    Case("known-choice", o("where", k([True, False, True, True], "bool"), X, o("neg", X))),
    Case("known-choice", o("where", k([True] * 3, "bool"), x(1, name="y"), x(3, name="z"))),
    Case("and-true", o("logical_and", k([True, False, True], "bool"), B)),
    Case("clip-twice", o("clip", o("clip", X, min=1.0, max=-1.0), min=0.0)),
    Case("maximum-with-constant", o("maximum", X, k([0.0, 1.0, 2.0, 3.0]))),
    Case("maximum-with-constant", o("maximum", X, np.nan)),
    Case("multiply-by-one", o("mul", x(4), k(np.ones((2, 4))))),
    Case("add-zero", o("add", X, 0.0)),
    Case("subtract-zero", o("sub", X, -0.0)),
    Case("subtract-constant", o("sub", x(2, dtype="uint8"), k(1, "uint8"))),
    Case("divide-by-constant", o("div", N, k(4, "int64"))),
    Case("divide-by-constant", o("div", H, k(3.0, "float16"))),
    Case("divide-by-constant", o("div", X, 3.0)),
    Case("divide-by-constant", o("div", X, k([2.0, -5.0, 4.0, 8.0]))),
    Case("divide-by-constant", o("div", X, 0.0)),
    Case("divide-by-constant", o("div", X, 1e-40)),
    Case("divide-by-constant", o("div", X, 3e38)),
    Case("multiply-twice", o("mul", o("mul", X, 1e30), 1e30)),
    Case("multiply-twice", o("mul", o("mul", X, 0.0), 2.0)),
    Case("square", o("pow", N, k(2, "int64"))),
    Case("power-of-a-half", o("pow", X, 0.5)),
    Case("power-of-minus-a-half", o("pow", o("add", o("mul", X, X), -1.0), -0.5)),
    Case("view-of-nothing", o("reshape", X, shape=(3, 2, 4))),
    Case("transpose-of-nothing", o("transpose", x(3, 3))),
    Case("transpose-as-view", o("transpose", X, perm=(1, 0, 2))),
    Case(
        "transpose-of-view-of-transpose",
        o("transpose", o("reshape", o("transpose", x(2, 5, 3, 4)), shape=(4, 3, 10)), perm=(2, 0, 1)).args[0],
    ),
    Case(
        "transpose-of-view-of-transpose",
        o("transpose", o("reshape", o("transpose", x(4, 6)), shape=(2, 3, 4)), perm=(1, 0, 2)),
    ),
    Case(
        "transpose-between-views",
        o("reshape", o("transpose", o("reshape", x(2, 3, 4, 5), shape=(6, 20)), perm=(1, 0)), shape=(4, 5, 3, 2)),
    ),
    Case(
        "transpose-between-views",
        o("reshape", o("transpose", o("reshape", x(4, 6), shape=(8, 3)), perm=(1, 0)), shape=(3, 8)),
    ),
    Case("sink-transpose-binary", o("add", o("transpose", X), x(4, 3, 2, name="y"))),
    Case("sink-transpose-binary", o("add", o("transpose", x(1, 3)), x(1, 3, name="y"))),
    Case("slice-of-all", o("slice", X, begin=(None,), end=(None,), axes=(1,), strides=(-1,))),
    Case("pad-by-nothing", o("pad", X, pads=(0, 1, 0, 0, -1, 0))),
    Case("split-into-whole", part(X, (1, 3), 1)),
    Case("split-into-whole", part(X, (4, 0), 1)),
    Case("concat-with-nothing", o("concat", x(0, 3, name="y"), x(0, 3, name="z"), axis=1)),
    Case("concat-of-one", o("concat", Project(_halves, 1), Project(_halves, 0), axis=-1)),
    Case("concat-of-many", o("concat", *(x(2, 3, 4, name=f"x{i}") for i in range(24)), axis=1)),
    Case("gather-one", o("gather", X, k([0, 2], "int64"), axis=2)),
    Case("gather-one", o("gather", X, x(dtype="int64", name="n"), axis=2)),
    Case("reduce-nothing", o("reduce_mean", x(2, 1, 3), axes=(0, 1))),
    Case("broadcast-before-first", o("add", o("broadcast_to", x(4, name="y"), shape=(2, 3, 4)), x(4, name="z"))),
    Case("gelu-by-erf", o("mul", o("mul", X, 0.5), o("add", o("erf", o("mul", X, 0.7)), 1.0))),
    Case(
        "gelu-by-erf", o("mul", o("mul", x(2, 3, 4, name="y"), 0.5), o("add", o("erf", o("mul", X, 0.70710678)), 1.0))
    ),
    Case("hard-swish", o("mul", X, o("hard_sigmoid", X))),
    Case("silu", o("mul", X, o("sigmoid", x(2, 3, 4, name="y")))),
    Case("softmax", o("div", *exponentials(X, -1, 1)[1:])),
    Case("softmax", o("div", o("exp", X), o("reduce_sum", o("exp", X), axes=(-1,)))),
    Case("layer-norm", layer_norm(X, "sqrt", (1,))),
    Case(
        "layer-norm",
        o("div", centred(X), o("sqrt", o("add", o("reduce_mean", o("pow", centred(X, (1,)), 2.0), axes=(2,)), 1e-5))),
    ),
    Case("rms-norm", o("mul", X, o("rsqrt", o("add", o("reduce_mean", o("mul", X, X), axes=(1,)), 1e-6)))),
    Case("scale-of-norm", o("mul", o("layer_norm", X), r(3, 4))),
    Case("bias-of-norm", o("add", o("layer_norm", X), r(4))),
    Case("group-norm", o("reshape", _group, shape=(2, 2, 50))),
    Case("batch-norm-to-scale-and-shift", o("batch_norm", M, r(8), r(8), r(8), k([-1.0] * 8))),
    Case("scale-into-weights", o("mul", o("conv", D, r(4, 4, 1, 1)), r(5))),
    Case("scale-into-weights", o("mul", o("conv", D, r(4, 4, 1, 1)), k(np.inf))),
    Case("scale-into-weights", o("mul", o("conv", D, x(4, 4, 1, 1, name="w")), r(4, 1, 1))),
    Case("scale-into-weights", o("add", o("mul", _used_twice, r(4, 1, 1)), _used_twice)),
    Case(
        "scale-into-weights", o("mul", o("matmul", x(2, 3, dtype="int32"), k(np.ones((3, 2)), "int32")), k(2, "int32"))
    ),
    Case("input-scale-into-weights", o("conv", o("mul", D, r(5, 1)), r(4, 4, 1, 1))),
    Case("pad-into-window", o("conv", o("pad", D, pads=(0, 0, 1, 1) * 2, value=1.0), r(4, 4, 1, 1))),
    Case("pad-into-window", o("conv", o("pad", D, pads=(0, 0, 1, 1) * 2, mode="edge"), r(4, 4, 1, 1))),
    Case("pad-into-window", o("conv", o("pad", D, pads=(0, 1, 0, 0, 0, 0, 0, 0)), r(4, 5, 1, 1))),
    Case("pad-into-window", o("max_pool", o("pad", D, pads=(0, 0, 1, 1) * 2), kernel=(3, 3))),
    Case("pad-into-window", o("avg_pool", o("pad", D, pads=(0, 0, 1, 1) * 2), kernel=(3, 3), pads=(1, 1, 1, 1))),
    Case("matmul-of-transposed-second", o("matmul", M, o("transpose", r(6, 8)))),
    Case("matmul-of-transposed-first", o("matmul", o("transpose", M), r(6, 8))),
    Case("transpose-of-matmul", o("transpose", o("matmul", M, x(8, 5, name="y")))),
    Case("transpose-of-matmul", o("transpose", o("matmul", X, x(2, 4, 5, name="y")), perm=(1, 2, 0))),
    Case(
        "transpose-of-einsum",
        o("transpose", o("einsum", X, x(2, 4, 5, name="y"), equation="bij,bjk->bik"), perm=(2, 1, 0)),
    ),
    Case("shared-labels-first", o("einsum", X, x(2, 5, 4, name="y"), equation="bij,bkj->ibk")),
    Case("shared-labels-first", o("einsum", X, x(2, 5, 3, name="y"), equation="bij,bki->kijb")),
    Case("shared-labels-first", o("einsum", x(1, 3, 4, name="v"), x(1, 5, 4, name="w"), equation="bij,bkj->ikb")),
    Case("shared-labels-first", o("einsum", x(1, 3, 4, name="v"), x(2, 5, 4, name="w"), equation="bij,bkj->ikb")),
    Case("shared-labels-first", o("einsum", x(5, 4, 3, name="v"), x(6, 4, 3, name="w"), equation="ijb,kjb->ikb")),
    Case("shared-labels-first", o("einsum", X, x(2, 3, 4, name="y"), equation="bij,bij->ib")),
    Case(
        "factor-behind-einsum-first",
        o("einsum", o("mul", o("matmul", M, r(8, 4)), 0.3), x(4, 5, name="y"), equation="ij,jk->ik"),
    ),
    Case("factor-behind-einsum-first", o("einsum", o("mul", X, 1e30), x(4, 5, name="y"), equation="bij,jk->bik")),
    Case("view-behind-product", o("matmul", o("reshape", X, shape=(4, 6)), r(6, 5))),
    Case("view-before-product", o("reshape", o("matmul", o("reshape", X, shape=(6, 4)), r(4, 5)), shape=(2, 15))),
    Case("part-of-product", part(o("matmul", M, r(8, 24)), (8, 16), 1)),
    Case("part-of-product", part(o("matmul", x(1, 8, name="m"), r(8, 40)), (16, 24), 1)),
    Case("part-of-product", part(o("matmul", M, r(8, 24)), (3, 3), 1, axis=0)),
)
