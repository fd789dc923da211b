"""``weft bench`` and ``weft blame`` on real input and on wrong input."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_runner import Weft
from sample_models import images

from weft.bench.turns import Record
from weft.cli.bench_command import _show

RECORD = [
    "model",
    "engine",
    "version",
    "precision",
    "threads",
    "median_ms",
    "min_ms",
    "runs",
    "max_abs_diff",
    "max_rel_diff",
]


def test_bench_writes_records(model: Path, weft_command: Weft) -> None:
    answer = weft_command(
        "bench", model, "--shape", "batch=2", "--runs", 5, "--peers", "onnxruntime", "--json", "r.json"
    )
    assert answer.status == 0, answer.err
    records = json.loads(Path("r.json").read_text())
    assert [r["engine"] for r in records] == ["weft", "onnxruntime"]
    for record in records:
        assert list(record) == RECORD
        assert record["model"] == "small" and record["threads"] == 1 and record["precision"] == "f32"
        assert record["runs"] >= 5 and 0 < record["min_ms"] <= record["median_ms"]
        assert record["max_abs_diff"] < 1e-4 and record["version"]


class Stop(Exception):
    """Ends a command where it has told what the test asks."""


@pytest.mark.parametrize(("threads", "runs"), [(1, 20), (2, 7), (3, 100)])
def test_bench_measures_as_often_and_on_as_many_threads_as_told(
    model: Path, weft_command: Weft, monkeypatch: pytest.MonkeyPatch, threads: int, runs: int
) -> None:
    """From the command line to the request that each engine reads, and to the runs of a turn."""
    requests, turns = [], []

    class Silent:
        def __init__(self, name: str, request: Path, folder: Path) -> None:
            requests.append((name, json.loads(request.read_text())))
            self.name, self.error, self.times, self.version = name, None, [1.0], "1"

        def outputs(self) -> list[np.ndarray]:
            return [np.zeros(2, np.float32)]

        def close(self) -> None:
            pass

    monkeypatch.setattr("weft.bench.turns.Engine", Silent)
    monkeypatch.setattr("weft.bench.turns._take_turns", lambda engines, fewest, rounds: turns.append(fewest * rounds))
    answer = weft_command(
        "bench", model, "--threads", threads, "--runs", runs, "--peers", "onnxruntime", "--json", "r.json"
    )
    assert answer.status == 0, answer.err
    assert [(name, r["threads"]) for name, r in requests] == [("weft", threads), ("onnxruntime", threads)]
    assert [r["threads"] for r in json.loads(Path("r.json").read_text())] == [threads, threads]
    assert len(turns) == 1 and runs - 5 < turns[0] <= runs


@pytest.mark.parametrize(("threads", "runs"), [(1, 3), (2, 4)])
def test_the_profile_of_bench_has_as_many_runs_and_threads(
    model: Path, weft_command: Weft, monkeypatch: pytest.MonkeyPatch, threads: int, runs: int
) -> None:
    seen: list[object] = []

    def stopped(exe, *inputs, peaks, runs):
        seen.extend((exe.threads, peaks, runs))
        raise Stop

    monkeypatch.setattr("weft.cli.bench_command.measure", lambda *a, **k: ([], {}))
    monkeypatch.setattr("weft.cli.bench_command._show", lambda *a: None)
    monkeypatch.setattr("weft.measure.peaks.measure_peaks", lambda count: ("peaks of", count))
    monkeypatch.setattr("weft.measure.roofline.roofline", stopped)
    weft_command("bench", model, "--profile", "--peers", "none", "--threads", threads, "--runs", runs)
    assert seen == [threads, ("peaks of", threads), runs]


def test_bench_omits_engines_that_are_not_installed(
    model: Path, weft_command: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = Path("blocked")
    blocked.mkdir()
    (blocked / "openvino.py").write_text("raise ModuleNotFoundError(\"No module named 'openvino'\")")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(blocked), os.environ.get("PYTHONPATH", "")]))
    answer = weft_command("bench", model, "--runs", 1, "--peers", "openvino")
    assert answer.status == 0
    assert "openvino was left out" in answer.out and "pip install openvino" in answer.out


def test_bench_refuses_unknown_peers(model: Path, weft_command: Weft) -> None:
    answer = weft_command("bench", model, "--peers", "abacus")
    assert answer.status == 1 and "abacus" in answer.err and "onnxruntime" in answer.err


def test_bench_measures_nothing_that_it_cannot_write(model: Path, weft_command: Weft) -> None:
    answer = weft_command("bench", model, "--json", "nowhere/records.json")
    assert answer.status == 1 and "there is no directory 'nowhere'" in answer.err and not answer.out


def test_bench_shows_each_kernel_beside_the_roofline(model: Path, weft_command: Weft) -> None:
    answer = weft_command("bench", model, "--runs", 1, "--peers", "none", "--profile")
    assert answer.status == 0, answer.err
    assert "of roofline" in answer.out and "GFLOP/s" in answer.out and "which could take" in answer.out
    kernels = [line for line in answer.out.splitlines() if "compute" in line or " L1 " in line or " L2 " in line]
    assert kernels, answer.out


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch's exporter about its own code
@pytest.mark.slow
def test_bench_takes_the_module_that_the_model_came_from(weft_command: Weft, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    source = tmp_path / "made.py"
    source.write_text(
        "import torch\n\n\ndef make(size):\n    torch.manual_seed(3)\n    return torch.nn.Linear(int(size), 4)\n"
    )
    torch.manual_seed(3)
    path = tmp_path / "linear.onnx"
    torch.onnx.export(torch.nn.Linear(6, 4).eval(), (torch.zeros(2, 6),), path, dynamo=True, external_data=False)
    options = ("--runs", 1, "--peers", "torch", "--json", "r.json", "--torch-module")
    answer = weft_command("bench", path, *options, f"{source}:make,6")
    assert answer.status == 0, answer.err
    _, theirs = json.loads(Path("r.json").read_text())
    assert theirs["engine"] == "torch" and theirs["max_abs_diff"] < 1e-4
    lost = weft_command("bench", path, *options, f"{source}:absent")
    assert lost.status == 0 and "torch was left out: AttributeError" in lost.out


def test_differences_count_nan() -> None:
    from weft.bench.turns import difference

    a, nan = np.array([1.0, 2.0]), np.array([1.0, np.nan])
    assert difference([a], [a]) == (0.0, 0.0) and difference([nan], [nan]) == (0.0, 0.0)
    assert difference([a], [nan])[0] == np.inf and difference([a], []) == (np.inf, np.inf)
    assert difference([a], [a.reshape(1, 2)]) == (np.inf, np.inf)
    assert difference([a], [np.array([1.0, 5.0])]) == (3.0, 0.75), "of the distance from 1 to 5"
    assert difference([a + 1000], [np.array([1001.0, 1005.0])]) == (3.0, 0.75), "a constant part hides nothing"
    assert difference([np.array([3.0, 3.0])], [np.array([4.0, 4.0])]) == (1.0, 0.25)
    inf = np.array([1.0, np.inf, -np.inf])
    assert difference([inf], [inf]) == (0.0, 0.0)
    assert difference([np.array([2.0, np.inf, -np.inf])], [inf]) == (1.0, 1.0)
    for nothing in (np.nan, np.inf, -np.inf):
        assert difference([np.full(3, nothing)], [np.full(3, nothing)]) == (np.inf, np.inf), "there is no number"
        assert difference([a, np.full(3, nothing)], [a, np.full(3, nothing)])[1] == np.inf
    for other in (np.array([1.0, np.inf, np.inf]), np.array([1.0, 5.0, -np.inf]), np.array([np.nan, np.inf, -np.inf])):
        assert difference([other], [inf]) == (np.inf, np.inf) == difference([inf], [other])
    assert (
        difference([np.array([255], np.uint8)], [np.array([1], np.uint8)])[0]
        == 254
        == difference([np.array([1], np.uint8)], [np.array([255], np.uint8)])[0]
    )
    assert difference([np.zeros(0)], [np.zeros(0)]) == (0.0, 0.0)


@pytest.mark.parametrize("peer", ["torch", "openvino", "tvm", pytest.param("torch-compile", marks=pytest.mark.slow)])
def test_bench_against_other_peers(peer: str, weft_command: Weft, tmp_path: Path) -> None:
    pytest.importorskip(peer.split("-")[0])
    path = images(tmp_path / "images.onnx")
    answer = weft_command("bench", path, "--runs", 1, "--peers", peer, "--json", "r.json")
    assert answer.status == 0, answer.err
    _, theirs = json.loads(Path("r.json").read_text())
    assert theirs["engine"] == peer and theirs["max_abs_diff"] < 1e-4


def test_blame_finds_nothing_in_a_model_that_is_right(weft_command: Weft, model: Path) -> None:
    answer = weft_command("blame", str(model))
    assert (
        answer.status == 0 and answer.out.startswith("agrees: largest difference") and "tolerance 0.001" in answer.out
    )
    assert not Path("weft-blame").exists()
    assert weft_command("blame", str(model), "-i", "absent.npy").status == 1


def test_blame_draws_inputs_by_the_seed(weft_command: Weft, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.pipeline import blame as room

    found = []

    def planted(module, target, inputs, *rest):
        found.append(np.concatenate([np.ravel(x) for x in inputs]).tobytes())
        raise Stop

    monkeypatch.setattr(room, "blame", planted)
    for seed in ((), ("--seed", 0), ("--seed", 1), ("--seed", 1), ("--seed", 2)):
        weft_command("blame", str(model), *seed)
    assert found[0] == found[1] and found[2] == found[3] and len(set(found)) == 3


@pytest.mark.parametrize("stage", ["graph", "kernel"])
def test_blame_writes_a_reproducer(
    weft_command: Weft, model: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    from weft.graph.nodes import Call, Function
    from weft.graph.visit import post_order
    from weft.kernels.task import KernelTask
    from weft.pipeline import blame as room
    from weft.pipeline import optimize

    right = room.blame

    def planted(module, target, inputs, *rest):  # the search itself is tested in tests/api
        assert right(module, target, inputs, *rest).stage == ""
        if stage == "graph":
            return room.Verdict("graph", "fuse", 0.5, before=module, inputs=tuple(inputs), wanted=(inputs[0],))
        fused = optimize(module, target)
        group = next(e.target for e in post_order(fused.main) if isinstance(e, Call) and isinstance(e.target, Function))
        program = room.unscheduled(group)[0]
        return room.Verdict("kernel", program.name, 0.5, group=group, program=program, inputs=tuple(inputs))

    monkeypatch.setattr(room, "blame", planted)
    answer = weft_command("blame", str(model), "-o", "found")
    assert answer.status == 1 and "wrong: " in answer.out and "largest difference 0.5" in answer.out
    assert {"inputs.npz", "wanted.npz", "command.txt"} <= {p.name for p in Path("found").iterdir()}
    monkeypatch.chdir("found")
    for line in Path("command.txt").read_text().splitlines():
        again = weft_command(*line.split()[1:])
        assert again.status == 0 and again.out, again.err
    if stage == "kernel":
        assert KernelTask.from_text(Path("task.txt").read_text()).program.params


@pytest.mark.parametrize("columns", [80, 109, 110, 200])
def test_columns_of_a_comparison_are_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    records = [Record("m", e, "1.32.0", "best", 1, ms, ms / 2, 20, 1e-7, 1e-7)
               for e, ms in (("weft", 0.0012), ("onnxruntime", 123.4), ("torch-compile", 4.5))]  # fmt: skip
    _show(records, {}, 1)
    printed = capsys.readouterr().out
    for word in ("engine", "median ms", "weft/engine", "max |diff|", "torch-compile", "0.0012", "123.40", "1.32.0"):
        assert word in printed, printed
    assert ("█" * 24 in printed) == (columns >= 110)


def test_an_engine_without_a_time_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system gives no more threads: nobody waits for ever, and the process ends."""
    from weft.bench import turns

    def refuse(timer: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(turns.threading.Timer, "start", refuse)
    engine = turns.Engine("weft", tmp_path / "request.json", tmp_path)
    assert engine.error == "no time limit can be set: can't start new thread"
    assert engine.run(1) == [] and engine.outputs() == []
    engine.close()
    assert engine.process.poll() is not None


@pytest.mark.parametrize("name", ["small.weft", "renamed.onnx", "without_suffix"])
@pytest.mark.parametrize("command", ["bench", "compile", "blame"])
def test_commands_for_models_say_what_takes_an_artifact(
    artifact: Path, weft_command: Weft, command: str, name: str
) -> None:
    copied = Path(name)
    copied.write_bytes(artifact.read_bytes())
    answer = weft_command(command, copied)
    assert answer.status == 1 and "M002" in answer.err
    assert "compiled already" in answer.err and "'weft run', 'weft inspect'" in answer.err


def test_bench_names_open_sizes_that_do_not_fit(tmp_path: Path, weft_command: Weft) -> None:
    """Sizes that nobody gives count as 1, which not every model can take."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n, 4] x) => (float[m, 4] y) {
        w = Constant <value = float[1, 1, 3] {1, 1, 1}> ()
        one = Constant <value_ints = [1]> ()
        t = Transpose <perm = [1, 0]> (x)
        u = Unsqueeze (t, one)
        c = Conv (u, w)
        s = Squeeze (c, one)
        y = Transpose <perm = [1, 0]> (s)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "window.onnx")
    answer = weft_command("bench", "window.onnx", "--peers", "none")
    assert answer.status == 1 and "--shape" in answer.err and "x=n,4" in answer.err, answer.err
    answer = weft_command("bench", "window.onnx", "--peers", "none", "--shape", "n=9", "--runs", 2)
    assert answer.status == 0, answer.err
