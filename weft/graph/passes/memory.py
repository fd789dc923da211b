"""Memory of programs: an order of execution that needs little, and places in an arena by size and life.

Sizes may be symbolic. A size is taken apart into *coefficient × base* (``n*64*4`` is 256 × ``n``); stretches of one
base are planned together in units of it, which for a model with a dynamic batch is as good as knowing the batch, and
the areas of the different bases stand one after another.

:func:`plan_lives` gives offsets to stretches of memory whose first and last step are known, whatever the program:
largest first, each at the lowest place free over its life, or best fit in order of time, whichever needs least. Each
memory space is planned by itself. :func:`execution_order` chooses, for a function that runs straight on, the best of a
few orders; what lives how long is known when the instructions stand (:mod:`weft.lowering.control_flow`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from weft.expr.folds import product
from weft.expr.nodes import Binary, Const, Expr, ExprLike, index
from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Let, Loop, Match, Tuple, Var
from weft.graph.operator import Operator
from weft.graph.passes.aliases import Aliases, Key, is_alias, is_join, memory_of, source
from weft.graph.types import TupleType, tensors_in
from weft.graph.visit import children, post_order
from weft.support.errors import InternalError

InPlace = Callable[[Call], Iterable[tuple[int, int]]]
"""Pairs (operand, output) of a call of which the kernel may write the output over the operand: element-wise, same
index, same size."""


MAX_NEIGHBOURS = 256
"""How many pairs of stretches that are needed at once a plan looks at, for each stretch. With more it takes one walk
through time instead of the best of a few orders, which differ little then."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a program needs.

    ``order``: the calls that stand in it, in order (views, joins and parts do not). ``arena_bytes``: of the main
    memory, ``spaces``: of each other memory space. ``largest_live_set``: bytes that no plan for this order can do
    without, with symbolic sizes taken as ``assumed``; ``assumed_bytes`` are all arenas under the same assumption.
    """

    order: tuple[Call, ...]
    arena_bytes: ExprLike
    largest_live_set: int
    assumed_bytes: int
    spaces: tuple[ExprLike, ...] = ()


@dataclass(slots=True, eq=False)
class _Tensor:
    """A stretch of memory: what shares it, its size and the steps at which it is needed."""

    size: int
    base: Expr | None
    start: int
    end: int
    offset: int = -1
    order: int = 0


def execution_order(
    function: Function, *, workspace: Callable[[Call], ExprLike] | None = None, align: int = 64, assumed: int = 16
) -> tuple[Call, ...]:
    """The calls of ``function`` in the order, of a few, whose largest live set is smallest.

    ``workspace(call)`` says how many bytes a call needs beside its operands and results; ``assumed`` stands for
    symbolic sizes. The function must be straight (see :func:`is_straight`); others have no one order.
    """
    if not is_straight(function):
        raise InternalError("an order is asked for where control flow decides what runs", code="W012")
    orders = _Orders(function, workspace, align, assumed)
    choices: list[Sequence[Call]] = [orders.depth_first(False), orders.depth_first(True), orders.greedy()]
    best = min(choices, key=orders.peak)  # the first of equals: the order as written
    return tuple(best)


def is_straight(function: Function) -> bool:
    """Whether the function runs all its kernels once, in an order fixed beforehand."""
    for e in post_order(function.body, into_functions=False):
        if isinstance(e, (If, Let, Loop, Match)) or (isinstance(e, Call) and not _is_plain(e)):
            return False
    return True


def _is_plain(e: Call) -> bool:
    if isinstance(e.target, Function):
        return e.target.is_primitive
    return isinstance(e.target, Operator) and not e.target.host


@dataclass(frozen=True, slots=True)
class Lives:
    """Offsets of stretches of memory with given lives; ``total``, ``largest`` and ``assumed`` as in MemoryPlan."""

    offsets: tuple[ExprLike, ...]
    total: ExprLike
    largest: int
    assumed: int


def plan_lives(stretches: Sequence[tuple[ExprLike, int, int]], *, align: int = 64, assumed: int = 16) -> Lives:
    """Place stretches of memory, each given by its bytes and the first and last step at which it is needed."""
    made = []
    for i, (nbytes, first, last) in enumerate(stretches):
        size, base = aligned(nbytes, align)
        made.append(_Tensor(size, base, first, last, order=i))

    def value(base: Expr | None) -> int:
        return 1 if base is None else estimate(base, assumed)

    starts, total, bytes_assumed = _arrange(made, value)
    offsets = tuple(_plus(starts[t.base], _times(t.offset, t.base)) for t in made)
    return Lives(offsets, total, _largest(made, value), bytes_assumed)


def _arrange(
    tensors: Sequence[_Tensor], value: Callable[[Expr | None], int]
) -> tuple[dict[Expr | None, ExprLike], ExprLike, int]:
    """Offsets within the area of each base; gives where the areas start and the size of all."""
    areas: dict[Expr | None, list[_Tensor]] = {}
    for t in tensors:
        areas.setdefault(t.base, []).append(t)
    starts: dict[Expr | None, ExprLike] = {}
    total: ExprLike = 0
    assumed = 0
    for base, members in areas.items():
        starts[base] = total
        units = allocate(members)
        total = _plus(total, _times(units, base))
        assumed += units * value(base)
    return starts, total, assumed


def aligned(nbytes: ExprLike, align: int = 64) -> tuple[int, Expr | None]:
    """Bytes as (aligned coefficient, base). A tiny coefficient is not rounded up, which would waste most of the memory:
    the base then counts whole lines."""
    coefficient, base = factor(nbytes)
    if base is not None and coefficient * 4 < align:
        return align, (base * coefficient + (align - 1)) // align
    return -(-coefficient // align) * align, base


class _Orders:
    def __init__(
        self,
        function: Function,
        workspace: Callable[[Call], ExprLike] | None,
        align: int,
        assumed: int,
    ) -> None:
        self.function, self.align, self.assumed = function, align, assumed
        self.nodes = [e for e in post_order(function.body, into_functions=False) if isinstance(e, Call)]
        self.calls = [e for e in self.nodes if not is_alias(e)]
        self.aliases = Aliases(self.nodes)
        results = map(memory_of, _leaves(function.body))
        self.results = {p.key for p in results if p.whole and self.aliases.home(p.key) is None}
        """Tensors whose memory is the caller's; the plan says nothing of them and of what lies in them."""
        self.reads = {e: self._reads(e) for e in self.calls}
        self.sizes: dict[Key, tuple[int, Expr | None]] = {}
        self._made: dict[GraphExpr, int] = {}
        self._of_base: dict[Expr | None, int] = {None: 1}
        self.readers: dict[Key, int] = {}
        for e in (*self.calls, *filter(is_join, self.nodes)):
            for i, t in enumerate(tensors_in(e.type)):
                if self.aliases.root((e, i)) not in self.results:
                    self.sizes[e, i] = self._size(product(t.shape) * t.dtype.nbytes)
        for keys in self.reads.values():
            for key in keys:
                self.readers[key] = self.readers.get(key, 0) + 1
        self.spaces = {e: self._size(workspace(e)) for e in self.calls} if workspace else {}

    def _size(self, nbytes: ExprLike) -> tuple[int, Expr | None]:
        return aligned(nbytes, self.align)

    def _bytes(self, size: tuple[int, Expr | None]) -> int:
        return size[0] * self._assumed(size[1])

    def _made_bytes(self, e: GraphExpr) -> int:
        """Bytes that a kernel makes; nothing for what is no kernel."""
        if is_alias(e):
            return 0
        found = self._made.get(e)
        if found is None:
            sizes = [self.sizes[e, i] for i in range(_output_count(e)) if (e, i) in self.sizes]
            found = self._made[e] = sum(map(self._bytes, sizes))
        return found

    def _reads(self, e: Call) -> list[Key]:
        """Distinct tensors that a call reads, each made by one kernel."""
        found = {made: None for key in _reads(e) for made in self.aliases.made(key)}
        return [k for k in found if not isinstance(k[0], (Var, Constant))]

    def _assumed(self, base: Expr | None) -> int:
        found = self._of_base.get(base)
        if found is None:
            found = self._of_base[base] = 1 if base is None else estimate(base, self.assumed)
        return found

    # -- orders --------------------------------------------------------------------------------------------------

    def depth_first(self, heavy_first: bool) -> list[Call]:
        """Operands before users; with ``heavy_first`` the operand whose computation needs most memory comes first."""
        if not heavy_first:
            return self.calls
        need: dict[GraphExpr, int] = {}
        keep: dict[GraphExpr, int] = {}
        for e in post_order(self.function.body, into_functions=False):
            own = self._made_bytes(e)
            parts = sorted(children(e), key=lambda c: keep.get(c, 0) - need.get(c, 0))
            held, most = 0, 0
            for c in parts:
                most = max(most, held + need.get(c, 0))
                held += keep.get(c, 0)
            runs = isinstance(e, Call) and not is_alias(e)
            need[e], keep[e] = max(most, held + own), own if runs else held
        out: list[Call] = []
        seen: set[GraphExpr] = set()
        stack: list[tuple[GraphExpr, bool]] = [(self.function.body, False)]
        while stack:
            e, done = stack.pop()
            if done:
                if isinstance(e, Call) and not is_alias(e):
                    out.append(e)
                continue
            if e in seen:
                continue
            seen.add(e)
            stack.append((e, True))
            if not isinstance(e, Function):
                stack.extend((c, False) for c in sorted(children(e), key=lambda c: need.get(c, 0) - keep.get(c, 0)))
        return out if _keeps_effects(self.calls) else self.calls

    def greedy(self) -> list[Call]:
        """Always the ready call that frees most (ties: as written)."""
        if not _keeps_effects(self.calls):
            return self.calls
        left = dict(self.readers)
        known = set(self.calls)
        waits = {e: len({k[0] for k in self.reads[e] if k[0] in known}) for e in self.calls}
        users: dict[GraphExpr, list[Call]] = {}
        for e in self.calls:
            for maker in {k[0] for k in self.reads[e]}:
                users.setdefault(maker, []).append(e)
        position = {e: i for i, e in enumerate(self.calls)}
        ready = [e for e in self.calls if waits[e] == 0]
        out: list[Call] = []
        while ready:
            window = ready if len(ready) <= 32 else ready[:32]  # keeps wide graphs linear
            e = min(window, key=lambda e: (self._change(e, left), position[e]))
            ready.remove(e)
            out.append(e)
            for key in self.reads[e]:
                left[key] -= 1
            for u in users.get(e, ()):
                waits[u] -= 1
                if waits[u] == 0:
                    ready.append(u)
        return out

    def _change(self, e: Call, left: Mapping[Key, int]) -> int:
        return self._made_bytes(e) - sum(
            self._bytes(self.sizes[k]) for k in self.reads[e] if left[k] == 1 and k in self.sizes
        )

    def peak(self, order: Sequence[Call]) -> int:
        """The largest live set of an order."""
        return _largest(self._tensors(order), self._assumed)

    def _tensors(self, order: Sequence[Call]) -> list[_Tensor]:
        ends = self._ends(order)
        made: list[_Tensor] = []
        known: set[Key] = set()
        for step, e in enumerate(order):
            for i in range(_output_count(e)):
                root = self.aliases.root((e, i))
                size = self.sizes.get(root)
                if size is not None and root not in known:
                    known.add(root)
                    made.append(_Tensor(size[0], size[1], step, ends[root]))
            space = self.spaces.get(e)
            if space and space[0]:
                made.append(_Tensor(space[0], space[1], step, step))
        return made

    def _ends(self, order: Sequence[Call]) -> dict[Key, int]:
        """The last step at which each stretch of memory is needed."""
        ends: dict[Key, int] = {}
        for step, e in enumerate(order):
            for key in (*self.reads[e], *((e, i) for i in range(_output_count(e)))):
                ends[self.aliases.root(key)] = step
        return ends


