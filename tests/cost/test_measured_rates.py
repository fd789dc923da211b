"""Rates from measured peaks, and the file that keeps them. No clock decides: peaks are given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.cost import REFERENCE, Rates
from weft.cost.core import CorePeaks, rates_of
from weft.measure import rates as measuring
from weft.measure.rates import measure_core, measured_rates
from weft.support.cache import DiskCache
from weft.support.clock import repeated
from weft.support.errors import TargetError
from weft.target import MACHINES, Target
from weft.target.measured import forget_rates, rates_file, read_rates, write_rates
from weft.target.target import host_cpu

PEAKS = CorePeaks(
    REFERENCE.peak_products,
    2 * REFERENCE.peak_products,
    REFERENCE.peak_tiled_products,
    REFERENCE.far_bytes,
    REFERENCE.streamed_bytes,
)
CPU = Target("zen4").cpu


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_the_peaks_of_the_reference_give_the_reference() -> None:
    assert rates_of(PEAKS) == REFERENCE


def test_rates_follow_the_peaks() -> None:
    slow = rates_of(replace(PEAKS, products=PEAKS.products / 2, memory_bytes=5e9))
    assert slow.packed_products == REFERENCE.packed_products / 2
    assert slow.winograd_operations == REFERENCE.winograd_operations / 2
    assert (slow.streamed_bytes, slow.converted_bytes, slow.far_bytes) == (5e9, 2.5e9, REFERENCE.far_bytes)
    assert slow.paired_products == 4 * slow.packed_products, "pairs are as fast as before"


def test_without_instructions_for_pairs_they_are_as_fast_as_float32() -> None:
    assert rates_of(replace(PEAKS, pairs=None)).paired_products == REFERENCE.packed_products
    assert rates_of(replace(PEAKS, tiles=None)).tiled_products == REFERENCE.tiled_products


def test_written_rates_are_read_back() -> None:
    assert read_rates(CPU) is None
    rates = Rates(far_bytes=1e9, fork_cycles=77.0)
    assert write_rates(CPU, rates) == rates_file()
    assert read_rates(CPU) == rates
    assert read_rates(CPU.replace(cores=3)) == rates, "rates are those of one core"
    assert read_rates(Target("zen3").cpu) is None, "the file is about another CPU"
    assert forget_rates() and read_rates(CPU) is None and not forget_rates()


@pytest.mark.parametrize("place", ["file/below", "x" * 300, "loop/below", "rates.json is a folder"])
def test_a_cache_directory_that_cannot_be_read_holds_no_rates(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "rates.json is a folder" / "rates.json").mkdir(parents=True)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / place))
    assert read_rates(CPU) is None
    cache = DiskCache.default()
    cache.put("0" * 64, b"x")
    assert cache.get("0" * 64) in (None, b"x")


def test_a_cache_directory_of_another_user_holds_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert read_rates(CPU) is None


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "null", '{"rates": 3, "cpu": ""}', '{"rates": "speed:1", "cpu": ""}', '{"rates": "far_bytes:x"}'],
)
def test_a_spoiled_file_is_an_error(content: str) -> None:
    rates_file().parent.mkdir(parents=True)
    rates_file().write_text(content)
    with pytest.raises(TargetError, match="G008") as caught:
        read_rates(CPU)
    assert "weft targets --measure" in str(caught.value)


def test_the_machine_at_hand_uses_its_measured_rates_and_named_ones_do_not() -> None:
    try:
        host_cpu.cache_clear()
        write_rates(host_cpu(), Rates(far_bytes=1e9))
        assert host_cpu().rates == REFERENCE, "nothing is read again within a process"
        host_cpu.cache_clear()
        assert host_cpu().rates.far_bytes == 1e9
        assert Target("llvm").cpu.rates.far_bytes == Target("llvm -mcpu=native").cpu.rates.far_bytes == 1e9
        assert all(Target(name).cpu.rates == machine.rates for name, machine in MACHINES.items())
    finally:
        host_cpu.cache_clear()


def test_the_file_names_its_cpu() -> None:
    content = json.loads(write_rates(CPU, Rates(far_bytes=1e9)).read_text())
    assert content["name"] == "znver4" and content["rates"] == "far_bytes:1000000000.0"


@pytest.mark.parametrize("name", ["zen3", "zen4", "sapphire-rapids"])
def test_each_limit_is_measured_with_instructions_of_the_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the clock: which peaks are asked for, with which sizes, and what becomes of them."""
    target, asked = Target(name), []

    def bandwidth(nbytes: int, threads: int) -> float:
        asked.append(nbytes)
        return 40.0 if nbytes < target.cpu.l3 else 10.0

    monkeypatch.setattr(measuring, "Target", lambda _: target)
    monkeypatch.setattr(measuring, "bandwidth", bandwidth)
    monkeypatch.setattr(measuring, "fma_peak", lambda threads: 100.0)
    monkeypatch.setattr(measuring, "vector_dot_peak", lambda unit, threads: 150.0)
    monkeypatch.setattr(measuring, "tile_peak", lambda unit, threads: 2000.0)
    pairs, tiles = target.vector_unit("bfloat16") is not None, target.tile_unit("bfloat16") is not None
    wanted = CorePeaks(50e9, 75e9 if pairs else None, 1000e9 if tiles else None, 40e9, 10e9)
    assert measure_core() == wanted and measured_rates() == rates_of(wanted)
    assert target.cpu.l2 < min(asked) < target.cpu.l3 < max(asked)


@pytest.mark.slow
def test_the_machine_at_hand_is_measured() -> None:
    """By the clock. The limits are wide, and those from below are parts of what NumPy reaches at the same time: they
    catch wrong units and loops that the compiler removed, not other work on the machine."""
    square, long = np.ones((512, 512), np.float32), np.ones(1 << 25, np.float32)
    products = square.size * len(square) / min(repeated(lambda: square @ square, 5))
    nbytes = 2 * long.nbytes / min(repeated(long.copy, 5))
    peaks = measure_core()
    vector = 4 * Target("cpu").cpu.lanes(32)
    assert 0.05 * products < peaks.products < 8e9 * vector, "at most four vectors in a cycle of 8 GHz"
    assert 0.05 * nbytes < peaks.memory_bytes < 100 * nbytes
    assert 0.05 * nbytes < peaks.far_bytes < 200 * nbytes
    for faster in (peaks.pairs, peaks.tiles):
        assert faster is None or 0.3 * peaks.products < faster < 100 * peaks.products
    rates = rates_of(peaks)
    assert rates.peak_products == pytest.approx(peaks.products, rel=0.01)
    assert write_rates(host_cpu(), rates).exists() and read_rates(host_cpu()) == rates
