"""Environment variables, progress and timing."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from weft.support import settings
from weft.support.cache import DiskCache
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
        ("WEFT_JOBS", "0"),
        ("WEFT_VERIFY", "perhaps"),
        ("WEFT_CACHE_DIR", "~nosuchuser/x"),
        ("WEFT_DUMP", "~nosuchuser"),
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


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the list of users, as in many containers."""
    import pwd

    def unknown(user: object) -> None:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for variable in ("HOME", "XDG_CACHE_HOME", "WEFT_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("homeless")
def test_without_a_home_the_cache_is_a_temporary_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.cache_directory() == Path(tempfile.gettempdir()) / f"weft-{os.getuid()}"

    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    cache = DiskCache.default()
    cache.put("ab" * 16, b"kept nowhere")
    assert cache.get("ab" * 16) is None


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("text", ["~/cache", "~", "~nobody-has-this-name/cache"])
def test_homes_that_nobody_knows_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", text)
    with pytest.raises(InputError, match="WEFT_CACHE_DIR") as caught:
        settings.cache_directory()
    assert caught.value.code == "I010"
