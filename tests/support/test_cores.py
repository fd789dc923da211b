"""Counting cores, on trees of files as Linux shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.support import cores

FOUR = range(4)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def siblings(*groups: str) -> dict[str, str]:
    """Topology files: ``"0-1"`` says that processors 0 and 1 are one core."""
    numbers = [(n, g) for g in groups for n in range(int(g.split("-")[0]), int(g.split("-")[-1]) + 1)]
    return {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": g + "\n" for n, g in numbers}


def test_hardware_threads_of_a_core_count_once(tmp_path):
    files = tree(tmp_path, siblings("0-1", "2-3"))
    assert cores.physical_cores(files, FOUR) == 2
    assert cores.physical_cores(files, [0, 1]) == 1
    assert cores.physical_cores(files, [1, 2]) == 2


def test_processors_of_different_cores_come_last(tmp_path):
    files = tree(tmp_path, siblings("0-1", "2-3"))
    assert cores.processors_apart(files, FOUR) == [0, 2, 1, 3]
    assert cores.processors_apart(files, [0, 2]) == [0, 2]
    assert cores.processors_apart(tmp_path / "nothing", FOUR) == [0, 1, 2, 3]
    assert set(cores.processors_apart()) == cores.affinity()


def test_without_topology_each_processor_counts(tmp_path):
    assert cores.physical_cores(tmp_path, FOUR) == 4
    assert cores.physical_cores(tmp_path, []) == 1


@pytest.mark.parametrize(
    ("quota", "limit"), [("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("max 100000", None)]
)
def test_version_2(tmp_path, quota, limit):
    """``cpu.max``: a part of a processor counts as one, since a thread runs on it."""
    files = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota + "\n"})
    assert cores.group_limit(files) == limit
    assert cores.usable_cores(files, FOUR) == (4 if limit is None else limit)


def test_the_tightest_of_the_groups_around_counts(tmp_path):
    files = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/batch/job\n",
            "sys/fs/cgroup/batch/job/cpu.max": "max 100000",
            "sys/fs/cgroup/batch/cpu.max": "300000 100000",
            "sys/fs/cgroup/other/cpu.max": "100000 100000",
        },
    )
    assert cores.group_limit(files) == 3


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_version_1(tmp_path, controllers):
    files = tree(
        tmp_path,
        {
            "proc/self/cgroup": f"9:memory:/one\n2:{controllers}:/docker/abc\n",
            f"sys/fs/cgroup/{controllers}/docker/abc/cpu.cfs_quota_us": "250000\n",
            f"sys/fs/cgroup/{controllers}/docker/abc/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cores.group_limit(files) == 3


def test_version_1_without_quota(tmp_path):
    files = tree(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cores.group_limit(files) is None


def test_both_versions_at_once(tmp_path):
    """A hybrid system: the limit is where the cpu controller is."""
    files = tree(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu:/a\n0::/a\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "100000",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
        },
    )
    assert cores.group_limit(files) == 1


def test_limits_in_a_container_that_shows_the_path_of_its_host(tmp_path):
    files = tree(tmp_path, {"proc/self/cgroup": "0::/kubepods/pod1/x\n", "sys/fs/cgroup/cpu.max": "200000 100000"})
    assert cores.group_limit(files) == 2


def test_a_system_without_these_files(tmp_path):
    assert cores.group_limit(tmp_path) is None
    assert cores.usable_cores(tmp_path, FOUR) == 4


def test_the_variable_overrides_the_count(monkeypatch):
    monkeypatch.setenv("WEFT_NUM_THREADS", "37")
    assert cores.default_threads() == 37
    monkeypatch.delenv("WEFT_JOBS", raising=False)
    assert cores.default_jobs() == 37
    monkeypatch.setenv("WEFT_JOBS", "3")
    assert cores.default_jobs() == 3 and cores.default_threads() == 37
    monkeypatch.delenv("WEFT_NUM_THREADS")
    assert cores.default_threads() == cores.usable_cores() <= cores.physical_cores() <= len(cores.affinity())
