"""Every small program of a few shapes: what is claimed of its dependences against what happens when it runs.

A claim of independence must hold. Caution may be needless, so the golden file records where it is: ``.`` stands for an
independence that is claimed, ``x`` for a dependence that is there, ``!`` for one that is claimed but is not there.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import pytest
from tiny_programs import TRUE, Axis, Event, I, J, K, N, block, bound, buffer, loop, number, program, run

from weft.expr.evaluate import evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import Const, Expr, Var, maximum, minimum
from weft.expr.visit import occurs
from weft.schedule.dependence import (
    carried_loops,
    check_copied,
    check_independent,
    check_repeated_private,
    has_repeated,
    is_dense,
    partial_blocks,
    repeats,
    runs_once,
    steps_kept_in_order,
)
from weft.schedule.state import State
from weft.schedule.tree import Tree
from weft.support.errors import ScheduleError
from weft.tir.nodes import Block, LoopKind, Program, Region, Seq

T, U, A, B = buffer("T"), buffer("U"), buffer("A"), buffer("B")


def depends(p: Program, var: Var, at: Mapping[Var, int]) -> bool:
    """Whether, in some iteration of the loops around it, the loop of ``var`` has an iteration in which a block accesses
    what another block wrote in a different one, and not also in the same one before."""
    groups: dict[tuple[tuple[str, int], ...], list[Event]] = {}
    (found,) = (x for x in Tree(p).loops.values() if x.var is var)
    around = [x.var for x in Tree(p).all_loops_around(found)]
    for event in run(p.body, at):
        groups.setdefault(tuple((v.name, event.at[v]) for v in around if v in event.at), []).append(event)
    return any(_conflicts(events, var) for events in groups.values())


def _conflicts(events: Sequence[Event], var: Var) -> bool:
    inside = [e for e in events if var in e.at]
    writers: dict[object, set[tuple[str, int]]] = {}
    for e in inside:
        for place in e.writes:
            writers.setdefault(place, set()).add((e.block.name, e.at[var]))
    before: set[tuple[object, int]] = set()
    for e in inside:
        now = e.at[var]
        for place in e.reads | e.writes:
            others = {(name, when) for name, when in writers.get(place, ()) if name != e.block.name and when != now}
            if others and (place, now) not in before:
                reads_it = place in e.reads
                later_covered = not reads_it and any(n != e.block.name and w == now for n, w in writers[place])
                if not later_covered:
                    return True
        before |= {(place, now) for place in e.writes}
    return False


def mark(claimed: bool, true: bool) -> str:
    assert claimed or not true, "a dependence is missed"
    return "." if not claimed else "x" if true else "!"


INDICES: Mapping[str, Callable[[Expr], Expr | int]] = {
    "i": lambda i: i,
    "i + 1": lambda i: i + 1,
    "i - 1": lambda i: i - 1,
    "2*i": lambda i: i * 2,
    "2*i + 1": lambda i: i * 2 + 1,
    "2 - i": lambda i: 2 - i,
    "0": lambda i: 0,
    "5": lambda i: 5,
    "i // 2": lambda i: i // 2,
    "i % 2": lambda i: i % 2,
    "max(i - 1, 0)": lambda i: maximum(i - 1, 0),
    "min(i, 1)": lambda i: minimum(i, 1),
    "i * i": lambda i: i * i,
}


def one_loop(extent: Expr | int = 3, where: Expr = TRUE, swapped: bool = False, writes: bool = False) -> Iterator[str]:
    """A line for each index of the writer, with a mark for each index of the reader."""
    sizes = (N,) if isinstance(extent, Expr) else ()
    for name, f in INDICES.items():
        marks = ""
        for g in INDICES.values():
            first = block("T", {I: extent}, [(T, [f(I)])], [(A, [I])], where)
            use = [(T, [g(I)])]
            second = block("B", {I: extent}, use if writes else [(B, [I])], [(A, [I])] if writes else use)
            p = program(loop(I, extent, *((second, first) if swapped else (first, second))), sizes=sizes)
            true = any(depends(p, I, {N: n}) for n in ((1, 2, 3) if sizes else (0,)))
            marks += mark(I in carried_loops(p), true)
        yield f"T[{name}]: {marks}"


def test_one_loop(golden: Callable[[str, str], None]) -> None:
    cases = {
        "written, then read": one_loop(),
        "read, then written": one_loop(swapped=True),
        "written twice": one_loop(writes=True),
        "written where i < 2, then read": one_loop(where=I < 2),
        "written and read for an open number of iterations": one_loop(N),
    }
    lines = [f"marks: T[{'], T['.join(INDICES)}]"]
    for title, found in cases.items():
        lines += ["", title, *found]
    golden("dependence_one_loop.txt", "\n".join(lines) + "\n")


PAIRS: Mapping[str, Callable[[Expr, Expr], Expr | int]] = {
    "j": lambda i, j: j,
    "2*i + j": lambda i, j: i * 2 + j,
    "3*i + j": lambda i, j: i * 3 + j,
    "i + j": lambda i, j: i + j,
    "i + 3*j": lambda i, j: i + j * 3,
    "2*j": lambda i, j: j * 2,
    "1 - j": lambda i, j: 1 - j,
    "j + 1": lambda i, j: j + 1,
    "i": lambda i, j: i,
    "0": lambda i, j: 0,
    "j // 2": lambda i, j: j // 2,
    "j % 2": lambda i, j: j % 2,
}


def two_loops(width: int, tile: int = 1) -> Iterator[str]:
    """The writer in an inner loop of two iterations, the reader in one of ``width``."""
    for name, f in PAIRS.items():
        outer = ""
        for g in PAIRS.values():
            first = block("T", {I: 3, J: 2}, [(T, [(f(I, J), tile)])], [(A, [I])])
            second = block("B", {I: 3, K: width}, [(B, [I * 4 + K])], [(T, [g(I, K)])])
            p = program(loop(I, 3, loop(J, 2, first), loop(K, width, second)))
            found = carried_loops(p)
            assert not {J, K} & found, "loops around one block"
            outer += mark(I in found, depends(p, I, {}))
        yield f"T[{name}]: {outer}"


def one_of_two_loops() -> Iterator[str]:
    """Both in the inner of two loops."""
    for name, f in PAIRS.items():
        marks = ""
        for g in PAIRS.values():
            first = block("T", {I: 3, J: 2}, [(T, [f(I, J)])], [(A, [I])])
            second = block("B", {I: 3, J: 2}, [(B, [I * 4 + J])], [(T, [g(I, J)])])
            p = program(loop(I, 3, loop(J, 2, first, second)))
            marks += mark(J in carried_loops(p), depends(p, J, {}))
        yield f"T[{name}]: {marks}"


def test_two_loops(golden: Callable[[str, str], None]) -> None:
    lines = [f"marks: T[{'], T['.join(PAIRS)}]", "", "the inner loop of two around both", *one_of_two_loops()]
    for width, tile in ((1, 1), (2, 1), (3, 1), (2, 2)):
        lines += ["", f"the outer loop: {tile} elements at once, {width} iterations of the reader"]
        lines += two_loops(width, tile)
    golden("dependence_two_loops.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(("offset", "carried"), [(0, False), (1, True), (-1, True)])
def test_what_both_write_does_not_excuse_what_the_first_reads(offset: int, carried: bool) -> None:
    """The second block writes a buffer that only the first reads, and both write another one."""
    first = block("F", {I: 4}, [(T, [I])], [(U, [I + offset + 8])])
    second = block("S", {I: 4}, [(T, [I]), (U, [I + 8])], [(A, [I])])
    p = program(loop(I, 4, first, second))
    assert depends(p, I, {}) == carried
    assert I in carried_loops(p) or not carried
    first = block("F", {I: 4}, [(U, [I])], [(U, [I + offset]), (A, [I])])
    p = program(loop(I, 4, first, block("S", {I: 4}, [(U, [I])], [(A, [I])])))
    assert depends(p, I, {}) == carried
    assert I in carried_loops(p), "a block that reads what it writes may continue what others wrote"


@pytest.mark.parametrize(
    ("starts", "apart", "same", "carried"),
    [(True, True, True, False), (False, True, True, True), (True, False, True, True), (True, True, False, True)],
)
def test_a_reduction_that_starts_anew_reads_only_its_own(starts: bool, apart: bool, same: bool, carried: bool) -> None:
    axes = (Axis(I, 4, kind=IterVar.SPATIAL if apart else IterVar.REDUCE), Axis(K, 2, kind=IterVar.REDUCE))
    summed = bound("S", *axes)
    own = summed.iters[0].var
    written, read = (Region(T, ((at, Const(1)),)) for at in (own, own if same else own + 1))
    summed = replace(summed, reads=(read,), writes=(written,), init=Seq(()) if starts else None)
    after = block("D", {I: 4}, [(T, [I])], [(A, [I])])
    p = program(loop(I, 4, loop(K, 2, summed), after))
    assert (I in carried_loops(p)) == carried


def is_filled(p: Program, held: Sequence[Var], at: Mapping[Var, int]) -> bool:
    """Whether the elements that are written in each iteration of the loops ``held`` form a box."""
    groups: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for event in run(p.body, at):
        found = groups.setdefault(tuple(event.at[v] for v in held), set())
        found |= {place for name, place in event.writes if name == "T"}
    for found in groups.values():
        spans = [range(min(column), max(column) + 1) for column in zip(*found, strict=True)]
        if len(found) != prod(map(len, spans)):
            return False
    return True


FACTORS = (-1, 0, 1, 2, 3, 4)


def dense_lines(outer: Expr | int, inner: Expr | int, tile: int, whole: bool) -> Iterator[str]:
    """A line for each factor of the outer loop, with a mark for each factor of the inner one; first for one iteration
    of the outer loop, then for all."""
    for a in FACTORS:
        marks = {False: "", True: ""}
        for b in FACTORS:
            made = block("T", {J: outer, K: inner}, [(T, [(J * a + K * b + 7, tile)])], whole=whole)
            p = program(loop(J, outer, loop(K, inner, made)), sizes=(N,))
            tree = Tree(p)
            for all_of_it in marks:
                held = () if all_of_it else (J,)
                claimed = is_dense(tree, None if all_of_it else tree.loops[J], made, made.writes[0])
                true = (whole or tile == 1) and all(is_filled(p, held, {N: n}) for n in (1, 2, 3))
                marks[all_of_it] += mark(not claimed, not true)
        yield f"{a:2}*j: {marks[False]} {marks[True]}"


def test_what_is_written_without_gaps(golden: Callable[[str, str], None]) -> None:
    lines = [f"marks: factors {FACTORS} of k; dense in one iteration of j; dense in all"]
    for outer, inner in ((2, 3), (3, 1), (1, 2), (N, 2), (2, N)):
        lines += ["", f"j < {outer}, k < {inner}", *dense_lines(outer, inner, 1, False)]
    for tile, whole in ((2, True), (3, True), (2, False)):
        lines += ["", f"{tile} elements at once, {'all' if whole else 'maybe not all'} of them, j < 2, k < 3"]
        lines += dense_lines(2, 3, tile, whole)
    golden("dependence_dense.txt", "\n".join(lines) + "\n")


PLANES: Mapping[str, tuple[Expr | int, Expr | int]] = {
    "j, k": (J, K),
    "k, j": (K, J),
    "j, j": (J, J),
    "j + k, k": (J + K, K),
    "3*j + k, 0": (J * 3 + K, 0),
    "2*j, k": (J * 2, K),
    "0, 0": (0, 0),
    "j // 2, k": (J // 2, K),
    "j, k % 2": (J, K % 2),
    "j * k, 0": (J * K, 0),
}


def test_what_is_written_of_a_plane(golden: Callable[[str, str], None]) -> None:
    plane, lines = buffer("T", 2), []
    for name, index in PLANES.items():
        made = block("T", {J: 2, K: 3}, [(plane, index)])
        p = program(loop(J, 2, loop(K, 3, made)))
        claims = [not is_dense(Tree(p), x, made, made.writes[0]) for x in (Tree(p).loops[J], None)]
        marks = [mark(c, not is_filled(p, held, {})) for c, held in zip(claims, ((J,), ()), strict=True)]
        lines.append(f"T[{name}]: {' '.join(marks)}")
    golden("dependence_planes.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("step", "where", "writes_it", "dense"),
    [(1, TRUE, True, True), (2, TRUE, True, False), (1, K < 3, True, False), (1, TRUE, False, False)],
)
def test_inner_blocks_that_fill_a_region(step: int, where: Expr, writes_it: bool, dense: bool) -> None:
    width = 4 // step
    inner = block("inner", {K: width}, [(T if writes_it else U, [K * step])], where=where)
    outer = block("outer", {I: 2}, [(T, [(I * 4, 4)])], body=loop(K, width, inner))
    tree = Tree(program(loop(I, 2, outer)))
    assert is_dense(tree, None, outer, outer.writes[0]) == dense


BINDINGS: Mapping[str, tuple[Axis, ...]] = {
    name: tuple(Axis(v, e) for v, e in axes)
    for name, axes in {
        "i, 3; j, 2": ((I, 3), (J, 2)),
        "j, 2; i, 3": ((J, 2), (I, 3)),
        "i, 2; j, 2": ((I, 2), (J, 2)),
        "i, 3": ((I, 3),),
        "j, 2": ((J, 2),),
        "2*i + j, 6": ((I * 2 + J, 6),),
        "2*i + j, 5": ((I * 2 + J, 5),),
        "2*i + j, 7": ((I * 2 + J, 7),),
        "2*i + j, n": ((I * 2 + J, N),),
        "i + 3*j, 6": ((I + J * 3, 6),),
        "i + 2*j, 5": ((I + J * 2, 5),),
        "3*i + j, 8": ((I * 3 + J, 8),),
        "i + j, 4": ((I + J, 4),),
        "2*i - j, 6": ((I * 2 - J, 6),),
        "2*i + j + 1, 6": ((I * 2 + J + 1, 6),),
        "i // 2, 2; j, 2": ((I // 2, 2), (J, 2)),
        "i // 2, 2; i % 2, 2": ((I // 2, 2), (I % 2, 2)),
        "(2*i + j) // 3, 2; (2*i + j) % 3, 3": (((I * 2 + J) // 3, 2), ((I * 2 + J) % 3, 3)),
        "i, 3; i + j, 4": ((I, 3), (I + J, 4)),
        "i, 3; i, 3": ((I, 3), (I, 3)),
        "i * j, 3": ((I * J, 3),),
        "2*i, 5; j, 2": ((I * 2, 5), (J, 2)),
        "0, 1": ((0, 1),),
        "": (),
    }.items()
}
BOUNDS: Sequence[tuple[Expr | int, Expr | int]] = ((3, 2), (3, 1), (1, 2), (1, 1), (N, 2), (3, N), (0, 2))


def instances(p: Program, at: Mapping[Var, int]) -> Counter[tuple[int, ...]]:
    return Counter(e.values for e in run(p.body, at))


def domain(made: Block, at: Mapping[Var, int]) -> set[tuple[int, ...]]:
    starts = [int(evaluate(it.start, at)) for it in made.iters]
    extents = [int(evaluate(it.extent, at)) for it in made.iters]
    return set(itertools.product(*(range(a, a + n) for a, n in zip(starts, extents, strict=True))))


def test_instances(golden: Callable[[str, str], None]) -> None:
    """Which blocks may leave instances of their domain out or run them again; which run none again."""
    lines = [f"marks: bounds {', '.join(f'i < {a} j < {b}' for a, b in BOUNDS)}; partial, runs again"]
    for name, axes in BINDINGS.items():
        partial = again = ""
        for a, b in BOUNDS:
            made = bound("T", *axes)
            p = program(loop(I, a, loop(J, b, made)), sizes=(N,))
            counts = [(instances(p, {N: n}), domain(made, {N: n})) for n in (0, 1, 2, 3, 4)]
            off = any(count[values] != 1 for count, whole in counts for values in whole)
            partial += mark("T" in partial_blocks(p), off)
            again += mark(*repetition(p, made, counts))
        lines.append(f"{name}: {partial} {again}")
    golden("dependence_instances.txt", "\n".join(lines) + "\n")


def repetition(p: Program, made: Block, counts: Sequence[tuple[Counter[tuple[int, ...]], object]]) -> tuple[bool, bool]:
    state = State(p)
    state.partial = frozenset({"T"})
    loops = state.tree.loops_around(made)
    return not runs_once(state, made, loops), any(max(c.values(), default=1) > 1 for c, _ in counts)


REDUCED: Mapping[str, tuple[Axis, ...]] = {
    name: tuple(Axis(v, 9, kind=kind) for v, kind in axes)
    for name, axes in {
        "i; reduce j": ((I, "spatial"), (J, "reduce")),
        "reduce j; i": ((J, "reduce"), (I, "spatial")),
        "reduce i; reduce j": ((I, "reduce"), (J, "reduce")),
        "i + j; reduce 0": ((I + J, "spatial"), (0, "reduce")),
        "i; reduce 0": ((I, "spatial"), (0, "reduce")),
        "i; reduce i + j": ((I, "spatial"), (I + J, "reduce")),
        "i // 2; reduce j": ((I // 2, "spatial"), (J, "reduce")),
        "i // 2; reduce 2*j + i % 2": ((I // 2, "spatial"), (J * 2 + I % 2, "reduce")),
        "2*i + j; reduce j": ((I * 2 + J, "spatial"), (J, "reduce")),
        "0; reduce i": ((0, "spatial"), (I, "reduce")),
        "i; ordered j": ((I, "spatial"), (J, "ordered")),
    }.items()
}


def test_reductions_that_run_again(golden: Callable[[str, str], None]) -> None:
    """Loops that only a reduction uses may give its instances again, others may not."""
    lines = [f"marks: bounds {', '.join(f'i < {a} j < {b}' for a, b in BOUNDS)}"]
    for name, axes in REDUCED.items():
        marks = ""
        for a, b in BOUNDS:
            made = bound("T", *axes)
            p = program(loop(I, a, loop(J, b, made)), sizes=(N,))
            mine = [n for n, x in enumerate(axes) if x.kind == IterVar.SPATIAL]
            reduced = [v for v in (I, J) if any(occurs(v, made.values[n]) for n in range(len(axes)) if n not in mine)]
            counts = []
            for n in (0, 1, 2, 3, 4):
                seen = Counter((*(e.at[v] for v in reduced), *(e.values[m] for m in mine)) for e in run(p.body, {N: n}))
                counts.append((seen, None))
            marks += mark(*repetition(p, made, counts))
        lines.append(f"{name}: {marks}")
    golden("dependence_reductions.txt", "\n".join(lines) + "\n")


KINDS: Sequence[LoopKind] = ("serial", "parallel", "vectorized", "thread", "virtual")


def repeated(extent: int, outside: bool, param: bool, around: LoopKind) -> Program:
    """Each iteration of ``i`` writes all of T and reads it; with ``outside``, another block reads it afterwards."""
    writer = block("T", {K: 2}, [(T, [K])], [(A, [K])])
    reader = block("B", {J: 3, I: extent, K: 2}, [(B, [J * 6 + I * 2 + K])], [(T, [K])])
    inner = loop(I, extent, loop(K, 2, writer), loop(Var("k2"), 2, reader))
    outer = replace(loop(J, 3, inner), kind=around)
    after = block("C", {N: 2}, [(U, [N])], [(T, [N])])
    p = program(outer, *([loop(N, 2, after)] if outside else []))
    return replace(p, params=(A, B, *([T] if param else ())), outputs=2 if param else 1)


def refused(check: Callable[[], object]) -> str:
    try:
        check()
    except ScheduleError as error:
        return str(error.code)
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_concurrent_iterations_write_again(kind: LoopKind) -> None:
    """All write the same elements: refused where these are used outside of the loop, or where threads would need a
    private buffer each and cannot have it."""
    for extent, outside, param, around in itertools.product((1, 2), (False, True), (False, True), KINDS[:3]):
        state = State(repeated(extent, outside, param, around))
        state.partial = frozenset({"T"})
        i, j = (next(x for v, x in state.tree.loops.items() if v is var) for var in (I, J))
        for kept, carried in itertools.product((False, True), (False, True)):
            state.kept = {"T": J} if kept else {}
            state.carried = frozenset({J}) if carried else frozenset()
            shared = outside or param
            shared |= kind == "parallel" and (around == "vectorized" or (kept and carried))
            wanted = "S018" if extent > 1 and kind != "serial" and shared else ""
            found = refused(functools.partial(check_independent, state, i, reduce_allowed=False, kind=kind))
            assert found == wanted, (extent, outside, param, around, kept, carried)
        state.partial = frozenset()
        assert not has_repeated(state)
        assert repeats(state, i, state.tree.blocks["T"]) == (extent > 1), "no variable of the block uses the loop"
        state.partial = frozenset({"T"})
        assert has_repeated(state) == (around != "serial")
        assert {x.var for x in (i, j) if repeats(state, x, state.tree.blocks["T"])} == ({I, J} if extent > 1 else {J})


def test_what_is_written_again_is_refused_once_it_is_shared() -> None:
    """A primitive that makes concurrent iterations share what each had for itself; what was shared before stays."""
    for around, before, after in itertools.product(KINDS, (False, True), (False, True)):
        states = []
        for outside in (before, after):
            states.append(State(repeated(2, outside, False, around)))
            states[-1].partial = frozenset({"T", "gone"})
        found = refused(functools.partial(check_repeated_private, states[1], states[0]))
        assert found == ("S018" if around != "serial" and after and not before else ""), (around, before, after)


def test_loops_with_private_buffers_are_not_copied() -> None:
    for around, outside, partial in itertools.product(KINDS, (False, True), (False, True)):
        state = State(repeated(2, outside, False, around))
        state.partial = frozenset({"T"}) if partial else frozenset()
        (j,) = (x for v, x in state.tree.loops.items() if v is J)
        found = refused(functools.partial(check_copied, state, j))
        assert found == ("S018" if partial and around != "serial" and not outside else ""), (around, outside, partial)


@pytest.mark.parametrize("kind", KINDS)
def test_loops_of_reductions_and_of_steps(kind: LoopKind) -> None:
    for role, extent, allowed, carried in itertools.product(
        ("spatial", "reduce", "ordered", "thread"), (1, 2), (False, True), (False, True)
    ):
        state = State(program(loop(I, extent, bound("T", Axis(I, extent, kind=role)))))
        (i,) = state.tree.loops.values()
        state.carried = frozenset({I}) if carried else frozenset()
        wanted = "S015" if carried or role == "ordered" else "S016" if role == "reduce" and not allowed else ""
        found = refused(functools.partial(check_independent, state, i, reduce_allowed=allowed, kind=kind))
        assert found == (wanted if extent > 1 else ""), (role, extent, allowed, carried)


def test_steps_that_stay_in_order(golden: Callable[[str, str], None]) -> None:
    """Steps along ``i`` over columns along ``j``: reordered only where none reads another column's earlier steps."""
    plane, lines = buffer("T", 2), []
    columns: Mapping[str, tuple[Callable[[Var], Expr | int], int]] = {
        "c": (lambda c: c, 1),
        "c + 1": (lambda c: c + 1, 1),
        "0": (lambda c: 0, 1),
        "c, two of them": (lambda c: c, 2),
    }
    for (name, (at, width)), back, kinds in itertools.product(
        columns.items(), (True, False), (("ordered", "spatial"), ("ordered", "reduce"), ("ordered", "ordered"))
    ):
        step = bound("T", Axis(I, 3, kind=kinds[0]), Axis(J, 2, kind=kinds[1]))
        t, c = (it.var for it in step.iters)
        read = Region(plane, ((t - 1, Const(1)), (number(at(c)), Const(width))))
        written = Region(plane, ((t, Const(1)), (c, Const(1))))
        step = replace(step, reads=(read,) if back else (), writes=(written,))
        state = State(program(loop(I, 3, loop(J, 2, step))))
        i, j = state.tree.loops_around(step)
        told = [[x.var.name for x in steps_kept_in_order(state, [i, j], order)] for order in ([i, j], [j, i])]
        state.partial = frozenset({"T"})
        told.append([x.var.name for x in steps_kept_in_order(state, [i, j], [j, i])])
        lines.append(f"{name}, {'reads the step before' if back else 'reads nothing'}, {' '.join(kinds)}: {told}")
    golden("dependence_steps.txt", "\n".join(lines) + "\n")
