"""Inputs for a model from the command line: arrays in files, pictures, or seeded random numbers."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.support.dtypes import DType
from weft.support.errors import InputError, MissingExtra

Array = np.ndarray[Any, Any]
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def random_inputs(specs: Sequence[Any], seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """Seeded random arrays for input specifications (``name``, ``dtype``, ``shape`` of ints and symbol names).

    Floats are normal, integers small and non-negative; symbols take their value from ``sizes``, else 1. The numbers
    of an input depend only on the seed, its name and its shape.
    """
    made = {}
    for spec in specs:
        shape = tuple(_size(d, sizes or {}) for d in spec.shape)
        source = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        dtype = DType(spec.dtype)
        if dtype.is_float:
            made[spec.name] = source.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
        elif dtype.kind == "bool":
            made[spec.name] = source.integers(0, 2, shape).astype(bool)
        else:
            made[spec.name] = source.integers(0, 2, shape).astype(dtype.numpy)
    return made


def _size(d: Any, sizes: Mapping[str, int]) -> int:
    if isinstance(d, int):
        return d
    if isinstance(d, tuple) and len(d) == 1:
        return _size(d[0], sizes)
    return int(sizes.get(str(d), 1))


def read_inputs(words: Sequence[str], specs: Sequence[Any]) -> dict[str, Array]:
    """Arrays from ``NAME=FILE`` words (or one ``FILE``): .npy, .npz, .pb (a serialized ONNX tensor) and pictures."""
    by_name = {s.name: s for s in specs}
    out: dict[str, Array] = {}
    for i, word in enumerate(words):
        name, equals, file = word.partition("=")
        if not equals:
            name, file = "", word
        path = Path(file)
        if not path.exists():
            raise InputError(f"there is no input file '{file}'", code="I023")
        if path.suffix == ".npz":
            with np.load(path) as archive:
                out.update({k: archive[k] for k in archive.files})
            continue
        name = name or (specs[i].name if i < len(specs) else "")
        if name not in by_name:
            raise InputError(f"the model has no input '{name}'", code="I024", hint="inputs: " + ", ".join(by_name))
        out[name] = _read(path, by_name[name])
    unknown = set(out) - set(by_name)
    if unknown:
        raise InputError(f"the model has no input '{min(unknown)}'", code="I024", hint="inputs: " + ", ".join(by_name))
    return out


def _read(path: Path, spec: Any) -> Array:
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path))
        if path.suffix == ".pb":
            return _read_tensor(path)
        if path.suffix.lower() in PICTURES:
            return picture(path, spec)
    except (OSError, ValueError) as problem:
        raise InputError(f"'{path}' cannot be read: {problem}", code="I025") from problem
    raise InputError(
        f"'{path}' is of no known kind", code="I026", hint="use .npy, .npz, .pb or a picture: " + ", ".join(PICTURES)
    )


def _read_tensor(path: Path) -> Array:
    try:
        from onnx import TensorProto, numpy_helper
    except ImportError as problem:
        raise MissingExtra("onnx", "onnx", "reading a .pb tensor") from problem
    tensor = TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as problem:  # protobuf raises several kinds
        raise InputError(f"'{path}' is not a serialized tensor: {problem}", code="I025") from problem


def picture(path: Path, spec: Any) -> Array:
    """A picture scaled to the input's size, channels first or last as the shape says; floats are normalized with the
    usual ImageNet mean and deviation, integers stay 0..255, one channel means grey."""
    try:
        from PIL import Image
    except ImportError as problem:
        raise MissingExtra("pillow", "images", "reading pictures") from problem
    shape = [_size(d, {}) for d in spec.shape]
    if len(shape) != 4:
        raise InputError(f"input '{spec.name}' of shape {shape} does not take a picture", code="I027")
    last = shape[3] in (1, 3)
    channels, height, width = (shape[3], shape[1], shape[2]) if last else (shape[1], shape[2], shape[3])
    image = Image.open(path).convert("L" if channels == 1 else "RGB").resize((width, height))
    pixels = np.asarray(image, np.uint8).reshape(height, width, channels)
    dtype = DType(spec.dtype)
    if dtype.is_float:
        scaled = pixels.astype(np.float32) / 255
        pixels = ((scaled - MEAN) / DEVIATION if channels == 3 else scaled).astype(dtype.numpy)
    ordered = pixels if last else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(ordered[None]).astype(dtype.numpy)
