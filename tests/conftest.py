"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("WEFT_STRICT", "1")  # for processes that tests start, too

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files instead of comparing with them")
    parser.addoption("--slow", action="store_true", help="also run tests that take minutes (full-size models)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs with --slow only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """``golden(name, text)`` compares ``text`` with ``golden/name`` beside the test; ``--bless`` writes it."""
    folder = Path(request.path).parent / "golden"
    bless = request.config.getoption("--bless")

    def check(name: str, text: str) -> None:
        path = folder / name
        if bless:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"there is no golden file {path.name}; run pytest --bless and review it"
        assert text == path.read_text(), (
            f"{path.name} differs; if that is meant, run pytest --bless and review the diff"
        )

    return check


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of real models (``WEFT_MODELS``, else ``../shared/models``); tests that need it skip without it."""
    path = Path(os.environ.get("WEFT_MODELS", REPOSITORY.parent / "shared" / "models"))
    if not path.is_dir():
        pytest.skip(f"no models at {path}: set WEFT_MODELS to a folder with the ONNX files")
    return path
