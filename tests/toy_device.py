"""A device in Python whose memory no host code can reach: its addresses are no addresses of this process.

Kernels are functions of NumPy arrays: the code is Python source, format "python", in which ``entry(buffers, sizes,
launch)`` gets writable views of bytes that reach to the ends of the allocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime import devices

FIRST = 1 << 60
"""Beyond every address that a process can use: reading it would end the process."""


class ToyDevice:
    """Memory in byte arrays. ``log`` lists the calls; ``failing`` maps a method to the error that it raises."""

    def __init__(self, index: int, failing: dict[str, Exception], limit: int = 1 << 30) -> None:
        if index > 1:
            raise IndexError("there are two toys")
        self.index, self.failing, self.limit = index, failing, limit
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.kernels: set[Any] = set()
        self.log: list[str] = []
        self.launches: list[tuple[Any, ...]] = []
        self.next = FIRST + (index << 40)
        self.closed = False

    def _do(self, what: str) -> None:
        assert not self.closed
        self.log.append(what)
        if what in self.failing:
            raise self.failing[what]

    def at(self, address: int, nbytes: int | None = None) -> NDArray[np.uint8]:
        """The bytes from an address to the end of its allocation, or the first of them."""
        for start, memory in self.memory.items():
            if start <= address < start + len(memory):
                found = memory[address - start :]
                assert nbytes is None or nbytes <= len(found), "outside of an allocation"
                return found[:nbytes]
        raise ValueError(f"nothing is at {address:#x}")

    def info(self) -> tuple[str, tuple[str, ...], int]:
        self._do("info")
        return f"toy number {self.index}", ("python",), self.limit

    def allocate(self, nbytes: int) -> int:
        self._do("allocate")
        if nbytes + sum(map(len, self.memory.values())) > self.limit:
            raise MemoryError(f"no room for {nbytes} bytes")
        address, self.next = self.next, self.next + -(-nbytes // 4096) * 4096 + 4096
        self.memory[address] = np.full(nbytes, 0xA5, np.uint8)
        return address

    def free(self, address: int) -> None:
        self._do("free")
        del self.memory[address]

    def copy_in(self, to: int, source: memoryview) -> None:
        self._do("copy_in")
        self.at(to, len(source))[:] = np.frombuffer(source, np.uint8)

    def copy_out(self, source: int, to: memoryview) -> None:
        self._do("copy_out")
        np.frombuffer(to, np.uint8)[:] = self.at(source, len(to))

    def copy_across(self, to: int, source: int, nbytes: int) -> None:
        self._do("copy_across")
        self.at(to, nbytes)[:] = self.at(source, nbytes).copy()

    def load(self, format: str, code: bytes, entry: str) -> Any:
        self._do("load")
        assert format == "python"
        names: dict[str, Any] = {"np": np}
        exec(code.decode(), names)
        kernel = (entry, names[entry])  # a tuple, which may not be taken apart on its way
        self.kernels.add(kernel)
        return kernel

    def unload(self, kernel: Any) -> None:
        self._do("unload")
        self.kernels.remove(kernel)

    def launch(self, kernel: Any, buffers: Any, sizes: Any, grid: Any, block: Any, shared_bytes: int) -> None:
        self._do("launch")
        self.launches.append((sizes, grid, block, shared_bytes))
        kernel[1]([self.at(b) for b in buffers], sizes, (grid, block, shared_bytes))

    def synchronize(self) -> None:
        self._do("synchronize")

    def close(self) -> None:
        self._do("close")
        assert not self.memory and not self.kernels, "closed before everything was given back"
        self.closed = True


class Toys:
    """The devices that were opened, by number; the errors that they raise, and the memory of each."""

    def __init__(self) -> None:
        self.made: dict[int, ToyDevice] = {}
        self.failing: dict[str, Exception] = {}
        self.limit = 1 << 30

    def open(self, index: int) -> ToyDevice:
        self.made[index] = ToyDevice(index, self.failing, self.limit)
        return self.made[index]

    def __getitem__(self, index: int) -> ToyDevice:
        return self.made[index]


@contextmanager
def toys() -> Iterator[Toys]:
    """Registers the kind "pretend" for the length of a test."""
    made = Toys()
    opener: Callable[[int], ToyDevice] = made.open
    devices.register("pretend", opener)
    try:
        yield made
    finally:
        devices.unregister("pretend")
