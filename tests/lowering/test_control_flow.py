"""Compiled control flow and run-time sizes, compared with the graph interpreter."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
from seeds import seeds

import weft
from weft.expr.nodes import index, make
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import If, Let, Loop, Module, Project, Tuple, Var, call
from weft.graph.operator import Attrs
from weft.graph.parser import parse
from weft.graph.passes.inline import Inline
from weft.graph.text import to_text
from weft.graph.types import TensorType, TupleType
from weft.graph.verify import verify
from weft.ops.catalogue import OPERATORS, op
from weft.pipeline import optimize
from weft.runtime.program import Allocate, Free
from weft.support.errors import InputError, ModelError
from weft.target import Target


def o(name, *args, **attrs):
    return call(op(name), list(args), attrs)


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compiled(params, body):
    module = Module.of(build.function(params, body))
    verify(module)
    table = {}
    text = to_text(module, table)
    assert to_text(parse(text, OPERATORS, table)) == text
    return module, weft.compile(module, threads=1)


def agree(module, executable, *inputs):
    got, wanted = executable(*inputs), run(module, inputs)
    got = got if isinstance(got, tuple) else (got,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


def check(params, body, *runs):
    module, executable = compiled(params, body)
    for inputs in runs:
        agree(module, executable, *inputs)
    return executable


n, i = build.size("n"), build.size("i")
x = build.var("x", (n, 4))
flag = build.var("flag", (), "bool")
k = build.var("k", (1,), "int64")
YES, NO = np.array(True), np.array(False)


def bound(body_of):
    """A size bound to ``k``, and what is made of it."""
    size = build.size("s")
    return Let(Var("v", k.type), o("bind_sizes", k, sizes=(size,)), body_of(size))


def test_a_value_that_both_branches_need_is_computed_once():
    shared = o("exp", x)
    body = If(flag, o("add", shared, x), o("mul", shared, shared), x.type)
    exe = check([flag, x], o("neg", body), (YES, floats(3, 4)), (NO, floats(5, 4)), (NO, floats(0, 4)))
    assert not any(isinstance(i, Allocate) for i in exe.artifact.program.instructions)


def test_branches_of_different_shapes():
    m = build.size("m")
    first = o("slice", x, begin=(0,), end=(1,))
    body = If(flag, first, x, TensorType.of((m, 4), "float32"))
    check([flag, x], body, (YES, floats(3, 4)), (NO, floats(5, 4)), (NO, floats(0, 4)))
    held = Var("held", body.type)
    check([flag, x], Let(held, body, o("relu", held)), (YES, floats(3, 4)), (NO, floats(5, 4)))


def test_a_branch_may_give_an_operand_or_the_same_tensor_twice():
    type_ = TupleType((x.type, x.type))
    e = o("exp", x)
    body = If(flag, Tuple((x, x)), Tuple((e, e)), type_)
    check([flag, x], body, (YES, floats(2, 4)), (NO, floats(2, 4)))


def test_nested_branches():
    other = build.var("other", (), "bool")
    inner = If(other, o("relu", x), o("neg", x), x.type)
    body = If(flag, inner, If(other, x, o("tanh", inner), x.type), x.type)
    check([flag, other, x], body, *((a, b, floats(3, 4)) for a in (YES, NO) for b in (YES, NO)))


def test_sizes_bound_at_run_time():
    row = o("reduce_sum", x, axes=(0,), keepdims=True)
    exe = check([k, x], bound(lambda s: o("broadcast_to", row, shape=(s, 4))), ([3], floats(3, 4)), ([0], floats(5, 4)))
    with pytest.raises(InputError, match="negative"):
        exe([-1], floats(2, 4))


def test_a_size_that_nothing_tells_is_an_error():
    lost = build.size("lost")
    with pytest.raises(ModelError, match="lost"):
        weft.compile(Module.of(build.function([x, k], Let(Var("v", k.type), k, o("from_sizes", sizes=(lost,))))))


def test_requirements_on_sizes_bound_at_run_time_are_checked():
    body = bound(lambda s: o("add", o("broadcast_to", o("reduce_sum", x, axes=(0,)), shape=(s, 4)), x))
    module = Module.of(build.function([k, x], body))
    symbol = body.value.attrs.sizes[0]
    module = Module(module.functions, attrs=Attrs(requires=((make("eq", symbol, n), "must be as many as rows"),)))
    exe = weft.compile(module)
    np.testing.assert_allclose(exe([2], floats(2, 4)), run(module, ([2], floats(2, 4))), rtol=1e-5)
    with pytest.raises(InputError, match="as many"):
        exe([3], floats(2, 4))


def test_both_branches_check_what_is_required_of_the_size_of_their_result():
    m = build.size("m")
    body = If(flag, o("slice", x, begin=(0,), end=(2,)), x, TensorType.of((m, 4), "float32"))
    held = Var("held", body.type)
    made = Let(held, body, o("add", held, build.constant(floats(2, 4))))
    requires = ((make("eq", m, index(2)), "must be two rows"),)
    exe = weft.compile(Module({"main": build.function([flag, x], made)}, attrs=Attrs(requires=requires)))
    for which, rows in ((YES, 5), (YES, 2), (NO, 2)):
        wanted = floats(rows, 4)[:2] + floats(2, 4)
        np.testing.assert_allclose(exe(which, floats(rows, 4)), wanted, rtol=1e-5)
    with pytest.raises(InputError, match="two rows"):
        exe(NO, floats(3, 4))


def scan_body():
    h = Var("h", TensorType.of((4,), "float32"))
    row = o("reshape", o("slice", x, begin=(i,), end=(i + 1,), in_bounds=True), shape=(4,))
    after = o("tanh", o("add", row, h))
    return h, after


def test_a_scan_collects_rows():
    h, after = scan_body()
    start = build.var("start", (4,))
    type_ = TupleType((h.type, TensorType.of((n, 4), "float32")))
    loop = Loop((start,), build.function([h], Tuple((after, after))), type_, i, n, n)
    exe = check([x, start], loop, *((floats(c, 4), floats(4, seed=1)) for c in (3, 0, 1, 17)))
    assert not any(isinstance(i, Allocate) for i in exe.artifact.program.instructions)


def test_loop_invariant_kernels_run_once():
    h, after = scan_body()
    fixed = o("exp", o("reduce_sum", x, axes=(0,), keepdims=False))
    body = build.function([h], Tuple((o("add", after, fixed),)))
    loop = Loop((build.constant(np.zeros(4, np.float32)),), body, TupleType((h.type,)), i, n, n)
    module, exe = compiled([x], loop)
    agree(module, exe, floats(5, 4))
    times = {r.label or r.kernel: r.calls for r in exe.profile(floats(5, 4), runs=1).kernels}
    assert sorted(times.values())[0] == 1 and sorted(times.values())[-1] == 5


def test_a_state_that_grows():
    p, q = build.size("p"), build.size("q")
    g = Var("g", TensorType.of((p, 4), "float32"))
    body = build.function([g], Tuple((o("concat", g, x, axis=0),)))

    def grown(s):
        loop = Loop((x,), body, TupleType((TensorType.of((q, 4), "float32"),)), i, s, s)
        held = Var("held", loop.type)
        return Let(held, loop, o("relu", Project(held, 0)))

    check([k, x], bound(grown), *(([c], floats(r, 4)) for c, r in ((3, 3), (0, 5), (5, 1), (2, 0))))


@pytest.mark.parametrize("declared", ["by the first row", "in the type"])
def test_rows_of_different_sizes_are_no_tensor(declared):
    """Row ``i`` has ``i + 1`` elements times four; what is collected must be of one size."""
    h = Var("h", TensorType.of((4,), "float32"))
    row = o("slice", x, begin=(0,), end=(i + 1,), in_bounds=True)
    size = build.size("r") if declared == "by the first row" else 1
    start = build.var("start", (4,))
    type_ = TupleType((h.type, TensorType.of((n, size, 4), "float32")))
    loop = Loop((start,), build.function([h], Tuple((o("tanh", h), row))), type_, i, n, n)
    executable = weft.compile(Module.of(build.function([x, start], loop)), threads=1)
    (_, rows) = executable(floats(1, 4, seed=1), floats(4))
    np.testing.assert_array_equal(rows, floats(1, 4, seed=1)[None])
    for count in (2, 3):
        with pytest.raises(InputError, match="rows that a loop collects have different sizes"):
            executable(floats(count, 4), floats(4))


def test_states_that_exchange_their_sizes():
    """All sizes of the next states are taken before one is set."""
    p, q, r, w = (build.size(name) for name in "pqrw")
    first, second = Var("first", TensorType.of((p, 4), "float32")), Var("second", TensorType.of((q, 4), "float32"))
    body = build.function([first, second], Tuple((o("neg", second), o("exp", first))))

    def exchanged(s):
        type_ = TupleType((TensorType.of((r, 4), "float32"), TensorType.of((w, 4), "float32")))
        loop = Loop((x, o("concat", x, x, axis=0)), body, type_, i, s, s)
        held = Var("held", loop.type)
        return Let(held, loop, Tuple((o("relu", Project(held, 0)), o("tanh", Project(held, 1)))))

    check([k, x], bound(exchanged), *(([c], floats(rows, 4)) for c, rows in ((0, 3), (1, 3), (2, 3), (3, 2), (4, 1))))


def while_loop():
    a, b = (Var(name, TensorType.of((2,), "float32")) for name in "ab")
    first, second = build.var("first", (2,)), build.var("second", (2,))
    count = build.size("count")
    total = o("reduce_max", o("add", a, b), axes=(0,), keepdims=False)
    going = o("less", total, build.constant(100.0))
    body = build.function([a, b], Tuple((going, o("add", b, a), a, o("mul", a, b))))
    type_ = TupleType((a.type, a.type, TensorType.of((count, 2), "float32")))
    return [first, second], Loop((first, second), body, type_, i, None, count, build.constant(YES))


def test_while_with_swapped_state_and_unknown_count():
    params, loop = while_loop()
    check(
        params,
        loop,
        (floats(2) + 1, floats(2) + 2),
        (floats(2) + 100, floats(2)),
        (floats(2) * 0 + 0.01, floats(2) * 0),
    )


def test_loops_nest():
    j = build.size("j")
    h = Var("h", TensorType.of((4,), "float32"))
    g = Var("g", h.type)
    inner_body = build.function([g], Tuple((o("tanh", o("add", g, h)), o("exp", g))))
    inner_type = TupleType((g.type, TensorType.of((n, 4), "float32")))
    inner = Loop((o("neg", h),), inner_body, inner_type, j, n, n)
    outer_body = build.function([h], Tuple((o("add", Project(inner, 0), h), Project(inner, 1))))
    type_ = TupleType((h.type, TensorType.of((n, n, 4), "float32")))
    start = o("reduce_sum", x, axes=(0,), keepdims=False)
    check([x], Loop((start,), outer_body, type_, i, n, n), (floats(3, 4),), (floats(0, 4),), (floats(1, 4),))


def test_a_loop_whose_state_changes_its_known_size_is_stopped():
    g = Var("g", TensorType.of((n, 4), "float32"))
    body = build.function([g], Tuple((o("slice", g, begin=(1,), end=(1 << 60,)),)))
    loop = Loop((x,), body, TupleType((g.type,)), i, 2, 2)
    exe = weft.compile(Module.of(build.function([x], loop)))
    with pytest.raises(InputError, match="must be"):
        exe(floats(3, 4))


class _Heap(ctypes.Structure):
    """What mallinfo2 of the GNU C library gives."""

    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]
    mapped = property(lambda self: self.field4)
    used = property(lambda self: self.field7)


def heap_bytes():
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        pytest.skip("the C library does not tell how much memory is in use")
    mallinfo2.restype = _Heap
    info = mallinfo2()
    return info.used + info.mapped


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_frees_all_that_it_allocates(fails):
    params, loop = while_loop()
    exe = weft.compile(Module.of(build.function(params, loop)), threads=1)
    inputs = (np.full(2, 1e-30 if not fails else np.nan, np.float32), np.full(2, 1e-30, np.float32))
    grown = bound(lambda s: o("relu", o("broadcast_to", o("reduce_sum", x, axes=(0,), keepdims=True), shape=(s, 4))))
    other = weft.compile(Module.of(build.function([k, x], o("exp", grown))), threads=1)

    def once(count):
        exe(*inputs)
        if fails:
            with pytest.raises(InputError):
                other([-1], floats(2, 4))
        else:
            other([count], floats(2, 4))

    for _ in range(3):
        once(1000)
    before = heap_bytes()
    for _ in range(200):
        once(1000)
    assert heap_bytes() - before < 64_000


def test_late_buffers_are_freed_after_their_last_use():
    wide = bound(lambda s: o("reduce_sum", o("cumsum", o("broadcast_to", o("neg", k), shape=(s,)), axis=0), axes=(0,)))
    exe = weft.compile(Module.of(build.function([k], wide)), threads=1)
    instructions = exe.artifact.program.instructions
    freed = [i.buffer for i in instructions if isinstance(i, Free)]
    assert sorted(freed) == sorted(i.buffer for i in instructions if isinstance(i, Allocate))


class _Maker:
    """Random programs over one vector shape, with branches, loops, lets and sizes bound at run time."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.type = TensorType.of((n,), "float32")
        self.vector = build.var("vector", (n,))
        self.flags = [build.var(f"flag{i}", (), "bool") for i in range(2)]
        self.count = 0

    def pick(self, scope):
        return self.random.choice(scope[-6:])

    def straight(self, scope, steps):
        scope = list(scope)
        for _ in range(steps):
            name = self.random.choice(["tanh", "neg", "add", "sub", "maximum", "slice"])
            if name == "slice":
                made = o("flip", self.pick(scope), axes=(0,))
            elif name in ("tanh", "neg"):
                made = o(name, self.pick(scope))
            else:
                made = o(name, self.pick(scope), self.pick(scope))
            scope.append(made)
        return scope

    def value(self, scope, depth):
        scope = self.straight(scope, self.random.randint(0, 3))
        if depth == 0:
            return self.pick(scope)
        kind = self.random.choice(["if", "loop", "while", "let", "twice"])
        if kind == "if":
            sides = [self.value(scope, depth - 1) for _ in range(2)]
            made = If(self.condition(scope), *sides, self.type)
        elif kind == "let":
            held = self.var()
            return Let(held, self.value(scope, depth - 1), self.value([*scope, held], depth - 1))
        elif kind == "twice":
            made = o("add", self.value(scope, depth - 1), self.value(scope, depth - 1))
        else:
            made = self.loop(scope, depth, kind == "while")
        return self.pick(self.straight([*scope, made], 2))

    def condition(self, scope):
        if self.random.random() < 0.5:
            return self.random.choice(self.flags)
        total = o("reduce_sum", self.pick(scope), axes=(0,), keepdims=False)
        return o("less", total, build.constant(self.random.uniform(-1, 1)))

    def var(self):
        self.count += 1
        return Var(f"v{self.count}", self.type)

    def loop(self, scope, depth, conditional):
        states = [self.var() for _ in range(self.random.randint(1, 3))]
        first = tuple(self.pick(scope) for _ in states)
        inner = [*scope, *states]
        after = [self.value(inner, depth - 1), *(self.pick(inner) for _ in states[1:])]
        self.random.shuffle(after)
        row = self.value(inner, 0)
        number, trips = build.size("number"), self.random.randint(0, 3)
        count = build.size("count") if conditional else trips
        going = self.condition(scope) if conditional else None
        parts = ([self.condition(inner)] if conditional else []) + [*after, row]
        type_ = TupleType((*(s.type for s in states), TensorType.of((count, n), "float32")))
        loop = Loop(first, build.function(states, Tuple(tuple(parts))), type_, number, trips, count, going)
        rows = o("reduce_sum", Project(loop, len(states)), axes=(0,), keepdims=False)
        return o("add", o("tanh", rows), Project(loop, 0))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", seeds(24))
