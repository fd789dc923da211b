"""Operators that draw random numbers: which numbers, their distribution, and what they depend on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import weft
from weft import tensor_expr as te
from weft.graph import build, interpret
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.ops.random import philox, philox_numpy
from weft.support.errors import InputError, ModelError
from weft.tensor_expr.evaluate import Elements

TARGETS = ["cpu", "c", "c -vectors=none"]

VECTORS = [
    # Random123, tests/kat_vectors: philox4x32 10, counter, key, result.
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    made = philox_numpy([np.array([c], np.uint32) for c in counter], key)
    assert tuple(int(w[0]) for w in made) == expected
    given = te.placeholder((4,), "uint32", "counter")
    for word, wanted in enumerate(expected):
        tensor = te.compute((1,), lambda i, w=word: philox([given[k] for k in range(4)], key)[w], name="word")
        assert int(Elements({given: np.array(counter, np.uint32)}, {}).at(tensor, (0,))) == wanted


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]>\n{text}')


def compiled(text: str, target: str = "cpu", **options: Any) -> weft.Executable:
    return weft.compile(model(text), target, options=weft.Options(**options))


NORMAL = "g (float[n, m] x) => (float[n, m] y) { y = RandomNormalLike (x) }"
UNIFORM = "g (float[n, m] x) => (float[n, m] y) { y = RandomUniformLike (x) }"
X = np.zeros((300, 400), np.float32)


def of_generator(shape: tuple[int, ...], **attrs: Any) -> Module:
    step, x = build.var("step", (), "int64"), build.var("x", tuple(build.size(f"n{i}") for i in range(len(shape))))
    return Module.of(build.function([step, x], call(op("random"), [step], {"shape": x.tensor.shape, **attrs})))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_machines_draw_the_same(target: str, distribution: str, dtype: str) -> None:
    """Numbers are a function of seed, step and place: not of threads, sizes of kernels or back ends."""
    attrs = {"distribution": distribution, "dtype": dtype, "seed": 7 << 40 | 3, "stream": 2}
    exe = weft.compile(of_generator((1, 1), **attrs), target)
    given = np.zeros((37, 911), np.float32)
    expected = interpret.run(of_generator((1, 1), **attrs), [np.array(5), given])
    found = []
    for threads in (1, 2):
        exe.threads = threads
        found.append(exe(np.int64(5), given))
    np.testing.assert_array_equal(*found)
    if distribution == "uniform":
        np.testing.assert_array_equal(found[0], expected)
    else:
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(exe(np.int64(5), given.reshape(911, 37)).ravel(), found[0].ravel())


def spread_from(values: np.ndarray, distribution: Any) -> float:
    """The Kolmogorov-Smirnov distance between values and a distribution function."""
    at = distribution(np.sort(values.astype(np.float64), axis=None))
    steps = np.arange(at.size + 1) / at.size
    return float(max(np.max(steps[1:] - at), np.max(at - steps[:-1])))


def normal_distribution(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16"])
def test_distributions(dtype: str) -> None:
    """Moments within five standard errors, and the whole distribution at the level of 0.1 %."""
    count = X.size
    number = {"float": 1, "double": 11, "float16": 10, "bfloat16": 16}[dtype]
    text = f"""g (float[n, m] x) => ({dtype}[n, m] u, {dtype}[n, m] z) {{
      u = RandomUniformLike <dtype = {number}, low = -1.0, high = 3.0> (x)
      z = RandomNormalLike <dtype = {number}, mean = 2.0, scale = 0.5> (x) }}"""
    u, z = (v.astype(np.float64) for v in compiled(text)(X))
    coarse = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype, 0.0)  # distance of neighbours
    level = 1.95 / math.sqrt(count) + coarse
    assert u.min() >= -1 and (u.max() < 3 if not coarse else u.max() <= 3)
    assert abs(u.mean() - 1) < 5 * math.sqrt(16 / 12 / count)
    assert spread_from((u + 1) / 4, lambda x: np.clip(x, 0, 1)) < level
    standard = (z - 2) / 0.5
    assert abs(standard.mean()) < 5 / math.sqrt(count) and abs(standard.var() - 1) < 5 * math.sqrt(2 / count)
    assert spread_from(standard, normal_distribution) < level
    assert abs(np.corrcoef(u.ravel(), z.ravel())[0, 1]) < 5 / math.sqrt(count)
    for lag in (1, 2, 7, 400):
        assert abs(np.corrcoef(u.ravel()[lag:], u.ravel()[:-lag])[0, 1]) < 5 / math.sqrt(count)


def test_what_the_numbers_depend_on() -> None:
    first = compiled(NORMAL)(X)
    np.testing.assert_array_equal(first, compiled(NORMAL)(X))  # every run and every compilation is the same
    assert (first != compiled(NORMAL, seed=1)(X)).mean() > 0.99
    np.testing.assert_array_equal(compiled(NORMAL, seed=-1)(X), compiled(NORMAL, seed=(1 << 64) - 1)(X))
    two = "g (float[n, m] x) => (float[n, m] a, float[n, m] b) { a = RandomNormalLike (x) b = RandomNormalLike (x) }"
    a, b = compiled(two)(X)
    assert (a != b).mean() > 0.99
    same = two.replace("Like (x)", "Like <seed = 3.5> (x)")
    a, b = compiled(same)(X)
    np.testing.assert_array_equal(a, b)  # the attribute alone decides
    np.testing.assert_array_equal(a, compiled(same, seed=9)(X)[0])
    other = compiled(same.replace("3.5", "3.0"))(X)[0]
    assert (a != other).mean() > 0.99


def test_the_seed_of_each_run_as_an_input() -> None:
    exe = compiled(NORMAL, seed="input")
    assert [i.name for i in exe.inputs] == ["x", "seed"] and exe.inputs[1].dtype == "int64"
    first, second = exe(X, np.int64(1)), exe(X, np.int64(2))
    assert (first != second).mean() > 0.99
    np.testing.assert_array_equal(first, exe.run({"x": X, "seed": 1})["y"])
    fixed = compiled(NORMAL.replace("Like (x)", "Like <seed = 1.0> (x)"), seed="input")
    assert [i.name for i in fixed.inputs] == ["x"]
    with pytest.raises(ModelError, match="an input 'seed' of its own"):
        compiled("g (float[n] seed) => (float[n] y) { y = RandomNormalLike (seed) }", seed="input")
    for wrong in ("output", 1.5, True, 1 << 64, None):
        with pytest.raises(InputError, match="'seed'"):
            weft.Options(seed=wrong)


LOOP = """g (float[n] x, int64 k) => (float[n] last, float[k, n] rows) {
  cond = Constant <value = bool {1}> ()
  last, rows = Loop (k, cond, x) <body = b (int64 i, bool c, float[n] s) => (bool go, float[n] s2, float[n] row) {
    go = Identity (c)
    row = RandomUniformLike <SEED> (s)
    s2 = Add (s, row)
  }>
}"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", ["", "seed = 4.0"])
@pytest.mark.parametrize("trips", [None, 5, 20])
def test_iterations_of_a_loop_draw_different_numbers(seed: str, trips: int | None) -> None:
    text = LOOP.replace("<SEED>", f"<{seed}>" if seed else "")
    if trips is not None:
        text = text.replace(", int64 k)", ")").replace("cond =", f"k = Constant <value = int64 {{{trips}}}> () cond =")
    exe = compiled(text)
    x = np.zeros(50, np.float32)
    _, rows = exe(x) if trips else exe(x, np.int64(9))
    assert len(rows) == (trips or 9)
    assert len(np.unique(rows)) > rows.size * 0.99


