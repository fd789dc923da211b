"""Functions on tensors of strings (NumPy arrays of dtype object), by name.

They are the references of the operators on strings and, since no kernel reads strings, what compiled programs have the
host do. Each takes attributes and arrays; attributes that only tell a size known anyway are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.support.errors import InputError
from weft.support.patterns import re2_pattern

Array = NDArray[Any]
Attrs = Mapping[str, Any]


def _mapped(function: Callable[..., Any], dtype: Any, *arrays: Array) -> Array:
    """``function`` applied to each element of arrays that are broadcast."""
    wide = np.broadcast_arrays(*arrays)
    made = np.empty(wide[0].shape, dtype)
    for i, parts in enumerate(zip(*(a.flat for a in wide), strict=True)):
        made.flat[i] = function(*parts)
    return made


def constant(attrs: Attrs) -> Array:
    """The strings ``values`` in the shape ``shape``."""
    made = np.empty(len(attrs["values"]), object)
    made[:] = attrs["values"]
    return made.reshape(attrs["shape"])


def lookup(attrs: Attrs, x: Array) -> Array:
    """The position of each string in ``keys`` (of equal keys the first); -1 for strings that are not there."""
    places = {key: i for i, key in reversed(list(enumerate(attrs["keys"])))}
    return _mapped(lambda s: places.get(s, -1), np.int64, x)


def select(attrs: Attrs, places: Array) -> Array:
    """The strings of ``values`` at these places; ``default`` where there is none."""
    values, default = attrs["values"], attrs["default"]
    return _mapped(lambda i: values[i] if 0 <= i < len(values) else default, object, places)


def take(attrs: Attrs, x: Array, places: Array) -> Array:
    """The strings at these places of ``x`` in row-major order."""
    flat = x.reshape(-1)
    if places.size and not (places.min() >= 0 and places.max() < flat.size):
        raise InputError("a place lies outside a tensor of strings", code="I004")
    return flat[places] if places.ndim else _mapped(lambda i: flat[i], object, places)


def join(attrs: Attrs, *parts: Array) -> Array:
    """All strings of several tensors in one vector, one tensor after another."""
    return np.concatenate([p.reshape(-1) for p in parts])


def concat(attrs: Attrs, a: Array, b: Array) -> Array:
    """The concatenation of each pair of strings."""
    return _mapped(lambda x, y: x + y, object, a, b)


def equal(attrs: Attrs, a: Array, b: Array) -> Array:
    """Whether the strings of each pair are equal."""
    return _mapped(lambda x, y: x == y, np.bool_, a, b)


def matches(attrs: Attrs, x: Array) -> Array:
    """Whether each whole string matches the regular expression ``pattern``, as RE2 understands it."""
    form = re2_pattern(attrs["pattern"])
    try:
        return _mapped(lambda s: form.fullmatch(s) is not None, np.bool_, x)
    except UnicodeEncodeError as error:
        raise InputError(f"a string is no valid Unicode: {error.reason}", code="I004") from None


def normalize(attrs: Attrs, x: Array) -> Array:
    """Words in another case (``LOWER``, ``UPPER``) without the stopwords; one empty word where none is left. ``x`` is a
    vector, or one row."""
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(attrs["case"], str)
    stop = set(attrs["stopwords"] if attrs["case_sensitive"] else map(str.lower, attrs["stopwords"]))
    kept = [s for s in x.reshape(-1) if (s if attrs["case_sensitive"] else s.lower()) not in stop]
    made = np.empty(max(1, len(kept)), object)
    made[:] = [change(s) for s in kept] or [""]
    return made.reshape(1, -1) if x.ndim == 2 else made


def normalize_count(attrs: Attrs, x: Array) -> Array:
    """How many words :func:`normalize` gives."""
    return np.array([normalize(attrs, x).size], np.int64)


def _pieces(attrs: Attrs, text: str) -> list[str]:
    limit = -1 if attrs["maxsplit"] is None else attrs["maxsplit"]
    return text.split(attrs["delimiter"] or None, limit)


def split(attrs: Attrs, x: Array) -> Array:
    """The pieces of each string, along a new last dimension, filled up with empty strings."""
    rows = [_pieces(attrs, s) for s in x.flat]
    made = np.full((x.size, max(map(len, rows), default=0)), "", object)
    for i, row in enumerate(rows):
        made[i, : len(row)] = row
    return made.reshape(*x.shape, made.shape[1])


def split_counts(attrs: Attrs, x: Array) -> Array:
    """How many pieces each string has."""
    return _mapped(lambda s: len(_pieces(attrs, s)), np.int64, x)


def parse(attrs: Attrs, x: Array) -> Array:
    """Each string read as a number of dtype ``to``. Raises InputError for a string that is no number."""
    from weft.support.dtypes import DType

    dtype = DType(attrs["to"])
    read = float if dtype.is_float else lambda s: int(s.strip()) if dtype.is_integer else bool(float(s))
    try:
        return _mapped(read, np.float64 if dtype.is_float else object, x).astype(dtype.numpy)
    except (ValueError, OverflowError) as error:
        raise InputError(f"a string is no {dtype}: {error}", code="I004") from None


def show(attrs: Attrs, x: Array) -> Array:
    """Each number as its shortest exact text."""
    return _mapped(lambda v: str(int(v)) if x.dtype == np.bool_ else str(v), object, x)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "constant": constant,
    "text_concat": concat,
    "text_equal": equal,
    "text_join": join,
    "text_lookup": lookup,
    "text_matches": matches,
    "text_normalize": normalize,
    "text_normalize_count": normalize_count,
    "text_parse": parse,
    "text_select": select,
    "text_show": show,
    "text_split": split,
    "text_split_counts": split_counts,
    "text_take": take,
}
