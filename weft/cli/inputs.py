"""Inputs of a model from the command line: arrays in files, images, or numbers."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from weft.measure.random_inputs import size_of
from weft.support.data import Data
from weft.support.dtypes import DType
from weft.support.errors import InputError, MissingExtra, UserError
from weft.support.files import existing_file
from weft.support.words import did_you_mean

T = TypeVar("T")
Array = np.ndarray[Any, Any]
PIXELS = ("auto", "raw", "unit", "imagenet")
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def read_inputs(words: Sequence[str], specs: Sequence[Any], pixels: str = "auto") -> dict[str, Array]:
    """Arrays from ``NAME=FILE`` or ``NAME=NUMBER`` words, or from ``FILE`` words for the inputs in order.

    Files are .npy, .npz, .pb (a serialized ONNX tensor) and images, whose values ``pixels`` chooses (see
    :func:`picture`)."""
    by_name = {s.name: s for s in specs}
    out: dict[str, Array] = {}
    for i, word in enumerate(words):
        name, equals, file = word.partition("=")
        if not equals or (name not in by_name and Path(word).exists()):
            name, file = "", word
        if name and name not in by_name:
            raise _no_input(name, by_name)
        if name and (number := _number(file, by_name[name])) is not None:
            _once(out, (name,))
            out[name] = number
            continue
        path = existing_file(file, "input file", "I023")
        if path.suffix == ".npz":
            found = _guarded(path, _read_archive)
            if not found:
                raise InputError(f"'{path}' holds no arrays", code="I025")
            if name:
                found = {name: _only_array(found, name, path)}
            _once(out, found)
            out.update(found)
            continue
        if not name and i >= len(specs):
            count = f"{len(specs)} input{'' if len(specs) == 1 else 's'}"
            raise InputError(
                f"the model has {count}: '{word}' is one file more",
                code="I024",
                hint=f"inputs: {', '.join(by_name) or 'none'}",
            )
        name = name or specs[i].name
        if name not in by_name:
            raise _no_input(name, by_name)
        _once(out, (name,))
        out[name] = _guarded(path, partial(_read, spec=by_name[name], pixels=pixels))
    for name in sorted(set(out) - set(by_name)):
        raise _no_input(name, by_name)
    return out


def _no_input(name: str, by_name: Mapping[str, Any]) -> InputError:
    hint = did_you_mean(name, by_name, f"inputs: {', '.join(by_name)}")
    return InputError(f"the model has no input '{name}'", code="I024", hint=hint)


def _number(text: str, spec: Any) -> Array | None:
    """The number that stands in place of a file, for an input of one element; None for any other text."""
    dtype = DType(spec.dtype) if spec.dtype not in ("data", "string") else None
    if dtype is None or Path(text).exists():
        return None
    try:
        known = {"true": 1, "false": 0}.get(text.lower())
        value: float = known if known is not None else int(text) if dtype.is_integer else float(text)
    except ValueError:
        return None
    shape = tuple(size_of(d) for d in spec.shape)
    if any(n != 1 for n in shape):
        raise InputError(f"input '{spec.name}' has the shape {list(shape)}: one number is not enough", code="I024")
    try:
        made = np.full(shape, value).astype(dtype.numpy)
        fits = dtype.is_float or int(made.reshape(-1)[0]) == value
    except OverflowError:
        fits = False
    if not fits:
        raise InputError(f"input '{spec.name}' is {spec.dtype}, which cannot hold {text}", code="I024")
    return made


def _only_array(found: Mapping[str, Array], name: str, path: Path) -> Array:
    """The array of an archive that is meant for one input: the one of its name, or the only one."""
    if name in found:
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    held = ", ".join(found) or "nothing"
    raise InputError(
        f"'{path}' has no array '{name}'", code="I024", hint=f"it holds {held}; -i {path} takes all by name"
    )


def _once(given: Mapping[str, Array], names: Iterable[str]) -> None:
    twice = given.keys() & set(names)
    if twice:
        raise InputError(f"input '{min(twice)}' is given twice", code="I024")


def _guarded(path: Path, read: Callable[[Path], T]) -> T:
    """The result of ``read``; every error becomes an InputError."""
    try:
        return read(path)
    except UserError:
        raise
    except Exception as problem:  # NumPy, zip files and image libraries raise different exceptions
        raise InputError(f"'{path}' cannot be read: {problem}", code="I025") from problem


def _read_archive(path: Path) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"'{path}' is not an .npz archive, or it is damaged", code="I025")
    with np.load(path) as archive:
        return {k: archive[k] for k in archive.files}


def read_data(path: Path) -> Any:
    """A value of an algebraic data type: ``Node(Leaf([1.0, 2.0]), Leaf("x.npy"))``. Tensors are numbers, nested lists
    or names of .npy files in the same directory; tuples are in parentheses."""
    return _data(ast.parse(path.read_text(encoding="utf-8").strip(), str(path), mode="eval").body, path.parent)


def _data(root: ast.expr, folder: Path) -> Any:
    """The value, computed without recursion: a list of a thousand elements is nested a thousand calls deep."""
    made: list[Any] = []
    todo: list[tuple[ast.expr, bool]] = [(root, False)]
    while todo:
        node, done = todo.pop()
        parts = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
        if parts and not done:
            todo.append((node, True))
            todo.extend((part, False) for part in reversed(parts))
            continue
        fields = tuple(made[len(made) - len(parts) :])
        del made[len(made) - len(parts) :]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            made.append(Data(node.func.id, fields))
        elif isinstance(node, ast.Tuple):
            made.append(fields)
        else:
            value = ast.literal_eval(node)
            made.append(np.load(folder / value) if isinstance(value, str) else value)
    return made[0]


def _read(path: Path, spec: Any, pixels: str) -> Any:
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    if path.suffix == ".pb":
        return _read_tensor(path)
    if path.suffix == ".data":
        return read_data(path)
    if path.suffix.lower() in PICTURES:
        return picture(path, spec, pixels)
    raise InputError(
        f"'{path}' has an unknown file type",
        code="I026",
        hint="use .npy, .npz, .pb, .data or an image: " + ", ".join(PICTURES),
    )


def _read_tensor(path: Path) -> Array:
    try:
        from onnx import TensorProto, numpy_helper
    except ImportError as problem:
        raise MissingExtra("onnx", "onnx", "reading a .pb tensor") from problem
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return np.asarray(numpy_helper.to_array(tensor))


def picture(path: Path, spec: Any, pixels: str = "auto") -> Array:
    """An image scaled to the input's size. The shape says whether channels are first or last; one channel is grey.

    ``pixels``: ``raw`` keeps 0…255; ``unit`` scales to 0…1; ``imagenet`` scales to 0…1 and normalizes with ImageNet's
    mean and standard deviation. ``auto`` is raw for integers, imagenet for three channels of floats, unit for one.
    """
    try:
        from PIL import Image
    except ImportError as problem:
        raise MissingExtra("pillow", "images", "reading pictures") from problem
    shape = [size_of(d) for d in spec.shape]
    last = len(shape) == 4 and shape[3] in (1, 3)
    if len(shape) != 4 or (not last and shape[1] not in (1, 3)):
        raise InputError(f"input '{spec.name}' of shape {shape} is not an image input", code="I027")
    channels, height, width = (shape[3], shape[1], shape[2]) if last else (shape[1], shape[2], shape[3])
    image = Image.open(path).convert("L" if channels == 1 else "RGB")
    if (height, width) == (1, 1):  # open sizes: keep the size of the image
        width, height = image.size
    values = np.asarray(image.resize((width, height)), np.uint8).reshape(height, width, channels)
    numbers = _numbers(values, DType(spec.dtype), pixels)
    return np.ascontiguousarray((numbers if last else numbers.transpose(2, 0, 1))[None])


def _numbers(values: Array, dtype: DType, pixels: str) -> Array:
    if pixels == "auto":
        pixels = ("imagenet" if values.shape[2] == 3 else "unit") if dtype.is_float else "raw"
    if pixels == "raw":
        return values.astype(dtype.numpy)
    scaled = values.astype(np.float32) / 255
    if pixels == "imagenet":
        scaled = (scaled - MEAN) / DEVIATION
    return scaled.astype(dtype.numpy)
