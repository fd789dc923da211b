"""Code for AArch64, 32-bit Arm and RISC-V, executed: kernels agree with the interpreter. The runtime's own loader loads
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulated
import numpy as np
import pytest
from emulated import MACHINES, Machine
from operator_cases import operands
from test_machines import MODEL, ROWS

from weft import te
from weft.expr.intrinsics import call
from weft.expr.nodes import Cast, Expr, Load, Select, Var, const, make
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Constant, Function, Tuple
from weft.graph.parser import parse
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.lowering.te_to_tir import te_to_tir
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import Case, OpDef
from weft.pipeline import Options, optimize, unscheduled
from weft.support.dtypes import DType
from weft.target import Target
from weft.tir.interpret import run as judge
from weft.tir.nodes import Allocate, Buffer, For, Program, Seq, Store

rng = np.random.default_rng(5)


@pytest.fixture(
    params=[pytest.param(m, id=m.name, marks=() if m.often else pytest.mark.slow) for m in MACHINES], scope="module"
)
def machine(request: pytest.FixtureRequest) -> Machine:
    chosen: Machine = request.param
    if reason := chosen.absent():
        pytest.skip(reason)
    return chosen


TABLES = r"""
#include <stdint.h>
#include <math.h>
static const float table[4] = {1, 2, 3, 4};
static int32_t counter = 5;
static int32_t zeroed[1000];
int32_t shared_counter = 3;
static float twice(float x) { return 2 * x; }
static float half(float x) { return x / 2; }
static float (*const functions[2])(float) = {twice, half};
int32_t look_up(void *const *b, const int64_t *s) {
    float *y = b[0];
    for (int64_t i = 0; i < s[0]; i++) y[i] = functions[i & 1](table[i & 3]) + expf(y[i]);
    return 0;
}
int32_t count(void *const *b, const int64_t *s) {
    zeroed[s[0]]++;
    shared_counter++;
    return ++counter + zeroed[s[0]] - shared_counter;
}
int32_t choose(void *const *b, const int64_t *s) {
    switch (s[0]) {
    case 0: return 10;
    case 1: return 21;
    case 2: return 32;
    case 3: return 47;
    case 4: return 5;
    case 5: return 66;
    }
    return -1;
}
"""


@pytest.mark.parametrize("flags", [(), ("-O0",), ("-fPIC", "-O3")])
def test_tables_functions_and_data(machine: Machine, flags: tuple[str, ...]) -> None:
    """What a C compiler makes of static data, function pointers, jump tables and calls of the library is relocated."""
    model = ("-mcmodel=medany",) if machine.name.startswith("riscv64") else ()
    code = emulated.compile_c(machine, TABLES, *flags, *model)
    y = np.zeros(8, np.float32)
    assert emulated.call(machine, code, "look_up", [y], [8]) == 0
    assert (y - 1).tolist() == [2, 1, 6, 2, 2, 1, 6, 2]
    assert [emulated.call(machine, code, "choose", [], [i]) for i in (0, 1, 3, 5, 6)] == [10, 21, 47, 66, -1]
    assert emulated.call(machine, code, "count", [], [3]) == 6 + 1 - 4


def test_wrong_results_are_detected(machine: Machine) -> None:
    code = emulated.compile_c(machine, "int k(char *const *b, const long long *s) { b[0][s[0]] = 1; return 7; }")
    assert emulated.call(machine, code, "k", [np.zeros(4, np.uint8)], [3]) == 7
    with pytest.raises(RuntimeError, match="outside of a buffer"):
        emulated.call(machine, code, "k", [np.zeros(4, np.uint8)], [4])
    with pytest.raises(RuntimeError, match="no such kernel"):
        emulated.call(machine, code, "absent")
    unknown = emulated.compile_c(machine, "int absent(void); int k(void) { return absent(); }")
    with pytest.raises(RuntimeError, match="'absent', which the runtime does not offer"):
        emulated.call(machine, unknown, "k")


def loop(name: str, count: int, made: Callable[[Var], Expr], inputs: list[Buffer], dtype: str) -> Program:
    out, i = Buffer("Y", (const(count),), dtype), Var("i")
    return Program(name, (*inputs, out), For(i, const(0), const(count), Store(out, (i,), made(i))))


def agree(machine: Machine, program: Program, inputs: list[np.ndarray], rtol: float = 0.0, threads: int = 1) -> None:
    """The scheduled program computes what the interpreter makes of the plain one."""
    made = scheduled(program, Target(machine.target)).program
    with np.errstate(all="ignore"):
        wanted = judge(program, inputs)
    got = emulated.run_program(machine, made, inputs, threads=threads)
    for g, w in zip(got, wanted, strict=True):
        if not rtol and g.dtype.kind != "V" and g.dtype.itemsize != 2:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol, atol=1e-37 if rtol else 0.0)


UNARY = {
    **dict.fromkeys(("exp", "exp2", "expm1", "tanh", "sigmoid", "erf", "sin", "cos", "tan"), (-9.0, 9.0, 2e-6)),
    "exp_nonpositive": (-87.0, 0.0, 2e-6),
    **dict.fromkeys(("log", "log2", "log1p", "rsqrt"), (1e-3, 30.0, 2e-6)),
    **dict.fromkeys(("sqrt", "floor", "ceil", "round", "trunc", "abs"), (0.0, 9.0, 0.0)),
}
_EDGES = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.8, -104.0, 3e38, 1e-38)


@pytest.mark.parametrize("name", UNARY)
def test_intrinsics(machine: Machine, name: str) -> None:
    """Vectors and the elements that are left over; special values among them."""
    low, high, rtol = UNARY[name]
    x = rng.uniform(low, high, 131).astype(np.float32)
    if name not in ("sin", "cos", "tan"):
        x[: len(_EDGES)] = _EDGES
    if name == "exp_nonpositive":
        x = -np.abs(x)
    given = Buffer("X", (const(131),), "float32")
    agree(machine, loop(name, 131, lambda i: call(name, Load(given, (i,))), [given], "float32"), [x], rtol)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin"])
def test_the_c_library(machine: Machine, name: str) -> None:
    given = Buffer("X", (const(19),), "float64")
    program = loop(name, 19, lambda i: call(name, Load(given, (i,))), [given], "float64")
    agree(machine, program, [rng.uniform(0.1, 5, 19)], 1e-14)


def test_powers(machine: Machine) -> None:
    x, y = (Buffer(n, (const(67),), "float32") for n in "AB")
    program = loop("power", 67, lambda i: call("pow", Load(x, (i,)), Load(y, (i,))), [x, y], "float32")
    agree(machine, program, [rng.uniform(0.1, 4, 67).astype("f"), rng.uniform(-5, 5, 67).astype("f")], 2e-6)


NUMBERS = ("bool", "int8", "uint8", "int16", "int32", "int64", "uint32", "float16", "bfloat16", "float32", "float64")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("source", NUMBERS)
def test_casts(machine: Machine, source: str) -> None:
    """Casts to every type, of values that both types have. For 16-bit floats these are every 37th code."""
    dtype = DType(source)
    if dtype.bits == 16 and dtype.is_float:
        codes = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
        singles = codes.astype(np.float32)
        values = codes[np.isfinite(singles) & (np.abs(singles) < 100) & ((singles == 0) | (np.abs(singles) > 1e-3))][
            ::37
        ]
    elif dtype.is_float:
        values = np.concatenate([rng.standard_normal(300) * 50, [0.0, -0.0, 1.0, 65504.0, 6e-8, 1e-3]]).astype(
            dtype.numpy
        )
        values = values[np.abs(values) < 120]
    else:
        low = 0 if dtype.kind != "int" else -100
        values = rng.integers(low, 2 if source == "bool" else 120, 133).astype(dtype.numpy)
    count = len(values)
    for to in NUMBERS:
        given = Buffer("X", (const(count),), source)
        unsigned = DType(to).kind == "uint" and dtype.kind in ("int", "float")
        numbers = np.abs(values.astype(np.float64)).astype(dtype.numpy) if unsigned else values
        program = loop("casts", count, lambda i, b=given, t=to: Cast(Load(b, (i,)), DType(t)), [given], to)
        agree(machine, program, [numbers])


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_every_half_becomes_a_float_and_back(machine: Machine, source: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(DType(source).numpy)
    given = Buffer("X", (const(1 << 16),), source)
    program = loop("widen", 1 << 16, lambda i: Cast(Load(given, (i,)), DType("float32")), [given], "float32")
    singles = emulated.run_program(machine, scheduled(program, Target(machine.target)).program, [codes])[0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(singles, codes.astype(np.float32))
    wide = Buffer("X", (const(1 << 16),), "float32")
    back = loop("narrow", 1 << 16, lambda i: Cast(Load(wide, (i,)), DType(source)), [wide], source)
    with np.errstate(all="ignore"):
        between = np.where(np.isfinite(singles), singles * np.float32(1.0001), singles)
        wanted = between.astype(DType(source).numpy).astype(np.float32)
    got = emulated.run_program(machine, scheduled(back, Target(machine.target)).program, [between])[0]
    np.testing.assert_array_equal(got.astype(np.float32), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32"])
def test_whole_numbers(machine: Machine, dtype: str) -> None:
    """Division rounds down, by numbers and by variables; minima, comparisons and selections."""
    low = -100 if DType(dtype).kind == "int" else 0
    a = rng.integers(low, 100, 77).astype(dtype)
    b = rng.integers(1, 9, 77).astype(dtype)
    x, y = (Buffer(n, (const(77),), dtype) for n in "AB")

    def made(i: Var) -> Expr:
        p, q = Load(x, (i,)), Load(y, (i,))
        five = const(5, dtype)
        sums = p // q + p % q + p // five + p % five
        return Select(make("lt", p, q), make("min", sums, p), make("max", sums, q))

    agree(machine, loop("whole", 77, made, [x, y], dtype), [a, b])


BEYOND = 1 << 31


@pytest.mark.parametrize(
    "made",
    [
        lambda i: i * 3_000_000_000,
        lambda i: i * 3_000_000_000 // 7,
        lambda i: (i * 3_000_000_000 + 5) % 4_294_967_311,
        lambda i: make("max", i * i * 100_000_000, const(BEYOND + 3)),
        lambda i: Select(make("lt", i * 200_000_000, const(BEYOND)), i, const(-BEYOND - 1)),
    ],
    ids=["product", "quotient", "remainder", "maximum", "comparison"],
)
def test_data_made_of_indices_has_64_bits(machine: Machine, made: Callable[[Var], Expr]) -> None:
    """Addresses and counters may have 32 bits, what is stored may not."""
    agree(machine, loop("wide", 67, made, [], "int64"), [])


def test_whole_numbers_beyond_32_bits(machine: Machine) -> None:
    a = rng.integers(-(1 << 40), 1 << 40, 45)
    b = rng.integers(1, 1 << 36, 45)
    x, y = (Buffer(n, (const(45),), "int64") for n in "AB")

    def made(i: Var) -> Expr:
        p, q = Load(x, (i,)), Load(y, (i,))
        return make("min", p * 3 + q, p // q + p % q)

    agree(machine, loop("long", 45, made, [x, y], "int64"), [a, b])


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("start", [BEYOND - 3, BEYOND - 8, 2 * BEYOND - 3], ids=["signed", "last", "unsigned"])
def test_loops_count_beyond_32_bits(machine: Machine, start: int, kind: Any) -> None:
    """Numbers around the largest of int32 and of uint32; ``last`` ends at the largest int32."""
    y, i = Buffer("Y", (const(7),), "int64"), Var("i")
    body = For(i, const(start), const(7), Store(y, (i - start,), i // 3), kind)
    got = emulated.run_program(machine, Program("far", (y,), body), [], threads=2)[0]
    assert got.tolist() == [n // 3 for n in range(start, start + 7)]


def test_indices_that_are_data_reach_the_whole_buffer(machine: Machine) -> None:
    """The sum of two int64 numbers, of which neither has 32 bits, is an index."""
    x, at = Buffer("X", (const(50),), "float32"), Buffer("I", (const(45),), "int64")
    values = [rng.standard_normal(50).astype("f"), rng.integers(0, 50, 45) + (1 << 40)]
    agree(machine, loop("far", 45, lambda i: Load(x, (Load(at, (i,)) - (1 << 40),)), [x, at], "float32"), values)


def test_gathers_and_guarded_loads(machine: Machine) -> None:
    x, at = Buffer("X", (const(50),), "float32"), Buffer("I", (const(45),), "int64")

    def made(i: Var) -> Expr:
        picked = Load(x, (make("min", Load(at, (i,)), const(49)),))
        return picked + Select(make("lt", i, const(40)), Load(x, (i * 49 // 40,)), const(-1.0))

    values = [rng.standard_normal(50).astype("f"), rng.integers(0, 50, 45)]
    agree(machine, loop("gather", 45, made, [x, at], "float32"), values)


def test_threads_and_symbolic_sizes(machine: Machine) -> None:
    """A parallel loop over a size known at run time, with memory of its own for each thread."""
    n, i, j, k = Var("n"), Var("i"), Var("j"), Var("k")
    x, y = Buffer("X", (n, const(70)), "float32"), Buffer("Y", (n, const(70)), "float32")
    row = Buffer("R", (const(70),), "float32", "local")
    fill = For(j, const(0), const(70), Store(row, (j,), call("exp", Load(x, (i, j)))))
    read = For(k, const(0), const(70), Store(y, (i, k), Load(row, (const(69) - k,)) + const(1.0)))
    program = Program("rows", (x, y), For(i, const(0), n, Allocate(row, Seq((fill, read))), "parallel"), sizes=(n,))
    for size, threads in ((1, 1), (5, 3), (64, 2)):
        a = rng.standard_normal((size, 70)).astype("f")
        got = emulated.run_program(machine, program, [a], [size], threads)[0]
        np.testing.assert_allclose(got, np.exp(a)[:, ::-1] + 1, rtol=2e-6)


def run_graph(machine: Machine, text: str, options: Options) -> None:
    """A network, group by group, as it is compiled for the machine."""
    module, target = parse(text, OPERATORS), Target(machine.target)
    inputs = [rng.standard_normal([int(d) for d in p.tensor.shape]).astype("f") for p in module.main.params]  # type: ignore[arg-type]  # known
    fused = optimize(module, target, options).main
    values: dict[object, np.ndarray] = dict(zip(fused.params, inputs, strict=True))
    for e in post_order(fused, into_functions=False):
        if isinstance(e, Constant):
            values[e] = e.data
        elif isinstance(e, Call):
            assert isinstance(e.target, Function)
            program = scheduled(unscheduled(e.target)[0], target).program
            (values[e],) = emulated.run_program(machine, program, [values[a] for a in e.args], threads=2)
    results = fused.body.fields if isinstance(fused.body, Tuple) else (fused.body,)
    wanted = interpret(module, inputs)
    for result, want in zip(results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_allclose(values[result], want, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("text", [MODEL, ROWS], ids=["layers", "rows"])
def test_networks(machine: Machine, text: str) -> None:
    run_graph(machine, text, Options())


_OFTEN = """matmul conv conv_transpose max_pool softmax layer_norm gather scatter_nd topk cumsum resize argmax
transpose concat pad reduce_sum reduce_max where cast"""
OFTEN = frozenset(_OFTEN.split())
"""Operators whose cases always run; those of all others do with --slow."""


def _cases() -> list[object]:
    found = []
    for o in OPERATORS.values():
        if o.compute is not None and not o.host and not o.checks:
            marks = [] if o.name in OFTEN else [pytest.mark.slow]
            found += [
                pytest.param(o, o.cases[i : i + 8], id=f"{o.name}-{i}", marks=marks) for i in range(0, len(o.cases), 8)
            ]
    return found


def test_operators_that_always_run_exist() -> None:
    assert set(OPERATORS) >= OFTEN


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("o", "cases"), _cases())
def test_operators(machine: Machine, o: OpDef, cases: tuple[Case, ...]) -> None:
    for case in cases:
        arrays, attrs = operands(case), o.complete(case.attrs)
        types = [TensorType.of(a.shape, DType(a.dtype)) for a in arrays]
        result = o.infer(attrs, *types)
        assert o.compute is not None
        inputs = [te.placeholder(t.shape, t.dtype, f"p{i}") for i, t in enumerate(types)]
        outputs = o.compute(attrs, result, *inputs)
        program = te_to_tir(o.name, inputs, outputs if isinstance(outputs, tuple) else (outputs,))
        wanted = o.reference(attrs, *arrays)
        got = emulated.run_program(machine, scheduled(program, Target(machine.target)).program, arrays)
        for g, w in zip(got, wanted if isinstance(result, TupleType) else (wanted,), strict=True):
            assert g.dtype == w.dtype
            if DType(w.dtype).is_float:
                np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), max(case.rtol, 2e-6), case.atol)
            else:
                np.testing.assert_array_equal(g, w)
