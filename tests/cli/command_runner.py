"""What a command of Weft answers, and the type of the fixture that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Answer:
    status: int
    out: str
    err: str


Weft = Callable[..., Answer]