def test_random_programs(seed):
    maker = _Maker(seed)
    body = maker.value([maker.vector], 3)
    module = Module.of(build.function([maker.vector, *maker.flags], body))
    verify(module)
    executable = weft.compile(module, threads=1)
    for size in (1, 3, 9):
        for flags in ((YES, NO), (NO, YES)):
            agree(module, executable, floats(size, seed=seed), *flags)


FUNCTIONS = """
def @main<n>(%x: f32[n, 4], %y: f32[2, 4], %c: bool[]) -> f32[n, 4] {
  %0: f32[n, 4] = @twice(%x)
  %1: f32[2, 4] = @twice(%y)
  %2: f32[1, 4] = reduce_sum(%1, axes=(0,))
  %7 = fn(%a: f32[n, 4]) {
    %3: f32[n, 4] = add(%a, %2)
    return %3
  }
  let %f: fn(f32[n, 4]) -> f32[n, 4] = %7
  %4: f32[n, 4] = %f(%0)
  %5: f32[n, 4] = if %c {
    %6: f32[n, 4] = %f(%4)
    return %6
  } else {
    return %x
  }
  return %5
}

def @twice<m>(%x: f32[m, 4]) -> f32[m, 4] {
  %0: f32[m, 4] = @step(%x)
  %1: f32[m, 4] = @step(%0)
  return %1
}

def @step<m>(%x: f32[m, 4]) -> f32[m, 4] {
  %0: f32[m, 4] = tanh(%x)
  %1: f32[m, 4] = broadcast_to(%0, shape=(m, 4))
  return %1
}
"""


