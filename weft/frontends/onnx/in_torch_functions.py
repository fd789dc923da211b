"""Operators that are one function of PyTorch: part of the table of ``in_torch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Attributes = dict[str, Any]
Converter = Callable[[Any, Sequence[Any], Attributes, int], Any]


def _named(name: str) -> Converter:
    return lambda t, x, a, opset: getattr(t, name)(*x)


def _layer(name: str, **names: str) -> Converter:
    """A function of torch.nn.functional; ``names`` are its parameters and the attributes that give them."""

    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        given = {k: a[v] for k, v in names.items() if v in a}
        return getattr(t.nn.functional, name)(x[0], **given)

    return convert


def _folded(name: str) -> Converter:
    """A function of two operands for any number of them."""

    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        total = x[0]
        for more in x[1:]:
            total = getattr(t, name)(total, more)
        return total

    return convert


def _mod(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return t.fmod(*x) if a.get("fmod") else t.remainder(*x)


def _cumulated(name: str) -> Converter:
    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        if a.get("exclusive") or a.get("reverse"):
            raise NotImplementedError("PyTorch has no exclusive and no reverse sums")
        return getattr(t, name)(x[0], int(x[1]))

    return convert


def _top_k(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return t.topk(x[0], int(x[1]), a.get("axis", -1), bool(a.get("largest", 1)), bool(a.get("sorted", 1)))


def _index_of(name: str) -> Converter:
    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        return getattr(t, name)(x[0], a.get("axis", 0), bool(a.get("keepdims", 1)))

    return convert


def _grid_sample(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(a.get("mode", "linear"), a.get("mode", "linear"))
    aligned = bool(a.get("align_corners", 0))
    return t.nn.functional.grid_sample(*x, mode, a.get("padding_mode", "zeros"), aligned)


def _depth_to_space(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    if a.get("mode", "DCR") != "CRD":
        raise NotImplementedError("PyTorch's pixel shuffle has the blocks inside of the channels")
    return t.nn.functional.pixel_shuffle(x[0], a["blocksize"])


def _reduced(t: Any, x: Sequence[Any], a: Attributes, name: str) -> Any:
    axes = [int(v) for v in x[1]] if len(x) > 1 else list(range(x[0].dim()))
    keep = bool(a.get("keepdims", 1))
    if name == "logsumexp":
        return t.logsumexp(x[0], axes, keepdim=keep)
    if name == "prod":
        for axis in sorted(axes, reverse=True):
            x = [t.prod(x[0], axis, keepdim=keep)]
        return x[0]
    return t.linalg.vector_norm(x[0], 1 if name == "l1" else 2, axes, keepdim=keep)


def _reducing(name: str) -> Converter:
    return lambda t, x, a, opset: _reduced(t, x, a, name)


def _rms_norm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return t.nn.functional.rms_norm(x[0], x[1].shape, x[1], a.get("epsilon", 1e-5))


_SAME_NAME = "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Floor IsInf Round Sign Sin Sinh Tan Det"
_OTHER_NAME = {
    "Or": "logical_or", "Xor": "logical_xor", "LessOrEqual": "le", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not",
}  # fmt: skip

FUNCTIONS: dict[str, Converter] = {
    **{name: _named(name.lower()) for name in _SAME_NAME.split()},
    **{name: _named(function) for name, function in _OTHER_NAME.items()},
    "Elu": _layer("elu", alpha="alpha"),
    "Celu": _layer("celu", alpha="alpha"),
    "Selu": _layer("selu"),
    "Softplus": _layer("softplus"),
    "Softsign": _layer("softsign"),
    "Mish": _layer("mish"),
    "Max": _folded("maximum"),
    "Min": _folded("minimum"),
    "Mod": _mod,
    "CumSum": _cumulated("cumsum"),
    "CumProd": _cumulated("cumprod"),
    "TopK": _top_k,
    "ArgMax": _index_of("argmax"),
    "ArgMin": _index_of("argmin"),
    "LogSoftmax": lambda t, x, a, v: t.log_softmax(x[0], a.get("axis", -1)),
    "Einsum": lambda t, x, a, v: t.einsum(a["equation"], *x),
    "GridSample": _grid_sample,
    "DepthToSpace": _depth_to_space,
    "GatherElements": lambda t, x, a, v: t.gather(x[0], a.get("axis", 0), x[1]),
    "Tile": lambda t, x, a, v: t.tile(x[0], [int(r) for r in x[1]]),
    "Trilu": lambda t, x, a, v: t.triu(x[0]) if a.get("upper", 1) else t.tril(x[0]),
    "ReduceLogSumExp": _reducing("logsumexp"),
    "ReduceProd": _reducing("prod"),
    "ReduceL1": _reducing("l1"),
    "ReduceL2": _reducing("l2"),
    "RMSNormalization": _rms_norm,
    "PRelu": lambda t, x, a, v: t.nn.functional.prelu(x[0], x[1].reshape(-1)),
}
"""ONNX operator → what computes it; the arguments are torch, the operands, the attributes and the opset."""
