"""Records of the files that a dump wrote for one compilation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weft.graph.nodes import Function, Module


@dataclass(frozen=True, slots=True)
class GraphStage:
    """A graph in a file, with its numbers of operator calls and functions."""

    name: str
    path: Path
    operators: int
    groups: int


@dataclass(slots=True)
class KernelStages:
    """The files of one kernel, by stage; ``failed`` is the error of the last stage, if there was one."""

    name: str
    target: str
    folder: Path
    paths: dict[str, Path] = field(default_factory=dict)
    failed: str | None = None


class Written:
    """The stages of the graph and of each kernel, in the order in which they were written to ``directory``.
    ``kernel_of`` maps fused groups to kernels; ``last`` is the last graph."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.graphs: list[GraphStage] = []
        self.kernels: list[KernelStages] = []
        self.kernel_of: dict[Function, KernelStages] = {}
        self.last: Module | None = None
