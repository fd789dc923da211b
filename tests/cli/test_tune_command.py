"""``weft tune`` for models and for kernels in files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_runner import Weft
from sample_models import dense
from tuning_runner import InventingRunner

from weft.tune.database import Database
from weft.tune.measure import local
from weft.tune.search import STRATEGIES

KERNEL = """from weft import te


def program():
    a = te.placeholder((48, 48), name="a")
    b = te.placeholder((48, 48), name="b")
    k = te.reduce_axis((0, 48), name="k")
    return [a, b, te.compute((48, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]


def template(cfg, s):
    i, j, k = s.get_loops("c")
    i0, i1 = cfg.define_split("i", i)
    j0, j1 = cfg.define_split("j", j)
    cfg.define_reorder("order", (i1, k, j1), before=(i0, j0))


def other(cfg, s):
    cfg.define_annotate("rows", s.get_loops("c")[:1], kinds=("none", "parallel"))


def wrong(cfg, s):
    s.split(1)[5]
"""
QUICK = ("--threads", 1, "--strategy", "random", "--features", "none")


@pytest.fixture
def small(weft_command: Weft, tmp_path: Path) -> Path:
    return dense(tmp_path / "small.onnx", 4)


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalRunner", InventingRunner)


def trials(path: str | Path) -> int:
    """Trials of schedules that a search made, in a database that is intact."""
    with Database(path) as database:
        found = [t for k in database.workloads() for t in database.trials(k)]
        assert len(database.export_json()) > 0
    return sum(t.trace_text is not None and not t.run.endswith("confirmed") for t in found)


def test_a_model_is_tuned_checked_and_run(weft_command: Weft, small: Path) -> None:
    words = ("tune", small, "--db", "tuned.db", "--trials", 10, *QUICK, "--report", "tuned.html")
    first = weft_command(*words)
    assert first.status == 0 and trials("tuned.db") == 10
    for name in ("matmul_add_relu", "matmul_add", "softmax"):
        assert any(line.split()[:1] == [name] for line in first.out.splitlines())
    assert "10 trials; ended because: all trials are spent" in first.out and "the model: " in first.out
    assert ("to use it: weft run " in first.out) != ("no schedule was found that is faster" in first.out)
    assert "checking the schedules in the model" in first.err and "trials left" in first.err
    assert Path("tuned.html").read_text().startswith("<!doctype html>") and "wrote tuned.html" in first.out
    again = weft_command(*words)
    assert again.status == 0 and "0 trials, after 10 in earlier runs" in again.out and trials("tuned.db") == 10
    assert weft_command("run", small, "--tuning-db", "tuned.db", "--threads", 1).status == 0


def test_the_command_that_uses_the_result(weft_command: Weft, small: Path, invented: None) -> None:
    answer = weft_command(
        *("tune", small, "--db", "my tuned.db", "--effort", "low", "--no-check", *QUICK, "--winograd", "off"),
        *("--policy", "round-robin", "--seed", 3),
    )
    assert answer.status == 0 and "all kernels, measured alone: 3 ms → " in answer.out
    assert f"weft run {small} --tuning-db 'my tuned.db' --threads 1 --winograd off" in answer.out


def test_the_database_of_the_environment_is_used(
    weft_command: Weft, small: Path, invented: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_TUNING_DB", "mine.db")
    assert weft_command("tune", small, "--trials", 2, "--no-check", *QUICK).status == 0 and trials("mine.db") == 2


def test_sizes_and_inputs(weft_command: Weft, tmp_path: Path, invented: None) -> None:
    opened = dense(tmp_path / "open.onnx")
    words = ("tune", opened, "--db", "tuned.db", "--trials", 2, *QUICK)
    assert weft_command(*words, "--size", "batch=2,5", "--no-check").status == 0
    answer = weft_command(*words, "--size", "bath=2", "--no-check")
    assert answer.status == 1 and "error[U023]" in answer.err and "did you mean 'batch'?" in answer.err
    answer = weft_command(*words, "-i", "none.npy")
    assert answer.status == 1 and "error[I023]" in answer.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("small.onnx",), 2, "--db FILE"),
        (("--db", "t.db"), 2, "name a model, or a file with --kernel"),
        (("small.onnx", "--kernel", "kernel.py", "--db", "t.db"), 2, "name a model, or a file with --kernel"),
        (("--kernel", "kernel.py", "--db", "t.db", "--shape", "n=1"), 2, "--shape is for models"),
        (("--kernel", "kernel.py", "--db", "t.db", "-i", "x.npy"), 2, "--input is for models"),
        (("--kernel", "kernel.py", "--db", "t.db", "--policy", "gian"), 2, "--policy is for models"),
        (("--kernel", "kernel.py", "--db", "t.db", "--precision", "bf16"), 2, "--precision is for models"),
        (("--kernel", "kernel.py", "--db", "t.db", "--winograd", "off"), 2, "--winograd is for models"),
        (("small.onnx", "--db", "t.db", "--trials", "0"), 2, "--trials"),
        (("small.onnx", "--db", "t.db", "--size", "batch=5..2"), 1, "--size batch=5..2 is not understood"),
        (("small.onnx", "--db", "t.db", "--size", "batch=0..2"), 1, "--size batch=0..2 is not understood"),
        (("small.onnx", "--db", "t.db", "--size", "n=1..2", "--size", "n=1..3"), 1, "--size n is given twice"),
        (("small.onnx", "--db", "t.db", "--minutes", "-1"), 1, "error[U023]"),
        (("small.onnx", "--db", "t.db", "--effort", "hihg"), 1, "did you mean 'high'?"),
        (("small.onnx", "--db", "t.db", "--strategy", "refin"), 1, "did you mean 'refine'?"),
        (("small.onnx", "--db", "t.db", "--policy", "gian"), 1, "did you mean 'gain'?"),
        (("small.onnx", "--db", "none/t.db"), 1, "there is no directory"),
        (("small.onnx", "--db", "t.db", "--report", "none/r.html"), 1, "error[I030]"),
        (("smal.onnx", "--db", "t.db"), 1, "did you mean 'small.onnx'?"),
        (("small.onnx", "--db", "t.db", "--target", "raspberry-pi-4"), 1, "error[U024]"),
        (("--kernel", "kernel.py:templat", "--db", "t.db"), 1, "error[U027]"),
        (("--kernel", "kernel.py:wrong", "--db", "t.db"), 1, "23 | s.split(1)[5]"),
        (("--kernel", "kern.py", "--db", "t.db"), 1, "error[I021]"),
        (("--kernel", "broken.py", "--db", "t.db"), 1, "--> broken.py, line 2"),
        (("--kernel", "empty.py", "--db", "t.db"), 1, "has no function 'program'"),
        (("--kernel", "number.py", "--db", "t.db"), 1, "error[U023]"),
    ],
)
def test_wrong_words(weft_command: Weft, small: Path, words: tuple[str, ...], status: int, said: str) -> None:
    Path("kernel.py").write_text(KERNEL)
    Path("broken.py").write_text("a = 1\nb = a.c\n")
    Path("empty.py").write_text("")
    Path("number.py").write_text("def program():\n    return 1\n")
    answer = weft_command("tune", *words)
    assert answer.status == status and said in answer.err and not Path("t.db").exists()


def test_a_kernel_in_a_file_is_tuned(weft_command: Weft, invented: None) -> None:
    Path("kernel.py").write_text(KERNEL)
    answer = weft_command("tune", "--kernel", "kernel.py", "--db", "t.db", "--trials", 8, *QUICK, "--report", "r.html")
    assert answer.status == 0 and "the best schedule:\n" in answer.out and "sample_tile(" in answer.out
    assert "weft db show t.db kernel" in answer.out and Path("r.html").exists()
    assert weft_command("db", "show", "t.db", "kernel").status == 0 and trials("t.db") == 8
    answer = weft_command("tune", "--kernel", "kernel.py:other", "--db", "o.db", "--trials", 8, *QUICK)
    assert answer.status == 0 and trials("o.db") == 2
    Path("plain.py").write_text(KERNEL.partition("def template")[0])
    answer = weft_command("tune", "--kernel", "plain.py", "--db", "p.db", "--trials", 3, *QUICK)
    assert answer.status == 0 and 0 < trials("p.db") <= 3


def test_a_missing_package_is_named(
    weft_command: Weft, small: Path, invented: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    answer = weft_command("tune", small, "--db", "t.db", "--trials", 2, "--no-check", "--strategy", "random")
    assert answer.status == 0 and "weft[tune]" in answer.err and "the draft model predicts alone" in answer.err


def test_an_interrupt_leaves_an_intact_database(weft_command: Weft) -> None:
    Path("kernel.py").write_text(KERNEL)
    words = ["tune", "--kernel", "kernel.py", "--db", "t.db", "--minutes", "5", "--report", "r.html", *map(str, QUICK)]
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from weft.cli.main import main; main(sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (Path("t.db").exists() and trials("t.db")):
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130 and "same command" in err and "goes on from there" in err
    assert (
        "ended because: interrupted" in out
        and "all kernels, measured alone: " in out
        and Path("r.html").exists()
        and trials("t.db") >= 1
    )


def test_the_example_of_the_page_is_a_file_for_the_command(weft_command: Weft, invented: None) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
    assert [name for name in STRATEGIES if f"`{name}`" not in page] == []
    (example,) = (p for p in page.split("```python\n")[1:] if "def program():" in p)
    Path("product.py").write_text(example.partition("```")[0])
    answer = weft_command("tune", "--kernel", "product.py", "--db", "t.db", "--trials", 4, *QUICK)
    assert answer.status == 0 and trials("t.db") == 4
