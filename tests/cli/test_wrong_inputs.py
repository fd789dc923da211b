"""What a shell may hand over by mistake: closed or full streams, narrow encodings, pipes, folders that are gone, empty
and overlong names, values out of range. Each is an error that says what is wrong, or does no harm; none is a bug of
Weft."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_runner import Weft
from onnx import TensorProto, helper
from sample_models import onnx, random_input

from weft.support.words import milliseconds


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line of the shell in ``folder``; $WEFT is the command."""
    weft = f"{sys.executable} -m weft"
    environment = {**os.environ, "WEFT": weft, "WEFT_CACHE_DIR": str(folder / "cache"), **variables}
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    "streams, status", [("2>&-", 0), (">&-", 0), ("<&- >&- 2>&-", 0), ("2>/dev/full", 0), (">/dev/full", 1)]
)
def test_streams_that_are_closed_or_full(streams: str, status: int, model: Path) -> None:
    done = shell(f"$WEFT run {model} -o y.npy {streams}", model.parent)
    assert done.returncode == status and "Traceback" not in done.stderr, done
    if streams == ">/dev/full":
        assert done.stderr == "error[I031] the output cannot be written: No space left on device\n"
    else:
        assert np.load(model.parent / "y.npy").shape == (1, 10)


def test_errors_have_their_status_also_if_nobody_reads_them(tmp_path: Path) -> None:
    assert shell("$WEFT run absent.onnx 2>&-", tmp_path).returncode == 1


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_terminals_without_the_characters(variables: dict[str, str], model: Path) -> None:
    done = shell(f"$WEFT run {model} --profile && $WEFT targets zen4", model.parent, **variables)
    assert done.returncode == 0 and "????" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("variable", ["HOME", "WEFT_CACHE_DIR"])
def test_homes_that_are_no_folder(variable: str, model: Path) -> None:
    unset = "unset WEFT_CACHE_DIR; " if variable == "HOME" else ""
    done = shell(f"{unset}$WEFT run {model}", model.parent, **{variable: "/dev/null"})
    assert done.returncode == 0, done.stderr


def test_a_working_directory_that_is_gone(model: Path) -> None:
    done = shell(f"mkdir gone; cd gone; rmdir ../gone; $WEFT run {model} && $WEFT run small.onnx", model.parent)
    assert done.returncode == 1 and done.stderr == "error[I021] there is no file 'small.onnx'\n"


@pytest.mark.parametrize("command", ["run", "compile", "bench", "inspect", "blame", "opt"])
@pytest.mark.parametrize("suffix", ["onnx", "weft"])
def test_pipes_are_no_models(command: str, suffix: str, weft_command: Weft) -> None:
    """Nobody writes to this one: opening it would wait for ever."""
    os.mkfifo(f"pipe.{suffix}")
    answer = weft_command(command, f"pipe.{suffix}")
    assert answer.status == 1 and f"'pipe.{suffix}' is a pipe, not a file" in answer.err


@pytest.mark.parametrize("command", ["run", "compile", "bench", "inspect", "blame", "opt"])
def test_empty_names(command: str, weft_command: Weft) -> None:
    answer = weft_command(command, "")
    assert answer.status == 1 and answer.err == "error[I021] the name of the file is empty\n"


