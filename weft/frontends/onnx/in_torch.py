"""An ONNX model as a PyTorch module, to measure against PyTorch: each node is one call of torch.

It covers the operators of image networks and transformers, from opset 7 on, and most that are one function of
PyTorch; other nodes are refused by name. It does not use Weft's graph, so its outputs are an independent reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from weft.frontends.onnx.in_torch_attributes import check_attributes
from weft.frontends.onnx.in_torch_functions import FUNCTIONS, Attributes, Converter, integers, listed, reduced_axes
from weft.frontends.onnx.in_torch_recurrent import RECURRENT
from weft.frontends.onnx.in_torch_windows import WINDOWS, padded
from weft.support.errors import MissingExtra, ModelError


def torch_module(path: str | os.PathLike[str]) -> Any:
    """A ``torch.nn.Module`` that takes the model's inputs in order and returns its output, or a tuple of them.

    Raises MissingExtra without torch or onnx, ModelError for nodes that have no converter here and for attributes that
    the converter does not obey.
    """
    try:
        import onnx
        import torch
    except ImportError as problem:
        raise MissingExtra(problem.name or "torch", "torch", "running a model in PyTorch") from problem
    model = onnx.load(path)
    unknown = sorted({n.op_type for n in model.graph.node if n.op_type not in CONVERTERS})
    if unknown:
        raise ModelError(f"the PyTorch peer has no converter for {', '.join(unknown)}", code="M040")
    for node in model.graph.node:
        check_attributes(onnx, node, max((o.version for o in model.opset_import if o.domain == node.domain), default=1))

    class Interpreter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weights = {w.name: torch.from_numpy(onnx.numpy_helper.to_array(w).copy()) for w in model.graph.initializer}
            self.weights = weights
            self.inputs = [v.name for v in model.graph.input if v.name not in weights]
            self.outputs = [v.name for v in model.graph.output]
            self.opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
            self.steps = [
                (CONVERTERS[n.op_type], list(n.input), list(n.output), _attributes(onnx, torch, n))
                for n in model.graph.node
            ]

        def forward(self, *args: Any) -> Any:
            values = {"": None, **self.weights, **dict(zip(self.inputs, args, strict=True))}
            for convert, takes, gives, attributes in self.steps:
                made = convert(torch, [values[i] for i in takes], attributes, self.opset)
                made = made if isinstance(made, (tuple, list)) else [made]
                if any(gives[len(made) :]):
                    raise ModelError(f"the PyTorch peer does not compute '{gives[len(made)]}'", code="M040")
                values.update(zip(gives, made, strict=False))
            found = tuple(values[o] for o in self.outputs)
            return found[0] if len(found) == 1 else found

    return Interpreter().eval()


def _attributes(onnx: Any, torch: Any, node: Any) -> Attributes:
    made: Attributes = {"num_outputs": len(node.output)} if node.op_type == "Split" else {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, onnx.TensorProto):
            value = torch.from_numpy(onnx.numpy_helper.to_array(value).copy())
        made[a.name] = value.decode() if isinstance(value, bytes) else value
    return made


def _conv(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    rank = x[1].dim() - 2
    data, padding = padded(t, x[0], a, list(x[1].shape[2:]), 0.0)
    function = (t.nn.functional.conv1d, t.nn.functional.conv2d, t.nn.functional.conv3d)[rank - 1]
    bias = x[2] if len(x) > 2 else None
    strides, dilations = list(a.get("strides", [1] * rank)), list(a.get("dilations", [1] * rank))
    return function(data, x[1], bias, strides, padding, dilations, a.get("group", 1))


_FUSED: dict[str, Callable[..., Any]] = {
    "": lambda t, y: y,
    "Relu": lambda t, y: t.relu(y),
    "Sigmoid": lambda t, y: t.sigmoid(y),
    "Tanh": lambda t, y: t.tanh(y),
    "Clip": lambda t, y, low, high: t.clamp(y, low, high),
    "LeakyRelu": lambda t, y, alpha: t.nn.functional.leaky_relu(y, alpha),
    "HardSigmoid": lambda t, y, alpha, beta: t.clamp(y * alpha + beta, 0, 1),
}


def _fused_conv(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    """A convolution, what is added to it, and an activation with its parameters."""
    kind = a.get("activation", "")
    if kind not in _FUSED:
        raise ModelError(f"the PyTorch peer has no converter for FusedConv with {kind}", code="M040")
    made = _conv(t, x[:3], a, opset)
    return _FUSED[kind](t, made if len(x) < 4 or x[3] is None else made + x[3], *a.get("activation_params", ()))


def _gemm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    left = x[0].t() if a.get("transA") else x[0]
    right = x[1].t() if a.get("transB") else x[1]
    if len(x) < 3:
        return left @ right * a.get("alpha", 1.0)
    return t.addmm(x[2], left, right, beta=a.get("beta", 1.0), alpha=a.get("alpha", 1.0))


def _softmax(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    if opset >= 13:
        return t.softmax(x[0], a.get("axis", -1))
    axis = a.get("axis", 1) % x[0].dim()
    return t.softmax(x[0].flatten(axis), -1).reshape(x[0].shape)


def _reshape(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    shape = integers(x[1])
    if not a.get("allowzero"):
        shape = [x[0].shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return x[0].reshape(shape)


def _gather(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis = a.get("axis", 0) % x[0].dim()
    indices = x[1].long()
    made = t.index_select(x[0], axis, t.where(indices < 0, indices + x[0].shape[axis], indices).reshape(-1))
    return made.reshape([*x[0].shape[:axis], *x[1].shape, *x[0].shape[axis + 1 :]])


def _gather_nd(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    batch, places = a.get("batch_dims", 0), x[1].long()
    before = [t.arange(n).reshape([-1 if d == i else 1 for i in range(places.dim() - 1)])
              for d, n in enumerate(x[0].shape[:batch])]  # fmt: skip
    return x[0][(*before, *places.unbind(-1))]


def _slice(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    starts, ends = listed(x, a, 1, "starts") or [], listed(x, a, 2, "ends") or []
    axes = listed(x, a, 3, "axes") or list(range(len(starts)))
    steps = integers(x[4]) if len(x) > 4 and x[4] is not None else [1] * len(starts)
    made = x[0]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = made.shape[axis]
        indices = list(range(size))[slice(start, end if abs(end) < 1 << 40 else None, step)]
        if step == 1:
            made = made.narrow(axis, indices[0] if indices else 0, len(indices))
        else:
            made = made.index_select(axis, t.tensor(indices, dtype=t.long))
    return made


def _split(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis = a.get("axis", 0)
    sizes: Any = listed(x, a, 1, "split")
    if sizes is None:
        sizes = -(-x[0].shape[axis] // a["num_outputs"])
    return t.split(x[0], sizes, axis)


def _squeeze(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axes = listed(x, a, 1, "axes")
    return x[0].squeeze() if axes is None else x[0].squeeze(tuple(axes))


def _unsqueeze(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axes = listed(x, a, 1, "axes") or []
    made = x[0]
    for axis in sorted(d % (made.dim() + len(axes)) for d in axes):
        made = made.unsqueeze(axis)
    return made


def _pad(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    pads = listed(x, a, 1, "pads") or []
    rank = len(pads) // 2
    if len(x) > 3 and x[3] is not None:
        by_axis = {axis % x[0].dim(): i for i, axis in enumerate(integers(x[3]))}
        rank, some = x[0].dim(), [*pads, 0]
        places = [by_axis.get(axis, -1) for axis in range(rank)]
        pads = [some[i] for i in places] + [some[i + len(by_axis)] if i >= 0 else 0 for i in places]
    flat = [p for i in reversed(range(rank)) for p in (pads[i], pads[rank + i])]
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    if a.get("mode") == "wrap":
        raise ModelError("the PyTorch peer has no converter for Pad with mode=wrap", code="M040")
    value = float(x[2]) if len(x) > 2 and x[2] is not None else float(a.get("value", 0.0))
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[a.get("mode", "constant")]
    extra = {"value": value} if mode == "constant" else {}
    return t.nn.functional.pad(x[0], flat, mode, **extra)


def _reduce(function: Callable[[Any, Any, Any, bool], Any]) -> Converter:
    def convert(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
        axes = reduced_axes(x, a)
        return function(t, x[0], axes, bool(a.get("keepdims", 1))) if axes else x[0]

    return convert


def _extremum(name: str) -> Callable[[Any, Any, Any, bool], Any]:
    """That of no elements is the least or largest number of the dtype."""

    def reduce(t: Any, x: Any, axes: Any, keep: bool) -> Any:
        if all(x.shape[axis] for axis in axes):
            return getattr(t, name)(x, axes, keepdim=keep)
        limits = (float("-inf"), float("inf")) if x.is_floating_point() else (0, 1)
        if not x.is_floating_point() and x.dtype != t.bool:
            limits = t.iinfo(x.dtype).min, t.iinfo(x.dtype).max
        empty = t.sum(x, axes, keepdim=keep)
        return t.full_like(empty, limits[name == "amin"], dtype=x.dtype)

    return reduce


def _clip(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    low = x[1] if len(x) > 1 else a.get("min")
    high = x[2] if len(x) > 2 else a.get("max")
    if low is None and high is None:
        return x[0]
    return t.clamp(x[0], min=low, max=high)


def _cast(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    kinds = {1: t.float32, 2: t.uint8, 3: t.int8, 6: t.int32, 7: t.int64, 9: t.bool, 10: t.float16, 11: t.float64}
    return x[0].to(kinds[a["to"]])


def _constant(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return next(v if hasattr(v, "dim") else t.tensor(v) for v in a.values())


def _layer_norm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    axis = a.get("axis", -1) % x[0].dim()
    bias = x[2] if len(x) > 2 else None
    return t.nn.functional.layer_norm(x[0], list(x[0].shape[axis:]), x[1], bias, a.get("epsilon", 1e-5))


def _batch_norm(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    return t.nn.functional.batch_norm(x[0], x[3], x[4], x[1], x[2], eps=a.get("epsilon", 1e-5))


def _dropout(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    if len(x) > 2 and x[2] is not None and bool(x[2]):
        raise ModelError("the PyTorch peer has no converter for Dropout in training", code="M040")
    return x[0], t.ones_like(x[0], dtype=t.bool)


def _crop(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    left, top, right, bottom = a["border"]
    if "scale" in a:
        height, width = a["scale"]
        return x[0][:, :, top : top + height, left : left + width]
    return x[0][:, :, top : x[0].shape[2] - bottom, left : x[0].shape[3] - right]


def _plain(name: str) -> Converter:
    return lambda t, x, a, opset: getattr(t, name)(*x)


def _sum(t: Any, x: Sequence[Any], a: Attributes, opset: int) -> Any:
    total = x[0]
    for more in x[1:]:
        total = total + more
    return total


CONVERTERS: dict[str, Converter] = {
    **FUNCTIONS,
    **WINDOWS,
    **RECURRENT,
    "Add": _plain("add"), "Sub": _plain("sub"), "Mul": _plain("mul"), "MatMul": _plain("matmul"),
    "Sqrt": _plain("sqrt"), "Exp": _plain("exp"), "Log": _plain("log"), "Tanh": _plain("tanh"), "Erf": _plain("erf"),
    "Sigmoid": _plain("sigmoid"), "Neg": _plain("neg"), "Relu": _plain("relu"), "IsNaN": _plain("isnan"),
    "And": _plain("logical_and"), "Equal": _plain("eq"), "Less": _plain("lt"), "Greater": _plain("gt"),
    "GreaterOrEqual": _plain("ge"), "Not": _plain("logical_not"), "Reciprocal": _plain("reciprocal"),
    "Div": lambda t, x, a, v: t.div(*x) if x[0].is_floating_point() else t.div(*x, rounding_mode="trunc"),
    "Pow": lambda t, x, a, v: t.pow(*x).to(x[0].dtype),
    "Where": lambda t, x, a, v: t.where(x[0].bool(), x[1], x[2]),
    "Identity": lambda t, x, a, v: x[0], "Dropout": _dropout,
    "Sum": _sum, "Gemm": _gemm, "Conv": _conv, "FusedConv": _fused_conv,
    "Softmax": _softmax, "Reshape": _reshape, "Gather": _gather, "Slice": _slice,
    "GatherND": _gather_nd,
    "Split": _split, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Pad": _pad, "Clip": _clip,
    "Cast": _cast, "Constant": _constant, "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": lambda t, x, a, v: t.nn.functional.instance_norm(
        x[0], None, None, x[1], x[2], True, 0.0, a.get("epsilon", 1e-5)),
    "Concat": lambda t, x, a, v: t.cat(list(x), a["axis"]),
    "Flatten": lambda t, x, a, v: x[0].reshape(t.Size([x[0].shape[: a.get("axis", 1)].numel(), -1])),
    "Transpose": lambda t, x, a, v: x[0].permute(a.get("perm", list(reversed(range(x[0].dim()))))),
    "Gelu": lambda t, x, a, v: t.nn.functional.gelu(x[0], approximate=a.get("approximate", "none")),
    "LeakyRelu": lambda t, x, a, v: t.nn.functional.leaky_relu(x[0], a.get("alpha", 0.01)),
    "HardSigmoid": lambda t, x, a, v: t.clamp(x[0] * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda t, x, a, v: t.nn.functional.hardswish(x[0]),
    "Crop": _crop, "Affine": lambda t, x, a, v: x[0] * a["alpha"] + a["beta"],
    "ImageScaler": lambda t, x, a, v: x[0] * a.get("scale", 1.0) + t.tensor(a["bias"], dtype=x[0].dtype)[:, None, None],
    "LRN": lambda t, x, a, v: t.nn.functional.local_response_norm(
        x[0], a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75), a.get("bias", 1.0)),
    "Shape": lambda t, x, a, v: t.tensor(list(x[0].shape)[a.get("start", 0) : a.get("end")], dtype=t.int64),
    "Expand": lambda t, x, a, v: x[0] * t.ones(integers(x[1]), dtype=x[0].dtype),
    "ReduceMean": _reduce(lambda t, x, axes, keep: t.mean(x, axes, keepdim=keep)),
    "ReduceSum": _reduce(lambda t, x, axes, keep: t.sum(x, axes, keepdim=keep)),
    "ReduceMax": _reduce(_extremum("amax")),
    "ReduceMin": _reduce(_extremum("amin")),
}  # fmt: skip
