"""What a dump wrote: the files of one compilation, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weft.graph.nodes import Function, Module


@dataclass(frozen=True, slots=True)
class GraphStage:
    """A graph that was written: its file, and how many operator calls and functions it has."""

    name: str
    path: Path
    operators: int
    groups: int


@dataclass(slots=True)
class KernelStages:
    """The files of one kernel, by stage; ``failed`` says what went wrong in the last one."""

    name: str
    target: str
    folder: Path
    paths: dict[str, Path] = field(default_factory=dict)
    failed: str | None = None


class Written:
    """The stages of the graph and of each kernel in the order they were written to ``directory``. ``kernel_of`` finds
    the kernel of a fused group, ``last`` is the last graph."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.graphs: list[GraphStage] = []
        self.kernels: list[KernelStages] = []
        self.kernel_of: dict[Function, KernelStages] = {}
        self.last: Module | None = None
