"""Parts of programs that are too large to run whole: single iterations of independent loops.

The iterations of an independent loop can run alone: none reads what another one writes, and no two write the same
element. In scheduled form a loop is independent if only spatial iteration variables of blocks use its variable, in
kernel form if it is parallel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from weft.expr.evaluate import evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Var
from weft.expr.visit import free_vars
from weft.tir.nodes import Allocate, For, Let, Program, Seq, Stmt
from weft.tir.visit import blocks, stores, transform


@dataclass(frozen=True)
class IndependentLoops:
    """Independent loops around each other, outermost first, so that no statement follows the innermost one, which
    alone writes the outputs of ``program``. ``ranges`` are their iterations."""

    program: Program
    loops: tuple[For, ...]
    ranges: tuple[range, ...]

    @property
    def count(self) -> int:
        """How many iterations there are, of all loops together."""
        total = 1
        for r in self.ranges:
            total *= len(r)
        return total

    def pick(self, random: Random) -> tuple[int, ...]:
        """The loop variables of one iteration."""
        return tuple(random.choice(r) for r in self.ranges)

    def only(self, iteration: tuple[int, ...]) -> Program:
        """The program that runs one iteration of these loops."""
        chosen = dict(zip((s.var for s in self.loops), iteration, strict=True))

        def one(s: Stmt) -> Stmt | None:
            if isinstance(s, For) and s.var in chosen:
                return replace(s, start=Const(chosen[s.var]), extent=Const(1))
            return None

        return replace(self.program, body=transform(self.program.body, one))


def independent_loops(program: Program, sizes: Mapping[Var, int], enough: int) -> IndependentLoops:
    """The outermost independent loops of ``program``, until their iterations are at least ``enough``. There may be
    none: then the only iteration is the whole program."""
    outputs = set(program.params[len(program.params) - program.outputs :])
    loops: list[For] = []
    ranges: list[range] = []
    at: Stmt | None = program.body
    total = 1
    while at is not None and total < enough:
        if isinstance(at, Seq) and at.stmts:
            earlier = {s.buffer for part in at.stmts[:-1] for s in stores(part)}
            at = None if earlier & outputs else at.stmts[-1]
        elif isinstance(at, (Allocate, Let)):
            at = at.body
        elif isinstance(at, For) and {*free_vars(at.start), *free_vars(at.extent)} <= sizes.keys():
            start, extent = (int(evaluate(e, sizes)) for e in (at.start, at.extent))
            if extent < 1 or not (extent == 1 or _is_independent(at)):
                break
            loops.append(at)
            ranges.append(range(start, start + extent))
            total, at = total * extent, at.body
        else:
            break
    return IndependentLoops(program, tuple(loops), tuple(ranges))


def _is_independent(loop: For) -> bool:
    inside = blocks(loop.body)
    if not inside:
        return loop.kind == "parallel"
    used = {i.kind for b in inside for i, v in zip(b.iters, b.values, strict=True) if loop.var in free_vars(v)}
    return used == {IterVar.SPATIAL}
