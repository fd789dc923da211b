"""Decomposed forms of normalizations and activations, as exporters write them, become single operators.

Results change by rounding only. Forms that produce infinities or NaN for other inputs than the operator are not
changed: softmax without subtraction of the maximum, softplus as log(1 + exp(x)), log of a softmax, x / max(norm,
epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.graph.nodes import Call, Constant, GraphExpr, call
from weft.graph.operator import Operator
from weft.graph.pattern import GraphMatch, GraphPattern, GraphRule, anything, constant, either, op
from weft.ops.catalogue import op as operator
from weft.ops.rules.parts import (
    ADD,
    CLIP,
    DIV,
    ERF,
    EXP,
    LOG,
    MUL,
    NEG,
    POW,
    RECIPROCAL,
    REDUCE_MAX,
    REDUCE_MEAN,
    REDUCE_SUM,
    RESHAPE,
    RSQRT,
    SIGMOID,
    SQRT,
    SUB,
    TANH,
    about,
    along,
    cube,
    is_float,
    product,
    same_type,
    scalar,
    square,
    times,
    try_call,
)

LAYER_NORM, RMS_NORM, INSTANCE_NORM, GROUP_NORM = (
    operator(name) for name in ("layer_norm", "rms_norm", "instance_norm", "group_norm")
)
SOFTMAX, LOG_SOFTMAX = operator("softmax"), operator("log_softmax")
GELU, SILU, MISH, HARD_SWISH, HARD_SIGMOID, SOFTPLUS = (
    operator(name) for name in ("gelu", "silu", "mish", "hard_swish", "hard_sigmoid", "softplus")
)

_x = anything("x", is_float)
_ROOT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _become(target: Operator, **attrs: object) -> Callable[[GraphMatch], GraphExpr | None]:
    """Builds ``target(x)``."""
    return lambda m: same_type(call(target, [m.x], attrs), m.root)


# Activations.

_one_plus_erf = op(ADD, op(ERF, times(_x, _ROOT_HALF)), about(1.0))


def _cubic(x: GraphPattern, factor: float) -> GraphPattern:
    """factor · x³ in the orders of multiplication that occur."""
    c = about(factor)
    scaled = op(MUL, x, c)
    return either(
        op(MUL, cube(x), c),
        op(MUL, op(MUL, scaled, x), x),
        op(MUL, op(MUL, x, x), scaled),
        op(MUL, op(MUL, op(MUL, x, x), c), x),
    )


def _gelu_argument(x: GraphPattern) -> GraphPattern:
    """sqrt(2/pi) · (x + 0.044715 x³), also with x or the first factor factored out or multiplied in."""
    squared = either(op(MUL, op(MUL, x, x), about(_CUBIC)), op(MUL, op(MUL, x, about(_CUBIC)), x))
    fast = op(ADD, op(MUL, op(MUL, x, x), about(_TANH_SCALE * _CUBIC)), about(_TANH_SCALE))
    return either(
        times(op(ADD, x, _cubic(x, _CUBIC)), _TANH_SCALE),
        op(MUL, x, fast),
        product(x, about(_TANH_SCALE), op(ADD, squared, about(1.0))),
    )


_one_plus_tanh = op(ADD, op(TANH, _gelu_argument(_x)), about(1.0))
_relu6_of_x_plus_3 = op(CLIP, op(ADD, _x, about(3.0)), attrs={"min": 0, "max": 6})
_exp_of_minus_x = op(EXP, op(NEG, _x))
_hard = op(HARD_SIGMOID, _x, attrs=lambda a: math.isclose(a.alpha, 1 / 6, rel_tol=1e-6) and a.beta == 0.5)


ACTIVATION_RULES: tuple[GraphRule, ...] = (
    GraphRule("gelu-by-erf", product(_x, _one_plus_erf, about(0.5)), _become(GELU)),
    GraphRule("gelu-by-tanh", product(_x, _one_plus_tanh, about(0.5)), _become(GELU, approximate="tanh")),
    GraphRule(
        "sigmoid-by-exp",
        either(
            op(RECIPROCAL, op(ADD, _exp_of_minus_x, about(1.0))),
            op(DIV, about(1.0), op(ADD, _exp_of_minus_x, about(1.0))),
        ),
        _become(SIGMOID),
    ),
    GraphRule("silu", op(MUL, _x, op(SIGMOID, _x)), _become(SILU)),
    GraphRule("mish", op(MUL, _x, op(TANH, op(SOFTPLUS, _x))), _become(MISH)),
    GraphRule("hard-swish", op(MUL, _x, _hard), _become(HARD_SWISH)),
    GraphRule(
        "hard-swish-by-clip",
        either(product(_x, _relu6_of_x_plus_3, about(1 / 6)), op(DIV, op(MUL, _x, _relu6_of_x_plus_3), about(6.0))),
        _become(HARD_SWISH),
    ),
    GraphRule("reciprocal-of-root", op(RECIPROCAL, op(SQRT, _x)), _become(RSQRT)),
    GraphRule("one-over-root", op(DIV, about(1.0), op(SQRT, _x)), _become(RSQRT)),
)


# Softmax.

_kept = {"keepdims": True}


def _one_axis(m: GraphMatch) -> int | None:
    """The axis that all reductions of the match run over, if it is a single one."""
    found = {_axes(m[name]) for name in ("max", "sum") if name in m}
    axes = found.pop()
    return axes[0] if not found and len(axes) == 1 else None


def _axes(reduction: Call) -> tuple[int, ...]:
    """Reduced axes in order, counted from the front."""
    rank = reduction.args[0].tensor.rank
    axes = reduction.attrs.axes
    return tuple(range(rank)) if axes is None else tuple(sorted(a % rank for a in axes))


def _softmax(target: Operator) -> Callable[[GraphMatch], GraphExpr | None]:
    def build(m: GraphMatch) -> GraphExpr | None:
        axis = _one_axis(m)
        return None if axis is None else same_type(call(target, [m.x], {"axis": axis}), m.root)

    return build


_below_max = op(SUB, _x, op(REDUCE_MAX, _x, name="max", attrs=_kept))
_powers = op(EXP, _below_max)
_total = op(REDUCE_SUM, _powers, name="sum", attrs=_kept)

SOFTMAX_RULES: tuple[GraphRule, ...] = (
    GraphRule(
        "softmax",
        either(op(DIV, _powers, _total), op(MUL, _powers, op(RECIPROCAL, _total))),
        _softmax(SOFTMAX),
    ),
    GraphRule("log-softmax", op(SUB, _below_max, op(LOG, _total)), _softmax(LOG_SOFTMAX)),
)


# Normalizations over trailing axes: (x - mean) / sqrt(variance + epsilon), x / sqrt(mean of squares + epsilon).


def _centred(mean: str) -> GraphPattern:
    return op(SUB, _x, op(REDUCE_MEAN, _x, name=mean, attrs=_kept))


def _over_root(value: GraphPattern, squares: GraphPattern) -> GraphPattern:
    """``value`` over the root of ``squares`` + epsilon."""
    total = op(ADD, squares, constant("epsilon", lambda c: c.size == 1 and bool(c > 0)))
    return either(
        op(DIV, value, op(SQRT, total)),
        op(MUL, value, op(RSQRT, total)),
        op(MUL, value, op(RECIPROCAL, op(SQRT, total))),
        op(DIV, value, op(POW, total, about(0.5))),
        op(MUL, value, op(POW, total, about(-0.5))),
    )


def _trailing(m: GraphMatch, *names: str) -> int | None:
    """The first of the axes that all the named reductions run over, if these are the last ones."""
    rank = m.x.tensor.rank
    found = {_axes(m[name]) for name in names if name in m}
    axes = found.pop()
    return axes[0] if not found and axes and axes == tuple(range(axes[0], rank)) else None


def _normalized(target: Operator, *names: str) -> Callable[[GraphMatch], GraphExpr | None]:
    def build(m: GraphMatch) -> GraphExpr | None:
        axis = _trailing(m, *names)
        if axis is None:
            return None
        return same_type(call(target, [m.x], {"axis": axis, "epsilon": scalar(m.epsilon)}), m.root)

    return build


_divided, _squared = _centred("mean"), _centred("mean2")
_layer_norm = either(
    _over_root(_divided, op(REDUCE_MEAN, square(_divided), name="variance", attrs=_kept)),
    _over_root(_divided, op(REDUCE_MEAN, square(_squared), name="variance", attrs=_kept)),
)
_rms_norm = _over_root(_x, op(REDUCE_MEAN, square(_x), name="squares", attrs=_kept))


def _take_parameter(m: GraphMatch) -> GraphExpr | None:
    """The normalization with one more operand: a constant that varies along the normalized axes only."""
    norm: Call = m.norm
    assert isinstance(norm.target, Operator)
    rank, value = norm.tensor.rank, m.parameter.data
    axis = norm.attrs.axis % rank
    lead = max(0, value.ndim - (rank - axis))
    if value.ndim > rank or any(d != 1 for d in value.shape[:lead]):
        return None
    parameter = Constant(value.reshape(value.shape[lead:]), m.parameter.origin)
    return try_call(norm.target, [*norm.args, parameter], norm.attrs, m.root)


# Normalizations over channels and space.


def _group_norm(m: GraphMatch) -> GraphExpr | None:
    """An instance norm over groups of channels flattened into one."""
    norm: Call = m.norm
    x, channels, groups = m.x, m.x.tensor.shape[1], norm.tensor.shape[1]
    if m.x.tensor.rank < 3 or m.x.tensor.shape[0] != norm.tensor.shape[0] or not isinstance(channels, int):
        return None
    if not isinstance(groups, int) or channels % groups:
        return None
    scale, bias = (np.repeat(m[name].data, channels // groups) for name in ("scale", "bias"))
    args = [x, Constant(scale, m.scale.origin), Constant(bias, m.bias.origin)]
    return try_call(GROUP_NORM, args, {"num_groups": groups, "epsilon": norm.attrs.epsilon}, m.root)


def _channel_parameter(m: GraphMatch) -> GraphExpr | None:
    """Fold a factor or a term by channel into the parameters; evaluated in float64 and rounded once."""
    norm: Call = m.norm
    root = m.call
    assert isinstance(norm.target, Operator)
    given = along(m.parameter.data, norm.tensor.rank, 1, norm.tensor.shape[1])
    if given is None:
        return None
    scale, bias = (m[name].data.astype(np.float64) for name in ("scale", "bias"))
    scale, bias = (scale * given, bias * given) if root.target is MUL else (scale, bias + given)
    dtype = m.scale.data.dtype
    args = [norm.args[0], Constant(scale.astype(dtype), m.scale.origin), Constant(bias.astype(dtype), m.bias.origin)]
    return try_call(norm.target, args, norm.attrs, m.root)


_parameter = constant("parameter")
_channel_norm = op((INSTANCE_NORM, GROUP_NORM), anything(), constant("scale"), constant("bias"), name="norm", once=True)


NORM_RULES: tuple[GraphRule, ...] = (
    GraphRule("layer-norm", _layer_norm, _normalized(LAYER_NORM, "mean", "mean2", "variance")),
    GraphRule("rms-norm", _rms_norm, _normalized(RMS_NORM, "squares")),
    GraphRule(
        "scale-of-norm",
        op(MUL, op((LAYER_NORM, RMS_NORM), anything(), name="norm", once=True), _parameter),
        _take_parameter,
    ),
    GraphRule(
        "bias-of-norm",
        op(ADD, op(LAYER_NORM, anything(), anything(), name="norm", once=True), _parameter),
        _take_parameter,
    ),
    GraphRule(
        "group-norm",
        op(RESHAPE, op(INSTANCE_NORM, op(RESHAPE, _x), constant("scale"), constant("bias"), name="norm", once=True)),
        _group_norm,
    ),
    GraphRule("scale-of-channel-norm", op(MUL, _channel_norm, _parameter), _channel_parameter),
    GraphRule("bias-of-channel-norm", op(ADD, _channel_norm, _parameter), _channel_parameter),
)

FUSED_FORM_RULES: tuple[GraphRule, ...] = (*NORM_RULES, *SOFTMAX_RULES, *ACTIVATION_RULES)
"""Decomposed forms → operators."""
