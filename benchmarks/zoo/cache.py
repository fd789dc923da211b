"""The files of the zoo: built once, in processes with a time limit, and kept outside of the repository.

They lie in the folder ``zoo`` of ``WEFT_TEST_CACHE`` (default ``~/.cache/weft-tests``). What cannot be built has a file
with the reason in place of the model; delete it to try again.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tests"))
from models_zoo import Unavailable, cache_dir

from benchmarks.zoo.entry import Entry

LIMIT_SECONDS = 400.0
"""An export that takes longer is ended."""

INSTALL = "pip install 'weft[zoo]', then pip install --no-deps timm"


def folder() -> Path:
    path = cache_dir() / "zoo"
    path.mkdir(exist_ok=True)
    return path


def model(entry: Entry) -> Path:
    """The entry's ONNX file, built if it is not there. Raises Unavailable with the reason."""
    path, reason = _places(entry)
    if path.exists():
        return path
    missing = [p for p in entry.needs if importlib.util.find_spec(p) is None]
    if missing:
        raise Unavailable(f"{entry.name} needs {', '.join(missing)}: {INSTALL}")
    if not reason.exists():
        _build(entry, path, reason)
    if not path.exists():
        raise Unavailable(f"{entry.name} cannot be built: {reason.read_text().strip()}")
    return path


def built(entries: Sequence[Entry]) -> list[Entry]:
    """Those whose file exists already."""
    return [e for e in entries if _places(e)[0].exists()]


def _places(entry: Entry) -> tuple[Path, Path]:
    return folder() / f"{entry.key}.onnx", folder() / f"{entry.key}.reason"


def _build(entry: Entry, path: Path, reason: Path) -> None:
    """Export in a process forked from one that has loaded the packages; a crash or a timeout is a reason."""
    draft, log = path.with_suffix(f".{os.getpid()}.tmp"), path.with_suffix(f".{os.getpid()}.log")
    process = _processes().Process(target=_export, args=(entry, str(draft), str(log)))
    try:
        process.start()
        process.join(LIMIT_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            reason.write_text(f"not exported within {LIMIT_SECONDS:.0f} s")
        elif process.exitcode == 0 and draft.exists():
            os.replace(draft, path)
        else:
            lines = log.read_text().strip().splitlines() if log.exists() else []
            reason.write_text("\n".join(lines[-12:]) or f"the process ended with status {process.exitcode}")
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
