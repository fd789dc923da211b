"""Slices at and beyond the ends of their axes, against onnxruntime (NumPy begins before the first element)."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from one_node import OneNode, agree, by_compiler, by_interpreter, by_onnxruntime

import weft
from weft.frontends import onnx as frontend
from weft.graph import interpret
from weft.support.errors import InputError

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
BOUNDS = (-9, -3, -2, 0, 1, 9)


def sliced(size: int, start: int, end: int, step: int) -> OneNode:
    x = np.arange(size, dtype=np.float32)
    lists = tuple(np.array([v], np.int64) for v in (start, end, 0, step))
    return OneNode("Slice", (x, *lists), known=(1, 2, 3, 4), domain="")


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_bounds(step: int) -> None:
    ends = (*BOUNDS, LEAST, MOST) if step > 0 else (*BOUNDS, LEAST)
    for size, start, end in itertools.product((0, 1, 2, 5), BOUNDS, ends):
        if step < 0 and size == 0:
            continue
        case = sliced(size, start, end, step)
        agree(case, by_interpreter(case), by_onnxruntime(case))


def test_backwards_from_before_the_first() -> None:
    for case in (sliced(2, -3, MOST - 1, -2), sliced(1, -5, LEAST, -1)):
        agree(case, by_compiler(case), by_interpreter(case))
    assert by_compiler(sliced(1, -5, LEAST, -1))[0].tolist() == [0.0]


def test_sizes_known_at_run_time() -> None:
    """The end of an axis of unknown size: INT64_MIN and INT64_MAX do not overflow."""
    from onnx import helper

    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Slice", ["places", "first", "least", "axis", "back"], ["reversed"]),
        helper.make_node("Slice", ["places", "zero", "most", "axis", "two"], ["every_other"]),
    ]
    values = {"first": -1, "zero": 0, "least": LEAST, "most": MOST, "axis": 1, "back": -1, "two": 2}
    weights = [onnx.numpy_helper.from_array(np.array([v], np.int64), k) for k, v in values.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    outputs = [onnx.ValueInfoProto(name=o) for o in ("reversed", "every_other")]
    graph = helper.make_graph(nodes, "slices", [x], outputs, weights)
    run = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    made = run(np.array([1, 0, 2, 3, 0, 4], np.float32))
    assert [m.tolist() for m in made] == [[[5, 3, 2, 0]], [[0, 3]]]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("step", [1, 2, -1, -2, -3])
@pytest.mark.parametrize("joined", [True, False])
def test_bounds_of_an_open_size(step: int, joined: bool) -> None:
    """Constant bounds of an axis of open size are clamped at run time, as for known sizes."""
    import onnx
    import onnxruntime as ort
    from onnx import helper

    ends = (*BOUNDS, -1, 2, LEAST, *([MOST] if step > 0 else []))  # onnxruntime reads MOST as LEAST there
    bounds = [(s, e) for s in (-9, -3, -2, -1, 0, 1, 2, 9) for e in ends]
    bounds = bounds[::3] if joined else bounds[1::5]
    nodes, weights, outputs = [], {"axis": 1, "step": step}, []
    for n, (start, end) in enumerate(bounds):
        weights |= {f"s{n}": start, f"e{n}": end}
        nodes.append(helper.make_node("Slice", ["x", f"s{n}", f"e{n}", "axis", "step"], [f"y{n}"]))
        outputs.append(f"y{n}")
        if joined:
            nodes.append(helper.make_node("Concat", ["x", f"y{n}", "x"], [f"z{n}"], axis=1))
            outputs.append(f"z{n}")
    made = helper.make_graph(
        nodes, "slices", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, "n"])],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [onnx.numpy_helper.from_array(np.array([v], np.int64), k) for k, v in weights.items()],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = weft.compile(model, threads=1)
    other = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (0, 1, 2, 3, 5, 8):
        x = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        for name, got, wanted in zip(outputs, run(x), other.run(None, {"x": x}), strict=True):
            if step < 0 and size == 0:
                wanted = np.concatenate([x, x[:, :0], x], 1)  # onnxruntime takes one element of none
            np.testing.assert_array_equal(got, wanted, err_msg=f"{name} {bounds[int(name[1:])]} {size}")


MODEL = """<ir_version: 8, opset_import: ["" : 17]>
agraph (float[n, 3] x) => (float[m, 3] y) {{
  zero = Constant <value: tensor = int64[1] {{0}}> ()
  one = Constant <value: tensor = int64[1] {{1}}> ()
  two = Constant <value: tensor = int64[1] {{2}}> ()
  back = Constant <value: tensor = int64[1] {{-1}}> ()
  far = Constant <value: tensor = int64[1] {{-9}}> ()
  most = Constant <value: tensor = int64[1] {{9223372036854775807}}> ()
  shape = Shape (x)
  n = Slice (shape, zero, one)
  less1 = Sub (n, one)
  less2 = Sub (n, two)
  less4 = Sub (less2, two)
  more = Add (n, one)
  minus = Neg (n)
  half = Div (n, two)
  behind = Neg (half)
  part = Slice (x, {start}, {end}, zero, {step})
  y = {reader}
}}"""
PLACES = ("zero", "one", "back", "far", "less1", "less2", "less4", "more", "minus", "half", "behind")
ALONE, COMBINED = "Exp (part)", "CumSum (part, zero)"


def differences(reader: str, start: str, end: str, step: str) -> list[tuple[int, str]]:
    """The sizes for which the result is refused, with the code of the error. Other results agree with the reference
    evaluator; backwards, which it begins before the first element, the first bound is clamped as ONNX says."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    text = MODEL.format(start=start, end=end, step=step, reader=reader)
    model = onnx.parser.parse_model(text.replace("CumSum (part, zero)", "CumSum (part, axis)"))
    if reader == COMBINED:
        zero = onnx.numpy_helper.from_array(np.array(0, np.int64), "axis")
        model.graph.initializer.append(zero)
    run, reference, refused = weft.compile(model, threads=1), ReferenceEvaluator(model), []
    for n in (0, 1, 2, 3, 6):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        try:
            made = run(x)
        except weft.WeftError as error:
            refused.append((n, error.code))
            continue
        wanted = reference.run(None, {"x": x})[0]
        if step == "back":
            first, last = (v + n if v < 0 else v for v in (values(n)[start], values(n)[end]))
            wanted = np.exp(x[list(range(min(max(first, 0), n - 1), min(max(last, -1), n - 1), -1))])
        np.testing.assert_allclose(made, wanted, rtol=1e-5, err_msg=f"{start}:{end}:{step} of {n}")
    return refused


