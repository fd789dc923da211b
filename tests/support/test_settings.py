"""Environment variables, progress and timing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weft.support import settings
from weft.support.errors import InputError
from weft.support.progress import Silent, progress


def test_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for s in settings.SETTINGS:
        monkeypatch.delenv(s.variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.dump_directory() is None
    assert settings.cache_directory() == tmp_path / "weft"
    assert settings.cache_limit() == 2 << 30
    assert not settings.verify_passes()
    assert len(settings.table()) == len(settings.SETTINGS)


@pytest.mark.parametrize(
    ("text", "bytes_"), [("0", 0), ("500", 500), ("2k", 2048), ("1.5M", 3 << 19), ("1GiB", 1 << 30), ("3GB", 3 << 30)]
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, bytes_: int) -> None:
    monkeypatch.setenv("WEFT_CACHE_LIMIT", text)
    assert settings.cache_limit() == bytes_


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("WEFT_CACHE_LIMIT", "much"),
        ("WEFT_CACHE_LIMIT", "-1"),
        ("WEFT_CACHE_LIMIT", "1e999"),
        ("WEFT_CACHE_LIMIT", "1.2.3M"),
        ("WEFT_NUM_THREADS", "0"),
        ("WEFT_NUM_THREADS", "two"),
        ("WEFT_NUM_THREADS", "-2"),
        ("WEFT_NUM_THREADS", "1.5"),
        ("WEFT_VERIFY", "perhaps"),
    ],
)
def test_nonsense_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(InputError, match=variable) as caught:
        settings.table()
    assert "invalid literal" not in str(caught.value) and "could not convert" not in str(caught.value)


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working", 3) as bar:
        assert isinstance(bar, Silent)
        bar.advance()
    assert capsys.readouterr() == ("", "")


def test_progress_shows_when_asked() -> None:
    with progress("working", 3, show=True) as bar:
        assert not isinstance(bar, Silent)
        bar.advance()
    assert "rich" in sys.modules