def test_functions_are_put_where_they_are_called():
    module = parse(FUNCTIONS, OPERATORS)
    verify(module)
    inlined = Inline().run(module)
    verify(inlined)
    exe = weft.compile(module, threads=1)
    for c in (YES, NO):
        agree(module, exe, floats(3, 4), floats(2, 4), c)


def test_a_saved_executable_runs_the_same(tmp_path):
    params, loop = while_loop()
    module, exe = compiled(params, loop)
    exe.save(tmp_path / "loop.weft")
    loaded = weft.load_executable(tmp_path / "loop.weft")
    assert loaded.artifact.program.instructions == exe.artifact.program.instructions
    agree(module, loaded, floats(2) + 1, floats(2) + 2)


def test_fused_groups_in_loops_stay_whole():
    h, after = scan_body()
    fixed = o("tanh", o("exp", o("add", x, x)))
    body = build.function([h], Tuple((o("add", after, o("reduce_sum", fixed, axes=(0,), keepdims=False)),)))
    loop = Loop((build.constant(np.zeros(4, np.float32)),), body, TupleType((h.type,)), i, n, n)
    fused = optimize(Module.of(build.function([x], loop)), Target("cpu"))
    verify(fused)
    text = to_text(fused)
    assert to_text(parse(text, OPERATORS)) == text


def test_sizes_that_would_be_negative_are_errors():
    """n - 1 rows for an input of n; a slice of nothing is nothing."""
    check([x], o("slice", x, begin=(1,), end=(1 << 60,)), (floats(5, 4),), (floats(1, 4),), (floats(0, 4),))
    exe = check([x], o("exp", o("full", shape=(n - 1, 4), value=1)), (floats(5, 4),), (floats(1, 4),))
    with pytest.raises(InputError, match=r"negative|out of range"):
        exe(floats(0, 4))


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_empty_tensors(rows):
    wide = build.var("wide", (3, n))
    weights = build.constant(floats(4, 20))
    results = {
        "sum": o("reduce_sum", x, axes=(0,)),
        "joined": o("concat", x, o("exp", x), axis=0),
        "product": o("matmul", x, weights),
        "inner": o("matmul", wide, x),
        "normal": o("softmax", wide),
        "turned": o("transpose", x, perm=(1, 0)),
        "picked": o("gather", x, o("cast", o("reduce_sum", k, axes=(0,)), to="int64"), axis=1),
    }
    module, exe = compiled([x, wide, k], Tuple(tuple(results.values())))
    agree(module, exe, floats(rows, 4), floats(3, rows), np.array([2]))
