"""The executable of one kernel, for timing."""

from __future__ import annotations

from weft.kernels.one_program import one_program
from weft.runtime import Executable
from weft.target import Target
from weft.tir.text import parse


def of_text(text: str, threads: int) -> Executable:
    """The executable of a program in kernel form for this machine; its inputs are the parameters in the text."""
    return Executable(one_program(parse(text), Target("cpu"), "kernel"), threads)
