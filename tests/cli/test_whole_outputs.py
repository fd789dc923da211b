"""What users name for results is replaced as a whole: after an error it has its old content."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.cli import run_command
from weft.cli.blame_command import write_reproducer
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.support import files
from weft.support.arrays import save_array, save_arrays
from weft.support.errors import UserError


def function() -> Any:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    return weft.build(te.create_schedule(b.op), [a, b])


def found() -> Any:
    x = build.var("x", (4,))
    module = Module.of(build.function([x], call(op("relu"), [x])))
    arrays = [np.ones(4, np.float32)]
    return SimpleNamespace(inputs=arrays, wanted=arrays, before=module, name="fuse", stage="graph")


ARRAYS = {"y": np.arange(6, dtype=np.float32).reshape(2, 3)}
WRITERS: dict[str, Callable[[Path], object]] = {
    "y.npy": lambda path: run_command._write(path, ARRAYS),
    "y.npz": lambda path: run_command._write(path, ARRAYS),
    "f.o": lambda path: function().save(path),
    "f.weft": lambda path: function().save(path),
    "f.so": lambda path: function().export_library(path),
    "inputs.npz": lambda path: write_reproducer(found(), path.parent, weft.Target("cpu")),
    "wanted.npz": lambda path: write_reproducer(found(), path.parent, weft.Target("cpu")),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_keeps_its_content_where_it_cannot_be_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "f.so" and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    path = tmp_path / name
    path.write_bytes(b"before")

    def full(source: Any, target: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as changed, pytest.raises((UserError, OSError), match="No space left"):
        changed.setattr(files.os, "replace", full)
        WRITERS[name](path)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []
    behind = tmp_path / "link"
    path.rename(behind)
    path.symlink_to(behind)
    WRITERS[name](path)
    assert path.is_symlink() and behind.read_bytes() != b"before", "a link stays, and leads to the new content"


@pytest.mark.parametrize("ending", [".o", ".weft", ".so"])
def test_functions_say_what_cannot_be_written(ending: str, tmp_path: Path) -> None:
    if ending == ".so" and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    made = function()
    write = made.export_library if ending == ".so" else made.save
    for path in (tmp_path / "nowhere" / f"f{ending}", tmp_path / "folder.o" / f"f{ending}"):
        (tmp_path / "folder.o").touch()
        with pytest.raises(UserError, match="cannot write") as refusal:
            write(path)
        assert refusal.value.code == "A003"


def test_a_linker_that_may_not_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in (tmp_path, tmp_path / "none"):
        monkeypatch.setenv("CC", str(driver))
        with pytest.raises(UserError) as refusal:
            function().export_library(tmp_path / "f.so")
        assert refusal.value.code == "X010"
    assert not (tmp_path / "f.so").exists()


def test_arrays_have_any_names(tmp_path: Path) -> None:
    """Also those of the arguments of NumPy's own function."""
    arrays = {name: np.full(3, i) for i, name in enumerate(("file", "args", "allow_pickle", "a/b", "arr_0", "é"))}
    save_arrays(tmp_path / "a.npz", arrays)
    save_array(tmp_path / "a.npy", arrays["file"])
    with np.load(tmp_path / "a.npz") as read:
        assert sorted(read.files) == sorted(arrays)
        for name, value in arrays.items():
            np.testing.assert_array_equal(read[name], value)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), arrays["file"])
