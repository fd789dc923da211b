"""Checks the types of arguments against the annotations of a primitive before it runs.

A primitive therefore never receives, for example, a string instead of a factor. The recorded arguments are plain data:
NumPy integers become Python integers, sequences become tuples.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.expr.nodes import Const, Expr
from weft.schedule.index_map import IndexMap
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.support.errors import ScheduleError

_WORDS: Final[dict[Any, str]] = {
    LoopRef: "a loop",
    BlockRef: "a block or its name",
    Stay: "Stay()",
    IndexMap: "an index map",
    int: "a whole number",
    Expr: "an expression of sizes",
    float: "a number",
    str: "a string",
    bool: "True or False",
    type(None): "None",
    Any: "a number, a string or a row of these",
}
_HINTS: Final[dict[Any, str]] = {
    LoopRef: "take loops from get_loops, or from what split and fuse return",
    BlockRef: "take blocks from get_block or get_blocks",
    IndexMap: "a function of the old indices that returns the new ones, such as lambda i, j: (j, i)",
}
_MAX_WHOLE_NUMBER: Final = 1 << 62
"""Largest magnitude of a whole number; extents and positions cannot be larger."""


_origin: Callable[[Any], Any] = cache(get_origin)
_arguments: Callable[[Any], tuple[Any, ...]] = cache(get_args)


class _Unfit(Exception):
    """A value that does not match its annotation."""


def checked(name: str, run: Callable[..., Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the primitive ``name`` as plain data. Raises ScheduleError (S004) if an argument does not match
    its annotation."""
    wanted = _forms(run)
    found = {}
    for key, value in args.items():
        form = wanted.get(key, Any)
        try:
            found[key] = _plain(value, form)
        except _Unfit:
            raise ScheduleError(
                f"{name}: '{key}' must be {_describe(form)}, not {_shown(value)}",
                code="S004",
                hint=next((_HINTS[part] for part in (form, *get_args(form)) if part in _HINTS), _signature(name, run)),
            ) from None
    return found


@cache
def _forms(run: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(run)


def _plain(value: Any, form: Any) -> Any:
    """``value`` converted to ``form``, an annotation; raises _Unfit if it does not match."""
    origin = _origin(form)
    if origin in (Union, types.UnionType):
        return _first_fit(value, _arguments(form))
    if origin is not None:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise _Unfit
        return tuple(_plain(v, _arguments(form)[0]) for v in value)
    if form is int:
        return _whole(value)
    if form is float:
        return _number(value)
    if form is Any:
        return _first_fit(value, (bool, int, float, str, tuple[Any, ...]))
    if form is bool and isinstance(value, np.bool_):
        return bool(value)
    if not isinstance(value, form):
        raise _Unfit
    if isinstance(value, BlockRef) and not isinstance(value.name, str):
        raise _Unfit
    return value


def _first_fit(value: Any, forms: tuple[Any, ...]) -> Any:
    for form in forms:
        try:
            return _plain(value, form)
        except _Unfit:
            continue
    raise _Unfit


def _whole(value: Any) -> int:
    if isinstance(value, Const) and value.dtype.is_integer:
        value = value.value  # a number that was computed as an expression
    if isinstance(value, (bool, np.bool_)):
        raise _Unfit
    try:
        number = value if isinstance(value, int) else operator.index(value)
    except TypeError:
        raise _Unfit from None
    if abs(number) > _MAX_WHOLE_NUMBER:
        raise _Unfit
    return int(number) if type(number).__module__ == "numpy" else number


def _number(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise _Unfit
    return value if isinstance(value, (int, float)) else float(value)


def _describe(form: Any) -> str:
    if get_origin(form) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_describe, get_args(form))))
    if get_origin(form) is not None:
        return f"a row, each of which is {_describe(get_args(form)[0])}"
    return _WORDS[form]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _signature(name: str, run: Callable[..., Any]) -> str:
    parameters = [p for p in _forms(run) if p not in ("state", "return")]
    return f"{name}({', '.join(parameters)})"
