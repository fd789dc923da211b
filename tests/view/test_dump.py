"""``WEFT_DUMP`` writes every stage, ``weft opt`` reads every text back, and the page links to what is there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import models_zoo as zoo
import numpy as np
import pytest
from sample_models import dense, images, random_input

import weft
from weft.api import compile_with_report
from weft.backends.llvm import LLVM
from weft.cli.main import main
from weft.graph.text import load
from weft.ir.structural import structural_hash
from weft.ops.catalogue import OPERATORS
from weft.support.errors import InternalError

STAGES = ["te", "tir", "trace", "scheduled", "kernel", "llvm", "assembly"]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "out"))
    return tmp_path / "out"


def check_round_trips(folder: Path, capfd: pytest.CaptureFixture[str]) -> int:
    texts = sorted(folder.rglob("*.txt"))
    for path in texts:
        capfd.readouterr()
        main(["opt", str(path)])
        shown = capfd.readouterr().out
        assert shown == path.read_text(), f"{path.relative_to(folder)} changes when it is read and printed"
    return len(texts)


@pytest.mark.parametrize("make", [dense, images])
def test_every_stage_is_written_and_read_back(
    make, out: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, report = compile_with_report(make(tmp_path / "model.onnx"))
    kernels = sorted((out / "kernels").iterdir())
    assert len(kernels) == report.groups
    for folder in kernels:
        assert [p.stem.split("-")[-1] for p in sorted(folder.iterdir())] == [*STAGES, "task"]
    graphs = sorted(p.name for p in out.glob("*.txt"))
    assert graphs[0] == "00-imported.txt" and graphs[-1].endswith("-fuse.txt")
    assert [int(n[:2]) for n in graphs] == list(range(len(graphs)))
    assert check_round_trips(out, capfd) == len(graphs) + 5 * len(kernels)


@pytest.mark.parametrize("name", [pytest.param("bert", marks=pytest.mark.slow), "mobilenetv2"])
def test_real_models_round_trip(name: str, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    weft.compile(zoo.or_skip(zoo.transformer, name, "tiny", "dynamic" if name == "bert" else "static"))
    assert check_round_trips(out, capfd) > 20
    assert "<path d=" in (out / "index.html").read_text(), "connections that skip calls are drawn"


def test_graphs_come_with_their_constants(out: Path, tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx")
    module = weft.load(path)
    exe = weft.compile(path)
    read = load(out / "00-imported.txt", OPERATORS)
    assert structural_hash(read.main) == structural_hash(module.main)
    x = random_input((2, 24))
    np.testing.assert_array_equal(weft.compile(read)(x), exe(x))


def test_constants_that_stay_are_not_written_twice(out: Path, tmp_path: Path) -> None:
    weft.compile(dense(tmp_path / "model.onnx"))
    files = sorted(out.glob("*.npz"))
    assert len({p.stat().st_ino for p in files}) < len(files) or len(files) == 1


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.marks: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.targets.append(str(given["href"]))
        if given.get("id"):
            self.marks.add(str(given["id"]))


def test_the_page_links_to_every_file(out: Path, tmp_path: Path) -> None:
    weft.compile(images(tmp_path / "model.onnx"))
    page = (out / "index.html").read_text()
    links = Links()
    links.feed(page)
    files = {
        str(p.relative_to(out)) for p in out.rglob("*") if p.is_file() and p.suffix not in (".npz", ".json", ".html")
    }
    assert files == {t for t in links.targets if not t.startswith("#")}
    assert {t[1:] for t in links.targets if t.startswith("#")} <= links.marks
    assert "<script" not in page
    facts = json.loads((out / "report.json").read_text())
    assert facts["built"] == facts["groups"] > 0


def test_a_second_compilation_does_not_overwrite_the_first(out: Path, tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx")
    weft.compile(path)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    weft.compile(path)
    assert all(p.read_bytes() == data for p, data in before.items())
    assert (out / "run-2" / "index.html").exists() and (out / "run-2" / "kernels").exists()


def test_a_failing_stage_leaves_earlier_stages(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(program, target):
        raise InternalError("no kernel form today")

    broken = replace(LLVM, lower=fail)
    monkeypatch.setattr("weft.plugins.registry.BACKENDS", (broken,))
    with pytest.raises(InternalError) as caught:
        weft.compile(dense(tmp_path / "model.onnx"))
    (folder,) = (out / "kernels").iterdir()
    assert [p.stem.split("-")[-1] for p in sorted(folder.iterdir())] == [*STAGES[:4], "task"]
    assert caught.value.reproducer is not None
    assert caught.value.reproducer.endswith((folder / "task.txt").read_text())
    page = (out / "index.html").read_text()
    assert re.search(r'class="failed">InternalError: .*no kernel form today', page)


def test_a_place_that_cannot_be_written_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WEFT_DUMP", str(tmp_path / "file" / "out"))
    with pytest.raises(weft.UserError, match="out' cannot be made") as caught:
        weft.compile(dense(tmp_path / "model.onnx"))
    assert caught.value.code == "I030"
