"""Random schedules of random programs: whatever the primitives accept computes the same, verifies and replays."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from kernel_runner import run_program
from random_moves import INTRINSICS, MOVES, random_moves
from random_programs import random_program, random_program_of_any_rank, random_recurrence
from schedule_cases import all_sizes, check, inputs_for
from seeds import seeds

from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule, Trace
from weft.schedule.primitives.registry import PRIMITIVES
from weft.target import Target
from weft.tir.interpret import Interpreter, run
from weft.tir.nodes import For, Program
from weft.tir.text import to_text
from weft.tir.visit import walk

SEEDS, CASES = 12, 25
"""Seeds by default, and programs of each."""
RECURRENCES = (7, 10)
"""Cases with a recurrence."""
TRIES = 14
"""Moves of each program."""
OPEN_SIZES = ((5, 4, 3, 2), (0, 0, 0, 0), (1, 0, 0, 0), (3, 0, 4, 0), (0, 3, 0, 3))
"""What the symbolic sizes of a program are at run time, in order: all of these, one after another."""


def schedule_of(seed: int, case: int, accepted: Counter[str]) -> tuple[Program, Schedule]:
    """A random program and its random schedule: of matrices, every fifth with symbolic sizes, every fourth of any rank
    and type, some with a recurrence. Counts the moves that were accepted."""
    rng = random.Random(1000 * seed + case)
    symbolic, any_rank = case % 5 == 4, case % 4 == 1
    if case % CASES in RECURRENCES:
        original = random_recurrence(rng)
    else:
        original = random_program_of_any_rank(rng) if any_rank and not symbolic else random_program(rng, symbolic)
    s = Schedule(original, seed=case, intrinsics=INTRINSICS)
    random_moves(s, rng, TRIES, accepted)
    return original, s


def one_case(seed: int, case: int, accepted: Counter[str], compiled: bool) -> None:
    original, s = schedule_of(seed, case, accepted)
    threads = any(isinstance(x, For) and x.kind == "thread" for x in walk(s.program.body))
    try:
        for size in OPEN_SIZES if original.sizes else OPEN_SIZES[:1]:
            sizes = {v.name: n for v, n in zip(original.sizes, size, strict=False)}
            check(original, s.program, sizes)
            if compiled and not threads:
                check_compiled(original, s.program, sizes)
        read = Trace.from_json(s.trace.to_json())
        executed = Schedule(original, seed=98, intrinsics=INTRINSICS)
        exec(read.to_python(), {"s": executed})
        for again in (Schedule(original, seed=99).replay(read, INTRINSICS), executed):
            assert again.trace == s.trace
            if "s.size(" in read.to_python():  # the order of the factors of a product may differ
                check(original, again.program, sizes)
            else:
                assert to_text(again.program) == to_text(s.program)
    except Exception:  # shown, and raised on
        print(s.trace.to_python(), to_text(original), to_text(s.program), sep="\n\n")
        raise


def check_compiled(original: Program, scheduled: Program, sizes: dict[str, int]) -> None:
    given = inputs_for(original, sizes)
    expected = run(original, given, sizes)
    known = all_sizes(original, scheduled, sizes)
    judged = Interpreter(tir_to_kernel(scheduled, Target("cpu")), races=True).run(given, known)
    for want, got in zip(expected, judged.outputs, strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4)
    passed = [known[v.name] for v in scheduled.sizes]
    for want, got in zip(expected, run_program(scheduled, given, passed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_random_schedules(seed: int) -> None:
    accepted: Counter[str] = Counter()
    for case in range(CASES):
        one_case(seed, case, accepted, compiled=case % 5 in (0, 4))
    assert len(accepted) > len(MOVES) // 2


def test_each_primitive_is_accepted() -> None:
    """The schedules of the default seeds use every primitive."""
    used: Counter[str] = Counter()
    for seed in seeds(SEEDS):
        for case in range(CASES):
            _, s = schedule_of(seed, case, Counter())
            used.update(i.name for i in s.trace.instructions)
        if not PRIMITIVES.keys() - used:
            return
    raise AssertionError(f"never accepted: {', '.join(PRIMITIVES.keys() - used)}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(100, first=100))
def test_thousands_of_random_schedules(seed: int) -> None:
    """Five thousand traces, each on the interpreter and compiled."""
    accepted: Counter[str] = Counter()
    for case in range(50):
        one_case(seed, case, accepted, compiled=True)
    assert len(accepted) > len(MOVES) // 2