def allocate(tensors: Sequence[_Tensor]) -> int:
    """Give offsets to tensors of one base; returns the size of the area."""
    if _overlapping_pairs(tensors) > MAX_NEIGHBOURS * len(tensors):
        return _place_in_time(tensors)
    neighbours = _overlaps(tensors)
    by_size = sorted(tensors, key=lambda t: (-t.size, t.start, t.order))
    by_life = sorted(tensors, key=lambda t: (t.start - t.end, -t.size, t.order))
    by_time = sorted(tensors, key=lambda t: (t.start, -t.size, t.order))
    best: tuple[int, list[int]] | None = None
    for order, tight in ((by_size, False), (by_size, True), (by_life, False), (by_time, True)):
        size = _place(order, neighbours, tight)
        if best is None or size < best[0]:
            best = size, [t.offset for t in tensors]
    assert best is not None
    for t, offset in zip(tensors, best[1], strict=True):
        t.offset = offset
    return best[0]


def _place(order: Sequence[_Tensor], neighbours: Mapping[_Tensor, list[_Tensor]], best_fit: bool) -> int:
    """Place tensors in ``order``, each in the lowest gap that holds it (``best_fit``: the smallest); give the size."""
    for t in order:
        t.offset = -1
    total = 0
    for t in order:
        taken = sorted((n.offset, n.offset + n.size) for n in neighbours[t] if n.offset >= 0)
        at, chosen, slack = 0, -1, -1
        for low, high in taken:
            if low - at >= t.size and (chosen < 0 or (best_fit and low - at - t.size < slack)):
                chosen, slack = at, low - at - t.size
                if not best_fit:
                    break
            at = max(at, high)
        t.offset = chosen if chosen >= 0 else at
        total = max(total, t.offset + t.size)
    return total


