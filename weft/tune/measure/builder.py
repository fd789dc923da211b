"""What builds candidates: the protocol that runners know."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from weft.kernels.machine_code import MachineCode
from weft.kernels.task import KernelTask
from weft.tune.record import Outcome

Built = MachineCode | tuple[Outcome, str]
"""A kernel, or why there is none."""


class Builder(Protocol):
    """Builds kernels, here or elsewhere. What goes wrong with one, a compiler that hangs or crashes included, is its
    result."""

    def build(self, task: KernelTask, seconds: float | None = None) -> Future[Built]:
        """Have ``task`` built, within ``seconds`` if that is less than the builder's own limit. The future never has an
        exception; it can be cancelled until somebody begins."""

    def close(self) -> None:
        """End what the builder has started, and cancel what is not begun."""
