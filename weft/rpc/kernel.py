"""One kernel on a remote machine: run it, and measure it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

import numpy as np

from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.rpc.channel import Channel
from weft.rpc.errors import RemoteError
from weft.rpc.frames import MessageType
from weft.rpc.machine import RemoteMachine
from weft.rpc.memory import (
    RemoteBlock,
    allocate,
    bytes_of,
    copy_in,
    copy_out,
    free,
    load_code,
    packed_call,
    unload_code,
)
from weft.runtime import Device, Tensor
from weft.runtime.sizes import SizeExpr, evaluate
from weft.runtime.threads import MAX_THREADS, SYSTEM_FEATURES
from weft.support.arguments import NUMBER, WHOLE, checked

if TYPE_CHECKING:
    from weft.backends.protocol import Code

MAX_REPEAT: Final = 100_000
MAX_EVICTED: Final = 1 << 30
COMPILE_FOR_IT: Final = "compile for the target that session.target() gives"
_LOADED: Final = "it does on x86-64, AArch64, 64-bit RISC-V and ARMv7 with hard floating point"


class RemoteKernel:
    """A kernel that a remote machine has loaded.

    Buffers are NumPy arrays, which are copied there and, if they can be written, back; or tensors on the session's
    device and blocks of the session, which are used in place. Nothing checks that buffers and sizes fit the kernel: one
    that reads or writes beyond them may crash, which ends the session.
    """

    def __init__(
        self, channel: Channel, machine: RemoteMachine, device: Device, made: KernelTask | MachineCode | Code
    ) -> None:
        """Load the kernel; a task is compiled before. Raises RemoteError N016 if the code needs features that the
        machine lacks, N011 if it cannot be loaded there."""
        workspace: SizeExpr = (0,)
        built = machine_code(made) if isinstance(made, KernelTask) else made
        if isinstance(built, MachineCode):
            code, workspace = built.code, built.workspace
        else:
            code = built
        check_code(code.format, code.features, machine)
        self.entry = code.entry
        self._channel, self._machine, self._device = channel, machine, device
        self._workspace = workspace
        self._number = load_code(channel, code.format, code.data, code.entry)
        self._finalizer = finalize(self, unload_code, channel, self._number)

    def run(self, *buffers: Any, sizes: Sequence[int] = (), threads: int = 1) -> None:
        """Call the kernel once. Raises RemoteError: N012 if it reports an error, N013 if it was stopped at the time
        limit of a request, N018 for wrong arguments; LinkError as :class:`~weft.rpc.session.Session` says."""
        with self._call(buffers, sizes, threads) as (call, copies):
            self._channel.ask(MessageType.LAUNCH, call, self._machine.request_seconds or np.inf)
            for array, address in copies:
                if array.flags.writeable:
                    copy_out(self._channel, address, bytes_of(array))

    @checked("N018", RemoteError, repeat=WHOLE, min_seconds=NUMBER, evict=WHOLE)
    def time(
        self,
        *buffers: Any,
        sizes: Sequence[int] = (),
        threads: int = 1,
        repeat: int = 3,
        min_seconds: float = 0.0,
        evict: int = 0,
    ) -> tuple[float, ...]:
        """Seconds of one call, measured ``repeat`` times after one call to warm up. Each is the mean of as many calls
        as take ``min_seconds`` together, at least one. With ``evict``, each is one call, before which so many bytes of
        other memory are read and written, so that caches hold nothing of the kernel's. Arrays are copied there, not
        back. Raises errors as :meth:`run` does."""
        timing = packed_cold_timing(repeat, evict) if evict else packed_timing(repeat, min_seconds)
        kind = MessageType.TIME_COLD if evict else MessageType.TIME
        with self._call(buffers, sizes, threads) as (call, _):
            answer = self._channel.ask(kind, call + timing, self._machine.request_seconds or np.inf)
        return tuple(answer.f64() / 1e9 for _ in range(repeat))

    def close(self) -> None:
        """Unload the kernel; this happens as well when nothing refers to it any more."""
        self._finalizer()

    @contextmanager
    def _call(
        self, buffers: Sequence[Any], sizes: Sequence[int], threads: int
    ) -> Iterator[tuple[bytes, list[tuple[np.ndarray[Any, Any], int]]]]:
        """The content of a call, and the arrays among the buffers with the addresses of their copies."""
        if not self._finalizer.alive:
            raise RemoteError(f"the kernel '{self.entry}' was closed", code="N018", hint="load it again")
        numbers = tuple(int(s) for s in sizes if WHOLE.accepts(s) and -(1 << 63) <= s < 1 << 63)
        if len(numbers) != len(sizes):
            raise RemoteError("sizes of a call are whole numbers of 64 bits", code="N018")
        threads = checked_remote_threads(threads, self._machine)
        copies: list[tuple[np.ndarray[Any, Any], int]] = []
        extra: list[int] = []
        try:
            addresses = [self._address(b, copies) for b in buffers]
            workspace = evaluate(self._workspace, {f"s{i}": s for i, s in enumerate(numbers)})
            if workspace is None or workspace < 0:
                raise RemoteError(f"the kernel '{self.entry}' does not take these sizes: {numbers}", code="N018")
            if workspace:
                extra.append(allocate(self._channel, workspace))
            yield packed_call(self._number, self.entry, threads, (*addresses, *extra), numbers), copies
        finally:
            for address in (*extra, *(address for _, address in copies)):
                free(self._channel, address)

    def _address(self, buffer: Any, copies: list[tuple[np.ndarray[Any, Any], int]]) -> int:
        if isinstance(buffer, RemoteBlock) or (isinstance(buffer, Tensor) and buffer.device == self._device):
            return buffer.address
        array = buffer.numpy() if isinstance(buffer, Tensor) else buffer
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or array.dtype.hasobject:
            raise RemoteError(
                f"a buffer of a kernel is a compact NumPy array or a tensor on {self._device}, not a "
                f"{type(buffer).__name__}",
                code="N018",
                hint="np.ascontiguousarray(x), or weft.nd.array(x, session.device)",
            )
        address = allocate(self._channel, array.nbytes)
        copies.append((array, address))
        copy_in(self._channel, address, bytes_of(array))
        return address


def packed_timing(repeat: int, min_seconds: float) -> bytes:
    """The content of a timing behind a call or a run. Raises RemoteError N018 for numbers out of range."""
    if not 1 <= repeat <= MAX_REPEAT or not 0 <= min_seconds < 1e9:
        raise RemoteError(
            f"{repeat} measurements of {min_seconds} seconds are not possible",
            code="N018",
            hint=f"repeat is 1 to {MAX_REPEAT:,}, min_seconds at least 0",
        )
    return struct.pack("<IQ", repeat, round(min_seconds * 1e9))


def packed_cold_timing(repeat: int, evict: int) -> bytes:
    """The content of a cold timing behind a call. Raises RemoteError N018 for numbers out of range."""
    if not 1 <= repeat <= MAX_REPEAT or not 0 <= evict <= MAX_EVICTED:
        raise RemoteError(
            f"{repeat} measurements with {evict} bytes of other memory are not possible",
            code="N018",
            hint=f"repeat is 1 to {MAX_REPEAT:,}, evict at most {MAX_EVICTED:,}",
        )
    return struct.pack("<IQ", repeat, evict)


def checked_remote_threads(threads: int | None, machine: RemoteMachine) -> int:
    """``threads``, or all cores of the machine for None. Raises RemoteError N018."""
    if threads is None:
        return min(machine.cores, MAX_THREADS)
    if not WHOLE.accepts(threads) or not 1 <= threads <= MAX_THREADS:
        raise RemoteError(f"{threads!r} threads are not possible", code="N018", hint=f"1 to {MAX_THREADS}, or None")
    return int(threads)


def check_code(format: str, needed: frozenset[str], machine: RemoteMachine) -> None:
    """Raise RemoteError N016 if a machine does not load code of a format, or lacks features that the code needs."""
    lacking = sorted(needed - machine.features - SYSTEM_FEATURES)
    if format in machine.formats and not lacking:
        return
    where = f"'{machine.name}' ({machine.architecture})"
    if not machine.formats:
        raise RemoteError(f"the runtime loads no code on {where}", code="N016", hint=_LOADED)
    what = (
        f"needs {', '.join(lacking)}, which {where} lacks" if lacking else f"is {format}, which {where} does not load"
    )
    raise RemoteError(f"the code {what}", code="N016", hint=COMPILE_FOR_IT)
