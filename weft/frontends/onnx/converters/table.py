"""The table of converters: (domain, operator) → function from a node to its values."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontends.onnx.converters.contraction import CONTRACTION
from weft.frontends.onnx.converters.contrib.table import MICROSOFT
from weft.frontends.onnx.converters.control import CONTROL
from weft.frontends.onnx.converters.counted import COUNTED
from weft.frontends.onnx.converters.elementwise import ELEMENTWISE
from weft.frontends.onnx.converters.grams import TEXT
from weft.frontends.onnx.converters.integers import INTEGERS
from weft.frontends.onnx.converters.learned import LEARNED
from weft.frontends.onnx.converters.legacy import LEGACY
from weft.frontends.onnx.converters.movement import MOVEMENT
from weft.frontends.onnx.converters.normalization import NORMALIZATION
from weft.frontends.onnx.converters.padding import PADDING
from weft.frontends.onnx.converters.pooling import POOLING
from weft.frontends.onnx.converters.quantization import QUANTIZATION
from weft.frontends.onnx.converters.randomness import RANDOM
from weft.frontends.onnx.converters.recurrent import RECURRENT
from weft.frontends.onnx.converters.reduction import REDUCTION
from weft.frontends.onnx.converters.resize import RESIZE
from weft.frontends.onnx.converters.sampling import SAMPLING
from weft.frontends.onnx.converters.slicing import SLICING
from weft.frontends.onnx.converters.specified import SPECIFIED
from weft.frontends.onnx.converters.spectral import SPECTRAL
from weft.frontends.onnx.converters.text import TEXT_OPERATORS
from weft.frontends.onnx.converters.training import TRAINING
from weft.frontends.onnx.node import Node, Result

_STANDARD = (
    ELEMENTWISE,
    CONTRACTION,
    INTEGERS,
    CONTROL,
    COUNTED,
    LEGACY,
    MOVEMENT,
    PADDING,
    NORMALIZATION,
    POOLING,
    QUANTIZATION,
    RANDOM,
    RECURRENT,
    REDUCTION,
    RESIZE,
    SAMPLING,
    SLICING,
    SPECIFIED,
    SPECTRAL,
    TEXT,
    TEXT_OPERATORS,
)

CONVERTERS: dict[tuple[str, str], Callable[[Node], Result]] = {
    **{("", name): convert for family in _STANDARD for name, convert in family.items()},
    **{("ai.onnx.ml", name): convert for name, convert in LEARNED.items()},
    **{("ai.onnx.preview.training", name): convert for name, convert in TRAINING.items()},
    **{("com.microsoft", name): convert for name, convert in MICROSOFT.items()},
}
