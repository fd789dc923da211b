"""Pictures from the bytes of files, as arrays. The package Pillow decodes them; it is imported when it is needed."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weft.support.errors import MissingExtra

FORMATS: Final = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""The formats that ONNX lists, under Pillow's names. Others are not decoded: some would run other programs."""
CHANNELS: Final = {"RGB": 3, "BGR": 3, "Grayscale": 1}
"""The forms of pixels, and their number of channels."""

Array = NDArray[Any]
Attrs = Mapping[str, Any]


def pillow() -> ModuleType:
    """The module ``PIL.Image``. Raises MissingExtra without the package."""
    try:
        import PIL.Image
    except ImportError:
        raise MissingExtra("pillow", "images", "decoding pictures (ImageDecoder)") from None
    return PIL.Image


@lru_cache(maxsize=1)  # a model asks for the size first, and then for the pixels
def _decoded(data: bytes, pixels: str) -> Array:
    image = pillow()
    try:
        with image.open(io.BytesIO(data), formats=FORMATS) as opened:
            made = np.asarray(opened.convert("L" if pixels == "Grayscale" else "RGB"))
    except Exception:  # for bytes that are no picture, the readers of Pillow raise whatever they trip over
        return np.zeros((0, 0, CHANNELS[pixels]), np.uint8)
    made = made.reshape(*made.shape[:2], CHANNELS[pixels])
    return made[:, :, ::-1] if pixels == "BGR" else made


def size(attrs: Attrs, data: Array) -> Array:
    """Height and width of the picture in a file (bytes, uint8); 0 and 0 if it cannot be decoded."""
    return np.array(_decoded(data.tobytes(), attrs["pixels"]).shape[:2], np.int64)


def decode(attrs: Attrs, data: Array) -> Array:
    """The pixels (uint8) of the picture in a file: height, width, channels. None if it cannot be decoded."""
    made = np.ascontiguousarray(_decoded(data.tobytes(), attrs["pixels"]))
    _decoded.cache_clear()
    return made


FUNCTIONS: Final[dict[str, Callable[..., Array]]] = {"picture_decode": decode, "picture_size": size}
