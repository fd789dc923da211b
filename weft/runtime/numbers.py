"""Numbers of Python as arrays. They have no dtype and get that of the input, unless it cannot hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Unfit(ValueError):
    """A value that is no array of numbers."""


class NotHeld(Unfit):
    """Numbers that the dtype cannot hold."""


def foreign_array(value: Any) -> NDArray[Any]:
    """What NumPy makes of ``value``, whose dtype is its own. Raises Unfit if NumPy makes nothing of it."""
    try:
        return np.asarray(value)
    except Exception as error:  # lists of unequal lengths, and whatever the methods of other packages' objects raise
        raise Unfit(str(error)) from error


def has_dtype(value: Any) -> bool:
    """Whether ``value`` says itself what its elements are, so that none are converted."""
    return hasattr(value, "dtype") or hasattr(value, "__array_interface__") or isinstance(value, (bytes, memoryview))


def number_array(value: Any, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Numbers and nested lists as an array of ``dtype``, called ``name``, with the same values: integers exactly,
    floats rounded. An array of another dtype is returned if the conversion would change the kind, such as float to
    integer, or if the value has a dtype. Raises Unfit, NotHeld."""
    array = foreign_array(value)
    if has_dtype(value):
        return array
    if array.dtype.kind == "O" and all(isinstance(item, (int, float)) for item in array.flat):
        raise NotHeld(f"there are values that {name} cannot hold")  # integers of more than 64 bits
    if array.dtype.kind not in "biuf":
        raise Unfit("no numbers")
    whole, floating = array.dtype.kind in "biu", not name.startswith(("int", "uint", "bool"))
    if array.size and not (floating or (whole and name != "bool") or array.dtype == np.bool_):
        return array
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
        if not _same(array, made, name, whole):
            raise NotHeld(f"there are values that {name} cannot hold")
    return made


def _same(array: NDArray[Any], made: NDArray[Any], name: str, whole: bool) -> bool:
    """Whether the conversion kept the values. Numbers of Python are compared: those of NumPy wrap around."""
    if not whole:
        return bool((np.isfinite(made.astype(np.float64)) == np.isfinite(array)).all())
    wide = np.uint64 if name.startswith("uint") else np.int64 if name.startswith("int") else np.float64
    return bool(made.astype(wide).tolist() == array.tolist())
