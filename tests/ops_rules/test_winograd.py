"""Winograd's algorithm: which convolutions it takes, with which tiles, and what numbers they then give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft.expr.nodes import Var
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, GraphExpr, Module, Origin, call
from weft.graph.parser import parse
from weft.graph.passes.rewrite import Rewrite
from weft.graph.visit import post_order
from weft.kernels.cache import KernelCache
from weft.ops.catalogue import OPERATORS, op
from weft.ops.rules.winograd import winograd_rules
from weft.ops.winograd import POINTS
from weft.pipeline import Options, compile_module, optimize
from weft.runtime import Executable
from weft.support.errors import InputError
from weft.target import Target

RANDOM = np.random.default_rng(0)
TILES = tuple(POINTS)
ALONE = {"jobs": 1}


@pytest.fixture(params=TILES)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Each tile, which then is the one of every convolution that fits."""
    monkeypatch.setattr("weft.ops.rules.winograd.best_tile", lambda data, result, allowed, rates: request.param)
    return int(request.param)


def one(name: str, *args: GraphExpr, **attrs: object) -> GraphExpr:
    return call(op(name), args, attrs)


def plain(shape: tuple[int, ...], outputs: int, pads: tuple[int, ...] = (1, 1, 1, 1), **attrs: object) -> Module:
    """A convolution of a picture as models have it."""
    x = build.var("x", shape)
    kernel = RANDOM.standard_normal((outputs, shape[1] // int(str(attrs.get("groups", 1))), 3, 3))
    weights = (kernel / np.sqrt(9 * shape[1])).astype(np.float32)
    return Module({"main": build.function([x], one("conv", x, build.constant(weights), pads=pads, **attrs))})


def blocked(size: int, channels: int, pads: tuple[int, ...] = (1, 1, 1, 1), batch: int = 1, **more: object) -> Module:
    """A convolution in blocks of 16 channels, as layouts are chosen."""
    blocks = channels // 16
    weights = RANDOM.standard_normal((blocks, blocks, 3, 3, 16, 16)).astype(np.float32)
    attrs = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c", "pads": pads, **more}
    x = build.var("x", (batch, blocks, size, size, 16))
    return Module({"main": build.function([x], one("conv", x, build.constant(weights), **attrs))})


def used(module: Module, options: Options | None = None) -> list[int]:
    """The tiles of the Winograd convolutions in the module as it is optimized."""
    fused = optimize(module, Target("zen4"), options)
    calls = [c for f in fused.functions.values() for c in post_order(f) if isinstance(c, Call)]
    return [int(c.args[1].tensor.shape[0]) - 2 for c in calls if getattr(c.target, "name", "") == "winograd_conv"]


def agrees(module: Module, options: Options, *inputs: np.ndarray) -> np.ndarray:
    """The compiled result, held against the interpreter's of the module as it was written."""
    artifact, _ = compile_module(module, [Target("cpu")], options=options)
    assert any("winograd" in k.name for k in artifact.program.kernels)
    got, want = Executable(artifact, 2)(*inputs), run(module, list(inputs))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert got.shape == want.shape
    return np.asarray(got)


# ---- the same numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "pads"), [(16, (1, 1, 1, 1)), (18, (0, 0, 0, 0)), (21, (1, 0, 0, 1))])
def test_the_graph_gives_the_same_numbers(tile: int, size: int, pads: tuple[int, ...]) -> None:
    before = blocked(size, 64, pads)
    after = Rewrite(winograd_rules((tile,))).run(before)
    assert [c.target.name for c in post_order(after.main) if isinstance(c, Call)] == ["winograd_conv"]
    x = RANDOM.standard_normal((1, 4, size, size, 16)).astype(np.float32)
    np.testing.assert_allclose(run(after, [x]), run(before, [x]), rtol=1e-3, atol=1e-3)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("shape", "outputs", "pads"),
    [
        ((1, 32, 4, 4), 32, (0, 0, 0, 0)),
        ((1, 32, 7, 7), 48, (1, 1, 1, 1)),
        ((1, 48, 5, 13), 32, (1, 0, 0, 1)),
        ((2, 32, 9, 6), 32, (0, 2, 1, 0)),
        ((3, 32, 14, 15), 64, (1, 1, 1, 1)),
        ((1, 40, 11, 8), 36, (1, 1, 1, 1)),
    ],
)
def test_sizes(tile: int, shape: tuple[int, ...], outputs: int, pads: tuple[int, ...]) -> None:
    agrees(plain(shape, outputs, pads), Options(**ALONE), RANDOM.standard_normal(shape).astype(np.float32))


def test_no_pictures(tile: int) -> None:
    artifact, _ = compile_module(plain((0, 32, 8, 8), 48), [Target("cpu")], options=Options(**ALONE))
    assert Executable(artifact, 2)(np.zeros((0, 32, 8, 8), np.float32)).shape == (0, 48, 8, 8)


def _biased(y: GraphExpr) -> GraphExpr:
    return one("relu", one("add", y, build.constant(RANDOM.standard_normal((32, 1, 1)).astype(np.float32))))


def _twice(y: GraphExpr) -> GraphExpr:
    return one("add", one("sigmoid", y), y)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("after", [_biased, _twice, lambda y: one("max_pool", y, kernel=(2, 2), strides=(2, 2))])
@pytest.mark.parametrize("residual", [False, True])
def test_operators_after_winograd_convolutions(
    tile: int, after: Callable[[GraphExpr], GraphExpr], residual: bool
) -> None:
    shape = (2, 32, 10, 9)
    module = plain(shape, 32)
    (x,), result = module.main.params, module.main.body
    made = Module({"main": build.function([x], after(one("add", result, x) if residual else result))})
    agrees(made, Options(**ALONE), RANDOM.standard_normal(shape).astype(np.float32))


def test_an_infinite_input_stays_in_its_tiles(tile: int) -> None:
    """It may make NaN of any result of a tile that reads it, and of no other."""
    shape = (1, 32, 16, 16)
    module = plain(shape, 32)
    x = RANDOM.standard_normal(shape).astype(np.float32)
    artifact, _ = compile_module(module, [Target("cpu")], options=Options(**ALONE))
    clean = Executable(artifact, 1)(x)
    x[0, 3, 5, 6] = np.inf
    got, exact = Executable(artifact, 1)(x), run(module, [x])
    lines, columns = ([t for t in range(0, 16, tile) if t - 1 <= at < t + tile + 1] for at in (5, 6))
    reached = np.zeros((16, 16), bool)
    for line in lines:
        for column in columns:
            reached[line : line + tile, column : column + tile] = True
    np.testing.assert_array_equal(got[..., ~reached], clean[..., ~reached])
    assert not np.isfinite(got[~np.isfinite(exact)]).any()


# ---- which convolutions, which tiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    [
        plain((1, 64, 32, 32), 64, groups=2),
        plain((1, 64, 32, 32), 64, strides=(2, 2)),
        plain((1, 64, 32, 32), 64, dilations=(2, 2)),
        plain((1, 8, 32, 32), 64),
    ],
)
def test_others_stay(module: Module) -> None:
    assert used(module) == []


