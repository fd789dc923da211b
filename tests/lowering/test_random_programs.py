"""Random functional programs: recursion over data, closures, tuples, branches, lets and shared values.

Each program is printed and read back, verified, and run by the interpreter and compiled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import seeds

import weft
from weft.graph import build, interpret
from weft.graph.nodes import (
    DataDef,
    Function,
    GraphExpr,
    If,
    Let,
    Match,
    Module,
    Pattern,
    Project,
    Tuple,
    Var,
    apply,
    call,
)
from weft.graph.parser import parse
from weft.graph.text import to_text
from weft.graph.types import DataType, FunctionType, TensorType, Type
from weft.graph.verify import verify
from weft.ir.structural import structural_equal, structural_hash
from weft.ops.catalogue import OPERATORS, op
from weft.support.data import Data
from weft.support.dtypes import FLOAT32
from weft.support.errors import UserError

ELEMENT = DataType("a")
LIST = DataDef("List", (ELEMENT,), (("Nil", ()), ("Cons", (ELEMENT, DataType("List", (ELEMENT,))))))
TREE = DataDef("Tree", (), (("Leaf", (TensorType((3,), FLOAT32),)), ("Fork", (DataType("Tree"), DataType("Tree")))))
F = TensorType((3,), FLOAT32)
LISTS, TREES = DataType("List", (F,)), DataType("Tree")
STEP = FunctionType((F, F), F)
TYPES = {"List": LIST, "Tree": TREE}
QUIET = settings(suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Scope:
    """What may be mentioned: values (made already or bound), and how deep to go."""

    values: tuple[GraphExpr, ...]
    depth: int

    def with_(self, *more: GraphExpr) -> Scope:
        return replace(self, values=(*self.values, *more), depth=self.depth - 1)

    def of(self, t: Type) -> list[GraphExpr]:
        return [v for v in self.values if v.type == t]


class Writer:
    """Writes expressions of a type, and the functions that they call."""

    def __init__(self, pick: random.Random) -> None:
        self.pick, self.count = pick, 0
        self.functions: dict[str, Function] = {}
        self.folds: list[GraphExpr] = []
        self.maps: list[GraphExpr] = []
        self.makers: list[GraphExpr] = []

    def var(self, t: Type) -> Var:
        self.count += 1
        return Var(f"v{self.count}", t)

    def number(self) -> GraphExpr:
        values = [self.pick.randint(-4, 4) / 4 for _ in range(3)]
        return build.constant(np.array(values, np.float32))

    def tensor(self, s: Scope) -> GraphExpr:
        if s.depth <= 0 or self.pick.random() < 0.12:
            return self.pick.choice([*s.of(F), self.number()])
        return self.pick.choice(self.TENSORS)(self, s.with_())

    def operator(self, s: Scope) -> GraphExpr:
        kind = self.pick.choice(["add", "sub", "mul", "maximum", "tanh", "neg", "sigmoid"])
        if kind in ("tanh", "neg", "sigmoid"):
            return call(op(kind), [self.tensor(s)])
        a = self.tensor(s)
        return call(op(kind), [a, a if self.pick.random() < 0.2 else self.tensor(s)])

    def condition(self, s: Scope) -> GraphExpr:
        both = [call(op("reduce_sum"), [self.tensor(s)], {"axes": (0,), "keepdims": False}) for _ in range(2)]
        return call(op("less"), both)

    def shared(self, s: Scope) -> GraphExpr:
        """A value that several places of the body may use, bound or not."""
        value = self.tensor(s)
        if self.pick.random() < 0.5:
            v = self.var(F)
            return Let(v, value, self.tensor(s.with_(v)))
        return call(op("add"), [self.tensor(s.with_(value)), value])

    def branch(self, s: Scope) -> GraphExpr:
        return If(self.condition(s), self.tensor(s), self.tensor(s), F)

    def pair(self, s: Scope) -> GraphExpr:
        made = Tuple((self.tensor(s), self.list(s), self.tensor(s)))
        if self.pick.random() < 0.5:
            v = self.var(made.type)
            return Let(v, made, call(op("sub"), [Project(v, 0), Project(v, 2)]))
        return Project(made, self.pick.choice([0, 2]))

    def matched(self, s: Scope) -> GraphExpr:
        head, tail, second = self.var(F), self.var(LISTS), self.var(F)
        inner = Pattern("Cons", (Pattern(var=second), Pattern()))
        clauses = [
            (Pattern("Cons", (Pattern(var=head), Pattern(var=tail))), self.tensor(s.with_(head, tail))),
            (Pattern(), self.tensor(s)),
        ]
        if self.pick.random() < 0.4:
            clauses.insert(0, (Pattern("Cons", (Pattern(), inner)), self.tensor(s.with_(second))))
        return Match(self.list(s), tuple(clauses), F)

    def fold(self, s: Scope) -> GraphExpr:
        return apply(self.pick.choice(self.folds), [self.closure(s), self.tensor(s), self.list(s)], type=F)

    def closure(self, s: Scope) -> GraphExpr:
        """A function of two tensors that reads what is around it, or one that another function makes."""
        known = s.of(STEP)
        if known and self.pick.random() < 0.3:
            return self.pick.choice(known)
        if self.makers and self.pick.random() < 0.3:
            return apply(self.pick.choice(self.makers), [self.tensor(s)], type=STEP)
        a, b = self.var(F), self.var(F)
        return Function((a, b), self.tensor(s.with_(a, b)))

    def applied(self, s: Scope) -> GraphExpr:
        return apply(self.closure(s), [self.tensor(s), self.tensor(s)], type=F)

    def over_tree(self, s: Scope) -> GraphExpr:
        if "tree" not in self.functions:  # a tree made in a step of the descent would be descended without end
            return self.operator(s)
        return apply(build.global_var("tree", [TREES], F), [self.tree(s)], type=F)

    def list(self, s: Scope) -> GraphExpr:
        known = s.of(LISTS)
        if known and self.pick.random() < 0.5:
            return self.pick.choice(known)
        if s.depth <= 0 or self.pick.random() < 0.2:
            return apply(build.constructor(LIST, "Nil", [F]), [], type=LISTS)
        kind, s = self.pick.random(), s.with_()
        if kind < 0.3 and self.maps:
            return apply(self.pick.choice(self.maps), [self.closure(s), self.list(s)], type=LISTS)
        if kind < 0.5:
            return If(self.condition(s), self.list(s), self.list(s), LISTS)
        return apply(build.constructor(LIST, "Cons", [F]), [self.tensor(s), self.list(s)], type=LISTS)

    def tree(self, s: Scope) -> GraphExpr:
        known = s.of(TREES)
        if known and self.pick.random() < 0.5:
            return self.pick.choice(known)
        if s.depth <= 0 or self.pick.random() < 0.4:
            return apply(build.constructor(TREE, "Leaf"), [self.tensor(s)], type=TREES)
        parts = [self.tree(s.with_()), self.tree(s.with_())]
        return apply(build.constructor(TREE, "Fork"), parts, type=TREES)

    TENSORS: tuple[Callable[[Writer, Scope], GraphExpr], ...] = (
        operator, operator, operator, shared, shared, branch, pair, matched, fold, applied, over_tree,
    )  # fmt: skip

    # --- functions ----------------------------------------------------------------------------------------------------

    def recursion(self, name: str, tail: bool) -> None:
        """fold(f, z, xs): what it does with an element and with the rest is drawn."""
        f, z, xs, x, rest = Var("f", STEP), Var("z", F), Var("xs", LISTS), self.var(F), self.var(LISTS)
        me = build.global_var(name, [STEP, F, LISTS], F)
        if tail:
            again: GraphExpr = apply(me, [f, apply(f, [z, x], type=F), rest], type=F)
        else:
            again = apply(f, [x, apply(me, [f, z, rest], type=F)], type=F)
            if self.pick.random() < 0.5:
                v = self.var(F)
                again = Let(v, again, self.tensor(Scope((x, z, v), 2)))
        body = Match(xs, ((Pattern("Nil"), z), (Pattern("Cons", (Pattern(var=x), Pattern(var=rest))), again)), F)
        self.functions[name] = Function((f, z, xs), body)
        self.folds.append(me)

    def mapping(self, name: str) -> None:
        f, xs, x, rest = Var("f", STEP), Var("xs", LISTS), self.var(F), self.var(LISTS)
        me = build.global_var(name, [STEP, LISTS], LISTS)
        parts = [apply(f, [x, self.tensor(Scope((x,), 1))], type=F), apply(me, [f, rest], type=LISTS)]
        clauses = (
            (Pattern("Nil"), apply(build.constructor(LIST, "Nil", [F]), [], type=LISTS)),
            (
                Pattern("Cons", (Pattern(var=x), Pattern(var=rest))),
                apply(build.constructor(LIST, "Cons", [F]), parts, type=LISTS),
            ),
        )
        self.functions[name] = Function((f, xs), Match(xs, clauses, LISTS))
        self.maps.append(me)

    def making(self, name: str) -> None:
        """A function whose result is a function."""
        k, a, b = Var("k", F), self.var(F), self.var(F)
        self.functions[name] = Function((k,), Function((a, b), self.tensor(Scope((k, a, b), 2))))
        self.makers.append(build.global_var(name, [F], STEP))

    def descent(self) -> None:
        t, x, left, right = Var("t", TREES), self.var(F), self.var(TREES), self.var(TREES)
        me = build.global_var("tree", [TREES], F)
        both = [call(op("tanh"), [apply(me, [side], type=F)]) for side in (left, right)]
        joined = self.tensor(Scope((*both,), 2))
        fork = Pattern("Fork", (Pattern(var=left), Pattern(var=right)))
        clauses = ((Pattern("Leaf", (Pattern(var=x),)), x), (fork, call(op("sub"), [joined, both[0]])))
        self.functions["tree"] = Function((t,), Match(t, clauses, F))


def program(pick: random.Random) -> Module:
    w = Writer(pick)
    w.recursion("first", tail=True)
    w.descent()
    w.making("make")
    w.recursion("second", tail=False)
    w.mapping("map")
    params = Var("x", F), Var("y", F), Var("xs", LISTS), Var("t", TREES)
    body = Tuple((w.tensor(Scope(params, 5)), w.list(Scope(params, 3))))
    return Module({"main": Function(params, body), **w.functions}, TYPES)


def inputs(pick: random.Random) -> list[object]:
    def numbers() -> np.ndarray:
        return np.array([pick.randint(-4, 4) / 4 for _ in range(3)], np.float32)

    def tree(depth: int) -> Data:
        if depth == 0 or pick.random() < 0.3:
            return Data("Leaf", (numbers(),))
        return Data("Fork", (tree(depth - 1), tree(depth - 1)))

    xs = Data("Nil")
    for _ in range(pick.randint(0, 5)):
        xs = Data("Cons", (numbers(), xs))
    return [numbers(), numbers(), xs, tree(3)]


def same(got: object, wanted: object) -> None:
    if isinstance(wanted, Data):
        assert isinstance(got, Data) and got.constructor == wanted.constructor
        got, wanted = got.fields, wanted.fields
    if isinstance(wanted, tuple):
        assert isinstance(got, tuple)
        for g, w in zip(got, wanted, strict=True):
            same(g, w)
    else:
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-4, atol=2e-4)


def check(pick: random.Random, run_compiled: bool) -> None:
    module = program(pick)
    verify(module)
    table: dict[str, np.ndarray] = {}
    text = to_text(module, table)
    back = parse(text, OPERATORS, table)
    verify(back)
    assert to_text(back) == to_text(parse(to_text(back), OPERATORS))
    assert structural_equal(back, module) and structural_hash(back) == structural_hash(module)
    values = inputs(pick)
    wanted = interpret.run(module, values)
    same(interpret.run(back, values), wanted)
    if run_compiled:
        exe = weft.compile(back, threads=1)
        same(exe(*values), wanted)
        more = inputs(pick)
        same(exe(*more), interpret.run(module, more))


def without_end(where: str) -> Module:
    """f(x) calls itself; ``where``: its value is bound, used by both branches, or by the one that is not taken."""
    x = Var("x", F)
    again = apply(build.global_var("main", [F], F), [call(op("neg"), [x])], type=F)
    total = call(op("reduce_sum"), [x], {"axes": (0,), "keepdims": False})
    test = call(op("less"), [total, call(op("add"), [total, build.constant(np.float32(1))])])
    if where == "bound":
        v = Var("v", F)
        return Module({"main": Function((x,), Let(v, again, If(test, x, v, F)))})
    both = call(op("tanh"), [again]) if where == "both" else x
    return Module({"main": Function((x,), If(test, both, again, F))})


@pytest.mark.parametrize("where", ["bound", "both"])
def test_values_that_a_let_or_both_branches_need_are_computed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret, "MAX_WAITING_VALUES", 5000)
    module, x = without_end(where), np.zeros(3, np.float32)
    for run in (weft.compile(module, threads=1), lambda x: interpret.run(module, [x])):
        with pytest.raises(UserError, match="goes too deep") as stopped:
            run(x)
        assert stopped.value.code == "I008"


def test_values_that_one_branch_needs_are_computed_there_only() -> None:
    module, x = without_end("one"), np.array([1, 2, 3], np.float32)
    assert np.array_equal(np.asarray(weft.compile(module, threads=1)(x)), x)
    assert np.array_equal(interpret.run(module, [x]), x)


@settings(QUIET, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_printed_and_read_back(pick: random.Random) -> None:
    check(pick, False)


@settings(QUIET, max_examples=6)
@given(st.randoms(use_true_random=False))
def test_compiled(pick: random.Random) -> None:
    check(pick, True)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(300)[::50])
def test_many_compiled(first: int) -> None:
    for seed in range(first, first + 50):
        check(random.Random(seed), True)
