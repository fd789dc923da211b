"""Python files that describe a kernel to tune: a function ``program``, and perhaps a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from weft.support.errors import UserError
from weft.support.files import existing_file
from weft.support.words import did_you_mean
from weft.tune.user_code import called

PROGRAM: Final = "program"
"""The function that returns tensors of ``weft.te`` or a program."""
TEMPLATE: Final = "template"
"""The template, unless another one is named."""


def read_kernel(word: str) -> tuple[Any, Callable[..., None] | None, str]:
    """What ``FILE.py`` or ``FILE.py:TEMPLATE`` describes: what its ``program`` returns, its template (None: it has
    none, and none is named), and a name for the kernel. The file is run.

    Raises InputError I021 if there is no such file, UserError U026 where its code fails, U027 where it lacks a
    function.
    """
    path, colon, wanted = word.rpartition(":")
    if not colon or Path(word).exists():
        path, wanted = word, ""
    file = str(existing_file(path, "Python file"))
    names: dict[str, Any] = {"__name__": Path(file).stem, "__file__": file}

    def run() -> None:
        exec(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), names)

    called(run, file, f"'{file}'")
    program = _function(names, PROGRAM, file)
    template = _function(names, wanted or TEMPLATE, file) if wanted or TEMPLATE in names else None
    name = re.sub(r"\W", "_", Path(file).stem, flags=re.ASCII)
    return called(program, file, f"{PROGRAM}() in '{file}'"), template, name


def _function(names: dict[str, Any], name: str, file: str) -> Callable[..., Any]:
    """A function of a file. Raises UserError U027 where there is none of that name."""
    found = names.get(name)
    if not callable(found):
        there = [n for n, v in names.items() if callable(v) and getattr(v, "__module__", "") == names["__name__"]]
        hint = did_you_mean(name, there, f"it defines: {', '.join(there) or 'no function'}")
        raise UserError(f"'{file}' has no function '{name}'", code="U027", hint=hint)
    made: Callable[..., Any] = found
    return made
