"""The files of the zoo: built once, in processes with a time limit, and kept outside of the repository.

They lie in the folder ``zoo`` of ``WEFT_TEST_CACHE`` (default ``~/.cache/weft-tests``). Only models are kept: an export
that fails raises, each time anew.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))
from models_zoo import Unavailable, cache_dir

from benchmarks.zoo.entry import Entry

MAX_EXPORT_SECONDS = 400.0
"""An export that takes longer is stopped."""

INSTALL = "pip install 'weft[zoo]', then pip install --no-deps timm"

NOT_EXPORTED: Mapping[str, str] = {}
"""Entries that PyTorch's exporter is known to refuse, with what it lacks. Any other export that fails is an error."""


class ExportError(Exception):
    """An export failed; the message names the entry and has the last lines of what was printed."""


def folder() -> Path:
    path = cache_dir() / "zoo"
    path.mkdir(exist_ok=True)
    return path


def model(entry: Entry) -> Path:
    """The entry's ONNX file, built if it is not there.

    Raises Unavailable if packages are missing or the entry is in :data:`NOT_EXPORTED`, ExportError if the export fails.
    """
    if entry.name in NOT_EXPORTED:
        raise Unavailable(f"{entry.name} is not exported: {NOT_EXPORTED[entry.name]}")
    path = _file(entry)
    if not path.exists():
        missing = [p for p in entry.needs if importlib.util.find_spec(p) is None]
        if missing:
            raise Unavailable(f"{entry.name} needs {', '.join(missing)}: {INSTALL}")
        _build(entry, path)
    return path


def built(entries: Sequence[Entry]) -> list[Entry]:
    """The entries whose file exists already."""
    return [e for e in entries if _file(e).exists()]


def _file(entry: Entry) -> Path:
    return folder() / f"{entry.key}.onnx"


def _build(entry: Entry, path: Path) -> None:
    """Export in a process forked from one that has loaded the packages. A crash or a timeout raises ExportError too."""
    draft, log = path.with_suffix(f".{os.getpid()}.tmp"), path.with_suffix(f".{os.getpid()}.log")
    process = _processes().Process(target=_export, args=(entry, str(draft), str(log)))
    try:
        process.start()
        process.join(MAX_EXPORT_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise ExportError(f"the export of {entry.name} took more than {MAX_EXPORT_SECONDS:.0f} s")
        if process.exitcode != 0 or not draft.exists():
            lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            why = "\n".join(lines[-12:]) or f"the process ended with status {process.exitcode}"
            raise ExportError(f"the export of {entry.name} failed: {why}")
        os.replace(draft, path)
    finally:
        for file in (draft, log):
            file.unlink(missing_ok=True)


def _export(entry: Entry, path: str, log: str) -> None:
    from benchmarks.zoo.export import attempt  # loads PyTorch, which the process that asks need not do

    attempt(entry, path, log)


def _processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.zoo.export", "benchmarks.zoo.warm"])
    return context
