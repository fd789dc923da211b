"""The tables of converters: for each domain, operator → function from a node to its values.

Those of the standard domain are imported at once, those of others when a model first has a node of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

from weft.frontends.onnx.converters.contraction import CONTRACTION
from weft.frontends.onnx.converters.control import CONTROL
from weft.frontends.onnx.converters.counted import COUNTED
from weft.frontends.onnx.converters.elementwise import ELEMENTWISE
from weft.frontends.onnx.converters.grams import TEXT
from weft.frontends.onnx.converters.integers import INTEGERS
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

Table: TypeAlias = "Mapping[str, Callable[[Node], Result]]"


def _learned() -> Table:
    from weft.frontends.onnx.converters.learned import LEARNED

    return LEARNED


def _training() -> Table:
    from weft.frontends.onnx.converters.training import TRAINING

    return TRAINING


def _microsoft() -> Table:
    from weft.frontends.onnx.converters.contrib.table import MICROSOFT

    return MICROSOFT


_TABLES: dict[str, Callable[[], Table]] = {
    "": lambda: {name: convert for family in _STANDARD for name, convert in family.items()},
    "ai.onnx.ml": _learned,
    "ai.onnx.preview.training": _training,
    "com.microsoft": _microsoft,
}


@cache
def converters_of(domain: str) -> Table:
    """The converters of a domain, by operator; empty for domains that Weft does not know."""
    return MappingProxyType(dict(_TABLES[domain]())) if domain in _TABLES else MappingProxyType({})


def all_converters() -> dict[tuple[str, str], Callable[[Node], Result]]:
    """The converters of all domains, by domain and operator."""
    return {(domain, name): convert for domain in _TABLES for name, convert in converters_of(domain).items()}
