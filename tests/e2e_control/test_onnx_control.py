"""ONNX models with control flow and shapes decided at run time, against onnxruntime: one executable, many sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import weft
from weft.support.errors import InputError, UserError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(text: str) -> Any:
    return onnx.parser.parse_model(HEAD + text)


def check(text: str, *runs: dict[str, Any]) -> weft.Executable:
    made = model(text)
    exe = weft.compile(made, threads=1)
    other = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in runs:
        wanted = other.run(None, feed)
        for got, w in zip(exe.run(feed).values(), wanted, strict=True):
            assert got.shape == w.shape and got.dtype == w.dtype
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)
    return exe


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_loop_with_a_computed_trip_count_captures_and_collects() -> None:
    text = """
    agraph (float[n, 4] x, int64 k) => (float[n, 4] y, float[m, n, 4] rows) {
      cond = Constant <value: tensor = bool {1}> ()
      half = Constant <value: tensor = float {0.5}> ()
      small = Mul (x, half)
      y, rows = Loop (k, cond, x)
      <body = b (int64 i, bool c, float[n, 4] s) => (bool c2, float[n, 4] s2, float[n, 4] r) {
        c2 = Identity (c)
        f = Cast <to: int = 1> (i)
        t = Add (s, small)
        s2 = Mul (t, half)
        r = Add (s2, f)
      }>
    }"""
    feeds = [{"x": floats(n, 4), "k": np.array(k)} for n, k in ((3, 2), (1, 3), (5, 40), (2, 1))]
    check(text, *feeds)


def test_loop_that_stops_on_a_computed_condition() -> None:
    text = """
    agraph (float[n] x, float limit) => (float[n] y, float[m] sums) {
      none = Constant <value: tensor = int64 {100}> ()
      cond = Constant <value: tensor = bool {1}> ()
      two = Constant <value: tensor = float {2}> ()
      y, sums = Loop (none, cond, x) <body = b (int64 i, bool c, float[n] s) => (bool go, float[n] s2, float total) {
        s2 = Mul (s, two)
        total = ReduceSum <keepdims: int = 0> (s2)
        go = Less (total, limit)
      }>
    }"""
    check(
        text,
        *({"x": np.abs(floats(n)) + 0.1, "limit": np.array(v, np.float32)} for n, v in ((3, 10), (1, 1000), (7, 0))),
    )


def test_loop_whose_state_grows() -> None:
    text = """
    agraph (float[n, 2] x, int64 k) => (float[m, 2] y) {
      cond = Constant <value: tensor = bool {1}> ()
      y = Loop (k, cond, x) <body = b (int64 i, bool c, float[p, 2] s) => (bool c2, float[q, 2] s2) {
        c2 = Identity (c)
        s2 = Concat <axis: int = 0> (s, x)
      }>
    }"""
    check(text, *({"x": floats(n, 2), "k": np.array(k)} for n, k in ((2, 3), (1, 0), (4, 9))))


def test_branches_in_loops_in_branches() -> None:
    text = """
    agraph (float[n] x, bool flag, int64 k) => (float[n] y) {
      cond = Constant <value: tensor = bool {1}> ()
      zero = Constant <value: tensor = float {0}> ()
      y = If (flag) <
        then_branch = a () => (float[n] ya) {
          ya = Loop (k, cond, x) <body = b (int64 i, bool c, float[n] s) => (bool c2, float[n] s2) {
            c2 = Identity (c)
            total = ReduceSum <keepdims: int = 0> (s)
            up = Greater (total, zero)
            s2 = If (up) <
              then_branch = d () => (float[n] sd) { sd = Sub (s, x) },
              else_branch = e () => (float[n] se) { t = Tanh (x) se = Add (s, t) }
            >
          }>
        },
        else_branch = g () => (float[n] yg) { yg = Neg (x) }
      >
    }"""
    feeds = [
        {"x": floats(n, seed=n), "flag": np.array(f), "k": np.array(k)}
        for n in (1, 6)
        for f, k in ((1, 5), (0, 2), (1, 0))
    ]
    for feed in feeds:
        feed["flag"] = feed["flag"].astype(bool)
    check(text, *feeds)


@pytest.mark.parametrize("direction", [0, 1])
def test_scan_over_an_open_length(direction: int) -> None:
    text = f"""
    agraph (float[4] start, float[n, 4] x) => (float[4] last, float[n, 4] rows) {{
      last, rows = Scan <num_scan_inputs: int = 1, scan_input_directions: ints = [{direction}],
          scan_output_directions: ints = [{direction}],
          body = b (float[4] s, float[4] row) => (float[4] s2, float[4] r) {{
            t = Add (s, row)
            s2 = Tanh (t)
            r = Mul (s2, row)
          }}> (start, x)
    }}"""
    check(text, *({"start": floats(4), "x": floats(n, 4, seed=n)} for n in (1, 2, 30)))


def test_nonzero_and_operators_on_its_result() -> None:
    text = """
    agraph (float[3, 5] x) => (int64[2, k] places, float[k] values) {
      zero = Constant <value: tensor = float {0}> ()
      marks = Greater (x, zero)
      places = NonZero (marks)
      pairs = Transpose <perm: ints = [1, 0]> (places)
      picked = GatherND (x, pairs)
      values = Exp (picked)
    }"""
    check(text, {"x": floats(3, 5)}, {"x": -np.abs(floats(3, 5))}, {"x": np.abs(floats(3, 5))})


def test_shapes_given_at_run_time() -> None:
    text = """
    agraph (float[n, 6] x, int64[3] shape, int64[2] big) => (float[a, b, c] y, float[d, e] z) {
      y = Reshape (x, shape)
      one = Constant <value: tensor = int64[1] {0}> ()
      total = ReduceSum <keepdims: int = 1> (x)
      z = Expand (total, big)
    }"""
    exe = check(
        text,
        {"x": floats(2, 6), "shape": np.array([3, 2, 2]), "big": np.array([2, 3])},
        {"x": floats(4, 6), "shape": np.array([0, -1, 3]), "big": np.array([1, 5])},
        {"x": floats(1, 6), "shape": np.array([1, 1, -1]), "big": np.array([7, 1])},
    )
    with pytest.raises(InputError):
        exe.run(x=floats(2, 6), shape=np.array([3, 3, 2]), big=np.array([2, 3]))


def test_slices_and_ranges_with_computed_bounds() -> None:
    text = """
    agraph (float[n, 4] x, int64[1] start, int64[1] stop, int64 limit) => (float[m, 4] y, int64[k] r) {
      axes = Constant <value: tensor = int64[1] {0}> ()
      y = Slice (x, start, stop, axes)
      begin = Constant <value: tensor = int64 {2}> ()
      step = Constant <value: tensor = int64 {3}> ()
      r = Range (begin, limit, step)
    }"""
    cases = ((5, 1, 4, 12), (5, -3, 100, 2), (5, 0, -1, 3), (2, 0, 2, 30))
    check(
        text,
        *(
            {"x": floats(n, 4), "start": np.array([a]), "stop": np.array([b]), "limit": np.array(limit)}
            for n, a, b, limit in cases
        ),
    )


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_over_an_open_length(kind: str) -> None:
    gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 5
    weights = {
        "w": floats(2, gates * hidden, 3, seed=1),
        "r": floats(2, gates * hidden, hidden, seed=2),
        "b": floats(2, 2 * gates * hidden, seed=3),
    }
    made = model(f"""
    agraph (float[n, batch, 3] x) => (float[n, 2, batch, {hidden}] y, float[2, batch, {hidden}] h)
    <float[2, {gates * hidden}, 3] w, float[2, {gates * hidden}, {hidden}] r, float[2, {2 * gates * hidden}] b>
    {{ y, h = {kind} <hidden_size: int = {hidden}, direction: string = "bidirectional"> (x, w, r, b) }}""")
    del made.graph.initializer[:], made.graph.value_info[:]
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    exe = weft.compile(made, threads=1)
    other = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for length, batch in ((1, 1), (4, 2), (33, 3)):
        x = floats(length, batch, 3, seed=length)
        for got, wanted in zip(exe(x), other.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_squeeze_if_the_size_is_one() -> None:
    """The way PyTorch exports ``x.squeeze(1)``: what follows is made for the squeezed shape."""
    text = """
    agraph (float[n, d, 4] x) => (float[n, 2] y)
    <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
      shape = Shape (x)
      one = Constant <value: tensor = int64 {1}> ()
      size = Gather <axis: int = 0> (shape, one)
      single = Equal (size, one)
      flat = If (single)
      <then_branch = t () => (float[n, 4] a) {
        axis = Constant <value: tensor = int64[1] {1}> ()
        a = Squeeze (x, axis)
      }, else_branch = e () => (float[n, d, 4] b) {
        b = Identity (x)
      }>
      y = Gemm (flat, w)
    }"""
    exe = check(text, {"x": floats(3, 1, 4)}, {"x": floats(7, 1, 4)})
    with pytest.raises(InputError, match="dimension 1"):
        exe(floats(3, 2, 4))


TRIPS = {"absent": "", "known": "three", "many": "forty", "negative": "less", "given": "k", "size": "more"}
STARTS = {"absent": "", "true": "yes", "false": "no", "given": "start"}
BODIES = {
    "handed through": "c2 = Identity (c)",
    "true": "c2 = Constant <value: tensor = bool {1}> ()",
    "false": "c2 = Constant <value: tensor = bool {0}> ()",
    "counted": "two = Constant <value: tensor = int64 {2}> ()  c2 = Less (i, two)",
    "by the state": "t = ReduceSum <keepdims: int = 0> (s2)  eight = Constant <value: tensor = float {8}> ()"
    "  c2 = Less (t, eight)",
}


@pytest.mark.parametrize("body", sorted(BODIES))
@pytest.mark.parametrize("start", sorted(STARTS))
@pytest.mark.parametrize("trips", sorted(TRIPS))
def test_every_combination_of_trip_count_and_conditions(trips: str, start: str, body: str) -> None:
    """A loop runs while both its trip count and its condition allow it; the first condition counts too."""
    text = f"""
    agraph (float[2] x, float[n] w, int64 k, bool start) => (float[2] y, float[m, 2] rows) {{
      three = Constant <value: tensor = int64 {{3}}> ()
      forty = Constant <value: tensor = int64 {{40}}> ()
      less = Constant <value: tensor = int64 {{-2}}> ()
      length = Size (w)
      more = Sub (length, three)
      yes = Constant <value: tensor = bool {{1}}> ()
      no = Constant <value: tensor = bool {{0}}> ()
      y, rows = Loop ({TRIPS[trips]}, {STARTS[start]}, x)
      <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] s2, float[2] r) {{
        one = Constant <value: tensor = float {{1}}> ()
        s2 = Add (s, one)
        r = Mul (s2, s)
        {BODIES[body]}
      }}>
    }}"""
    ends = trips != "absent" or body not in ("true", "handed through")
    if not ends and start not in ("false", "given"):
        return  # it runs forever
    starts = (True, False) if ends else (False,)
    x = np.array([0.5, 1.0], np.float32)
    feeds = [
        {"x": x, "w": np.zeros(max(0, k + 3), np.float32), "k": np.array(k), "start": np.array(s)}
        for k in (-(1 << 63), -3, -1, 0, 1, 5)
        for s in starts
    ]
    check(text, *feeds)


def test_a_negative_difference_of_sizes_is_no_iteration() -> None:
    """Of a loop whose state grows and whose rows have sizes of the model; what follows reads the number of rows."""
    text = """
    agraph (float[n, p] x) => (float[q, p] y, float[m, n] rows, int64[2] size, float total) {
      shape = Shape <start: int = 0, end: int = 1> (x)
      last = Shape <start: int = 1, end: int = 2> (x)
      d = Sub (shape, last)
      t = Squeeze (d)
      y, rows = Loop (t, , x) <body = b (int64 i, bool c, float[u, p] s) => (bool c2, float[v, p] s2, float[n] r) {
        c2 = Identity (c)
        s2 = Concat <axis: int = 0> (s, x)
        f = Cast <to: int = 1> (i)
        first = ReduceSum <keepdims: int = 0> (x, axes)
        r = Add (first, f)
      }>
      size = Shape (rows)
      total = ReduceSum <keepdims: int = 0> (rows)
    }""".replace("shape = Shape", "axes = Constant <value: tensor = int64[1] {1}> ()  shape = Shape", 1)
    exe = weft.compile(model(text), threads=1)
    for n, p in ((3, 5), (5, 3), (1, 9), (4, 4), (5, 4), (0, 2), (2, 0), (14, 1)):
        x, count = floats(n, p), max(0, n - p)
        got = exe.run(x=x)
        np.testing.assert_array_equal(got["y"], np.concatenate([x] * (count + 1)))
        rows = x.sum(1) + np.arange(count, dtype=np.float32)[:, None]
        np.testing.assert_allclose(got["rows"], rows, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["total"], rows.sum(), rtol=1e-4, atol=1e-5)
        assert got["rows"].shape == (count, n) == tuple(got["size"])


def test_a_sequence_in_a_loop_that_may_not_start_is_refused() -> None:
    text = """
    agraph (float[n] x, bool start) => (float[m] y) {
      three = Constant <value: tensor = int64 {3}> ()
      first = SequenceConstruct (x)
      all = Loop (three, start, first)
      <body = b (int64 i, bool c, seq(float[n]) s) => (bool c2, seq(float[n]) s2) {
        c2 = Identity (c)
        s2 = SequenceInsert (s, x)
      }>
      y = ConcatFromSequence <axis: int = 0> (all)
    }"""
    with pytest.raises(UserError, match="start condition"):
        weft.compile(model(text))


def test_a_branch_that_does_not_fit_the_sizes_matters_only_if_it_is_taken() -> None:
    """The window of one branch is larger than short inputs, so its buffers would have negative sizes."""
    text = """
    agraph (float[1, 1, n] x, bool c) => (float[1, 1, 1] y)
    <float[1, 1, 5] w = {1, 2, 3, 4, 5}, int64[1] two = {2}> {
      y = If (c) <
        then_branch = t () => (float[1, 1, 1] a) {
          e = Exp (x)
          v = Conv (e, w)
          u = Conv (v, w)
          a = ReduceSum <keepdims: int = 1> (u, two)
        },
        else_branch = f () => (float[1, 1, 1] b) { b = ReduceSum <keepdims: int = 1> (x, two) }
      >
    }"""
    feeds = [{"x": floats(1, 1, n), "c": np.array(c)} for n, c in ((9, True), (12, False), (1, False), (4, False))]
    exe = check(text, *feeds, {"x": floats(1, 1, 30), "c": np.array(True)})
    for n in (0, 1, 4, 5, 7):
        if n:
            np.testing.assert_allclose(exe(floats(1, 1, n), np.array(False)).sum(), floats(1, 1, n).sum(), rtol=1e-4)
        with pytest.raises(InputError) as refusal:
            exe(floats(1, 1, n), np.array(True))
        assert refusal.value.code == "I004"


SIZES_USED: dict[str, Callable[[int], Any]] = {
    "y = Shape (rows)": lambda runs: np.array([runs]),
    "y = Shape (last)": lambda runs: np.array([2 * (runs + 1)]),
    "size = Shape (rows)  y = ConstantOfShape (size)": lambda runs: np.zeros(runs, np.float32),
}


@pytest.mark.parametrize("nested", [False, True], ids=["main", "branch"])
@pytest.mark.parametrize("use", SIZES_USED)
def test_only_a_size_of_a_loop_is_used(use: str, nested: bool) -> None:
    """Nothing reads the elements that the loop computes, but it must run."""
    body = f"""
      last, rows = Loop (k, , x) <body = b (int64 i, bool on, float[p] s) => (bool on2, float[q] s2, float r) {{
        s2 = Concat <axis: int = 0> (s, x)
        r = ReduceSum <keepdims: int = 0> (s)
        on2 = Less (i, end)
      }}>
      {use.replace("y = ", "t = " if nested else "y = ")}"""
    if nested:
        other = f"u = Shape (x)  z = {'Cast <to: int = 1>' if 'ConstantOf' in use else 'Identity'} (u)"
        body = f"y = If (c) <then_branch = t () => (t) {{ {body} }}, else_branch = e () => (z) {{ {other} }}>"
    exe = weft.compile(model(f"agraph (bool c, int64 k, int64 end, float[2] x) => (y) {{ {body} }}"), threads=1)
    for k, end in ((3, 9), (5, 1), (0, 9)):
        feeds = {"c": np.array(True), "k": np.array(k), "end": np.array(end), "x": floats(2)}
        (got,) = exe.run(feeds).values()
        np.testing.assert_array_equal(got, SIZES_USED[use](min(k, end + 1)), strict=True)


def test_loops_over_sequences_that_do_not_run_have_rows_of_known_shape() -> None:
    text = """
    agraph (float[n, 3] x) => (float[m, 3] y, float[k, n, 3] rows, float[l, p] others) {
      none = Constant <value: tensor = int64 {0}> ()
      first = SequenceConstruct (x, x)
      all, rows, others = Loop (none, , first)
      <body = b (int64 i, bool c, seq(float[n, 3]) s) => (bool c2, seq(float[n, 3]) s2, float[n, 3] r, float[q] o) {
        c2 = Identity (c)
        s2 = SequenceInsert (s, x)
        r = SequenceAt (s, i)
        places = NonZero (r)
        axis = Constant <value = int64[1] {0}> ()
        numbers = Cast <to: int = 1> (places)
        o = ReduceSum <keepdims: int = 0> (numbers, axis)
      }>
      y = ConcatFromSequence <axis: int = 0> (all)
    }"""
    y, rows, others = weft.compile(model(text), threads=1)(floats(4, 3))
    assert y.shape == (8, 3) and rows.shape == (0, 4, 3) and others.shape == (0, 0)


def test_values_that_loops_and_sizes_come_from_are_found() -> None:
    """What must be known is traced to the inputs of the model, through loops and items of sequences."""
    from weft.frontends.onnx import backend

    text = """
    agraph (int64 k, int64 end, seq(float[2]) items) => (float[m] y) {
      none, rows = Loop (k, , k) <body = b (int64 i, bool on, int64 s) => (bool on2, int64 s2, int64 r) {
        on2 = Less (i, end)
        s2 = Identity (s)
        r = Identity (i)
      }>
      parts = SplitToSequence (rows)
      n = SequenceLength (parts)
      one = Constant <value: tensor = int64 {1}> ()
      all = Loop (n, , items) <body = c (int64 j, bool go, seq(float[2]) t) => (bool go2, seq(float[2]) t2) {
        go2 = Identity (go)
        first = SequenceAt (t, one)
        t2 = SequenceInsert (t, first)
      }>
      y = ConcatFromSequence <axis: int = 0> (all)
    }"""
    prepared = backend.prepare(model(text))
    for k, end in ((3, 9), (5, 1), (0, 9)):
        (y,) = prepared.run({"k": np.array(k), "end": np.array(end), "items": [floats(2), floats(2, seed=1)]})
        assert y.shape == (2 * (2 + min(k, end + 1)),)
