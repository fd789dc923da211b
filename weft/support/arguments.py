"""Checks of the arguments of public functions: a wrong one raises a UserError that says what would work."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from weft.support.errors import UserError
from weft.support.words import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


MAX_SHOWN_CHARACTERS = 100
"""Most characters of a wrong argument that an error message repeats."""


def shown(value: object) -> str:
    """``value`` for an error message: its beginning if it is long, its type if it has no text."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        return f"a value of type {type(value).__name__} without a text"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of arguments: what it accepts, and how a message describes it."""

    says: str
    accepts: Callable[[Any], bool]


def instance(says: str, *kinds: type) -> Form:
    """A value of one of ``kinds``."""
    return Form(says, lambda value: isinstance(value, kinds))


TEXT = instance("a text", str)
FUNCTION = Form("a function", lambda value: callable(value) and not isinstance(value, type))
FLAG = instance("True or False", bool)
WHOLE = Form("a whole number", lambda v: hasattr(v, "__index__") and not isinstance(v, bool))
NUMBER = Form("a number", lambda v: isinstance(v, numbers.Real) and not isinstance(v, bool) and v == v)
"""Of Python or NumPy, not NaN. Integers may be too large for a float."""
PATH = instance("a path", str, bytes, os.PathLike)
MAPPING = Form(
    "a dictionary with names as keys", lambda v: isinstance(v, Mapping) and all(isinstance(k, str) for k in v)
)


def optional(form: Form) -> Form:
    """``form``, or None."""
    return Form(f"{form.says}, or None", lambda value: value is None or form.accepts(value))


def several(form: Form) -> Form:
    """A sequence of values, each of which is of ``form``."""
    return Form(f"a row, each of which is {form.says}", lambda v: _is_row(v) and all(map(form.accepts, v)))


def one_or_several(form: Form) -> Form:
    """One value of ``form``, or a sequence of them."""
    row = several(form)
    return Form(f"{form.says}, or {row.says}", lambda value: form.accepts(value) or row.accepts(value))


def _is_row(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def check_takes(fn: Callable[..., Any], *given: Any, what: str, code: str) -> None:
    """Raise UserError ``code`` where a function that a caller gave does not take the arguments it will get."""
    try:
        signature = inspect.signature(fn)
    except ValueError:  # built-in functions have none
        return
    try:
        signature.bind(*given)
    except TypeError as e:
        raise UserError(f"{what} does not take {len(given)} arguments: {e}", code=code) from None


class _QuickBinding:
    """Binds the arguments of the usual calls, where those with a value are a prefix of the parameters and some by name:
    ``inspect`` takes 20 µs for each call."""

    def __init__(self, signature: inspect.Signature) -> None:
        parameters = signature.parameters.values()
        usual = all(
            p.kind is p.POSITIONAL_OR_KEYWORD or (p.kind is p.KEYWORD_ONLY and p.default is not p.empty)
            for p in parameters
        )
        self.places = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) if usual else ()
        self.needed = sum(p.default is p.empty for p in parameters) if usual else sys.maxsize
        named = {p.name for p in parameters}
        self.by_name = [named.difference(self.places[:n]) for n in range(len(self.places) + 1)]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments by the names of their parameters; None for a call that is wrong or unusual."""
        n = len(args)
        if not self.needed <= n <= len(self.places) or not kwargs.keys() <= self.by_name[n]:
            return None
        return {**dict(zip(self.places, args, strict=False)), **kwargs}


def checked(
    code: str, error: type[UserError] = UserError, /, **forms: Form
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: raise ``error`` with ``code`` where arguments are missing, unknown or not of the ``forms`` given for
    parameters by name (for ``*parameters``, of each)."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(fn)
        quick = _QuickBinding(signature)
        rows = {p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL}
        usage = f"{fn.__name__}({', '.join(signature.parameters)})"

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = quick.bind(args, kwargs)
            if given is None:
                try:
                    given = signature.bind(*args, **kwargs).arguments
                except TypeError as e:
                    hint = _meant(signature, kwargs, usage)
                    raise error(f"{fn.__name__}: {e}", code=code, hint=hint) from None
            for name, value in given.items():
                form = forms.get(name)
                for one in value if name in rows else (value,):
                    if form is not None and not form.accepts(one):
                        raise error(
                            f"{fn.__name__}: '{name}' must be {form.says}, not {shown(one)}", code=code, hint=usage
                        )
            return fn(*args, **kwargs)

        return call

    return decorate


def _meant(signature: inspect.Signature, kwargs: Mapping[str, Any], usage: str) -> str:
    """The hint where arguments do not fit: a similar name for an unknown one, then the parameters."""
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return usage
    unknown = next((name for name in kwargs if name not in signature.parameters), None)
    return usage if unknown is None else did_you_mean(unknown, signature.parameters, usage)


def checked_fields(code: str, error: type[UserError] = UserError) -> Callable[[type[R]], type[R]]:
    """A decorator of dataclasses that users make: raise ``error`` with ``code`` where fields are missing or unknown."""

    def decorate(cls: type[R]) -> type[R]:
        make: Callable[..., None] = cls.__init__
        own = list(inspect.signature(make).parameters.values())[1:]
        signature = inspect.Signature(own)
        usage = f"{cls.__name__}({', '.join(signature.parameters)})"

        @functools.wraps(make)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as e:
                raise error(f"{cls.__name__}: {e}", code=code, hint=_meant(signature, kwargs, usage)) from None
            make(self, *args, **kwargs)

        cls.__init__ = init  # type: ignore[method-assign]  # the same parameters
        return cls

    return decorate
