"""Operators of com.microsoft, the domain that ONNX Runtime's optimizer writes."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontend.onnx.converters.contraction import MICROSOFT_CONTRACTION
from weft.frontend.onnx.converters.contrib.arrays import ARRAYS
from weft.frontend.onnx.converters.contrib.attention import ATTENTION
from weft.frontend.onnx.converters.contrib.channels_last import CHANNELS_LAST
from weft.frontend.onnx.converters.contrib.experts import EXPERTS
from weft.frontend.onnx.converters.contrib.fused import FUSED
from weft.frontend.onnx.converters.contrib.group_query import GROUP_QUERY
from weft.frontend.onnx.converters.contrib.normalization import CONTRIB_NORMALIZATION
from weft.frontend.onnx.converters.contrib.packed import PACKED
from weft.frontend.onnx.converters.contrib.quantized import QUANTIZED
from weft.frontend.onnx.converters.contrib.recurrent import CONTRIB_RECURRENT
from weft.frontend.onnx.converters.contrib.rotary import ROTARY
from weft.frontend.onnx.converters.quantization import QUANTIZATION
from weft.frontend.onnx.node import Node, Result

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
