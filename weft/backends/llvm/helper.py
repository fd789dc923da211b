"""What the helper process of :mod:`weft.backends.llvm.apart` does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Final

from weft.backends.llvm.backend import assembly_of, explained_of, ir_of, object_of
from weft.support.errors import InternalError, WeftError
from weft.support.processes import receive, send

_IGNORES: Final = "is not a recognized"
"""What LLVM prints where it ignores the name of a processor or of a feature."""

_MAKE: Final[dict[str, Callable[[str, tuple[str, str, str], int], bytes]]] = {
    "object": object_of,
    "assembly": assembly_of,
    "ir": ir_of,
    "explained": explained_of,
}


def serve() -> None:
    """What the helper does: answer each request with its kind (``made``, ``target``, ``internal``) and its bytes."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    refused: dict[tuple[str, str, str], bytes] = {}
    while True:
        try:
            what, triple, cpu, features, opt_level, text = json.loads(receive(sys.stdin.buffer))
        except EOFError:
            return
        before = os.fstat(2).st_size
        try:
            kind, answer = b"made", _MAKE[what](text, (triple, cpu, features), opt_level)
        except InternalError as error:
            kind, answer = b"internal", error.message.encode()
        except WeftError as error:
            kind, answer = b"target", error.message.encode()
        ignored = [
            line for line in os.pread(2, 1 << 16, before).decode(errors="replace").split("\n") if _IGNORES in line
        ]
        if ignored:
            refused[triple, cpu, features] = ignored[0].partition(" (")[0].encode()
        if (triple, cpu, features) in refused:  # LLVM prints it for the first request only
            kind, answer = b"target", refused[triple, cpu, features]
        send(answers, kind)
        send(answers, answer)
