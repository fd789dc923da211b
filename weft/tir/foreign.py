"""Calls of functions of other languages: ``Evaluate(f(pointer_r(A[0], A[7]), pointer_w(B[0], B[7]), n))``.

An argument is a scalar or a pointer. A pointer is a call of ``pointer_r``, ``pointer_w`` or ``pointer_rw`` with two
loads: those of the first and of the last element that the function may access. Neither is loaded, but all passes see
them: they move, shrink and rename buffers as for ordinary accesses. Statements before the call require that the
elements between lie as the function expects (:func:`weft.tir.placement.require`). The result is a status: a call that
gives something else than 0 ends the kernel with it.

The name of the function is unique in the process (:mod:`weft.expr.added`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from weft.expr.added import is_in_process
from weft.expr.intrinsic_table import INTRINSICS, POINTERS
from weft.expr.nodes import Call, Expr, Load
from weft.support.errors import ScheduleError, UserError
from weft.tir.nodes import Allocate, Buffer, Evaluate, Stmt
from weft.tir.visit import walk


class Pointer(NamedTuple):
    """What a pointer names: the elements from ``first`` to ``last`` of ``buffer``, in the order of memory."""

    buffer: Buffer
    first: Load
    last: Load
    reads: bool
    writes: bool


def is_pointer(e: Expr) -> bool:
    """Whether ``e`` is the address of elements."""
    return isinstance(e, Call) and e.name in POINTERS


def foreign_call(s: Stmt) -> Call | None:
    """The call, if ``s`` calls a function of another language."""
    if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.name not in INTRINSICS:
        return s.value
    return None


def pointer_of(e: Expr) -> Pointer:
    """What a pointer names. Raises ScheduleError S083 if a primitive computes its elements in another place or type."""
    assert isinstance(e, Call)
    first, last = e.args
    if (
        not isinstance(first, Load)
        or not isinstance(last, Load)
        or first.source is not last.source
        or not isinstance(first.source, Buffer)
    ):
        raise ScheduleError(
            f"a function takes '{first}' from memory, but it was inlined or stored in another type",
            code="S083",
            hint="keep what functions read and write in buffers",
        )
    access = POINTERS[e.name]
    return Pointer(first.source, first, last, "r" in access, "w" in access)


def pointers(s: Stmt) -> Iterator[Pointer]:
    """The pointers that ``s`` passes, if it calls a function."""
    called = foreign_call(s)
    for a in called.args if called is not None else ():
        if is_pointer(a):
            yield pointer_of(a)


def foreign_names(body: Stmt) -> tuple[str, ...]:
    """The names of the functions called in ``body``, as users know them."""
    found = (called.name for s in walk(body) if (called := foreign_call(s)) is not None)
    return tuple(dict.fromkeys(name.rpartition("_")[0] for name in found))


_inputs: ContextVar[Sequence[Buffer]] = ContextVar("inputs", default=())


def inputs_here() -> Sequence[Buffer]:
    """The inputs of the stage or instruction whose code is written now: functions do not change them."""
    return _inputs.get()


def written(write: Callable[..., Any], ins: Sequence[Buffer], outs: Any, *more: Any) -> Any:
    """What ``write(ins, outs, *more)`` gives, the code of a stage or an instruction. Raises UserError E145 for
    functions in it that change inputs, or get buffers of nobody."""
    token = _inputs.set(tuple(ins))
    try:
        made = write(ins, outs, *more)
    finally:
        _inputs.reset(token)
    if isinstance(made, Stmt):
        own = set(_inputs_and_more(made, ins, outs))
        for p in (p for s in walk(made) for p in pointers(s)):
            if p.writes and p.buffer in ins:
                raise UserError(
                    f"a function writes to the input '{p.buffer.name}'", code="E145", hint='access_ptr("r") only reads'
                )
            if p.buffer not in own:
                raise UserError(
                    f"a function gets '{p.buffer.name}', which is none of the buffers here",
                    code="E145",
                    hint="list the tensor among the inputs",
                )
    return made


def _inputs_and_more(made: Stmt, ins: Sequence[Buffer], outs: Any) -> Iterator[Buffer]:
    yield from ins
    yield from outs if isinstance(outs, (tuple, list)) else (outs,)
    yield from (s.buffer for s in walk(made) if isinstance(s, Allocate))


def called_in_process(body: Stmt) -> tuple[str, ...]:
    """The names of the functions called in ``body`` that only this process has."""
    found = (called.name for s in walk(body) if (called := foreign_call(s)) is not None)
    return tuple(dict.fromkeys(name for name in found if is_in_process(name)))
