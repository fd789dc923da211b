"""Software prefetch: loads data that a loop reads some iterations later into the cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import gcd, prod

from weft.cost.caches import CACHE_LINE_BYTES
from weft.expr.affine import split_constant
from weft.expr.folds import product
from weft.expr.linear import linear, simplify_index
from weft.expr.nodes import Call, Const, Expr, Load, Var, index, minimum, select
from weft.expr.visit import occurs
from weft.support.dtypes import INT32
from weft.tir.nodes import Evaluate, For, Let, Program, Stmt, Store, seq
from weft.tir.visit import ExprMap, children, expressions, loops_around, postorder, substitution, transform, walk

MAX_UNROLLED_PLACES = 64
"""Limit on the iterations of unrolled loops with a prefetch each. For more iterations, only the first has one."""
ITERATIONS_AHEAD = (4, 16, 64)
"""Iterations that a distance in bytes may be, besides one."""


def insert_prefetches(program: Program) -> Program:
    """A loop annotated ``prefetch = ((buffer name, distance), …)`` prefetches at the start of each iteration. For a
    loop annotated ``prefetch_shares``, its inner loops with ``prefetch_share = (buffer name, …)`` prefetch.

    In the last iterations, whose prefetches would be past the end of the loop, the addresses are those of the last
    iteration.
    """

    def visit(s: Stmt) -> Stmt | None:
        if not isinstance(s, For) or not any(a in s.annotations for a in ("prefetch", "prefetch_shares")):
            return None
        asked: list[Stmt] = []
        for name, distance in s.annotations.get("prefetch", ()):
            asked += [_asked(e) for e in _ahead(s, str(name), int(distance))]
        body = s.body
        for name, distance, *unit in s.annotations.get("prefetch_shares", ()):
            body = _in_shares(replace(s, body=body), str(name), int(distance), bool(unit))
        return replace(s, body=seq(*asked, body), annotations=s.annotations.without("prefetch", "prefetch_shares"))

    body = transform(program.body, visit)
    return replace(program, body=transform(body, _without_shares))


def _asked(e: Expr, how: str = "prefetch") -> Stmt:
    return Evaluate(Call(how, (e,), INT32))


def _without_shares(s: Stmt) -> Stmt | None:
    marked = isinstance(s, For) and "prefetch_share" in s.annotations
    return replace(s, annotations=s.annotations.without("prefetch_share")) if marked and isinstance(s, For) else None


def _in_shares(loop: For, buffer: str, distance: int, in_bytes: bool) -> Stmt:
    """The body of ``loop``, where the inner loops marked for ``buffer`` prefetch what is read first ``distance``
    iterations (or bytes) later. That is the first load inside the marked loop, else (for data that is copied before it
    is used) the first load of the body."""
    bound = _bound(loop.body)
    anywhere = _first_read(loop.body, buffer, [], bound)
    if anywhere is None:
        return loop.body
    ahead = _iterations(anywhere[0], loop, distance) if in_bytes else index(distance)
    later = minimum(loop.var + ahead, loop.start + loop.extent - 1)
    marked: dict[Stmt, Stmt] = {}
    for s in walk(loop.body):
        if isinstance(s, For) and buffer in s.annotations.get("prefetch_share", ()):
            loops = [*loops_around(loop.body, s), s]
            load, around = _first_read(s.body, buffer, loops, bound) or anywhere
            asked = [substitution({loop.var: later, **at})(load) for at in _share(load, around, loops)]
            marked[s] = replace(s, body=seq(*(_asked(e, "prefetch_l2") for e in asked), s.body))
    return transform(loop.body, marked.get)


def _iterations(load: Load, loop: For, nbytes: int) -> Expr:
    """About how many iterations of ``loop`` read ``nbytes`` bytes, not more if it is several. An iteration reads the
    dimensions after those along which the loop moves. Comparisons, unlike a division, leave all loops around them."""
    moving = [d for d, i in enumerate(load.indices) if occurs(loop.var, i)]
    found: Expr = index(1)
    if moving:
        size = product(load.source.shape[moving[-1] + 1 :]) * load.dtype.nbytes
        for n in ITERATIONS_AHEAD:
            found = select(size * n <= nbytes, index(n), found)
    return found


def _bound(body: Stmt) -> ExprMap:
    """The substitution of what the names in ``body`` stand for: a prefetch may come before they are bound."""
    values: dict[Var, Expr] = {}
    for s in walk(body):
        if isinstance(s, Let):
            values[s.var] = substitution(values)(s.value)
    return substitution(values)


def _first_read(body: Stmt, buffer: str, outside: list[For], bound: ExprMap) -> tuple[Load, list[For]] | None:
    """The first load of ``buffer`` in ``body``, or what the first store there writes, and those of the loops around it,
    from ``outside`` on, along which it moves. A store that reads the buffer, too, counts as what it writes: it adds to
    an element, or is a step of a recurrence, and what that reads was written before. Addresses that depend on data do
    not count: reading that data ahead could be past its end. But where data only say which element of a row is read,
    the elements of the row are all read in the order in which results are written."""
    for s in walk(body):
        if isinstance(s, Evaluate):
            continue
        if isinstance(s, Store) and s.buffer.name == buffer:
            found = [Load(s.buffer, s.indices)]
        else:
            found = [e for e in postorder(*expressions(s)) if isinstance(e, Load) and e.source.name == buffer]
        for e in found:
            plain = _in_order(Load(e.source, tuple(map(bound, e.indices))), s)
            if _is_known(plain):
                around = [*outside, *loops_around(body, s)]
                return plain, [v for v in around if any(occurs(v.var, i) for i in plain.indices)]
    return None


def _in_order(load: Load, s: Stmt) -> Load:
    """``load``, but from the place in its row where the store ``s`` writes in a row of that length, if data say where
    in the row it reads."""
    if (
        not isinstance(s, Store)
        or _is_known(load)
        or linear(load.source.shape[-1]).key != linear(s.buffer.shape[-1]).key
    ):
        return load
    return Load(load.source, (*load.indices[:-1], s.indices[-1]))


def _share(load: Load, around: list[For], loops: list[For]) -> list[dict[Var, Expr]]:
    """The values of the loops ``around`` ``load`` that one iteration of the innermost of ``loops`` prefetches.

    Loops that are in both lists keep their values. So where the prefetch stands in a loop that the load moves along,
    the address moves by a constant, as that of the load does. The other loops count: of T iterations, iteration n
    prefetches element n · E / T of E (a vector that is adjacent in memory is one element, and so are the steps of an
    unrolled loop within a cache line). If T is open, it prefetches element n.
    """
    common = {v.var for v in around} & {v.var for v in loops}
    around, loops = ([v for v in part if v.var not in common] for part in (around, loops))
    sizes = [int(v.extent.value) if isinstance(v.extent, Const) and not _is_together(load, v) else 1 for v in around]
    number, iterations, elements = index(0), 1, prod(sizes)
    for v in loops:
        number = number * v.extent + (v.var - v.start)
        iterations *= int(v.extent.value) if isinstance(v.extent, Const) else 0
    if not elements or (not iterations and all(isinstance(v.extent, Const) for v in loops)):
        return []
    times, first = 1, minimum(number, elements - 1)
    if iterations:
        divided = gcd(elements, iterations)
        times, first = -(-elements // iterations), number * (elements // divided) // (iterations // divided)
    found = []
    for more in range(times):
        at = minimum(first + more, elements - 1) if more else first
        where: dict[Var, Expr] = {}
        for v, size in zip(reversed(around), reversed(sizes), strict=True):
            where[v.var] = v.start + at % size
            at = at // size
        found.append(where)
    return found


def _is_together(load: Load, loop: For) -> bool:
    """Whether what a load reads in all iterations of a loop is next to each other: a vector, or steps in one line."""
    *outer, last = load.indices or (Const(0),)
    if loop.kind not in ("vectorized", "unrolled") or any(occurs(loop.var, i) for i in outer):
        return False
    if loop.kind == "vectorized":
        return True
    step = simplify_index(substitution({loop.var: loop.var + 1})(last) - last)
    bytes_read = int(loop.extent.value) * load.dtype.nbytes if isinstance(loop.extent, Const) else CACHE_LINE_BYTES + 1
    return isinstance(step, Const) and abs(step.value) == 1 and bytes_read <= CACHE_LINE_BYTES


def _ahead(loop: For, buffer: str, distance: int) -> list[Expr]:
    """The loads of ``buffer`` inside the loop, ``distance`` iterations later, one for each cache line. Unrolled loops
    count with every iteration, other inner loops with their first."""
    later = minimum(loop.var + distance, loop.start + loop.extent - 1)
    found: dict[Expr, None] = {}
    _collect(loop.body, buffer, [{loop.var: later}], found)
    return _lines(found)


def _collect(s: Stmt, buffer: str, places: list[dict[Var, Expr]], found: dict[Expr, None]) -> None:
    """``places`` are the values of the enclosing loops' variables, for each of the iterations that count."""
    if isinstance(s, For):
        count = int(s.extent) if s.kind == "unrolled" and isinstance(s.extent, Const) else 1
        if count * len(places) > MAX_UNROLLED_PLACES:
            count = 1
        starts = [(at, substitution(at)(s.start)) for at in places]
        places = [{**at, s.var: start + n} for at, start in starts for n in range(count)]
    for e in postorder(*expressions(s)):
        if isinstance(e, Load) and e.source.name == buffer and not isinstance(s, Evaluate):
            plain = Load(e.source, e.indices)
            found.update((made, None) for at in places if _is_known(made := substitution(at)(plain)))
    if isinstance(s, Let):
        places = [{**at, s.var: substitution(at)(s.value)} for at in places]
    for c in children(s):
        _collect(c, buffer, places, found)


def _is_known(e: Expr) -> bool:
    """Whether the address of a load does not depend on data."""
    return not any(isinstance(i, Load) for i in postorder(*e.children))


def _lines(loads: Iterable[Expr]) -> list[Expr]:
    """One load of each cache line. Loads count as the same line only if they are in one row at constant distances."""
    rows: dict[tuple[object, ...], list[tuple[int, Expr]]] = {}
    for e in loads:
        assert isinstance(e, Load)
        *outer, last = e.indices or (Const(0),)
        variable, constant = split_constant(simplify_index(last))
        key = (tuple(simplify_index(i) for i in outer), variable)
        rows.setdefault(key, []).append((constant, e))
    chosen: list[Expr] = []
    for row in rows.values():
        at: int | None = None
        for constant, e in sorted(row, key=lambda pair: pair[0]):
            if at is None or (constant - at) * e.dtype.nbytes >= CACHE_LINE_BYTES:
                chosen.append(e)
                at = constant
    return chosen
