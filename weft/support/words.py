"""Words of messages: numbers with their nouns, and suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import overload


def counted(count: int, what: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def milliseconds(value: float) -> str:
    """A time with two decimals, and more where it is so short that they would say little."""
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"


@overload
def did_you_mean(name: object, known: Iterable[str], otherwise: str) -> str: ...
@overload
def did_you_mean(name: object, known: Iterable[str], otherwise: None = None) -> str | None: ...
def did_you_mean(name: object, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint for an unknown ``name``: ``did you mean 'relu'?`` if one of ``known`` is similar, then ``otherwise``.

    Upper and lower case count as equal. Without a similar name it is ``otherwise``, which may be None.
    """
    close = closest(name, known)
    if close is None:
        return otherwise
    question = f"did you mean '{close}'?"
    return question if otherwise is None else f"{question} {otherwise}"


def closest(name: object, known: Iterable[str]) -> str | None:
    """The one of ``known`` that is most similar to ``name``, in upper or lower case; None if none is similar."""
    folded = {k.lower(): k for k in known}
    close = get_close_matches(str(name).lower(), folded, n=1)
    return folded[close[0]] if close else None