def values(n: int) -> dict[str, int]:
    """The values of ``PLACES`` in an axis of size n."""
    return dict(zip(PLACES, (0, 1, -1, -9, n - 1, n - 2, n - 4, n + 1, -n, n // 2, -(n // 2)), strict=True))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("step", ["one", "two", "back"])
@pytest.mark.parametrize("start", PLACES)
def test_bounds_that_are_sizes(start: str, step: str) -> None:
    """Negative ones count from the end, and all are clamped, for every size: as NumPy does."""
    ends = PLACES if step == "back" else (*PLACES, "most")
    chosen = ends[PLACES.index(start) % 2 :: 2]
    assert [(end, r) for end in chosen if (r := differences(ALONE, start, end, step))] == []


@pytest.mark.parametrize(
    ("start", "end", "sizes"),
    [
        ("minus", "most", []), ("behind", "most", []), ("zero", "minus", []), ("half", "more", []),
        ("zero", "less1", [0]), ("less2", "most", [0, 1]), ("back", "most", [0]), ("zero", "one", [0]),
    ],
)  # fmt: skip
def test_sizes_that_other_operators_take_for_granted(start: str, end: str, sizes: list[int]) -> None:
    """Where operators that combine elements read the result, a bound that is a number of elements from an end is taken
    to be inside, so that the size is known: the rest is refused, never wrong."""
    assert differences(COMBINED, start, end, "one") == [(n, "I004") for n in sizes]


def test_the_last_of_none_before_other_operators_is_refused() -> None:
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[n, 3] x) => (float[m, 3] y) {
      first = Constant <value: tensor = int64[1] {-1}> ()
      last = Constant <value: tensor = int64[1] {9223372036854775807}> ()
      one = Slice (x, first, last)
      y = Softmax (one)
    }"""
    run = weft.compile(onnx.parser.parse_model(text))
    assert run(np.zeros((4, 3), np.float32)).shape == (1, 3)
    with pytest.raises(weft.WeftError, match="must be at least 1"):
        run(np.zeros((0, 3), np.float32))


def halved(levels: int) -> onnx.ModelProto:
    """The sums of the even and the odd elements, again and again, as in wavelets: they broadcast where one of them has
    a single element."""
    steps = []
    for i in range(levels):
        steps += [
            f"even{i} = Slice(x{i}, zero, most, zero, two)",
            f"odd{i} = Slice(x{i}, one, most, zero, two)",
            f"x{i + 1} = Add(even{i}, odd{i})",
        ]
    text = f"""<ir_version: 8, opset_import: ["" : 18]> halves (float[n] x0) => (float[m] x{levels})
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] most = {{{MOST}}}>
    {{ {" ".join(steps)} }}"""
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("levels", [1, 3, 6])
def test_sums_of_even_and_odd_elements(levels: int) -> None:
    """The size of each sum mentions the sizes of both parts, and stays short however many levels there are."""
    module = frontend.load(halved(levels))
    assert len(str(module.main.body.tensor.shape)) < 4000
    for n in (2**levels, 3 * 2**levels, 0, 1, 3, 6, 7):
        x = np.arange(n, dtype=np.float32)
        wanted: np.ndarray | None = x
        try:
            for _ in range(levels):
                wanted = wanted[::2] + wanted[1::2]
        except ValueError:
            wanted = None
        if wanted is None:
            with pytest.raises(InputError):
                interpret.run(module, [x])
        else:
            np.testing.assert_array_equal(interpret.run(module, [x]), wanted)


def test_sums_of_even_and_odd_elements_compiled() -> None:
    x = np.arange(24, dtype=np.float32)
    run = weft.compile(halved(3), threads=1)
    np.testing.assert_array_equal(run(x), x.reshape(3, 8).sum(1))
