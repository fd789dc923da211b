"""Rates as part of a target: they travel in its text, and decide what is compiled."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.cost import REFERENCE, Rates, register_tiles, threads
from weft.cost.core import Core
from weft.schedule.rules.common.work import pieces_of, worth_parallel
from weft.schedule.rules.cpu.tiles import register_tile
from weft.support.errors import TargetError
from weft.target import MACHINES, Target
from weft.target.cores import CORES

NUMBERS = st.floats(min_value=1e-6, max_value=1e15, allow_nan=False)


def test_the_reference_rates_have_an_empty_text() -> None:
    assert REFERENCE.text == ""
    assert Rates.parse("") == REFERENCE
    for name in MACHINES:
        assert "-rates" not in str(Target(name)), "the machine's own rates need no words"


def test_a_machine_at_hand_does_not_take_the_rates_of_a_named_one() -> None:
    """Its CPU may have the name of one; without measurement it has the reference rates, and its text says so."""
    named = Target("ice-lake")
    at_hand = named.replace(arch=named.cpu.replace(rates=REFERENCE))
    assert named.cpu.rates != REFERENCE
    assert Target(str(at_hand)) == at_hand != named
    measured = named.replace(arch=named.cpu.replace(rates=Rates(far_bytes=1e9)))
    assert Target(str(measured)) == measured


def test_named_machines_have_rates_of_their_own() -> None:
    """Those of a core, computed from its row; machines without a row have the reference."""
    assert set(CORES) < set(MACHINES)
    for name, machine in MACHINES.items():
        assert machine.rates == (CORES[name].rates if name in CORES else REFERENCE)
    same = {name for name, machine in MACHINES.items() if machine.rates == REFERENCE}
    assert same == {"zen4", "x86-64-v2", "x86-64-v3", "x86-64-v4"}


@pytest.mark.parametrize("name", CORES)
def test_rows_of_cores_agree_with_their_targets(name: str) -> None:
    core, target = CORES[name], Target(name)
    assert core.vector_bytes * 8 == target.cpu.vector_bits
    assert bool(core.tiles_per_cycle) == (target.tile_unit("bfloat16") is not None)
    assert bool(core.pairs_per_cycle) == (target.vector_unit("bfloat16") is not None)
    assert core.memory_bytes < core.l3_bytes < core.l2_bytes_per_cycle * core.hertz
    rates = core.rates
    assert rates.peak_products == pytest.approx(core.vectors_per_cycle * core.vector_bytes / 4 * core.hertz, rel=0.01)
    assert rates.packed_products < 1.1 * rates.peak_products


def test_the_rows_follow_the_reference_machine() -> None:
    """A core described by the numbers of the reference machine has the reference rates."""
    claim_ns = REFERENCE.claim_cycles / 2 / 3.7
    described = Core(3.7e9, 64, 2, 4, 2, 32, REFERENCE.far_bytes, REFERENCE.streamed_bytes, claim_ns)
    rates = described.rates
    cycles = [f.name for f in fields(Rates) if "cycle" in f.name or "seconds" in f.name]
    assert {n: getattr(rates, n) for n in cycles} == {n: getattr(REFERENCE, n) for n in cycles}
    assert (rates.far_bytes, rates.streamed_bytes) == (REFERENCE.far_bytes, REFERENCE.streamed_bytes)


@given(st.dictionaries(st.sampled_from([f.name for f in fields(Rates)]), NUMBERS))
def test_text_keeps_every_number(given_rates: dict[str, float]) -> None:
    rates = replace(REFERENCE, **given_rates)
    assert Rates.parse(rates.text) == rates


def test_a_target_keeps_its_rates_through_text() -> None:
    target = Target("zen4 -rates=fork_cycles:900.0,far_bytes:3e10")
    assert (target.cpu.rates.fork_cycles, target.cpu.rates.far_bytes) == (900.0, 3e10)
    assert Target(str(target)) == target
    assert str(target) != str(Target("zen4")), "kernels of one must not be taken for those of the other"
    assert Target(f"{target} -num-cores=3").cpu.rates == target.cpu.rates


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("speed:3", "there is no rate 'speed'"),
        ("far_bytes:fast", "'fast' is not a number (far_bytes)"),
        ("far_bytes", "'' is not a number (far_bytes)"),
        ("far_bytes:0", "far_bytes must be a positive number, not 0"),
        ("far_bytes:nan", "far_bytes must be a positive number, not nan"),
        ("far_bytes:inf", "far_bytes must be a positive number, not inf"),
    ],
)
def test_invalid_rates_are_refused(text: str, says: str) -> None:
    with pytest.raises(TargetError, match="G007") as caught:
        Target(f"zen4 -rates={text}")
    assert says in str(caught.value)


def test_the_rates_decide_about_threads() -> None:
    work = 1e5
    ready, slow = Target("zen4"), Target("zen4 -rates=fork_cycles:1e6,claim_cycles:1e5")
    assert worth_parallel(work, ready) and not worth_parallel(work, slow)
    assert pieces_of(work, slow) == 1 < pieces_of(work, ready)


def test_several_threads_must_gain_a_tenth() -> None:
    alone = (REFERENCE.fork_cycles + 2 * REFERENCE.claim_cycles) / (threads.MAX_SHARE_OF_ONE_THREAD - 0.5)
    assert not threads.worth_several(alone * 0.99, 2, REFERENCE)
    assert threads.worth_several(alone * 1.01, 2, REFERENCE)


def test_the_rates_decide_about_register_tiles() -> None:
    """One load takes as long as four multiply-adds: the tile is square, which loads least."""
    usual, starved = (
        register_tile(None, None, 32, 512, rates=r) for r in (REFERENCE, replace(REFERENCE, loads_per_cycle=0.5))
    )
    assert (usual.rows, usual.columns) == (8, 2)
    assert (starved.rows, starved.columns) == (4, 4)


def test_a_step_takes_as_long_as_its_slowest_part() -> None:
    free = register_tiles.Traffic(0.0, 0.0, 1.0, widest=2)
    assert register_tiles.step_cycles(REFERENCE, 1, 1, True, free) == REFERENCE.multiply_add_latency_cycles
    assert register_tiles.step_cycles(REFERENCE, 14, 2, True, free) == 14 * 2 / REFERENCE.multiply_adds_per_cycle
    assert register_tiles.step_cycles(REFERENCE, 14, 2, False, free) == (14 * 2 + 2) / REFERENCE.loads_per_cycle
    wide = register_tiles.step_cycles(REFERENCE, 8, 3, True, free)
    assert wide == 8 * 3 / REFERENCE.multiply_adds_per_cycle + 3, "three vectors come from far"