OPEN = """
def @main<n>(%x: f32[{x}]) -> f32[{x}] {{
  %out: f32[{x}] = conv(%x, f32[64, 64, 3, 3]("w"), dilations=(1, 1), pads=(1, 1, 1, 1), strides=(1, 1))
  return %out
}}"""


@pytest.mark.filterwarnings("ignore:1 constants have no data")
def test_open_pictures_stay() -> None:
    assert used(parse(OPEN.format(x="1, 64, n, 56"), OPERATORS)) == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.filterwarnings("ignore:1 constants have no data")
def test_an_open_number_of_pictures_does_not_matter(count: int) -> None:
    """The tile is the one chosen for one picture; the result is right for any number of pictures."""
    assert used(parse(OPEN.format(x="n, 64, 56, 56"), OPERATORS)) == used(plain((1, 64, 56, 56), 64)) != []
    x = build.var("x", (Var("n"), 64, 28, 28))
    weights = (RANDOM.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)
    module = Module({"main": build.function([x], one("conv", x, build.constant(weights), pads=(1, 1, 1, 1)))})
    pictures = RANDOM.standard_normal((count, 64, 28, 28)).astype(np.float32)
    agrees(module, Options(**ALONE), pictures)


def test_no_pictures_stay() -> None:
    """Nothing is computed in any form, and the direct one has the fewest weights."""
    assert used(plain((0, 64, 56, 56), 64)) == []


def test_half_precision_stays() -> None:
    """Transformed data would round to eight bits before the sums, which then cancel."""
    assert used(plain((1, 64, 56, 56), 64), Options(precision="bf16")) == []


# ---- the switch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, 4, np.int64(4)])
def test_all_tiles_are_allowed(allowed: int) -> None:
    assert used(plain((1, 64, 56, 56), 64), Options(winograd=allowed)) == [4]


def test_only_the_more_exact_tile() -> None:
    assert used(plain((1, 64, 56, 56), 64), Options(winograd=2)) == [2]


@pytest.mark.parametrize(
    ("shape", "outputs", "best"),
    [
        ((1, 128, 28, 28), 128, [4]),
        ((1, 256, 14, 14), 256, [2]),
        ((1, 512, 7, 7), 512, [2]),
        ((8, 512, 7, 7), 512, [4]),
        ((1, 64, 13, 13), 256, [2]),
        ((1, 128, 112, 112), 64, [4]),
        ((1, 256, 4, 5), 256, []),
        ((1, 64, 7, 7), 64, []),
        ((1, 16, 30, 40), 16, []),
    ],
)
def test_the_fastest_is_chosen(shape: tuple[int, ...], outputs: int, best: list[int]) -> None:
    """As measured: small tiles waste less of small pictures and have fewer weights to read."""
    assert used(plain(shape, outputs)) == best


