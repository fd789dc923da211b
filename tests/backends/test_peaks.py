"""The programs that measure peaks: their loops contain the right instructions and no others. No time is measured."""

from __future__ import annotations

import re

import pytest

from weft.backends.llvm import assembly, emit_ir
from weft.measure.peaks import CHAINS, dot_peaks, tile_products, vector_dots
from weft.support.dtypes import DType
from weft.target import ComputeUnit, Target
from weft.target.units import CPU_UNITS
from weft.tir.text import parse
from weft.tir.verify import verify
from weft.view.assembly import hot_loop

VECTORS = [u for u in CPU_UNITS if u.intrinsic]
TILES = [u for u in CPU_UNITS if u.tile]
INSTRUCTION = {"bfloat16": "vdpbf16ps", "uint8": "vpdpbusd"}
TILE = {"bfloat16": "tdpbf16ps", "uint8": "tdpbusd"}


@pytest.mark.parametrize("unit", VECTORS, ids=lambda u: u.name)
@pytest.mark.parametrize("lanes", [8, 16])
def test_vectors_stay_in_registers(unit: ComputeUnit, lanes: int) -> None:
    text, operations = vector_dots(unit, 4, lanes)
    program = parse(text)
    verify(program, form="kernel")
    target = Target("zen4")
    code = assembly(emit_ir(program, target), target)
    loop = hot_loop(code)
    assert loop.vector_bits == 32 * lanes and loop.spills == 0
    assert code.count(INSTRUCTION[unit.left]) % CHAINS == 0 and code.count(INSTRUCTION[unit.left]) > 0
    assert operations == 4 * CHAINS * lanes * 20_000 * 2 * 4 // DType(unit.left).nbytes


@pytest.mark.parametrize("unit", TILES, ids=lambda u: u.name)
def test_tiles_stay_in_registers(unit: ComputeUnit) -> None:
    text, operations = tile_products(unit, 3)
    program = parse(text)
    verify(program, form="kernel")
    target = Target("sapphire-rapids")
    assert unit in target.units
    code = assembly(emit_ir(program, target), target)
    assert len(re.findall(rf"\b{TILE[unit.left]}\b", code)) == 4, "two by two tiles"
    assert len(re.findall(r"\btilestored\b", code)) == 4, "sums are stored once, after the loop"
    assert operations == 3 * 2_000 * 4 * 16 * 16 * 64 // DType(unit.left).nbytes * 2


def test_only_instructions_of_the_machine_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.measure.peaks.vector_dot_peak", lambda dots, threads: 10.0 * dots.group)
    monkeypatch.setattr("weft.measure.peaks.tile_peak", lambda dots, threads: 100.0 * dots.group)
    found = {}
    for name in ("zen4", "zen3", "sapphire-rapids"):
        monkeypatch.setattr("weft.measure.peaks.Target", lambda _, name=name: Target(name))
        found[name] = dot_peaks(1)
    assert found["zen3"] == {}
    assert found["zen4"] == {"bfloat16": 20.0, "int8": 40.0, "uint8": 40.0}
    assert found["sapphire-rapids"] == {"bfloat16": 200.0, "int8": 400.0, "uint8": 400.0}
