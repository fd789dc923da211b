"""Runs commands in the test's process; a small model and its artifact."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Answer, Weft
from sample_models import dense

from weft.cli.main import main


@pytest.fixture
def weft_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Weft:
    """Runs a command in this process, in an empty directory, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Answer:
        capfd.readouterr()
        status = 0
        try:
            main([str(w) for w in words])
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return Answer(status, out, err)

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return dense(tmp_path / "small.onnx")


@pytest.fixture
def artifact(model: Path, weft_command: Weft) -> Path:
    assert weft_command("compile", model, "-o", "small.weft").status == 0
    return model.with_suffix(".weft")
