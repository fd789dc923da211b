"""The back ends of the package, an explicit list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.backends.c import C
from weft.backends.llvm import LLVM
from weft.backends.protocol import Backend
from weft.support.errors import TargetError
from weft.target import Target

BACKENDS: Final[tuple[Backend, ...]] = (LLVM, C)


def backend_of(target: Target, backends: Sequence[Backend] = BACKENDS) -> Backend:
    """The back end of a target. Raises TargetError G023 if none of ``backends`` has its kind."""
    for backend in backends:
        if backend.kind.name == target.kind.name:
            return backend
    known = ", ".join(b.kind.name for b in backends)
    raise TargetError(f"there is no back end '{target.kind.name}'", code="G023", hint=f"there are: {known}")
