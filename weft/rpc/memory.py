"""Memory of a remote machine: the device that tensors lie on, and copies in parts."""

from __future__ import annotations

import itertools
import struct
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from weft.rpc.channel import OUT_OF_MEMORY, Channel, RequestError
from weft.rpc.frames import MessageType
from weft.rpc.payload import string
from weft.runtime import devices

KIND: Final = "remote"
"""The kind of device: ``Device("remote", n)`` is the machine of session ``n`` of this process."""
PIECE_BYTES: Final = 1 << 20
"""Bytes that one request copies, at most: on a slow network they must arrive before a deadline."""
_ADDRESS_BYTES: Final = 8
_THREADS: Final = 1
_ALIGN: Final = 64


def allocate(channel: Channel, nbytes: int) -> int:
    """The address of ``nbytes`` bytes there. Raises RequestError (N010) if there is no memory."""
    return channel.ask(MessageType.ALLOCATE, struct.pack("<Q", nbytes)).u64()


def free(channel: Channel, address: int) -> None:
    """Free memory there, before the next request."""
    channel.later(MessageType.FREE, struct.pack("<Q", address))


def copy_in(channel: Channel, address: int, source: memoryview | bytes) -> None:
    """Copy all of ``source`` to an address."""
    data = memoryview(source).cast("B") if memoryview(source).nbytes else memoryview(b"")
    step = min(PIECE_BYTES, channel.link.limit - _ADDRESS_BYTES)
    for at in range(0, len(data), step):
        channel.ask(MessageType.COPY_IN, struct.pack("<Q", address + at) + data[at : at + step])


def copy_out(channel: Channel, address: int, to: memoryview) -> None:
    """Fill ``to`` from an address."""
    data = to.cast("B") if to.nbytes else to
    step = min(PIECE_BYTES, channel.link.receive_limit)
    for at in range(0, to.nbytes, step):
        count = min(step, to.nbytes - at)
        data[at : at + count] = channel.ask(MessageType.COPY_OUT, struct.pack("<QQ", address + at, count)).take(count)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The elements of a compact array as bytes, without a copy; of another one, of a compact copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")


def upload(channel: Channel, data: memoryview | bytes) -> int:
    """The address of a copy of ``data`` there."""
    address = allocate(channel, memoryview(data).nbytes)
    try:
        copy_in(channel, address, data)
    except BaseException:  # an interrupt, too, leaves nothing there
        free(channel, address)
        raise
    return address


class RemoteDevice:
    """The memory of a remote machine as a device (:class:`weft.runtime.devices.PythonDevice`)."""

    def __init__(self, channel: Channel, name: str, formats: tuple[str, ...], memory: int, seconds: float) -> None:
        self._channel = channel
        self._info = name, formats, memory
        self._seconds = seconds

    def info(self) -> tuple[str, tuple[str, ...], int]:
        return self._info

    def allocate(self, nbytes: int, /) -> int:
        try:
            return allocate(self._channel, nbytes)
        except RequestError as error:
            if error.code == OUT_OF_MEMORY:
                raise MemoryError(error.message) from error
            raise

    def free(self, address: int, /) -> None:
        free(self._channel, address)

    def copy_in(self, to: int, source: memoryview, /) -> None:
        copy_in(self._channel, to, source)

    def copy_out(self, source: int, to: memoryview, /) -> None:
        copy_out(self._channel, source, to)

    def copy_across(self, to: int, source: int, nbytes: int, /) -> None:
        self._channel.ask(MessageType.COPY_ACROSS, struct.pack("<QQQ", to, source, nbytes))

    def load(self, format: str, code: bytes, entry: str, /) -> tuple[int, str]:
        return load_code(self._channel, format, code, entry), entry

    def unload(self, kernel: tuple[int, str], /) -> None:
        unload_code(self._channel, kernel[0])

    def launch(
        self,
        kernel: tuple[int, str],
        buffers: tuple[int, ...],
        sizes: tuple[int, ...],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        /,
    ) -> None:
        call = packed_call(kernel[0], kernel[1], _THREADS, buffers, sizes)
        self._channel.ask(MessageType.LAUNCH, call, self._seconds)

    def synchronize(self) -> None:
        self._channel.ask(MessageType.SYNCHRONIZE)

    def close(self) -> None:
        """Nothing: the session closes the link."""


