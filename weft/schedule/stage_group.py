"""Groups of stages in the classic notation, which are placed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Placeable(Protocol):
    """A stage."""

    def compute_at(self, parent: Any, axis: Any) -> None:
        """Compute the stage inside the loop ``axis`` of ``parent``."""
        ...

    def compute_root(self) -> None:
        """Compute the whole stage before its first reader."""
        ...


class Group:
    """Stages that are placed together: producers before consumers."""

    def __init__(self, stages: Sequence[Placeable]) -> None:
        self.stages = stages

    def compute_at(self, parent: Any, axis: Any) -> None:
        """Compute every stage of the group in a loop of ``parent``; the last stage is moved first."""
        for stage in reversed(self.stages):
            stage.compute_at(parent, axis)

    def compute_root(self) -> None:
        """Compute every stage completely before its consumers."""
        for stage in self.stages:
            stage.compute_root()
