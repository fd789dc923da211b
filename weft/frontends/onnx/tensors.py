"""TensorProto → NumPy array. Its shape and its length are checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from weft.frontends.common.problems import Malformed, Unsupported
from weft.frontends.onnx.reader import ModelFolder, onnx_package
from weft.support.dtypes import DType

Array = np.ndarray[Any, Any]

MAX_RANK = 32
_BIT_WIDTH = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
_BIT_WIDTH_RAW = {**_BIT_WIDTH, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""Bits of an element in raw data. An entry of a field contains 8 // bits elements, or one if bits does not divide 8."""


# Names in onnx.TensorProto.DataType that Weft can store.
_DTYPES = {
    "FLOAT": "float32", "UINT8": "uint8", "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT32": "int32",
    "INT64": "int64", "BOOL": "bool", "FLOAT16": "float16", "DOUBLE": "float64", "UINT32": "uint32",
    "UINT64": "uint64", "BFLOAT16": "bfloat16", "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2", "FLOAT8E5M2FNUZ": "float8_e5m2fnuz", "UINT4": "uint4", "INT4": "int4",
    "FLOAT4E2M1": "float4_e2m1fn", "FLOAT8E8M0": "float8_e8m0fnu", "UINT2": "uint2", "INT2": "int2",
    "FLOAT6E2M3": "float6_e2m3fn", "FLOAT6E3M2": "float6_e3m2fn", "STRING": "string",
}  # fmt: skip

# Which repeated field holds the values when raw_data does not, and how many entries one element takes there.
_FIELDS = {
    "float32": "float_data", "float64": "double_data", "int64": "int64_data", "uint64": "uint64_data",
    "uint32": "uint64_data",
}  # fmt: skip


def dtype_of(code: int) -> DType:
    """The element type with that number in TensorProto.DataType. Raises Malformed or Unsupported."""
    names = onnx_package().TensorProto.DataType
    try:
        name = names.Name(code)
    except ValueError:
        raise Malformed(f"there is no element type number {code}") from None
    if name not in _DTYPES:
        raise Unsupported(f"tensors of {name.lower()} are not supported")
    return DType(_DTYPES[name])


def dtype_named(name: str) -> DType:
    """The element type of that name (``"FLOAT"``), as in the oldest operator sets."""
    if name.upper() not in _DTYPES:
        raise Unsupported(f"tensors of {name.lower()} are not supported")
    return DType(_DTYPES[name.upper()])


def to_array(tensor: Any, folder: ModelFolder | None = None, payload: Array | None = None) -> Array:
    """The values of a TensorProto, without a copy where it stores raw bytes.

    ``payload`` are its raw bytes if they were removed from it; ``folder`` may contain external data, which is mapped
    or read as the folder says. Raises Malformed if shape and data do not fit, or if external data is missing or outside
    the folder; Unsupported for segments.
    """
    dtype = dtype_of(tensor.data_type)
    shape = tuple(int(d) for d in tensor.dims)
    if any(d < 0 for d in shape) or len(shape) > MAX_RANK:
        raise Malformed(f"the tensor '{tensor.name}' has the shape {list(shape)[:MAX_RANK]}")
    if tensor.HasField("segment"):
        raise Unsupported(f"the tensor '{tensor.name}' is stored in segments")
    count = math.prod(shape)
    if dtype.kind == "string":
        return _strings(tensor, shape, count)
    if tensor.data_location == onnx_package().TensorProto.EXTERNAL:
        return _from_bytes(tensor.name, _external(tensor, folder), dtype, shape, count)
    if payload is not None or tensor.HasField("raw_data"):
        data = payload if payload is not None else tensor.raw_data
        return _from_bytes(tensor.name, data, dtype, shape, count)
    return _from_field(tensor, dtype, shape, count)


def _strings(tensor: Any, shape: tuple[int, ...], count: int) -> Array:
    if len(tensor.string_data) != count:
        raise Malformed(f"the tensor '{tensor.name}' needs {count:,} strings, but has {len(tensor.string_data):,}")
    made = np.empty(count, object)
    made[:] = [s.decode("utf-8", "replace") for s in tensor.string_data]
    return made.reshape(shape)


