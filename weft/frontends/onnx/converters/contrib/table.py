"""Operators of com.microsoft, the domain that ONNX Runtime's optimizer writes."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.onnx.converters.contraction import MICROSOFT_CONTRACTION
from weft.frontends.onnx.converters.contrib.arrays import ARRAYS
from weft.frontends.onnx.converters.contrib.attention import ATTENTION
from weft.frontends.onnx.converters.contrib.channels_last import CHANNELS_LAST
from weft.frontends.onnx.converters.contrib.experts import EXPERTS
from weft.frontends.onnx.converters.contrib.fused import FUSED
from weft.frontends.onnx.converters.contrib.group_query import GROUP_QUERY
from weft.frontends.onnx.converters.contrib.normalization import CONTRIB_NORMALIZATION
from weft.frontends.onnx.converters.contrib.packed import PACKED
from weft.frontends.onnx.converters.contrib.quantized import QUANTIZED
from weft.frontends.onnx.converters.contrib.recurrent import CONTRIB_RECURRENT
from weft.frontends.onnx.converters.contrib.rotary import ROTARY
from weft.frontends.onnx.converters.quantization import QUANTIZATION
from weft.frontends.onnx.node import Node, Result

MICROSOFT: dict[str, Callable[[Node], Result]] = {
    **ARRAYS,
    **ATTENTION,
    **CHANNELS_LAST,
    **CONTRIB_NORMALIZATION,
    **CONTRIB_RECURRENT,
    **EXPERTS,
    **FUSED,
    **GROUP_QUERY,
    **MICROSOFT_CONTRACTION,
    **PACKED,
    **QUANTIZED,
    **ROTARY,
    "DequantizeLinear": QUANTIZATION["DequantizeLinear"],
    "QuantizeLinear": QUANTIZATION["QuantizeLinear"],
}