def test_none() -> None:
    assert used(plain((1, 64, 56, 56), 64), Options(winograd=False)) == []


def named(**shapes: tuple[int, ...]) -> Module:
    """Convolutions of one input each, by the names of their nodes."""
    xs, results = [], []
    for name, shape in shapes.items():
        x = build.var(f"x_{name}", shape)
        weights = (RANDOM.standard_normal((shape[1], shape[1], 3, 3)) / np.sqrt(9 * shape[1])).astype(np.float32)
        made = call(op("conv"), [x, build.constant(weights)], {"pads": (1, 1, 1, 1)}, origin=Origin((name,)))
        xs, results = [*xs, x], [*results, made]
    return Module({"main": build.function(xs, results)})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("large, small", [(4, None), (2, None), (0, None), (None, 2), (None, 4), (2, 4), (0, 0)])
def test_decisions_for_single_convolutions(large: int | None, small: int | None) -> None:
    """Every decision is taken and gives the same numbers; where none is, the estimate decides."""
    module = named(large=(1, 64, 28, 28), small=(1, 64, 7, 7))
    decided = {n: t for n, t in (("large", large), ("small", small)) if t is not None}
    options = Options(winograd_tiles=tuple(decided.items()))
    artifact, report = compile_module(module, [Target("cpu")], options=options, cache=KernelCache(None))
    _, default = compile_module(module, [Target("cpu")], cache=KernelCache(None))
    assert report.winograd == {n: t for n, t in {**default.winograd, **decided}.items() if t}
    assert not report.notes
    inputs = [RANDOM.standard_normal(p.tensor.shape).astype(np.float32) for p in module.main.params]
    for got, want in zip(Executable(artifact, 1)(*inputs), run(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_decisions_that_do_not_fit() -> None:
    module = named(strided=(1, 64, 8, 8))
    options = Options(winograd_tiles=(("unknown", 4),))
    report = compile_module(module, [Target("cpu")], options=options, cache=KernelCache(None))[1]
    assert "unknown" in report.notes[0]
    for wrong in ((("a", 3),), (("a", True),), (("a",),), ("a4",), ((4, "a"),)):
        with pytest.raises(InputError, match=r"winograd_tiles|tile of"):
            Options(winograd_tiles=wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InputError, match="one of 0, 2"):
        Options(winograd=2, winograd_tiles=(("a", 4),))


def test_each_setting_has_kernels_of_its_own() -> None:
    """One cache for all of them: settings never see each other's code, and each finds its own again."""
    module, cache = plain((1, 256, 20, 20), 256), KernelCache(None)
    x = RANDOM.standard_normal((1, 256, 20, 20)).astype(np.float32)
    settings: list[bool | int] = [True, 2, False, True, 2, False]
    results = []
    for winograd in settings:
        artifact, _ = compile_module(module, [Target("cpu")], options=Options(winograd=winograd), cache=cache)
        results.append(Executable(artifact, 1)(x).tobytes())
    assert results[:3] == results[3:] and len(set(results)) == 3


# ---- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "rms", "largest"), [(4, 2.2e-6, 4.5e-5), (2, 3.5e-7, 2.5e-6), (None, 5e-7, 6e-6)])
def test_the_error_is_as_stated(form: int | None, rms: float, largest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of the result's root mean square, for 64 channels and 56² pixels."""
    monkeypatch.setattr("weft.ops.rules.winograd.best_tile", lambda data, result, allowed, rates: form)
    found = relative_error(64, 56)
    assert found[0] < rms and found[1] < largest


def relative_error(channels: int, size: int) -> tuple[float, float]:
    """Root mean square and largest error of the compiled convolution against float64, in parts of the result's root
    mean square; inputs and weights are normal."""
    random = np.random.default_rng(0)
    weights = (random.standard_normal((channels, channels, 3, 3)) * np.sqrt(2 / 9 / channels)).astype(np.float32)
    x = build.var("x", (1, channels, size, size))
    model = Module({"main": build.function([x], one("conv", x, build.constant(weights), pads=(1, 1, 1, 1)))})
    data = random.standard_normal((1, channels, size, size)).astype(np.float32)
    exact = np.zeros((channels, size * size))
    wide = np.pad(data[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    for i in range(3):
        for j in range(3):
            part = wide[:, i : i + size, j : j + size].reshape(channels, -1)
            exact += weights[:, :, i, j].astype(np.float64) @ part
    artifact, _ = compile_module(model, [Target("cpu")], options=Options(**ALONE))
    error = Executable(artifact, 1)(data).reshape(channels, -1) - exact
    scale = np.sqrt(np.mean(exact**2))
    return float(np.sqrt(np.mean(error**2)) / scale), float(np.max(np.abs(error)) / scale)
