"""Python functions as C functions that kernels call, and what they raise."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from weft.support.dtypes import DType
from weft.support.errors import InternalError, UserError

_C_TYPES: Final = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
FAILED: Final = 1
"""The status of a Python function that raises."""
_KERNEL_ERROR: Final = "W020"
_alive: list[Any] = []
"""Code that calls these functions may live as long as the process, so they do too."""
_raised: dict[int, BaseException] = {}
"""What functions have raised, by thread; a run on several threads may raise several."""
_lock = threading.Lock()

Rank = int | None
"""Dimensions of an array, or None for a scalar."""


def c_function(function: Callable[..., Any], dtypes: Sequence[DType], ranks: Sequence[Rank]) -> int:
    """The address of a C function that calls ``function`` with arrays and scalars.

    For each argument it takes a pointer (arrays) or a value of that dtype, then the extents of all arrays as 64-bit
    integers. Its result is 0, or :data:`FAILED` if ``function`` raises, which :func:`raising_failures` raises again.
    """
    kinds = [ctypes.c_void_p if r is not None else _ctype(d) for d, r in zip(dtypes, ranks, strict=True)]
    extents = sum(r for r in ranks if r is not None)

    def call(*given: Any) -> int:
        try:
            sizes = iter(given[len(kinds) :])
            function(*(_operand(v, d, r, sizes) for v, d, r in zip(given, dtypes, ranks, strict=False)))
        except BaseException as error:  # the caller is machine code: it gets a status
            with _lock:
                _raised.setdefault(threading.get_ident(), error)
            return FAILED
        return 0

    made = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds, *[ctypes.c_int64] * extents)(call)
    _alive.append(made)
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def keep(thing: Any) -> None:
    """Let ``thing`` live as long as the process."""
    _alive.append(thing)


def shaped(function: Callable[..., Any], ranks: Sequence[Rank]) -> Callable[..., Any]:
    """``function`` for the interpreter: arrays come flat, followed by all extents."""

    def call(*given: Any) -> None:
        sizes = iter(given[len(ranks) :])
        function(
            *(
                v if r is None else v.reshape([next(sizes) for _ in range(r)])
                for v, r in zip(given, ranks, strict=False)
            )
        )

    return call


def _ctype(dtype: DType) -> Any:
    return _C_TYPES[str(dtype)]


def _operand(value: Any, dtype: DType, rank: Rank, sizes: Iterator[int]) -> Any:
    if rank is None:
        return value
    shape = [next(sizes) for _ in range(rank)]
    count = int(np.prod(shape, dtype=np.int64))
    if count <= 0 or not value:
        return np.empty(shape, dtype.numpy)
    memory: Any = (ctypes.c_uint8 * (count * dtype.nbytes)).from_address(value)
    return np.frombuffer(memory, np.uint8).view(dtype.numpy).reshape(shape)


@contextmanager
def raising_failures() -> Iterator[None]:
    """Raise what a Python function raised during the run inside of the ``with`` statement; UserError I038 where a
    function of another language reports an error."""
    try:
        yield
    except InternalError as error:
        if error.code != _KERNEL_ERROR:
            raise
        with _lock:
            raised = _raised.pop(threading.get_ident(), None)
            if raised is None and _raised:  # on a thread of the pool
                raised = _raised.pop(next(iter(_raised)))
        if raised is not None:
            raise raised from None
        raise UserError(
            "a function that the kernel calls reported an error", code="I038", hint=str(error).splitlines()[0]
        ) from error
