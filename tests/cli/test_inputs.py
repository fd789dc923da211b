"""Inputs on the command line: names, archives, numbers in place of files, names that no file has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.cli.inputs import read_inputs
from weft.runtime.program import TensorSpec
from weft.support.errors import InputError, UserError

SPECS = [
    SimpleNamespace(name="ids", dtype="int64", shape=["n", 4]),
    SimpleNamespace(name="sr", dtype="int64", shape=[]),
    SimpleNamespace(name="scale", dtype="float32", shape=[1, 1]),
    SimpleNamespace(name="small", dtype="uint8", shape=[]),
    SimpleNamespace(name="flag", dtype="bool", shape=[]),
]
IDS = np.arange(8).reshape(2, 4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", whatever=IDS)
    np.savez("named.npz", ids=IDS, other=np.zeros(3))
    np.savez("wrong.npz", idz=IDS)
    np.save("ids.npy", IDS)
    return tmp_path


@pytest.mark.parametrize("word", ["ids=one.npz", "ids=named.npz", "ids=ids.npy", "ids.npy"])
def test_arrays(folder: Path, word: str) -> None:
    assert np.array_equal(read_inputs([word], SPECS)["ids"], IDS)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("sr=16000", np.array(16000, np.int64)),
        ("sr=-3", np.array(-3, np.int64)),
        ("scale=0.5", np.full((1, 1), 0.5, np.float32)),
        ("scale=2", np.full((1, 1), 2, np.float32)),
        ("scale=-inf", np.full((1, 1), -np.inf, np.float32)),
        ("small=255", np.array(255, np.uint8)),
        ("flag=true", np.array(True)),
        ("flag=0", np.array(False)),
    ],
)
def test_numbers(folder: Path, word: str, value: np.ndarray) -> None:
    (made,) = read_inputs([word], SPECS).values()
    assert made.dtype == value.dtype and made.shape == value.shape and np.array_equal(made, value)


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("idz=one.npz", "I024", "did you mean 'ids'"),
        ("idz=ids.npy", "I024", "did you mean 'ids'"),
        ("idz=3", "I024", "no input 'idz'"),
        ("wrong.npz", "I024", "did you mean 'ids'"),
        ("sr=named.npz", "I024", "it holds ids, other"),
        ("ids=3", "I024", "one number is not enough"),
        ("sr=1.5", "I023", "no input file '1.5'"),
        ("small=256", "I024", "cannot hold"),
        ("small=-1", "I024", "cannot hold"),
        ("sr=99999999999999999999", "I024", "cannot hold"),
        ("ids=missing.npy", "I023", "no input file"),
        ("ids=https://example.org/x.npy", "I023", "is a URL"),
    ],
)
def test_refused(folder: Path, word: str, code: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        read_inputs([word], SPECS)
    assert refusal.value.code == code


def test_names_that_no_file_has(tmp_path: Path) -> None:
    (tmp_path / "circle.onnx").symlink_to(tmp_path / "circle.onnx")
    for name in ("a\0b.onnx", "x" * 5000 + ".onnx", str(tmp_path / "circle.onnx"), "https://example.org/a.onnx", ""):
        for read in (weft.load, weft.load_executable):
            with pytest.raises(UserError):
                read(name)


def test_errors_for_other_objects_than_models_say_what_to_do() -> None:
    class Linear:
        pass

    Linear.__module__ = "torch.nn.modules.linear"
    made: Any = Linear()
    with pytest.raises(UserError, match=r"a torch\.nn\.Module with example_inputs"):
        weft.compile(made)


def test_modules_of_pytorch_say_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2).eval()
    with pytest.raises(UserError) as caught:
        weft.compile(module)
    assert caught.value.code == "I040" and "example_inputs" in str(caught.value.hint)


def test_inputs_and_outputs_read_well() -> None:
    assert repr(TensorSpec("y", "float32", (("n",), (4,)))) == "TensorSpec(y: float32[n, 4])"
