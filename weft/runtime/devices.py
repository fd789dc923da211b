"""Devices: where tensors live."""

from __future__ import annotations

from dataclasses import dataclass

from weft.support.errors import UserError

_KINDS = ("cpu",)
_BY_TARGET = {"llvm": "cpu"}
"""Kinds of targets by which their device may be called: ``device(target.kind.name)``."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device by ``kind`` and ``index``: ``Device("cpu", 0)``."""

    kind: str = "cpu"
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"


def device(kind: str = "cpu", index: int = 0) -> Device:
    """The device, by its own kind or that of a target. Raises UserError if there is none of that kind or number."""
    kind = _BY_TARGET.get(kind, kind)
    if kind not in _KINDS or index != 0:
        raise UserError(f"there is no device {kind}({index})", code="G010", hint="device('cpu', 0) is the main memory")
    return Device(kind, index)
