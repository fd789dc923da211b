"""Operators that the host runs between the kernels of a program: on strings, which no kernel can read, and on files.

The program lists those that it needs (``Program.hosts``); each is a function of :mod:`weft.support.strings` or
:mod:`weft.support.pictures`, from attributes and arrays to arrays. Some need packages that the runtime does not; they
are looked for when a program with such an operator is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft.runtime import _native
from weft.runtime.elements import numpy_dtype
from weft.runtime.program import HostOperator
from weft.runtime.values import pack, unpack
from weft.support.errors import ArtifactError, WeftError
from weft.support.patterns import re2_pattern
from weft.support.pictures import FUNCTIONS as PICTURES
from weft.support.pictures import pillow
from weft.support.strings import FUNCTIONS as STRINGS

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {**STRINGS, **PICTURES}
_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], object]]] = {
    "text_matches": lambda attrs: re2_pattern(str(attrs.get("pattern", ""))),
    **{name: lambda attrs: pillow() for name in PICTURES},
}
"""What must be there for an operator with these attributes."""


class HostOperators:
    """The host operators of one program. Raises ArtifactError for one that this version of Weft does not have,
    MissingExtra where one needs a package that is not installed."""

    def __init__(self, operators: Sequence[HostOperator]) -> None:
        missing = [o.name for o in operators if o.name not in FUNCTIONS]
        if missing:
            raise ArtifactError(
                f"the program needs the host operator '{missing[0]}', which this version of Weft does not have",
                code="A010",
                hint="compile the model again",
            )
        for o in operators:
            if o.name in _CHECKS:
                _CHECKS[o.name](o.attrs)
        self._operators = operators

    def run(self, number: int, arguments: tuple[_native.Value, ...]) -> tuple[_native.Value, ...]:
        """The results of operator ``number``. Raises ArtifactError where its attributes, operands or results do not fit
        it, as in a file that was changed."""
        operator = self._operators[number]
        try:
            arrays = [
                unpack(v, ("tensor", dtype, ()), {}) for v, dtype in zip(arguments, operator.arguments, strict=True)
            ]
            made = FUNCTIONS[operator.name](operator.attrs, *arrays)
            results = made if isinstance(made, tuple) else (made,)
            return tuple(_packed(r, dtype) for r, dtype in zip(results, operator.results, strict=True))
        except (WeftError, MemoryError):
            raise
        except Exception as error:  # whatever a function raises for attributes that it was not made for
            raise ArtifactError(
                f"the host operator '{operator.name}' of the program is malformed ({type(error).__name__}: {error})",
                code="A010",
                hint="compile the model again",
            ) from error


def _packed(result: Any, dtype: str) -> _native.Value:
    array = np.asarray(result, numpy_dtype(dtype))
    return pack(array, ("tensor", dtype, [-1] * array.ndim), {}, "a host operator's result")
