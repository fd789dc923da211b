"""``weft tune`` on a board, and on boards of a tracker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from command_runner import Weft
from sample_models import dense

from weft.rpc.local import LocalServer
from weft.rpc.server_build import build_server
from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.running import running_tracker
from weft.target import Target
from weft.tune import turns
from weft.tune.corpus import api, building
from weft.tune.corpus.kernels import corpus_kernels
from weft.tune.database import Database
from weft.tune.measure import remote

KEY = b"a key of the tests of the command line"
QUICK = ("--threads", 1, "--strategy", "random", "--features", "none", "--trials", 3)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("server") / "weft-rpc-server"
    build_server([compiler], made, ("-std=c11", "-O0", "-pthread"), static=False)
    return made


@pytest.fixture
def key_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "weft.key"
    path.touch(0o600)
    path.write_bytes(KEY)
    yield path


@pytest.fixture(autouse=True)
def short_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURNS", 2)
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.01)


def test_a_model_is_tuned_on_a_board(weft_command: Weft, tmp_path: Path, program: Path, key_file: Path) -> None:
    small = dense(tmp_path / "small.onnx", 4)
    with LocalServer(("--name", "desk"), KEY, (str(program),)) as server:
        words = ("tune", small, "--db", "tuned.db", "--board", server.address, "--key-file", key_file, *QUICK)
        answer = weft_command(*words)
        assert answer.status == 0, answer.err
        assert "measuring on desk (" in answer.err and "3 trials" in answer.out
        log = server.log()
    assert log.count("session begins") >= 3, "one for the target, one for kernels, one for the model"
    with Database("tuned.db") as database:
        found = [t for k in database.workloads() for t in database.trials(k)]
    assert sum(t.trace_text is not None and not t.run.endswith("confirmed") for t in found) == 3


def test_a_corpus_is_measured_on_a_board(
    weft_command: Weft, tmp_path: Path, program: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "MAX_TRIALS", 3)
    few = [k for k in corpus_kernels(Target("cpu")) if k.family == "transposition"][:1]
    monkeypatch.setattr(api, "corpus_kernels", lambda *_: few)
    with LocalServer(("--name", "desk"), KEY, (str(program),)) as server:
        words = ("tune-corpus", "--db", "corpus.db", "--board", server.address, "--key-file", key_file)
        answer = weft_command(*words, "--minutes", 5)
        assert answer.status == 0, answer.err
        assert "measuring on desk (" in answer.err and "of 1 kernel measured" in answer.out
        assert "session begins" in server.log()
    with Database("corpus.db") as database:
        (kernel,) = database.workloads()
        assert len(database.trials(kernel)) > 3


def test_a_kernel_is_tuned_on_a_board_of_a_tracker(
    weft_command: Weft, tmp_path: Path, program: Path, key_file: Path
) -> None:
    (tmp_path / "kernel.py").write_text(
        "from weft import te\n\n\ndef program():\n    a = te.placeholder((64, 64), name='a')\n"
        "    return [a, te.compute((64, 64), lambda i, j: a[i, j] + a[i, j], name='b')]\n\n\n"
        "def template(cfg, s):\n    i, j = s.get_loops('b')\n    cfg.define_split('rows', i)\n"
    )
    limits = TrackerLimits(settle_seconds=0, heartbeat_seconds=0.5)
    with running_tracker(KEY, limits=limits) as tracker:
        words = ("--tracker", tracker.address, "--board-key", "pi4", "--name", "desk")
        with LocalServer(words, KEY, (str(program),)):
            answer = weft_command(
                *("tune", "--kernel", tmp_path / "kernel.py", "--db", "tuned.db", "--tracker", tracker.address),
                *("--key", "pi4", "--boards", 2, "--key-file", key_file, *QUICK),
            )
        assert answer.status == 0, answer.err
        assert tracker.status.boards[0].lost == 0


def test_a_board_that_does_not_answer(
    weft_command: Weft, tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "runner_for", partial(remote.runner_for, patience=0.2))
    small = dense(tmp_path / "small.onnx", 4)
    answer = weft_command("tune", small, "--db", "tuned.db", "--board", "127.0.0.1:1", "--key-file", key_file)
    assert answer.status == 1 and "error[U041]" in answer.err
    assert "there is no board yet, waiting: cannot connect to 127.0.0.1:1" in answer.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--key", "pi4"), 2, "--key is for"),
        (("--boards", 2), 2, "--boards is for --tracker"),
        (("--board", "127.0.0.1:1", "--tracker", "127.0.0.1:1"), 1, "error[U042]"),
        (("--tracker", "127.0.0.1:1"), 1, "error[U042]"),
        (("--board", "nowhere"), 1, "error[N018]"),
    ],
)
def test_wrong_options(
    weft_command: Weft, tmp_path: Path, key_file: Path, words: tuple[object, ...], status: int, said: str
) -> None:
    small = dense(tmp_path / "small.onnx", 4)
    keyed = ("--key-file", key_file) if status == 1 else ()
    answer = weft_command("tune", small, "--db", "tuned.db", *words, *keyed)
    assert answer.status == status and said in answer.err