def _overlapping_pairs(tensors: Sequence[_Tensor]) -> int:
    """How many pairs of tensors are alive at some same step."""
    ends = sorted(t.end for t in tensors)
    starts = sorted(t.start for t in tensors)
    return sum(i - bisect_left(ends, start) for i, start in enumerate(starts))


def _place_in_time(tensors: Sequence[_Tensor]) -> int:
    """Place tensors as they come to life, each in the smallest gap that holds it; give the size. One walk: the time
    does not depend on how many are alive at once."""
    gaps = _Gaps()
    alive: list[tuple[int, int, int]] = []
    for t in sorted(tensors, key=lambda t: (t.start, -t.size, t.order)):
        while alive and alive[0][0] < t.start:
            _, offset, size = heappop(alive)
            gaps.give(offset, size)
        t.offset = gaps.take(t.size)
        heappush(alive, (t.end, t.offset, t.size))
    return gaps.total


class _Gaps:
    """The free stretches of an area that grows as needed."""

    def __init__(self) -> None:
        self.total = 0
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """The offset of ``size`` units, from now on taken."""
        at = bisect_left(self._by_size, (size, -1))
        if at < len(self._by_size):
            found, start = self._by_size[at]
            self._remove(start)
            if found > size:
                self._add(start + size, found - size)
            return start
        start = self.total
        if self._starts and self._starts[-1] + self._sizes[self._starts[-1]] == self.total:
            start = self._starts[-1]
            self._remove(start)
        self.total = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Free what was taken, and join it to the gaps beside it."""
        if not size:
            return
        at = bisect_left(self._starts, start)
        behind = self._starts[at] if at < len(self._starts) else -1
        before = self._starts[at - 1] if at else -1
        if behind == start + size:
            size += self._sizes[behind]
            self._remove(behind)
        if before >= 0 and before + self._sizes[before] == start:
            start, size = before, size + self._sizes[before]
            self._remove(before)
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        self._sizes[start] = size
        insort(self._starts, start)
        insort(self._by_size, (size, start))

    def _remove(self, start: int) -> None:
        size = self._sizes.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._by_size[bisect_left(self._by_size, (size, start))]


def _overlaps(tensors: Sequence[_Tensor]) -> dict[_Tensor, list[_Tensor]]:
    """For each tensor those alive at some same step."""
    found: dict[_Tensor, list[_Tensor]] = {t: [] for t in tensors}
    alive: list[_Tensor] = []
    for t in sorted(tensors, key=lambda t: t.start):
        alive = [a for a in alive if a.end >= t.start]
        for a in alive:
            found[a].append(t)
            found[t].append(a)
        alive.append(t)
    return found


def _largest(tensors: Sequence[_Tensor], assumed: Callable[[Expr | None], int]) -> int:
    """The most bytes alive at one step."""
    changes: dict[int, int] = {}
    for t in tensors:
        nbytes = t.size * assumed(t.base)
        changes[t.start] = changes.get(t.start, 0) + nbytes
        changes[t.end + 1] = changes.get(t.end + 1, 0) - nbytes
    most = held = 0
    for step in sorted(changes):
        held += changes[step]
        most = max(most, held)
    return most


def factor(value: ExprLike) -> tuple[int, Expr | None]:
    """``value`` as coefficient × base; products equal up to order have the same base. None stands for 1."""
    if isinstance(value, int):
        return value, None
    coefficient, rest = 1, []
    stack = [index(value)]
    while stack:
        e = stack.pop()
        if isinstance(e, Const):
            coefficient *= int(e.value)
        elif isinstance(e, Binary) and e.op == "mul":
            stack.extend((e.a, e.b))
        else:
            rest.append(e)
    return (coefficient, product(sorted(rest, key=lambda e: (str(e), id(e))))) if rest else (coefficient, None)


def estimate(value: ExprLike, assumed: int) -> int:
    """``value`` with every symbol taken as ``assumed``."""
    from weft.graph import dims

    return value if isinstance(value, int) else dims.evaluate(value, dict.fromkeys(dims.symbols(value), assumed))


def _times(units: int, base: Expr | None) -> ExprLike:
    return units if base is None else base * units


def _plus(a: ExprLike, b: ExprLike) -> ExprLike:
    return a + b if isinstance(a, int) and isinstance(b, int) else index(a) + index(b)


def _leaves(body: GraphExpr) -> list[GraphExpr]:
    return [x for f in body.fields for x in _leaves(f)] if isinstance(body, Tuple) else [body]


def _reads(e: Call) -> list[Key]:
    """Distinct tensors that a call reads, parameters and constants left out."""
    parts = list(children(e))
    found: dict[Key, None] = {}
    while parts:
        part = parts.pop(0)
        if isinstance(part, Tuple):
            parts.extend(part.fields)
        elif not isinstance(part, (Function, Var, Constant)):
            key = source(part)
            if not isinstance(key[0], (Var, Constant)):
                found[key] = None
    return list(found)


def _output_count(e: GraphExpr) -> int:
    return len(e.type.fields) if isinstance(e.type, TupleType) else 1


def _keeps_effects(calls: Sequence[Call]) -> bool:
    """Whether the calls may be reordered: none has effects."""
    for e in calls:
        for inner in post_order(e.target) if isinstance(e.target, Function) else (e,):
            if isinstance(inner, Call) and isinstance(inner.target, Operator) and not inner.target.pure:
                return False
    return True
