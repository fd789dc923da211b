"""Formulas that optimizers fuse into one operator: activations with bias, gates, products of complex numbers."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.common.problems import Malformed
from weft.frontends.common.sizes import product
from weft.frontends.onnx.converters.contraction import scaled
from weft.frontends.onnx.converters.numbers import Traced, operand, stack
from weft.frontends.onnx.converters.randomness import dropped
from weft.frontends.onnx.node import Node, Result
from weft.support.dtypes import FLOAT32


def _gelu(approximate: str) -> Callable[[Node], Result]:
    """gelu(x + bias)"""

    def convert(node: Node) -> Result:
        x = operand(node, 0)
        if node.has(1):
            x = x + operand(node, 1)
        return x.call("gelu", approximate=approximate).x

    return convert


def _quick_gelu(node: Node) -> Result:
    x = node.data(0)
    return node.call("mul", x, node.call("sigmoid", scaled(node, x, node.real("alpha", 1.702))))


def _bias_split_gelu(node: Node) -> Result:
    """The left half times gelu of the right one."""
    x = operand(node, 0) + operand(node, 1)
    axis, width = len(x.shape) - 1, x.shape[-1]
    if not isinstance(width, int) or width % 2:
        raise Malformed(f"its last dimension must be a known even number, not {width}")
    left, right = x.part(axis, 0, width // 2), x.part(axis, width // 2, width)
    return (left * right.call("gelu", approximate="none")).x


def _gemm_fast_gelu(node: Node) -> Result:
    made = operand(node, 0).call("matmul", operand(node, 1))
    made = made + operand(node, 2) if node.has(2) else made
    return made.call("gelu", approximate="tanh").x


def _bias_add(node: Node) -> Result:
    return (operand(node, 0) + operand(node, 1) + operand(node, 2)).x


def _bias_dropout(node: Node) -> Result:
    made, mask = dropped(node, operand(node, 0) + operand(node, 1), node.optional(3), node.optional(4))
    return ((made + operand(node, 2)) if node.has(2) else made).x, mask.x


def _bias_softmax(node: Node) -> Result:
    """BiasSoftmax. The bias lacks dimensions in the middle (inner) or at the front; all axes from ``axis`` on form
    one."""
    x, bias = operand(node, 0), operand(node, 1)
    rank, axis = len(x.shape), node.axis(len(x.shape), 1)
    if node.flag("is_inner_broadcast"):
        missing = rank - len(bias.shape)
        if missing > 0:
            lead = axis - missing
            if lead < 0:
                raise Malformed(f"its bias {bias.x.tensor} does not fit {x.x.tensor}")
            bias = bias.reshape(*bias.shape[:lead], *(1,) * missing, *bias.shape[lead:])
    total = x + bias
    flat = total.reshape(*total.shape[:axis], product(total.shape[axis:]))
    return flat.call("softmax", axis=-1).reshape(*total.shape).x


def _scaled_silu(node: Node) -> Result:
    x = operand(node, 0)
    factor = operand(node, 1).to(FLOAT32) if node.has(1) else node.real("alpha", 1.0)
    z = (x.to(FLOAT32) * factor).to(x.dtype)
    return (z * z.call("sigmoid")).x


def _gated_add(node: Node) -> Result:
    return (operand(node, 0) + operand(node, 1) * operand(node, 2)).x


def _linear_attention_gate(node: Node) -> Result:
    """decay · softplus(a + bias), and the sigmoid of b."""
    a = operand(node, 0)
    decay = (a.to(FLOAT32) + operand(node, 1)).call("softplus") * operand(node, 2)
    if not node.has(3):
        return decay.to(a.dtype).x
    return decay.to(a.dtype).x, operand(node, 3).call("sigmoid").x


def _complex_product(conjugate: bool) -> Callable[[Node], Result]:
    """A product of complex numbers whose real and imaginary parts are adjacent in the last dimension."""

    def convert(node: Node) -> Result:
        a, b = operand(node, 0), operand(node, 1)
        last = {len(t.shape) and t.shape[-1] for t in (a, b)}
        if last != {2}:
            raise Malformed(f"its operands {a.x.tensor} and {b.x.tensor} must end in pairs")
        (ar, ai), (br, bi) = ([t.part(len(t.shape) - 1, i) for i in (0, 1)] for t in (a, b))
        if conjugate:
            bi = bi.call("neg")
        return stack((ar * br - ai * bi, ar * bi + ai * br)).x

    return convert


def _all_finite(node: Node) -> Result:
    """Whether no element of any operand is infinite or NaN."""
    only_nan, only_inf = node.flag("isnan_only"), node.flag("isinf_only")
    if only_nan and only_inf:
        raise Malformed("its attributes isnan_only and isinf_only exclude each other")
    found: Traced | None = None
    for i in range(len(node.inputs)):
        x = operand(node, i)
        tests = [x.call(t) for t in (("isnan",) if only_nan else ("isinf",) if only_inf else ("isnan", "isinf"))]
        bad = tests[0] if len(tests) == 1 else tests[0].call("logical_or", tests[1])
        any_bad = bad.call("reduce_max", axes=tuple(range(len(x.shape))), keepdims=False)
        found = any_bad if found is None else found.call("logical_or", any_bad)
    if found is None:
        raise Malformed("it has no inputs")
    return found.call("logical_not").x


FUSED: dict[str, Callable[[Node], Result]] = {
    "BiasAdd": _bias_add,
    "BiasDropout": _bias_dropout,
    "BiasGelu": _gelu("none"),
    "BiasSoftmax": _bias_softmax,
    "BiasSplitGelu": _bias_split_gelu,
    "ComplexMul": _complex_product(conjugate=False),
    "ComplexMulConj": _complex_product(conjugate=True),
    "FastGelu": _gelu("tanh"),
    "GatedAdd": _gated_add,
    "Gelu": _gelu("none"),
    "GemmFastGelu": _gemm_fast_gelu,
    "IsAllFinite": _all_finite,
    "LinearAttentionGate": _linear_attention_gate,
    "QuickGelu": _quick_gelu,
    "ScaledSiLU": _scaled_silu,
}
