"""The table of converters: (domain, operator) → function from a node to its values."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontend.onnx.converters.contraction import CONTRACTION
from weft.frontend.onnx.converters.contrib import MICROSOFT
from weft.frontend.onnx.converters.control import CONTROL
from weft.frontend.onnx.converters.counted import COUNTED
from weft.frontend.onnx.converters.elementwise import ELEMENTWISE
from weft.frontend.onnx.converters.grams import TEXT
from weft.frontend.onnx.converters.learned import LEARNED
from weft.frontend.onnx.converters.legacy import LEGACY
from weft.frontend.onnx.converters.movement import MOVEMENT
from weft.frontend.onnx.converters.normalization import NORMALIZATION
from weft.frontend.onnx.converters.padding import PADDING
from weft.frontend.onnx.converters.pooling import POOLING
from weft.frontend.onnx.converters.quantization import QUANTIZATION
from weft.frontend.onnx.converters.recurrent import RECURRENT
from weft.frontend.onnx.converters.reduction import REDUCTION
from weft.frontend.onnx.converters.resize import RESIZE
from weft.frontend.onnx.converters.sampling import SAMPLING
from weft.frontend.onnx.converters.specified import SPECIFIED
from weft.frontend.onnx.converters.spectral import SPECTRAL
from weft.frontend.onnx.converters.text import TEXT_OPERATORS
from weft.frontend.onnx.converters.training import TRAINING
from weft.frontend.onnx.node import Node, Result

_STANDARD = (
    ELEMENTWISE,
    CONTRACTION,
    CONTROL,
    COUNTED,
    LEGACY,
    MOVEMENT,
    PADDING,
    NORMALIZATION,
    POOLING,
    QUANTIZATION,
    RECURRENT,
    REDUCTION,
    RESIZE,
    SAMPLING,
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