STEPS = {
    "loop": LOOP.replace("<SEED>", ""),
    "scan": """g (float[k, n] x) => (float[n] last, float[k, n] rows) {
      zero = Constant <value = float {0}> ()
      first = ReduceMax <keepdims = 0> (x, axes)
      last, rows = Scan <num_scan_inputs = 1, body = b (float[n] s, float[n] one) => (float[n] s2, float[n] row) {
        row = RandomUniformLike (one)
        s2 = Add (s, row)
      }> (first, x)
    }""".replace("zero = Constant <value = float {0}> ()", "axes = Constant <value = int64[1] {0}> ()"),
    "nested": """g (float[n] x, int64 k) => (float[n] last, float[k, n] rows) {
      last, rows = Loop (k, , x) <body = b (int64 i, bool c, float[n] s) => (bool go, float[n] s2, float[n] row) {
        go = Identity (c)
        two = Constant <value = int64 {2}> ()
        row, all = Loop (two, , s) <body = e (int64 j, bool d, float[n] t) => (bool on, float[n] t2, float[n] r) {
          on = Identity (d)
          r = RandomNormalLike (t)
          t2 = Add (t, r)
        }>
        s2 = Add (s, row)
      }>
    }""",
    "branch": """g (float[n] x, int64 k) => (float[n] last, float[k, n] rows) {
      last, rows = Loop (k, , x) <body = b (int64 i, bool c, float[n] s) => (bool go, float[n] s2, float[n] row) {
        go = Identity (c)
        one = Constant <value = int64 {1}> ()
        first = Less (i, one)
        row = If (first) <
          then_branch = t () => (float[n] a) { a = RandomNormalLike (s) },
          else_branch = f () => (float[n] e) { e = RandomUniformLike (s) }
        >
        s2 = Add (s, row)
      }>
    }""",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("trips", [1, 3, 9])
@pytest.mark.parametrize("kind", STEPS)
def test_a_loop_draws_the_same_whether_its_length_is_known(kind: str, trips: int) -> None:
    """So does a node after it. Loops of at most 8 known iterations are unrolled."""
    text = STEPS[kind].replace("last, float[k, n] rows) {", "last, float[k, n] rows, float[n] z) {", 1)
    end = text.rindex("}")
    text = f"{text[:end]} z = RandomNormalLike (last) }}"
    if kind == "scan":
        x = np.zeros((trips, 30), np.float32)
        known, given = compiled(text.replace("float[k, n] x", f"float[{trips}, n] x")), (x,)
        found = known(x)
    else:
        fixed = text.replace(", int64 k)", ")").replace("{", f"{{ k = Constant <value = int64 {{{trips}}}> () ", 1)
        x = np.zeros(30, np.float32)
        found, given = compiled(fixed)(x), (x, np.int64(trips))
    for a, b in zip(found, compiled(text)(*given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert len(found[1]) == trips and len(np.unique(found[1])) > found[1].size * 0.9


def test_a_node_draws_the_same_whether_a_branch_before_it_is_known() -> None:
    text = """g (float[n] x, bool c) => (float[n] y, float[n] z) {
      y = If (c) <
        then_branch = t () => (float[n] a) { a = RandomNormalLike (x) },
        else_branch = e () => (float[n] b) { u = RandomNormalLike (x) v = RandomNormalLike (x) b = Sub (u, v) }
      >
      z = RandomNormalLike (x) }"""
    x = np.zeros(50, np.float32)
    exe = compiled(text)
    for way in (True, False):
        fixed = text.replace(", bool c)", ")").replace("{", f"{{ c = Constant <value = bool {{{int(way)}}}> () ", 1)
        for a, b in zip(compiled(fixed)(x), exe(x, np.bool_(way)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_each_call_of_a_function_draws_others() -> None:
    """Even calls of equal names."""
    text = """<ir_version: 10, opset_import: ["" : 22, "own" : 1]>
g (float[n] x) => (float[n] y, float[n] z) { y = own.noise (x) z = own.noise (x) }
<domain: "own", opset_import: ["" : 22]> noise (a) => (b) { b = RandomNormalLike (a) }"""
    made = onnx.parser.parse_model(text)
    for node in made.graph.node:
        node.name = "same"
    y, z = weft.compile(made)(np.zeros(50, np.float32))
    assert (y != z).all()


def test_the_items_of_a_sequence_draw_different_numbers() -> None:
    text = """g (float[n] x) => (float[m] y) {
      s = SequenceConstruct (x, x)
      t = SequenceMap (s) <body = b (float[n] a) => (float[n] c) { c = RandomUniformLike (a) }>
      y = ConcatFromSequence <axis = 0> (t) }"""
    assert len(np.unique(compiled(text)(np.zeros(50, np.float32)))) > 95


RANGES = [(5.0, 6.0), (-1.0, 1.0), (1000.0, 1001.0), (-8.0, -7.0), (2.0, 2.0), (1.0, 0.0)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("number", "dtype"), [(1, "float32"), (10, "float16"), (11, "float64"), (16, "bfloat16")])
def test_uniform_numbers_are_below_the_upper_bound(number: int, dtype: str) -> None:
    """What rounds to it is the number before it; an empty range is its start."""
    nodes = [
        f"y{i} = RandomUniformLike <dtype = {number}, low = {low}, high = {high}> (x)"
        for i, (low, high) in enumerate(RANGES)
    ]
    text = f"g (float[n] x) => ({', '.join(f'y{i}' for i in range(len(RANGES)))}) {{ {' '.join(nodes)} }}"
    drawn = compiled(text)(np.zeros(1 << 20, np.float32))
    for (low, high), made in zip(RANGES, drawn, strict=True):
        y = made.astype(np.float64)
        first, last = sorted((low, high))
        assert y.min() >= first and y.max() <= last
        if low < high:
            assert y.max() < high
            assert y.max() > high - (high - low) / 8 or (high > 1000 and "16" in dtype)
        elif low == high:
            assert (y == low).all()


def test_nested_loops_draw_different_numbers() -> None:
    inner = LOOP.split("=> (float[n] last, float[k, n] rows) {")[1].replace("<SEED>", "").rsplit("}", 1)[0]
    text = f"""g (float[n] x, int64 k) => (float[k, k, n] all) {{
      yes = Constant <value = bool {{1}}> ()
      end, all = Loop (k, yes, x) <body = 
          outer (int64 j, bool d, float[n] t) => (bool on, float[n] t2, float[k, n] r) {{
        on = Identity (d)
        {inner.replace("last, rows", "t2, r").replace("(k, cond, x)", "(k, cond, t)")}
      }}>
    }}"""
    rows = compiled(text)(np.zeros(40, np.float32), np.int64(7))
    assert rows.shape == (7, 7, 40) and len(np.unique(rows)) > rows.size * 0.99


def test_bernoulli() -> None:
    text = "g (float[n, m] p) => (float[n, m] y, bool[n, m] b) { y = Bernoulli (p) b = Bernoulli <dtype = 9> (p) }"
    p = np.broadcast_to(np.linspace(0, 1, 400, dtype=np.float32), (300, 400))
    y, b = compiled(text)(p)
    assert y.dtype == np.float32 and b.dtype == np.bool_ and set(np.unique(y)) == {0, 1}
    assert not y[:, 0].any() and y[:, -1].all() and not b[:, 0].any() and b[:, -1].all()
    assert np.all(np.abs(y.mean(0) - p[0]) <= 5 * np.sqrt(p[0] * (1 - p[0]) / 300))


@pytest.mark.parametrize("dtype", [6, 7])
def test_multinomial(dtype: int) -> None:
    name = {6: "int32", 7: "int64"}[dtype]
    text = f"""g (float[b, c] x) => ({name}[b, k] y) {{
      y = Multinomial <dtype = {dtype}, sample_size = 20000> (x) }}"""
    weights = np.array([[1, 2, 0, 5, 2], [0, 0, 1, 0, 0], [3, 1, 1, 1, 0]], np.float32)
    with np.errstate(divide="ignore"):
        y = compiled(text)(np.log(weights) + 7)
    assert y.dtype == name and y.shape == (3, 20000)
    for row, w in zip(y, weights / weights.sum(1, keepdims=True), strict=True):
        found = np.bincount(row, minlength=5) / row.size
        assert np.all(np.abs(found - w) <= 5 * np.sqrt(w * (1 - w) / row.size))


DROPOUT = """g (float[n, m] x, bool training) => (float[n, m] y, bool[n, m] mask) {
  ratio = Constant <value = float {RATIO}> ()
  y, mask = Dropout (x, ratio, training) }"""


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_dropout(ratio: float) -> None:
    """In training mode a part is dropped and the rest scaled; otherwise nothing happens."""
    exe = compiled(DROPOUT.replace("RATIO", str(ratio)))
    x = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    y, mask = exe(x, np.bool_(True))
    assert abs(mask.mean() - (1 - ratio)) <= 5 * math.sqrt(ratio * (1 - ratio) / x.size)
    expected = np.where(mask, x / np.float32(1 - ratio), 0) if ratio < 1 else np.zeros_like(x)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    y, mask = exe(x, np.bool_(False))
    np.testing.assert_array_equal(y, x)
    assert mask.all()


@pytest.mark.parametrize("opset", [1, 6, 7, 10])
@pytest.mark.parametrize("is_test", [None, 0, 1])
@pytest.mark.parametrize("ratio", [None, 0.0, 0.3])
def test_dropout_before_opset_12(opset: int, is_test: int | None, ratio: float | None) -> None:
    """The ratio is an attribute. Opsets 1 and 6 train unless ``is_test`` says otherwise; 7 and 10 have no training."""
    given = {"is_test": is_test if opset < 7 else None, "ratio": ratio}
    attrs = {name: value for name, value in given.items() if value is not None}
    node = onnx.helper.make_node("Dropout", ["x"], ["y", "mask"], **attrs)
    kind = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info(name, kind, ["n", "m"]) for name in ("x", "y")]
    mask_kind = kind if opset < 10 else onnx.TensorProto.BOOL
    ports.append(onnx.helper.make_tensor_value_info("mask", mask_kind, ["n", "m"]))
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    exe = weft.compile(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)]))
    x = np.random.default_rng(0).standard_normal(X.shape).astype(np.float32)
    y, mask = exe(x)
    part = (0.5 if ratio is None else ratio) if opset < 7 and not is_test else 0.0
    kept = mask.astype(bool)
    assert abs(kept.mean() - (1 - part)) <= 5 * math.sqrt(part * (1 - part) / x.size)
    np.testing.assert_allclose(y, np.where(kept, x / np.float32(1 - part), 0), rtol=1e-6)


def test_what_is_refused() -> None:
    with pytest.raises(ModelError, match="random numbers are floats, not int32"):
        compiled("g (int32[n] x) => (int32[n] y) { y = RandomNormalLike (x) }")
    with pytest.raises(ModelError, match="negative size"):
        compiled("g () => (float[n] y) { y = RandomNormal <shape = [2, -1]> () }")
    with pytest.raises(ModelError, match="must be a matrix"):
        compiled("g (float[n] x) => (int32[n] y) { y = Multinomial (x) }")


def test_numbers_of_a_known_shape() -> None:
    text = """g () => (float[2, 3] y, double[4] z) {
      y = RandomUniform <shape = [2, 3], low = 5.0, high = 6.0> ()
      z = RandomNormal <shape = [4], dtype = 11> () }"""
    y, z = compiled(text)()
    assert y.shape == (2, 3) and np.all((y >= 5) & (y < 6)) and z.dtype == np.float64 and len(set(z)) == 4
