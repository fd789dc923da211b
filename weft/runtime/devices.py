"""Devices: where tensors are stored and kernels run.

The CPU is ``Device("cpu", 0)``, and its memory is the main memory. Other kinds are registered by :func:`register`, with
an object that implements the table of ``csrc/include/weft_device.h`` (:class:`PythonDevice`), or with the address of
such a table in C (:class:`DeviceTable`). A device is opened when it is first used, and closed when no tensor and no
executable uses it any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from weft.runtime import _native
from weft.support.errors import UserError

_BY_TARGET = {"llvm": "cpu", "c": "cpu"}
"""Kinds of targets that also name their device: ``device(target.kind.name)``."""
_MEMORY = 1
"""WEFT_ERROR_MEMORY of csrc/include/weft_runtime.h."""


class PythonDevice(Protocol):
    """A device written in Python. Operations take effect in the order of the calls. Calls come from several
    threads, one at a time.

    Addresses are integers from 1 on, and only the device interprets them: if ``a`` was allocated with ``n`` bytes, then
    ``a + k`` is the address of byte ``k`` of them. Exceptions become errors of the run, and MemoryError means that the
    device's memory is exhausted; exceptions of ``free``, ``unload`` and ``close`` are only reported. The views of main
    memory that ``copy_in`` and ``copy_out`` get are valid only during the call.
    """

    def info(self) -> tuple[str, tuple[str, ...], int]:
        """A name for people, the formats of code that :meth:`load` accepts, the best first, and the bytes of memory (0:
        not known)."""

    def allocate(self, nbytes: int, /) -> int:
        """Allocate ``nbytes`` bytes, at least one; returns the address."""

    def free(self, address: int, /) -> None:
        """Free memory that :meth:`allocate` returned."""

    def copy_in(self, to: int, source: memoryview, /) -> None:
        """Copy all of ``source`` to an address."""

    def copy_out(self, source: int, to: memoryview, /) -> None:
        """Fill ``to`` from an address; the bytes are there on return."""

    def copy_across(self, to: int, source: int, nbytes: int, /) -> None:
        """Copy between two addresses of this device; the two ranges may overlap."""

    def load(self, format: str, code: bytes, entry: str, /) -> Any:
        """Load the kernel ``entry`` of ``code``; returns any value that :meth:`launch` and :meth:`unload` accept."""

    def unload(self, kernel: Any, /) -> None:
        """The kernel is not needed any more."""

    def launch(
        self,
        kernel: Any,
        buffers: tuple[int, ...],
        sizes: tuple[int, ...],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        /,
    ) -> None:
        """Run a kernel on buffers, which are addresses, and sizes; see :class:`weft.runtime.program.Launch`."""

    def synchronize(self) -> None:
        """Wait until all operations have finished."""

    def close(self) -> None:
        """Close the device; no calls follow."""


Opener = Callable[[int], PythonDevice]
"""Opens the device with a number; raises an exception if there is none."""


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """Devices written in C. ``table`` is the address of a ``weft_device_table`` (csrc/include/weft_device.h),
    ``context`` the address that its ``open`` receives. Both must stay valid until the process ends, and wrong addresses
    end it.

    ``ctypes`` gives the addresses in a shared library: ``ctypes.addressof(ctypes.c_char.in_dll(library, "my_table"))``.
    """

    table: int
    context: int = 0


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The description of a device: a name for people, the formats of code that it loads, and the bytes of its memory
    (0: not known)."""

    name: str
    formats: tuple[str, ...]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device by ``kind`` and ``index``: ``Device("cpu", 0)``."""

    kind: str = "cpu"
    index: int = 0

    def info(self) -> DeviceInfo:
        """The description of the device. Raises UserError if it cannot be opened."""
        name, formats, memory_bytes = opened(self).info()
        return DeviceInfo(name, tuple(formats.split(",")), memory_bytes)

    def synchronize(self) -> None:
        """Wait until all operations of the device have finished. Raises UserError if one failed."""
        opened(self).synchronize()

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"


_openers: dict[str, Opener | DeviceTable] = {}
_opened: WeakValueDictionary[Device, _native.Device] = WeakValueDictionary()
_lock = threading.RLock()


def register(kind: str, opener: Opener | DeviceTable) -> None:
    """Register a kind of devices; ``opener(index)`` opens one, or the functions of the table do. Raises UserError if
    the kind is registered already."""
    with _lock:
        if kind == "cpu" or _openers.get(kind, opener) != opener:
            raise UserError(f"there are devices of kind '{kind}' already", code="G012", hint="choose another name")
        if not kind.isidentifier() or len(kind) > 31:
            raise UserError(f"'{kind}' cannot name a kind of devices", code="G012", hint="a word of up to 31 letters")
        _openers[kind] = opener


def unregister(kind: str) -> None:
    """Remove a kind of devices; open devices stay open until nothing uses them."""
    with _lock:
        _openers.pop(kind, None)


def device(kind: str = "cpu", index: int = 0) -> Device:
    """The device, by its own kind or that of a target. Raises UserError if there is none of that kind or number."""
    found = Device(_BY_TARGET.get(kind, kind), index)
    opened(found)
    return found


def opened(device: Device) -> _native.Device:
    """The open device. Raises UserError if there is none of that kind or number."""
    with _lock:
        found = _opened.get(device)
        if found is None:
            if device.kind not in _openers and device.kind != "cpu":
                known = ", ".join(sorted(["cpu", *_openers]))
                raise UserError(f"there is no device {device}", code="G010", hint=f"there are devices of kind {known}")
            try:
                opener = _openers.get(device.kind)
                if isinstance(opener, DeviceTable):
                    found = _native.Device(device.kind, device.index, table=opener.table, context=opener.context)
                else:
                    found = _native.Device(device.kind, device.index, opener)
            except UserError as error:
                raise UserError(
                    f"there is no device {device}: {error.message}", code="G010", hint=error.hint
                ) from error.__cause__
            _opened[device] = found
        return found


def failure(status: int, message: str) -> UserError:
    """The exception for a failed function of a device; the C runtime calls this."""
    what = message.removeprefix("device ")
    if status == _MEMORY:
        return UserError(f"device {what}", code="I007", hint="the data is large for the memory of this device")
    return UserError(f"device {what}", code="G011", hint="the device's driver says why")