def _from_bytes(name: str, data: Any, dtype: DType, shape: tuple[int, ...], count: int) -> Array:
    bits = _BIT_WIDTH_RAW.get(dtype, dtype.bits)
    needed = (count * bits + 7) // 8
    if len(data) != needed:
        raise Malformed(f"the tensor '{name}' of {dtype}{list(shape)} needs {needed:,} bytes, but has {len(data):,}")
    if bits < 8:
        return _unpack(np.frombuffer(data, np.uint8), bits, dtype, count).reshape(shape)
    made = np.frombuffer(data, dtype.numpy.newbyteorder("<") if dtype.bits > 8 and dtype != "bfloat16" else dtype.numpy)
    if dtype == "bool":
        made = np.frombuffer(data, np.uint8) != 0
    return made.reshape(shape)


def _unpack(packed: Array, bits: int, dtype: DType, count: int) -> Array:
    """Elements narrower than a byte: the first one in the lowest bits."""
    single = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
    codes = np.packbits(single, axis=1, bitorder="little").reshape(count)
    if dtype.kind == "float":
        return codes.view(dtype.numpy)
    values = codes.astype(np.int8)
    if dtype.kind == "int":
        values = np.where(values >> (bits - 1), values - (1 << bits), values).astype(np.int8)
    return values.astype(dtype.numpy)


def _from_field(tensor: Any, dtype: DType, shape: tuple[int, ...], count: int) -> Array:
    field = _FIELDS.get(dtype, "int32_data")
    entries = getattr(tensor, field)
    bits = _BIT_WIDTH.get(dtype, 8)
    needed = (count * bits + 7) // 8 if bits < 8 else count
    if len(entries) != needed:
        raise Malformed(
            f"the tensor '{tensor.name}' of {dtype}{list(shape)} needs {needed:,} entries in {field}, "
            f"but has {len(entries):,}"
        )
    if field != "int32_data":
        return np.array(entries, dtype.numpy).reshape(shape)
    words = np.array(entries, np.int64)
    if bits < 8:
        return _unpack(words.astype(np.uint8), bits, dtype, count).reshape(shape)
    if dtype.kind == "float":  # stored as bit patterns
        patterns = words.astype(np.uint16 if dtype.bits == 16 else np.uint8)
        return patterns.view(dtype.numpy).reshape(shape)
    return words.astype(dtype.numpy).reshape(shape)


def _external(tensor: Any, folder: ModelFolder | None) -> Any:
    entries = {e.key: e.value for e in tensor.external_data}
    if not all(isinstance(text, str) for entry in entries.items() for text in entry):
        raise Malformed(f"the tensor '{tensor.name}' lies in a file whose name or place is no valid text")  # as bytes
    location = entries.get("location", "")
    if folder is None:
        raise Malformed(f"the tensor '{tensor.name}' lies in '{location}', but the model was not read from a file")
    try:
        offset = int(entries.get("offset") or 0)
        asked = int(entries["length"]) if entries.get("length") else None
    except ValueError:
        raise Malformed(f"the tensor '{tensor.name}' has an offset or length that is no number") from None
    path = _external_file(tensor.name, folder, location)
    try:
        size = path.stat().st_size
        length = size - offset if asked is None else asked
        if offset < 0 or length < 0 or offset + length > size:
            raise Malformed(f"the tensor '{tensor.name}' lies beyond the end of '{location}' ({size:,} bytes)")
        if not length:
            return b""
        if folder.mapped:
            return np.memmap(path, np.uint8, "r", offset, (length,))
        return np.fromfile(path, np.uint8, length, offset=offset)
    except (OSError, ValueError):  # ValueError: the file shrank
        raise Malformed(
            f"the tensor '{tensor.name}' lies in '{location}', which cannot be read: it belongs beside the model"
        ) from None


def _external_file(name: str, folder: ModelFolder, location: str) -> Path:
    """The file at ``location``. Raises Malformed if it cannot be read or lies in none of the folder's roots."""
    outside = Malformed(f"the tensor '{name}' points to {location!r}, outside the folder of the model")
    parts = Path(location).parts
    if not location or "\0" in location or Path(location).is_absolute() or ".." in parts:
        raise outside
    path = folder.path / location
    try:
        real = path.resolve()
        if not any(real.is_relative_to(root) for root in folder.roots):
            raise outside
        regular = path.is_file()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle; ValueError: no name of a file
        regular = False
    if not regular:
        raise Malformed(f"the tensor '{name}' lies in {location!r}, which cannot be read: it belongs beside the model")
    return path