@pytest.mark.parametrize(
    "words, status, says",
    [
        (["run", "-i", "x="], 1, "error[I023] the name of the input file is empty"),
        (["run", "-i", "none.npz"], 1, "error[I025] 'none.npz' holds no arrays"),
        (["run", "-i", "x.npy", "-i", "x.npy"], 1, "the model has 1 input: 'x.npy' is one file more"),
        (["run", "-i", "pipe.npy"], 1, "error[I023] 'pipe.npy' is a pipe, not an input file"),
        (["run", "--seed", "-1"], 2, "-1 is not in the range x>=0"),
        (["blame", "--seed", "-1"], 2, "-1 is not in the range x>=0"),
        (["blame", "--tolerance", "nan"], 2, "nan is not a finite number"),
        (["blame", "--tolerance", "inf"], 2, "inf is not a finite number"),
        (["blame", "-o", "x.npy"], 1, "error[I030] 'x.npy' cannot be written: it is not a directory"),
        (["blame", "-o", "/dev/null"], 1, "error[I030] '/dev/null' cannot be written: it is not a directory"),
        (["compile", "-o", "a" * 300], 1, "cannot be written: File name too long"),
        (["bench", "--torch-module", "absent.py:f"], 1, "error[I021] there is no file 'absent.py'"),
        (["bench", "--torch-module", "absent"], 1, "error[I020] --torch-module absent is not understood"),
    ],
)
def test_values_that_cannot_be(words: list[str], status: int, says: str, model: Path, weft_command: Weft) -> None:
    np.save("x.npy", random_input((1, 24)))
    np.savez("none.npz")
    os.mkfifo("pipe.npy")
    answer = weft_command(words[0], model, *words[1:])
    assert answer.status == status and says in answer.err, answer
    assert not Path("weft-traceback.txt").exists()


def test_names_in_models_do_not_control_the_terminal(weft_command: Weft, model: Path) -> None:
    proto = onnx.load(model)
    proto.graph.node[0].name, proto.graph.node[0].op_type = "a\x1b[31m\x9bb", "Strange"
    onnx.save(proto, "escape.onnx")
    answer = weft_command("run", "escape.onnx")
    assert answer.status == 1 and r"a\x1b[31m\x9bb" in answer.err and "\x1b" not in answer.err


def test_texts_from_the_standard_input_are_text(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    done = shell("$WEFT opt - < bytes", tmp_path, PYTHONUTF8="0", LC_ALL="C.UTF-8", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 1 and "error[I021] the standard input is not text in UTF-8" in done.stderr


def test_a_full_disk_names_the_file(model: Path) -> None:
    """No file may have more than 0 bytes: what a full disk answers."""
    done = shell(f"ulimit -f 0; WEFT_DUMP=out $WEFT run {model}", model.parent)
    assert done.returncode == 1 and "error[I031] 'out/" in done.stderr and "Traceback" not in done.stderr, done


def test_random_inputs_that_the_model_refuses(weft_command: Weft, tmp_path: Path) -> None:
    """What was random is named, with its sizes; what the caller gave is not."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x, int64[m] shape) => (float[a, b] y)'
        " { y = Reshape (x, shape) }"
    )
    onnx.save(onnx.parser.parse_model(text), "reshape.onnx")
    np.save("shape.npy", np.array([3, 5]))
    answer = weft_command("run", "reshape.onnx", "-i", "shape=shape.npy", "--shape", "n=7", "--shape", "m=2")
    assert answer.status == 1 and "random numbers were taken for x[7]: --shape" in answer.err, answer
    assert weft_command("run", "reshape.onnx", "-i", "shape=shape.npy", "--shape", "n=15", "--shape", "m=2").status == 0


def test_sizes_that_an_artifact_does_not_have(weft_command: Weft, tmp_path: Path) -> None:
    """They had no effect, as they would have for a misspelt size."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", ["n"]), ("y", None))]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph), tmp_path / "open.onnx")
    assert weft_command("compile", "open.onnx", "-o", "open.weft").status == 0
    for file in ("open.onnx", "open.weft"):
        for word, size in (("n=3", 3), ("x=4", 4)):
            assert f"x: float32[{size}] (random)" in weft_command("run", file, "--shape", word).out, (file, word)
        done = weft_command("run", file, "--shape", "N=3")
        assert done.status == 1 and "error[T020]" in done.err and "did you mean 'n'?" in done.err


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.567, "1234.57"), (1.0, "1.00"), (0.5, "0.5"), (0.0012345, "0.00123")]
)
def test_short_times_have_digits(value: float, shown: str) -> None:
    assert milliseconds(value) == shown
