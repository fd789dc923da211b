"""How the body of a reduction combines values, derived from the program: accumulators, sources and the combiner."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft.expr.affine import linear_form
from weft.expr.evaluate import evaluate
from weft.expr.iter_var import IterVar
from weft.expr.nodes import BINARY, Binary, Const, Expr, Load, Source, Var, make
from weft.expr.visit import free_vars
from weft.support.errors import UserError
from weft.tir.combine import IDENTITY, Accumulator, combining, identity_of, is_constant
from weft.tir.nodes import Block, If, Let, Seq, Stmt, Store
from weft.tir.visit import map_expr, postorder, substitution

OPERATORS: Final = frozenset(("add", "mul", "min", "max", "and", "or"))
_NEUTRAL: Final = {"add": 0, "mul": 1}
"""Identity values. For other operators, the init may be combined any number of times without changing the result."""
_TRIALS: Final = 8
"""Number of random samples on which a combination is tested."""

Value = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Combination:
    """``accumulators = results(lhs := accumulators, rhs := sources)``, executed where all ``conditions`` hold. They are
    evaluated in order, and each one only if those before it hold.

    ``identity`` holds values that may be combined into a result any number of times without changing it.
    """

    accumulators: tuple[Accumulator, ...]
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    results: tuple[Expr, ...]
    sources: tuple[Expr, ...]
    identity: tuple[Expr, ...]
    conditions: tuple[Expr, ...]

    @property
    def operator(self) -> str | None:
        """The operator, if the combination is one operator on single values; else None."""
        first = self.results[0]
        return first.op if isinstance(first, Binary) and first.a is self.lhs[0] and len(self.lhs) == 1 else None

    def into(self, accumulators: Sequence[Accumulator], sources: Sequence[Expr]) -> Stmt:
        """The statement that combines ``sources`` into ``accumulators`` in the same way."""
        return combining(accumulators, self.lhs, self.rhs, self.results, sources)


def combination_of(block: Block) -> Combination | str:
    """The combination that ``block``, a reduction with an init, computes; or the reason why it cannot be derived."""
    body: Stmt = block.body
    conditions: list[Expr] = []
    while isinstance(body, If) and body.otherwise is None:
        conditions.append(body.condition)
        body = body.then
    init = dict(_stores(block.init))
    try:
        noted = identity_of(block)
    except ValueError as problem:
        return f"the note '{IDENTITY}' of block '{block.name}' {problem}"
    if noted is not None:
        by_buffer = dict(zip(dict.fromkeys(r.buffer for r in block.writes), noted, strict=True))
        init = {(b, at): by_buffer[b] for b, at in init}
    unknown = f"block '{block.name}' does not combine new values with its accumulators by one function"
    if isinstance(body, Store):
        return _operator(block, body, init, tuple(conditions)) or unknown
    found = _function(block, body, init, tuple(conditions))
    if found is not None and not all(is_constant(e) for e in found.identity):
        return f"block '{block.name}' starts at data, and nothing says at which values its parts may start"
    return found or unknown


def _stores(stmt: Stmt | None) -> Iterator[tuple[Accumulator, Expr]]:
    for s in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        if isinstance(s, Store) and s.mask is None:
            yield (s.buffer, s.indices), s.value


def _operator(
    block: Block, body: Store, init: Mapping[Accumulator, Expr], conditions: tuple[Expr, ...]
) -> Combination | None:
    """Match a store of the accumulator whose value is one operator on the accumulator and a source."""
    value, at = body.value, (body.buffer, body.indices)
    if not isinstance(value, Binary) or value.op not in OPERATORS or at not in init:
        return None
    a, b = value.a, value.b
    if BINARY[value.op].commutative and b is Load(*at):
        a, b = b, a
    if a is not Load(*at) or _reads(block, b, (at,)):
        return None
    x, y = Var("x", value.a.dtype), Var("y", value.b.dtype)
    neutral = Const(_NEUTRAL[value.op], value.dtype) if value.op in _NEUTRAL else init[at]
    return Combination((at,), (x,), (y,), (make(value.op, x, y),), (b,), (neutral,), conditions)


def _function(
    block: Block, body: Stmt, init: Mapping[Accumulator, Expr], conditions: tuple[Expr, ...]
) -> Combination | None:
    """Match a body that first binds the sources to names, then computes results from these and the accumulators;
    results are bound to names or stored directly."""
    named: list[tuple[Var, Expr]] = []
    while isinstance(body, Let):
        named.append((body.var, body.value))
        body = body.body
    stored = list(_stores(body))
    accumulators = tuple(at for at, _ in stored)
    buffers = {b for b, _ in accumulators}
    count = len(stored)
    if len(buffers) != count or len(named) < count or buffers != {r.buffer for r in block.writes}:
        return None
    if any(at not in init for at in accumulators) or any(
        _reads(block, value, accumulators) for _, value in named[:count]
    ):
        return None
    rhs, sources = tuple(v for v, _ in named[:count]), tuple(value for _, value in named[:count])
    lhs = tuple(Var(b.name, b.dtype) for b, _ in accumulators)
    if any(v.dtype != b.dtype for v, (b, _) in zip(rhs, accumulators, strict=True)):
        return None
    old: dict[Expr, Expr] = {Load(*at): v for v, at in zip(lhs, accumulators, strict=True)}
    known: dict[Var, Expr] = {}
    for var, value in named[count:]:
        known[var] = substitution(known)(map_expr(value, old.get, {}))
    results = tuple(substitution(known)(map_expr(value, old.get, {})) for _, value in stored)
    if any(isinstance(e, Load) or (isinstance(e, Var) and e not in lhs + rhs) for e in postorder(*results)):
        return None
    identity = tuple(init[at] for at in accumulators)
    return Combination(accumulators, lhs, rhs, results, sources, identity, conditions)


def _reads(block: Block, e: Expr, accumulators: Sequence[Accumulator]) -> bool:
    """Whether ``e`` may read an element that the reduction accumulates: anything of these buffers but what earlier
    steps of a recurrence have left there."""
    own: dict[Source, tuple[Expr, ...]] = dict(accumulators)
    return any(
        isinstance(x, Load) and x.source in own and not _is_earlier(block, x.indices, own[x.source])
        for x in postorder(e)
    )


def _is_earlier(block: Block, read: Sequence[Expr], written: Sequence[Expr]) -> bool:
    """Whether an index of what is read is that of what is written, an ordered variable, less a positive number."""
    steps = {it.var for it in block.iters if it.kind == IterVar.ORDERED}
    for r, w in zip(read, written, strict=True):
        apart = linear_form(w - r, free_vars(w - r)) if w in steps else None
        if apart is not None and not apart[0] and isinstance(apart[1], Const) and apart[1].value > 0:
            return True
    return False


# -- counterexamples that show that the order of combination matters --------------------------------------------------


def counterexample(c: Combination) -> str | None:
    """Values whose combined result depends on the order, or on how often the identity is combined; None if a few trials
    find none. Differences due to rounding are ignored."""
    rng = random.Random(0)
    try:
        identity = tuple(evaluate(e) for e in c.identity)
        for _ in range(_TRIALS):
            x, y, z, w = zip(*(_samples(source, rng) for source in c.sources), strict=True)
            found = _differs(c, identity, x, y, z, w)
            if found is not None:
                return found
    except UserError:
        return None  # the init is not constant, or a function cannot be evaluated
    return None


def _samples(source: Expr, rng: random.Random) -> list[Any]:
    """Four samples, all different if the dtype has four values: the order may decide which of two equal values is
    kept."""
    if isinstance(source, Const):
        return [source.value] * 4
    if source.dtype.is_float:
        return [rng.uniform(0.5, 4.0) for _ in range(4)]
    if source.dtype.kind == "bool":
        return [rng.random() < 0.5 for _ in range(4)]
    return rng.sample(range(1, 8), 4) if source.dtype.bits > 3 else [rng.randint(0, 1) for _ in range(4)]


def _differs(c: Combination, identity: Value, x: Value, y: Value, z: Value, w: Value) -> str | None:
    def f(a: Value, b: Value) -> Value:
        given = dict(zip((*c.lhs, *c.rhs), (*a, *b), strict=True))
        return tuple(evaluate(e, given) for e in c.results)

    one, two, three, four = _shown(x), _shown(y), _shown(z), _shown(w)
    trials = (
        (f(identity, x), x, f"the identity {_shown(identity)} and {one} do not give {one}"),
        (f(x, identity), x, f"{one} and the identity {_shown(identity)} do not give {one}"),
        (f(x, y), f(y, x), f"{one} and {two} give something else the other way round"),
        (f(f(x, y), z), f(x, f(y, z)), f"what {one}, {two} and {three} give depends on which two are combined first"),
        (
            f(f(x, y), f(z, w)),
            f(f(f(x, y), z), w),
            f"what {one}, {two}, {three} and {four} give depends on which two are combined first",
        ),
    )
    return next((text for a, b, text in trials if not _close(c, a, b)), None)


def _close(c: Combination, a: Value, b: Value) -> bool:
    return all(
        np.allclose(
            np.asarray(p, np.float64), np.asarray(q, np.float64), rtol=max(1e-3, _coarse(v)), atol=1e-3, equal_nan=True
        )
        for v, p, q in zip(c.lhs, a, b, strict=True)
    )


def _coarse(v: Var) -> float:
    """Tolerance for the rounding error of combining a few values of a narrow float."""
    return 0.3 if v.dtype.is_float and v.dtype.bits < 16 else 0.03 if v.dtype.is_float and v.dtype.bits < 32 else 0.0


def _shown(values: Value) -> str:
    made = [f"{v:.3g}" if isinstance(v, (float, np.floating)) else str(v) for v in values]
    return made[0] if len(made) == 1 else f"({', '.join(made)})"
