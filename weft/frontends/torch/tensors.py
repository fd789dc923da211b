"""Tensors and dtypes of PyTorch as those of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.frontends.common.problems import Unsupported
from weft.support.dtypes import DType

_DTYPES = {
    "bool": "bool", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "int8": "int8",
    "int16": "int16", "int32": "int32", "int64": "int64", "float16": "float16", "bfloat16": "bfloat16",
    "float32": "float32", "float64": "float64", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
_WITHOUT_NUMPY = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float8_e4m3fnuz": "uint8",
                  "float8_e5m2fnuz": "uint8"}  # fmt: skip
"""Dtypes that NumPy does not have, with one of their width."""


def dtype_of(given: Any) -> DType:
    """The dtype of a torch.dtype. Raises Unsupported for complex numbers and quantized tensors."""
    name = str(given).removeprefix("torch.")
    if name not in _DTYPES:
        raise Unsupported(f"tensors of {name} are not supported")
    return DType(_DTYPES[name])


def to_array(tensor: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor, without a copy where it is dense. Raises Unsupported as :func:`dtype_of` does, and for
    sparse tensors."""
    import torch

    dtype = dtype_of(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise Unsupported(f"tensors of the layout {str(tensor.layout).removeprefix('torch.')} are not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if dtype in _WITHOUT_NUMPY:
        bits = plain.contiguous().view(getattr(torch, _WITHOUT_NUMPY[dtype])).numpy()
        made: np.ndarray[Any, Any] = bits.view(dtype.numpy)
        return made
    return np.ascontiguousarray(plain.numpy()).reshape(tuple(plain.shape))
