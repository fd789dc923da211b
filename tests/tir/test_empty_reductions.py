"""Reductions whose range is empty at run time give the identity, wherever a schedule puts their loops."""

from __future__ import annotations

import itertools
import random
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_runner import run_program
from seeds import seeds

import weft
from weft import te
from weft.classic.build import executable
from weft.lowering.te_to_tir import te_to_tir
from weft.schedule import Schedule
from weft.support.errors import ScheduleError
from weft.tir.empty_reductions import initialize_empty, may_be_empty
from weft.tir.interpret import execute, run
from weft.tir.nodes import Block, For, Program
from weft.tir.text import parse
from weft.tir.verify import verify
from weft.tir.visit import walk

EXTENTS: list[tuple[Callable[[Any], Any], Callable[[int], int]]] = [
    (lambda n: n, lambda n: n),
    (lambda n: n // 4, lambda n: n // 4),
    (lambda n: (n + 1) // 2 - 1, lambda n: (n + 1) // 2 - 1),
]
REDUCERS: list[tuple[Any, Any]] = [
    (te.sum, lambda x, axis: x.sum(axis)),
    (te.max, lambda x, axis: x.max(axis, initial=-np.inf)),
]


def _program(extent: Any, combine: Any, then: bool) -> Program:
    """A reduction over the first and the last axis of a tensor, the first of open size; and what reads the result."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, 3, m), name="A")
    k, h = te.reduce_axis((0, extent(n)), "k"), te.reduce_axis((0, m), "h")
    b = te.compute((3,), lambda i: combine(a[k, i, h], axis=(k, h)), name="B")
    made = te.compute((3,), lambda i: b[i] + 1.0, name="C") if then else b
    return te_to_tir("main", [a], [made])


def _wanted(a: np.ndarray, extent: Callable[[int], int], reference: Any, then: bool) -> np.ndarray:
    made = reference(a[: max(0, extent(len(a)))].astype(np.float64), (0, 2))
    return made + 1.0 if then else made


def _random_schedule(program: Program, rng: random.Random) -> Schedule:
    s = Schedule(program)
    for _ in range(8):
        blocks = s.get_blocks()
        block = rng.choice(blocks)
        loops = list(s.get_loops(block))
        moves: list[Callable[[], object]] = [
            lambda b=block, x=loops: s.reorder(*rng.sample(x, len(x))),
            lambda x=loops: s.split(rng.choice(x), [None, rng.randint(2, 3)]),
            lambda x=loops: s.fuse(*x[(at := rng.randrange(max(1, len(x) - 1))) : at + 2]),
            lambda x=loops: s.unroll(x[-1]),
            lambda b=block, c=blocks[-1]: s.compute_at(b, rng.choice(s.get_loops(c))),
            lambda b=block: s.cache_write(b, 0, "local"),
            lambda b=block, x=loops: s.decompose_reduction(b, rng.choice(x)),
            lambda x=loops: s.rfactor(rng.choice(x), 0, reassociate=True),
        ]
        try:
            rng.choice(moves)()
        except ScheduleError:
            continue
    return s


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", seeds(8))
def test_every_schedule_initializes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        (extent, count), (combine, reference), then = rng.choice(EXTENTS), rng.choice(REDUCERS), rng.random() < 0.5
        s = _random_schedule(_program(extent, combine, then), rng)
        for n, m in itertools.product((0, 1, 3, 9), (0, 1, 5)):
            a = np.random.default_rng(seed).integers(-4, 5, (n, 3, m)).astype(np.float32)
            wanted = _wanted(a, count, reference, then)
            for made in (run(s.program, [a], {"n": n, "m": m}), run_program(s.program, [a], [n, m])):
                np.testing.assert_array_equal(made[0], wanted, err_msg=f"{n} {m}\n{s.trace.to_python()}")


@pytest.mark.parametrize(("extent", "count"), EXTENTS)
def test_built_functions_and_executables(extent: Any, count: Callable[[int], int]) -> None:
    n = te.var("n")
    a = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, extent(n)), "k")
    b = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    built = weft.build(s, [a, b])
    exe = executable(weft.lower(s, [a, b]).program)
    for size in (0, 1, 3, 4, 9):
        x = np.arange(3 * size, dtype=np.float32).reshape(3, size)
        for call in (built, exe):
            np.testing.assert_array_equal(np.asarray(call(x)), x[:, : max(0, count(size))].sum(1))


@pytest.mark.parametrize(
    ("extent", "may"),
    [
        (lambda n: 3, False),
        (lambda n: n, True),
        (lambda n: n + 1, False),
        (lambda n: n + 0 * n, True),
        (lambda n: 2 * n - 1, True),
        (lambda n: (n + 4) // 4, False),
        (lambda n: (n + 3) // 4, True),
        (lambda n: te.max(n, 1), False),
        (lambda n: te.min(n, 1), True),
    ],
)
@pytest.mark.parametrize("last", [2, None])
def test_which_reductions_may_be_empty(extent: Any, may: bool, last: int | None) -> None:
    """Sizes are at least 0; one axis without steps is enough."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((2 * n + 8, 3, 9), name="A")
    k, h = te.reduce_axis((0, extent(n)), "k"), te.reduce_axis((0, m if last is None else last), "h")
    b = te.compute((3,), lambda i: te.sum(a[te.min(k, 2 * n + 7), i, te.min(h, 8)], axis=(k, h)), name="B")
    size = te.placeholder((m,), name="M")
    program = te_to_tir("main", [a, size], [b])
    (block,) = Schedule(program).get_blocks()
    found = next(x for x in walk(program.body) if isinstance(x, Block) and x.name == "B")
    assert block and may_be_empty(found, program.sizes) == (may or last is None)


def test_programs_without_empty_reductions_stay_the_same() -> None:
    only = te_to_tir("main", [], [te.compute((3,), lambda i: te.const(1.0), name="B")])
    n = te.var("n")
    a = te.placeholder((n + 1, 3), name="A")
    k = te.reduce_axis((0, n + 1), "k")
    certain = te_to_tir("main", [a], [te.compute((3,), lambda i: te.sum(a[k, i], axis=k), name="B")])
    for program in (only, certain):
        assert initialize_empty(program) is program


K, B = "for k in serial(0, n):", "for b in serial(0, 4):"
NESTS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "the reduction inside": ((B, K), "b", "k", ""),
    "the reduction outside": ((K, B), "b", "k", ""),
    "one loop of both": (("for f in serial(0, n * 4):",), "f % 4", "f // 4", ""),
    "bounds that depend on the reduction": ((K, "for t in serial(k, 4):"), "t - k", "k", ""),
    "bounds that depend on a loop outside": (("for a in serial(0, 2):", K, "for b in serial(a * 2, 2):"), "b", "k", ""),
    "bounds that depend on a loop inside": ((K, "for a in serial(0, 2):", "for b in serial(a * 2, 2):"), "b", "k", ""),
    "bounds that depend on bounds": (
        (K, "for a in serial(0, 2):", "for b in serial(a, 1):", "for c in serial(b * 2, 2):"), "c", "k", ""
    ),
    "a last tile": ((K, "for a in serial(0, 2):", "for b in serial(0, min(3, 4 - a * 3)):"), "a * 3 + b", "k", ""),
    "a loop that no element needs": ((K, "for u in serial(0, 3):", B), "b", "k", "u == 1"),
    "a loop of the reduction in a condition": ((K, "for u in serial(0, 3):", B), "b", "k", "u == k % 3"),
    "a condition": ((K, "for b in serial(0, 6):"), "b", "k", "b < 4"),
    "a branch": ((K, "for b in serial(0, 6):", "if b < 4:"), "b", "k", ""),
    "another branch": ((K, "for b in serial(0, 6):", "if b >= 4:\n  pass\nelse:"), "b", "k", ""),
    "a name for an index": ((K, B, "let x = 3 - b:"), "x", "k", ""),
    "a parallel loop inside": ((K, "for b in parallel(0, 4):"), "b", "k", ""),
}  # fmt: skip
"""Loops and the like around a block, its two indices and its condition."""
SUM = """\
block "C"(i: spatial 4 = {}, r: reduce n = {}):
  reads A[r, i]
  writes C[i]{}
  init:
    C[i] = 0.0
  body:
    C[i] = C[i] + A[r, i]
"""


@pytest.mark.parametrize("name", NESTS)
def test_loops_of_any_form_around_a_reduction(name: str) -> None:
    """Also those that no schedule makes: each element of a sum of nothing is initialized, and only once."""
    around, i, r, where = NESTS[name]
    text = SUM.format(i, r, f"\n  where {where}" if where else "")
    for opening in reversed(around):
        text = opening + "\n" + textwrap.indent(text, "  ")
    program = parse('program "main"[n](A: f32[n, 4]) -> (C: f32[4]):\n' + textwrap.indent(text, "  "))
    verify(program)
    for n in (0, 1, 3):
        a = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        made = execute(program, [a])
        np.testing.assert_array_equal(made.outputs[0], a.sum(0))
        np.testing.assert_array_equal(run_program(program, [a], [n])[0], a.sum(0))
        assert made.counts.get("C_empty", {}) == ({} if n else {(row,): 1 for row in range(4)})


@pytest.mark.parametrize(
    ("loop", "kind", "thread"),
    [
        ("serial(0, 4)", "serial", ""),
        ("parallel(0, 4)", "serial", ""),
        ("vectorized(0, 4)", "serial", ""),
        ("unrolled(0, 4)", "serial", ""),
        ('thread("threadIdx.x", 0, 4)', "thread", "threadIdx.x"),
        ("virtual(0, 4)", "virtual", ""),
    ],
)
def test_kinds_of_copied_loops(loop: str, kind: str, thread: str) -> None:
    """Threads share the elements of the copy as they do those of the reduction; all other copies are serial."""
    text = f"{K}\n  for b in {loop}:\n" + textwrap.indent(SUM.format("b", "k", ""), "    ")
    program = initialize_empty(parse('program "main"[n](A: f32[n, 4]) -> (C: f32[4]):\n' + textwrap.indent(text, "  ")))
    (copy,) = (s for s in walk(program.body) if isinstance(s, For) and s.var.name == "b_empty")
    assert (copy.kind, copy.thread) == (kind, thread)
    assert isinstance(copy.body, Block) and copy.body.name == "C_empty"
