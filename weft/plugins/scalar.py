"""What the declaration of a plugin's scalar intrinsic must hold, as far as it can be seen without running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from weft.backends.native import gaps
from weft.expr.added import is_free_name
from weft.expr.intrinsic_table import INTRINSICS, Intrinsic, NativeCode
from weft.support.dtypes import DType
from weft.support.errors import UserError

MAX_ARITY: Final = 4
"""Most arguments of a scalar intrinsic."""
_ACCEPTS: Final = ("float", "integer", "number", "any")


def verify_intrinsic(row: Intrinsic, plugin: str) -> None:
    """Raise UserError (X014) if ``row`` cannot be a scalar intrinsic of a plugin, X012 if the name is Weft's."""

    def fail(what: str, hint: str) -> UserError:
        return UserError(f"Plugin '{plugin}', intrinsic '{row.name}': {what}", code="X014", hint=hint)

    if row.name in INTRINSICS:
        return  # the registry says whose it is
    if not isinstance(row.name, str) or not is_free_name(row.name):
        raise fail("the name means something else in the texts of programs", "a word such as 'soft_clip'")
    if not isinstance(row.arity, int) or not 1 <= row.arity <= MAX_ARITY:
        raise fail(f"{row.arity!r} arguments", f"1 to {MAX_ARITY}")
    if row.accepts not in _ACCEPTS:
        raise fail(f"it cannot accept {row.accepts!r}", f"one of {', '.join(_ACCEPTS)}")
    if not callable(row.result):
        raise fail("'result' is no function", "it takes the dtypes of the arguments and returns that of the result")
    if not row.pure:
        raise fail(
            "only pure functions can be called in expressions: calls are repeated, moved and dropped",
            "what has effects is an operator, or the implementation of a tensor intrinsic",
        )
    for name in ("evaluate", "expand"):
        function = getattr(row, name)
        if function is None and name == "expand":
            continue
        if not callable(function) or not _takes(function, row.arity):
            raise fail(f"'{name}' is no function of {row.arity} arguments", f"'arity' is {row.arity}")
    _verify_codes(row, fail)


def _verify_codes(row: Intrinsic, fail: Callable[[str, str], UserError]) -> None:
    if row.expand is None and not row.codes:
        raise fail("no back end can compute it", "give 'expand', 'codes' or both")
    if not isinstance(row.codes, tuple) or not all(isinstance(c, NativeCode) for c in row.codes):
        raise fail(f"'codes' must be a tuple of NativeCode, not {row.codes!r}", "codes=(NativeCode(…),)")
    if len({(c.kind, c.dtype) for c in row.codes}) < len(row.codes):
        raise fail("two of 'codes' have one kind and one dtype", "one text for each")
    for code in row.codes:
        try:
            known = DType(code.dtype) == code.dtype
        except UserError:
            known = False
        if not known:
            raise fail(f"'codes' are for '{code.dtype}', which is no dtype", "a full name such as 'float32'")
        wrong = [i for i in gaps(code.call) if i >= row.arity]
        if wrong:
            raise fail(f"'{code.call}' has the argument {wrong[0]}", f"they are numbered from 0 to {row.arity - 1}")


def _takes(function: Callable[..., Any], arity: int) -> bool:
    """Whether ``function`` can be called with ``arity`` arguments, as far as Python can tell."""
    count = getattr(function, "nin", None)
    if isinstance(count, int):  # a function of NumPy
        return count == arity
    try:
        inspect.signature(function).bind(*range(arity))
    except TypeError:
        return False
    except ValueError:  # a function in C without a signature
        return True
    return True
