"""Cores that processes claim for their measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.tune.measure import cores
from weft.tune.measure.cores import ClaimedCores

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="processes cannot be pinned on this system"
)


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "processors_apart", lambda: [0, 1, 2, 3])


def test_nobody_measures_on_claimed_cores(tmp_path: Path, four: None) -> None:
    first, second, third = (ClaimedCores(tmp_path) for _ in range(3))
    assert first.take(1) == [3]
    assert second.take(2) == [1, 2]
    assert first.take(1) == [3] and second.take(2) == [1, 2]  # the same as before
    assert third.take(2) == [0, 3]  # one is shared
    second.release()
    assert third.take(3) == [0, 1, 2]
    third.release()
    first.release()
    assert ClaimedCores(tmp_path).take(4) == [0, 1, 2, 3]
    assert ClaimedCores(tmp_path).take(9) == [0, 1, 2, 3]


def test_a_process_that_ends_gives_its_cores_back(tmp_path: Path, four: None) -> None:
    code = (
        "import sys, time; from pathlib import Path; from weft.tune.measure import cores\n"
        "cores.processors_apart = lambda: [0, 1, 2, 3]\n"
        "claimed = cores.ClaimedCores(Path(sys.argv[1])); print(claimed.take(1), flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "[3]\n"
        assert ClaimedCores(tmp_path).take(1) == [2]
        other.kill()
    assert ClaimedCores(tmp_path).take(1) == [3]


def test_without_a_place_for_claims_cores_are_shared(
    tmp_path: Path, four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing"
    assert ClaimedCores(missing).take(2) == ClaimedCores(missing).take(2) == [2, 3]
    (tmp_path / f"weft-cores-{os.getuid()}").symlink_to("/")  # somebody else's folder
    monkeypatch.setattr(cores.tempfile, "gettempdir", lambda: str(tmp_path))
    claimed = ClaimedCores()
    assert claimed.take(1) == [3] and not claimed._held
