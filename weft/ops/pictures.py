"""Decoding of pictures. No kernel does it: the host runs these operators between kernels (trait ``host``)."""

from __future__ import annotations

import base64

import numpy as np

from weft.graph.operator import REQUIRED, Attribute, Attrs
from weft.graph.types import TensorType, Type
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import INT64, UINT8
from weft.support.pictures import CHANNELS, FUNCTIONS

_PIXELS = Attribute("pixels", "RGB", "RGB, BGR or Grayscale")
# Two rows of three pixels in the format PPM.
_PICTURE = np.frombuffer(b"P6 3 2 255\n" + bytes(range(0, 180, 10)), np.uint8)
_DAMAGED = np.frombuffer(base64.b64decode("iVBORw0KGgo="), np.uint8)


def _data(name: str, attrs: Attrs, types: tuple[Type, ...]) -> None:
    (data,) = rel.tensors(name, types, 1)
    rel.want_rank(name, data, 1)
    if data.dtype != UINT8:
        rel.fail(name, f"the content of a file must be uint8, not {data.dtype}", "T012")
    if attrs.pixels not in CHANNELS:
        rel.fail(name, f"the form of pixels is '{attrs.pixels}', not one of {', '.join(CHANNELS)}", "T015")


def _size(attrs: Attrs, *types: Type) -> TensorType:
    _data("picture_size", attrs, types)
    return TensorType((2,), INT64)


def _decode(attrs: Attrs, *types: Type) -> TensorType:
    _data("picture_decode", attrs, types)
    height, width = (rel.simplified(s) for s in attrs.size)
    return TensorType((height, width, CHANNELS[attrs.pixels]), UINT8)


PICTURES: tuple[OpDef, ...] = (
    OpDef(
        "picture_size",
        (_PIXELS,),
        _size,
        FUNCTIONS["picture_size"],
        cases=(Case((_PICTURE,), {}), Case((_DAMAGED,), {"pixels": "Grayscale"})),
        doc="height and width of the picture in a file; 0 and 0 if it cannot be decoded",
        source="ONNX ImageDecoder-20",
        host=True,
    ),
    OpDef(
        "picture_decode",
        (_PIXELS, Attribute("size", REQUIRED, "height and width")),
        _decode,
        FUNCTIONS["picture_decode"],
        cases=(
            Case((_PICTURE,), {"size": (2, 3)}),
            Case((_PICTURE,), {"size": (2, 3), "pixels": "BGR"}),
            Case((_PICTURE,), {"size": (2, 3), "pixels": "Grayscale"}),
            Case((_DAMAGED,), {"size": (0, 0)}),
        ),
        doc="the picture in a file: height, width, channels",
        source="ONNX ImageDecoder-20",
        host=True,
    ),
)
