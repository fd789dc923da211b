"""Options and fixtures of the whole suite."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import hypothesis
import hypothesis.core
import pytest
import quick
import seeds
import skips
import thinned

os.environ.setdefault("WEFT_STRICT", "1")  # for processes that tests start, too
if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are busy: processes that build cost more than they give
    os.environ.setdefault("WEFT_JOBS", "1")

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files instead of comparing with them")
    parser.addoption("--slow", action="store_true", help="also run tests that take long, and all cases")
    parser.addoption("--all-cases", action="store_true", help="also run the cases of long lists that are left out")
    parser.addoption("--quick", action="store_true", help="run only about a minute of tests, from every folder")
    parser.addoption("--fresh-seeds", action="store_true", help="draw a new seed for all random tests of this run")
    parser.addoption("--all-tools", action="store_true", help="a test that is skipped for want of a tool is an error")
    parser.addoption("--seed", type=int, metavar="N", help="the seed of all random tests of this run (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; deselected without --slow")
    config.addinivalue_line(
        "markers", "thinned(n): one of n cases runs; all with --all-cases or --slow (see thinned.py)"
    )
    _choose_seed(config)


def _choose_seed(config: pytest.Config) -> None:
    """Before tests are collected: their seeds are parameters."""
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist inherit what the process that starts them chose
        fresh = random.SystemRandom().randrange(1, 1 << 30) if config.getoption("--fresh-seeds") else 0
        given = config.getoption("--seed")
        os.environ[seeds.VARIABLE] = str(fresh if given is None else given)
    seed = seeds.run_seed()
    hypothesis.settings.register_profile("weft", derandomize=seed == 0, deadline=None, database=None)
    hypothesis.settings.load_profile("weft")
    hypothesis.core.global_force_seed = seed or None  # what hypothesis' own option --hypothesis-seed sets


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, files that are not on the list are not even imported."""
    chosen = not config.getoption("--quick") or collection_path.suffix != ".py" or quick.is_quick(collection_path)
    return None if chosen else True


def pytest_report_header() -> str | None:
    return f"seed of random tests: {seeds.run_seed()} (repeat with --seed)" if seeds.run_seed() else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and seeds.run_seed():
        slow = " --slow" if item.config.getoption("--slow") else ""
        command = f"pytest '{item.nodeid}' --seed {seeds.run_seed()}{slow}"
        report.sections.append(("repeat with", command))
        if path := os.environ.get(seeds.REPEAT_FILE):
            with open(path, "a") as file:  # at once: the run may be ended before it can report
                file.write(f"{command}\n")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say which test is running, for who looks after tests that do not end."""
    folder = os.environ.get(seeds.RUNNING_FOLDER)
    if not folder:
        return (yield)
    path = Path(folder) / str(os.getpid())
    path.write_text(item.nodeid)
    try:
        return (yield)
    finally:
        path.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)  # option -m chooses by marks, too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all-cases"):
        for item in thinned.left_out(items):
            item.add_marker(pytest.mark.slow)
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]  # names of folders are keywords too
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


_collected: list[Path] = []
"""The file of the test before, on this worker."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What earlier files have left is not looked at by the garbage collector any more: after thousands of tests a
    collection would take half a second, and many tests ask for one."""
    if _collected != [item.path]:
        _collected[:] = [item.path]
        gc.collect()
        gc.freeze()


_skipped: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped[skips.reason_of(report)] += 1


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:  # a whole file
        _skipped[skips.reason_of(report)] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Workers of pytest-xdist send their reports to the process that starts them, which judges all of them."""
    unfit = skips.excess(_skipped, session.config.getoption("--all-tools"))
    if unfit and not hasattr(session.config, "workerinput") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason, count in _skipped.most_common():
        terminalreporter.write_line(f"skipped {count}: {' '.join(reason.split())[:150]}")
    for line in skips.excess(_skipped, config.getoption("--all-tools")):
        terminalreporter.write_line(line, red=True)


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
