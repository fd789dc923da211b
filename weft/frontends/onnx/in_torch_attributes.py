"""The attributes of ONNX nodes that the functions of ``in_torch`` obey; a node with any other is refused."""

from __future__ import annotations

from typing import Any, Final

from weft.support.errors import ModelError

_WINDOW: Final = "kernel_shape strides pads auto_pad"
_REDUCTION: Final = "axes keepdims noop_with_empty_axes"
_NAMES: Final[dict[str, str]] = {
    "Elu": "alpha", "Celu": "alpha", "Selu": "alpha gamma", "LeakyRelu": "alpha", "HardSigmoid": "alpha beta",
    "IsInf": "detect_negative detect_positive", "Mod": "fmod", "CumSum": "exclusive reverse",
    "CumProd": "exclusive reverse", "TopK": "axis k largest sorted", "ArgMax": "axis keepdims select_last_index",
    "ArgMin": "axis keepdims select_last_index", "Softmax": "axis", "LogSoftmax": "axis", "Einsum": "equation",
    "GridSample": "mode padding_mode align_corners", "DepthToSpace": "mode blocksize", "GatherElements": "axis",
    "Gather": "axis", "GatherND": "batch_dims", "Trilu": "upper", "RMSNormalization": "axis epsilon",
    "LayerNormalization": "axis epsilon", "BatchNormalization": "epsilon momentum spatial",
    "InstanceNormalization": "epsilon", "LRN": "size alpha beta bias", "Gelu": "approximate", "Dropout": "ratio seed",
    "Conv": f"{_WINDOW} dilations group", "FusedConv": f"{_WINDOW} dilations group activation activation_params",
    "ConvTranspose": f"{_WINDOW} dilations group output_padding output_shape",
    "MaxPool": f"{_WINDOW} ceil_mode dilations", "AveragePool": f"{_WINDOW} ceil_mode count_include_pad",
    "Gemm": "transA transB alpha beta", "Reshape": "allowzero", "Slice": "starts ends axes",
    "Split": "axis split num_outputs", "Squeeze": "axes", "Unsqueeze": "axes", "Pad": "mode pads value",
    "Clip": "min max", "Cast": "to", "Concat": "axis", "Flatten": "axis", "Transpose": "perm", "Shape": "start end",
    "Resize": "mode coordinate_transformation_mode nearest_mode cubic_coeff_a axes",
    "Upsample": "mode scales", "Crop": "border scale",
    "Affine": "alpha beta", "ImageScaler": "bias scale",
    "Constant": "value value_float value_floats value_int value_ints",
    "ConstantOfShape": "value", "ScatterElements": "axis reduction", "Scatter": "axis", "ScatterND": "reduction",
    "OneHot": "axis", "GroupNormalization": "epsilon num_groups", "LpNormalization": "axis p", "Swish": "alpha",
    "SpaceToDepth": "blocksize", "ThresholdedRelu": "alpha", "Shrink": "lambd bias",
    **dict.fromkeys(("LSTM", "RNN"), "direction hidden_size layout activations"),
    "GRU": "direction hidden_size layout activations linear_before_reset",
    **dict.fromkeys(("ReduceLogSumExp", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum"), _REDUCTION),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceLogSum"), _REDUCTION),
}  # fmt: skip
"""Operator → the attributes that its function obeys, or that change no result of an inference."""
ATTRIBUTES: Final = {name: frozenset(names.split()) for name, names in _NAMES.items()}


def check_attributes(onnx: Any, node: Any, opset: int) -> None:
    """Raise ModelError for an attribute that the function of the node's operator does not obey and that has not its
    default value."""
    declared = _declared(onnx, node, opset)
    for a in node.attribute:
        if a.name in ATTRIBUTES.get(node.op_type, ()):
            continue
        value = onnx.helper.get_attribute_value(a)
        if a.name not in declared or value != declared[a.name]:
            shown = value.decode(errors="replace") if isinstance(value, bytes) else value
            raise ModelError(f"the PyTorch peer has no converter for {node.op_type} with {a.name}={shown}", code="M040")


def _declared(onnx: Any, node: Any, opset: int) -> dict[str, Any]:
    """The attributes that the specification gives the node, with their default values."""
    if not onnx.defs.has(node.op_type, opset, node.domain):
        return {}
    attributes = onnx.defs.get_schema(node.op_type, opset, node.domain).attributes
    defaults = {name: a.default_value for name, a in attributes.items()}
    return {name: onnx.helper.get_attribute_value(v) for name, v in defaults.items() if v.name}
