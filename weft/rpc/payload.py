"""The content of messages: numbers, strings and texts as bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from weft.rpc.errors import RemoteError

MAX_STRING_BYTES: Final = 0xFFFF


def string(text: str) -> bytes:
    """A string of a payload: its length in bytes (u16) and UTF-8. Raises RemoteError N009 if it is too long."""
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise RemoteError(
            f"a name of {len(data):,} bytes is too long", code="N009", hint=f"at most {MAX_STRING_BYTES:,}"
        )
    return struct.pack("<H", len(data)) + data


def text(values: Mapping[str, object]) -> bytes:
    """A text: lines ``name=value``. Raises RemoteError N009 for a value of several lines."""
    for name, value in values.items():
        if "\n" in f"{name}{value}" or "=" in name:
            raise RemoteError(f"'{name}' does not fit one line of a message", code="N009")
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


class PayloadReader:
    """Reads a payload from its beginning. Every method raises RemoteError N009 where the payload does not hold what is
    read."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self._at + count
        if end > len(self._payload):
            raise RemoteError(
                f"a message ends early: {len(self._payload)} bytes, {end} are needed",
                code="N009",
                hint="use the same version of Weft on both machines",
            )
        part = self._payload[self._at : end]
        self._at = end
        return part

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def i32(self) -> int:
        return int.from_bytes(self.take(4), "little", signed=True)

    def i64(self) -> int:
        return int.from_bytes(self.take(8), "little", signed=True)

    def f64(self) -> float:
        return float(struct.unpack("<d", self.take(8))[0])

    def string(self) -> str:
        """A string; bytes that are no UTF-8 are replaced."""
        return self.take(self.u16()).decode(errors="replace")

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._payload) - self._at)

    def text(self) -> dict[str, str]:
        """The rest as a text; of a name that stands twice, the last value."""
        lines = self.rest().decode(errors="replace").split("\n")
        pairs = (line.partition("=") for line in lines if line)
        return {name: value for name, _, value in pairs}

    def finish(self) -> None:
        """Raise RemoteError N009 if bytes are left."""
        if self._at != len(self._payload):
            raise RemoteError(
                f"a message is too long: {len(self._payload)} bytes, {self._at} are needed",
                code="N009",
                hint="use the same version of Weft on both machines",
            )
