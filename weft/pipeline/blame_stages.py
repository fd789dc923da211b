"""Compares one stage of one kernel with the expected results: tensor expressions and loops, whole or in a sample.

The error of an element is its difference from the expected one, relative to the largest finite magnitude of the
expected array; it is infinite where NaN, infinities, integers or bools differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np

from weft.expr.nodes import Var
from weft.graph.nodes import Function
from weft.lowering.graph_to_te import group_to_te
from weft.support.differences import difference, errors, largest_error
from weft.support.errors import ProgramError
from weft.tensor_expr.evaluate import Elements
from weft.tir.interpret import Interpreter
from weft.tir.iterations import independent_loops
from weft.tir.nodes import Program

MAX_ELEMENTS: Final = 64
"""Of tensor expressions no more elements are evaluated for each output."""
MAX_ITERATIONS: Final = 8
"""Of loops in a sample no more iterations are interpreted."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Checked:
    """The largest ``error`` of what was compared. ``text`` says what failed, or what the sample was, and is empty if
    everything was compared. ``complete``: everything was compared, or an element that the machine code gets wrong."""

    error: float
    text: str = ""
    complete: bool = True


def check_expressions(
    group: Function,
    args: Sequence[Array],
    sizes: Mapping[Var, int],
    wanted: Sequence[Array],
    wrong: Sequence[Array],
    count: int,
) -> Checked:
    """Evaluate about ``count`` elements of each output of the tensor expressions of ``group``: those that are
    ``wrong`` (bools) in the machine code, and random ones."""
    stages = group_to_te(group)
    elements = Elements(dict(zip(stages.inputs, map(np.asarray, args), strict=True)), sizes)
    largest, sampled, total = 0.0, 0, 0
    for tensor, array, bad in zip(stages.outputs, wanted, wrong, strict=True):
        got, seen = array.copy(), np.zeros(array.shape, bool)
        for where in _chosen(bad, min(max(count, 1), MAX_ELEMENTS)):
            try:
                got[where] = elements.at(tensor, where)
            except ProgramError as error:
                return Checked(np.inf, str(error))
            except NotImplementedError as kind:
                return Checked(0.0, f"te: not evaluated apart from its loops ({kind})")
            seen[where] = True
        largest = max(largest, largest_error(errors(got, array)))
        sampled, total = sampled + int(seen.sum()), total + array.size
    return Checked(largest, "" if sampled == total else f"te: {sampled} of {total} elements were evaluated")


def _chosen(bad: Array, count: int) -> list[tuple[int, ...]]:
    """Indices of at most ``count`` elements: about half of them bad ones, if there are so many."""
    random = Random(0)
    flat = np.flatnonzero(bad)
    first = random.sample(flat.tolist(), min(len(flat), (count + 1) // 2))
    others = [random.randrange(bad.size) for _ in range(count - len(first))] if bad.size else []
    every = range(bad.size) if bad.size <= count else dict.fromkeys([*first, *others])
    return [tuple(int(i) for i in np.unravel_index(n, bad.shape)) for n in every]


def check_loops(
    program: Program,
    args: Sequence[Array],
    sizes: Mapping[Var, int],
    wanted: Sequence[Array],
    wrong: Sequence[Array],
    flops: int,
    budget: int,
) -> Checked:
    """Interpret ``program``, which takes ``flops``; if that is more than ``budget``, random iterations of its outermost
    independent loops, until one computes an element that is ``wrong`` (bools) in the machine code."""
    named = {v.name: n for v, n in sizes.items()}
    if flops <= budget:
        try:
            made = Interpreter(program).run(args, named).outputs
        except ProgramError as error:
            return Checked(np.inf, str(error))
        return Checked(difference([a.reshape(w.shape) for a, w in zip(made, wanted, strict=True)], wanted))
    loops = independent_loops(program, sizes, MAX_ITERATIONS * -(-flops // budget))
    allowed = min(MAX_ITERATIONS, loops.count * budget // flops)
    if not allowed:
        return Checked(0.0, f"not interpreted: {flops:,} operations in too few independent iterations", complete=False)
    random, largest, ran, covered = Random(0), 0.0, 0, False
    while ran < allowed and not covered and largest < np.inf:
        ran += 1
        try:
            found = Interpreter(loops.only(loops.pick(random))).run(args, named, partial=True)
        except ProgramError as error:
            if error.code == "V912":
                return Checked(0.0, "iterations read what others write, so none can run alone", complete=False)
            return Checked(np.inf, str(error))
        for a, mask, w, bad in zip(found.outputs, found.written, wanted, wrong, strict=True):
            seen = mask.reshape(w.shape)
            largest = max(largest, largest_error(errors(np.where(seen, a.reshape(w.shape), w), w)))
            covered = covered or bool((seen & bad).any())
    return Checked(largest, f"{ran} of {loops.count} iterations were interpreted", covered)
