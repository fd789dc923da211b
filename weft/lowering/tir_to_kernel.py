"""Translates scheduled programs to kernels, the input of code generators.

Each pass is valid in, valid out; every state in between prints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from weft.expr.added import find
from weft.expr.nodes import Const
from weft.lowering.kernel.common.passes import KernelPass, Lowered
from weft.lowering.kernel.cpu.passes import CPU_PASSES
from weft.support.errors import TargetError
from weft.target import Target
from weft.tir.nodes import For, Program
from weft.tir.visit import walk
from weft.tir.workspace import workspace_layout

_TAKEN = frozenset({"memcpy", "memset", "memmove", "main"})
_KEYWORDS = (
    "alignas alignof auto bool break case char const constexpr continue default do double else enum extern "
    "false float for goto if inline int long nullptr register restrict return short signed sizeof static "
    "static_assert struct switch thread_local true typedef typeof union unsigned void volatile while"
)
C_KEYWORDS: Final = frozenset(_KEYWORDS.split())
"""Words that no function or variable in C may have as its name."""


def tir_to_kernel(
    program: Program, target: Target, name: str | None = None, passes: Sequence[KernelPass] = CPU_PASSES
) -> Program:
    """The kernel form of a scheduled program: ``passes`` applied in order.

    Buffers become flat, blocks become plain statements, and vectorized loops become vectors of the target's width. If
    intermediates need more memory than fits on the stack, the attribute ``workspace`` gives the number of bytes that
    the caller must provide. ``name`` (default: the program's) is the symbol of the kernel; characters that C does not
    allow become underscores. Raises TargetError for loops that are bound to thread axes of a GPU.
    """
    _check_kinds(program)
    state = Lowered(replace(program, name=symbol(name or program.name)), target)
    for step in passes:
        state = step(state)
    return with_workspace(state.program)


def _check_kinds(program: Program) -> None:
    """Raise TargetError (G022) for loops that only a GPU has."""
    for s in walk(program.body):
        if isinstance(s, For) and s.kind == "thread":
            raise TargetError(
                f"the loop '{s.var.name}' is bound to '{s.thread}', and this target has no such threads",
                code="G022",
                hint="use parallel, vectorize and virtual threads; programs with thread axes run in the interpreter",
            )


def symbol(name: str) -> str:
    """``name`` as a C identifier that is neither a keyword nor the name of a C library function."""
    clean = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
    return f"{clean}_kernel" if find(clean) is not None or clean in _TAKEN | C_KEYWORDS else clean


def with_workspace(program: Program) -> Program:
    """Record the number of workspace bytes that the kernel needs, if any."""
    offsets, total = workspace_layout(program)
    if not offsets or (isinstance(total, Const) and int(total) == 0):
        return program
    return replace(program, attrs=program.attrs.replace(workspace=total))