class RemoteBlock:
    """``nbytes`` bytes in the memory of a remote machine, aligned to 64 bytes, which kernels take as a buffer.

    Around them lies a margin of so many bytes on each side, a multiple of 64. :meth:`whole` reads everything, so that
    writes beyond the buffer are seen. The memory there is freed with the object.
    """

    def __init__(self, channel: Channel, nbytes: int, margin: int = 0) -> None:
        """Raises RequestError (N010) if there is no memory."""
        if nbytes < 0 or margin < 0 or margin % _ALIGN:
            raise ValueError(f"no block has {nbytes} bytes and a margin of {margin}")
        self.nbytes, self.margin = nbytes, margin
        self._channel = channel
        self._start = allocate(channel, nbytes + 2 * margin)
        self._finalizer = finalize(self, free, channel, self._start)

    @property
    def address(self) -> int:
        """Of the first byte behind the margin."""
        return self._start + self.margin

    def write(self, data: memoryview | bytes) -> None:
        """Copy all of ``data`` to the beginning of the bytes."""
        copy_in(self._channel, self.address, data)

    def fill(self, value: int) -> None:
        """Set each byte, those of the margins included."""
        copy_in(self._channel, self._start, bytes([value]) * (self.nbytes + 2 * self.margin))

    def copy_from(self, other: RemoteBlock) -> None:
        """Copy another block, at least as large as this one, over all of this one, without the network."""
        nbytes = self.nbytes + 2 * self.margin
        self._channel.ask(MessageType.COPY_ACROSS, struct.pack("<QQQ", self._start, other._start, nbytes))

    def whole(self) -> NDArray[np.uint8]:
        """The bytes of the first margin, of the block and of the second margin."""
        made = np.empty(self.nbytes + 2 * self.margin, np.uint8)
        copy_out(self._channel, self._start, bytes_of(made))
        return made


def load_code(channel: Channel, format: str, code: bytes, entry: str) -> int:
    """The number of code that was loaded there. Raises RequestError (N011) if it cannot be loaded or lacks ``entry``
    (empty: none is looked for)."""
    address = upload(channel, code)
    try:
        where = struct.pack("<QQ", address, len(code))
        return channel.ask(MessageType.LOAD, string(format) + string(entry) + where).u32()
    finally:
        free(channel, address)


def unload_code(channel: Channel, number: int) -> None:
    """Give up code there, before the next request."""
    channel.later(MessageType.UNLOAD, struct.pack("<I", number))


def packed_call(code: int, entry: str, threads: int, buffers: tuple[int, ...], sizes: tuple[int, ...]) -> bytes:
    """A *call* of docs/rpc-protocol.md."""
    numbers = struct.pack(f"<III{len(buffers)}Q{len(sizes)}q", threads, len(buffers), len(sizes), *buffers, *sizes)
    return struct.pack("<I", code) + string(entry) + numbers


# ---- devices by number -----------------------------------------------------------------------------------------------

_numbers = itertools.count()
_devices: WeakValueDictionary[int, RemoteDevice] = WeakValueDictionary()


def register(device: RemoteDevice) -> devices.Device:
    """The device under which tensors lie on a remote machine, as long as ``device`` is in use."""
    devices.register(KIND, _open)
    number = next(_numbers)
    _devices[number] = device
    return devices.Device(KIND, number)


def _open(number: int) -> RemoteDevice:
    found = _devices.get(number)
    if found is None:
        raise ValueError(f"there is no session {number} with a remote machine")
    return found
