"""``WEFT_DUMP=directory``: every stage of a compilation as a numbered file, with an index page.

    out/
      00-imported.txt, 00-imported.npz    the imported graph, and its large constants
      01-fold_constants.txt …             the graph after each pass that changed it
      kernels/00-dense_relu/              a directory for each distinct kernel
        task.txt                          the kernel task, for weft inspect task.txt --stage assembly
        0-te.txt 1-tir.txt 2-trace.py 3-scheduled.txt 4-kernel.txt 5-llvm.ll 6-assembly.s
      report.json                         times, kernel counts, memory
      index.html                          all of it, linked

A dump of ``weft.build`` has one kernel and no graph: 0-scheduled.txt 1-kernel.txt 2-llvm.ll 3-assembly.s.

``weft opt`` reads every ``.txt`` file. An existing dump is not overwritten: the next compilation writes to
``out/run-2``, and so on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.graph.nodes import Call, Function, Module
from weft.graph.text import Table, save_table, to_text
from weft.graph.visit import post_order
from weft.support.errors import InputError
from weft.support.files import replace_text
from weft.view.html import index_page
from weft.view.written import GraphStage, KernelStages, Written

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class TaskLike(Protocol):
    """The interface of a kernel task: its ``key``, the ``program`` (with a ``name``), the ``target`` and its text."""

    @property
    def key(self) -> str: ...
    @property
    def program(self) -> Any: ...
    @property
    def target(self) -> Any: ...
    def to_text(self) -> str: ...


class StageLike(Protocol):
    """The interface of a kernel's stage: ``name``, ``suffix`` of its file, ``text``."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def text(self) -> str: ...


class Dump(Written):
    """Writes one compilation: an instrument of graph passes and an observer of kernels.

    ``facts`` are facts about the whole compilation, as JSON values. :meth:`finish` writes the report and the index;
    call it also if the compilation failed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = _unused(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            message = f"'{self.directory}' cannot be made: {problem.strerror}"
            raise InputError(message, code="I030", hint="WEFT_DUMP names a directory") from problem
        super().__init__(self.directory)
        self.by_key: dict[str, KernelStages] = {}
        self.facts: dict[str, Any] = {}
        self._constants: tuple[Table, Path] | None = None

    # ---- graph passes -----------------------------------------------------------------------------------------------

    def before(self, step: Any, program: Module) -> None:
        if not self.graphs:
            self._write("imported", program)

    def after(self, step: Any, before: Module, after: Module) -> None:
        if after is not before:
            self._write(step.name, after)

    def _write(self, name: str, module: Module) -> None:
        path = self.directory / f"{len(self.graphs):02d}-{_UNSAFE.sub('_', name)}.txt"
        table: Table = {}
        replace_text(path, to_text(module, table), durable=False)
        self._write_constants(table, path.with_suffix(".npz"))
        self.last = module
        calls = [e for e in post_order(module.main, into_functions=False) if isinstance(e, Call)]
        groups = sum(isinstance(c.target, Function) for c in calls)
        inside = sum(isinstance(e, Call) for e in post_order(module.main)) - groups
        self.graphs.append(GraphStage(name, path, inside, groups))

    def _write_constants(self, table: Table, path: Path) -> None:
        """Write the constants; if a pass did not change them, link to the file of the stage before."""
        if not table:
            return
        last = self._constants
        if last is not None and _same(last[0], table):
            try:
                os.link(last[1], path)
                return
            except OSError:  # the file system has no links
                pass
        save_table(table, path)
        self._constants = (table, path)

    # ---- kernels ----------------------------------------------------------------------------------------------------

    def kernel(self, task: TaskLike, group: Function, stages: Iterator[StageLike]) -> None:
        """Write the task of a fused group and each stage when it is reached. An error is recorded and raised again."""
        made = self.by_key.get(task.key)
        self.kernel_of.setdefault(group, made or self.task(task))
        if made is None:
            self.stages(self.by_key[task.key], stages)

    def task(self, task: TaskLike) -> KernelStages:
        """Write a kernel task to a folder of its own."""
        name = task.program.name
        folder = self.directory / "kernels" / f"{len(self.kernels):02d}-{_UNSAFE.sub('_', name)}"
        folder.mkdir(parents=True, exist_ok=True)
        made = KernelStages(name, str(task.target), folder)
        self.kernels.append(made)
        self.by_key[task.key] = made
        made.paths["task"] = folder / "task.txt"
        replace_text(made.paths["task"], task.to_text(), durable=False)
        return made

    def stages(self, made: KernelStages, stages: Iterator[StageLike]) -> None:
        """Write each stage of a kernel when it is reached. An error is recorded and raised again."""
        try:
            for number, stage in enumerate(stages):
                path = made.folder / f"{number}-{stage.name}{stage.suffix}"
                replace_text(path, stage.text, durable=False)
                made.paths[stage.name] = path
        except Exception as error:  # recorded for the page, then raised again
            made.failed = f"{type(error).__name__}: {error}"
            raise

    # ---- the end ----------------------------------------------------------------------------------------------------

    def finish(self, title: str) -> Path | None:
        """Write ``report.json`` (:attr:`facts`) and ``index.html``; returns the page, or None if nothing was dumped."""
        if not self.graphs and not self.kernels:
            return None
        replace_text(self.directory / "report.json", json.dumps(self.facts, indent=1) + "\n", durable=False)
        page = self.directory / "index.html"
        replace_text(page, index_page(title, self, self.facts), durable=False)
        return page


@contextmanager
def dumping_to(directory: Path, title: str) -> Iterator[Dump]:
    """A dump in ``directory``, whose index page is written even if the compilation fails."""
    dump = Dump(directory)
    try:
        yield dump
    except Exception as error:  # written to the index and raised again
        dump.facts = {"failed": str(error)}
        raise
    finally:
        dump.finish(title)


def _unused(directory: Path) -> Path:
    """``directory`` if it contains no dump, else the next free ``run-N`` in it."""
    number, made = 1, directory
    while (made / "00-imported.txt").exists() or (made / "kernels").exists():
        number += 1
        made = directory / f"run-{number}"
    return made


def _same(a: Mapping[str, np.ndarray[Any, Any]], b: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    return a.keys() == b.keys() and all(a[k] is b[k] for k in a)
