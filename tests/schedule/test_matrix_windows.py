"""Windows over images with matrix tiles: rows of a tile are pixels of a line; its depth is 32 adjacent channels."""

from __future__ import annotations

from typing import Any

import models_zoo as zoo
import numpy as np
import pytest
from test_matrix_rule import AMX, agree, halves, hot_loop, imitated, on_the_unit

import weft
from weft.backends.llvm.tiles import uses_tiles
from weft.graph.build import constant, function, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, GraphExpr, Module, Var, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import lowered
from weft.ops.catalogue import op
from weft.pipeline import Options, kernel_stages, operators_in, optimize, unscheduled
from weft.target import Target

Sizes = tuple[int, int, int, int, int, int, int, int]
"""Pictures, channels, height and width, results, window, stride, padding."""


def window(x: GraphExpr, seed: int, outputs: int, size: int, stride: int = 1, pad: int = 0, groups: int = 1) -> Call:
    """``conv(x, …)`` of known weights, sums in float32."""
    weights = constant(halves(seed, outputs, int(x.tensor.shape[1]) // groups, size, size))
    attrs = {"strides": (stride, stride), "pads": (pad,) * 4, "groups": groups, "out_dtype": "float32"}
    return call(op("conv"), [x, weights], attrs)


def rounded(x: GraphExpr) -> Call:
    return call(op("cast"), [x], {"to": "bfloat16"})


def picture(sizes: Sizes, epilogue: bool = False, groups: int = 1) -> tuple[Module, list[Any]]:
    n, c, height, width, o, size, stride, pad = sizes
    x = var("x", (n, c, height, width), "bfloat16")
    made = window(x, 1, o, size, stride, pad, groups)
    params, values = [x], [halves(0, n, c, height, width)]
    if epilogue:
        r = var("r", tuple(int(d) for d in made.tensor.shape))
        bias = constant(halves(3, o, 1, 1).astype(np.float32))
        made = rounded(call(op("relu"), [call(op("add"), [call(op("add"), [made, bias]), r])]))
        params, values = [x, r], [*values, halves(2, *made.tensor.shape).astype(np.float32)]
    return Module({"main": function(params, made)}), values


def pieces(rows: int) -> int:
    """The fewest tiles of equal height."""
    return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= 16)


def least(sizes: Sizes) -> int:
    """Tiles that a window takes at least."""
    n, c, height, width, o, size, stride, pad = sizes
    high, wide = ((d + 2 * pad - size) // stride + 1 for d in (height, width))
    return n * high * pieces(wide) * -(-o // 32) * 2 * -(-c // 32) * size * size


def kernels(module: Module, target: str, **options: Any) -> list[Function]:
    main = optimize(module, Target(target), Options(**options)).main
    found = [e.target for e in post_order(main) if isinstance(e, Call)]
    return [f for f in dict.fromkeys(found) if isinstance(f, Function) and f.is_primitive]


def code(group: Function, target: str) -> str:
    return next(s.text for s in kernel_stages(group, Target(target)) if s.name == "assembly")


@imitated
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 256, 8, 8, 256, 1, 1, 0),
        (1, 64, 5, 8, 32, 3, 1, 1),
        (2, 32, 7, 7, 64, 3, 1, 1),
        (1, 64, 8, 8, 64, 3, 2, 1),
        (1, 64, 7, 14, 96, 1, 2, 0),
        (1, 32, 9, 9, 32, 7, 2, 3),
        (1, 48, 6, 6, 40, 3, 1, 1),
        (1, 32, 6, 18, 32, 3, 1, 1),
        (1, 64, 2, 34, 32, 3, 1, 1),
    ],
)
@pytest.mark.parametrize("epilogue", [False, True])
def test_windows(sizes: Sizes, epilogue: bool) -> None:
    """Strides, padding, lines of 4 to 18 pixels, channels that do not fill blocks; no more tiles than needed."""
    counts = agree(*picture(sizes, epilogue), least(sizes))
    assert counts.zeros == counts.stores, "sums start as zeros in their registers and leave them once"


@imitated
@pytest.mark.parametrize("groups, tiles", [(2, 2 * 4 * 2 * 2 * 9), (4, 0), (64, 0)])
def test_groups(groups: int, tiles: int) -> None:
    """Groups of whole blocks of 32 channels are multiplied in tiles, smaller ones as elsewhere."""
    module, values = picture((2, 64, 4, 6, 64, 3, 1, 1), groups=groups)
    agree(module, values, tiles)


@imitated
@pytest.mark.parametrize(
    "sizes", [(1, 3, 12, 12, 32, 7, 2, 3), (1, 32, 3, 17, 16, 1, 1, 0), (1, 64, 2, 17, 32, 3, 1, 1)]
)
def test_shapes_that_would_leave_tiles_mostly_empty(sizes: Sizes) -> None:
    """Three channels, or lines that only tiles of one row divide, however long the sums."""
    agree(*picture(sizes), 0)


@imitated
def test_infinities_and_nan_stay_where_they_are_seen() -> None:
    module, (x,) = picture((1, 32, 6, 6, 32, 3, 1, 1))
    x[0, 5, 0, 0], x[0, 7, 5, 5] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        agree(module, [x], least((1, 32, 6, 6, 32, 3, 1, 1)))


@pytest.mark.parametrize(
    "sizes, products, loads",
    [
        ((1, 64, 56, 56, 64, 3, 1, 1), 4, 4),
        ((1, 64, 56, 56, 256, 1, 1, 0), 4, 4),
        ((1, 128, 28, 28, 128, 3, 2, 1), 4, 4),
        ((1, 512, 7, 7, 512, 3, 1, 1), 2, 3),
    ],
)
def test_the_hot_loop_of_windows(sizes: Sizes, products: int, loads: int) -> None:
    """Two lines of pixels, or two tiles of one line, share weights; nothing is stored in the loop. The reference rates
    take the tiles for one layer alone, whose layout has to be changed and changed back."""
    target = f"{AMX} -rates="
    (group,) = (g for g in kernels(picture(sizes)[0], target) if "conv" in operators_in(g))
    assert_loop(code(group, target), products, loads)


def assert_loop(text: str, products: int, loads: int) -> None:
    loop = hot_loop(text)
    assert sum(line.startswith("tdpbf16ps") for line in loop) == products
    assert sum(line.startswith("tileloadd") for line in loop) == loads
    assert not any(line.startswith(("tilestored", "tilezero", "vdpbf16ps")) for line in loop)


@pytest.mark.parametrize("target", [AMX, f"{AMX} -rates="], ids=["its own rates", "reference rates"])
def test_the_hot_loops_of_windows_in_a_row(target: str) -> None:
    """Between other windows no layout has to be changed for one alone: the rates of the machine take the tiles too."""
    y: GraphExpr = var("x", (1, 64, 28, 28), "bfloat16")
    for seed, (outputs, size, pad) in enumerate([(64, 3, 1), (256, 1, 0), (64, 1, 0), (64, 3, 1)]):
        y = rounded(window(y, seed, outputs, size, 1, pad))
    params = [v for v in post_order(y) if isinstance(v, Var)]
    windows = [g for g in kernels(Module({"main": function(params, y)}), target) if "conv" in operators_in(g)]
    assert len(windows) == 4
    for group in windows:
        assert_loop(code(group, target), 4, 4)


@pytest.mark.parametrize("target", ["zen4", "x86-64-v4", "ice-lake"])
def test_other_targets_have_neither_tiles_nor_their_blocks(target: str) -> None:
    for group in kernels(picture((1, 64, 8, 8, 64, 3, 1, 1), epilogue=True)[0], target):
        assert "32c" not in str(group) and "tdp" not in code(group, target)


def test_float32_keeps_its_blocks_on_machines_with_the_unit() -> None:
    x = var("x", (1, 64, 8, 8))
    weights = constant(halves(1, 64, 64, 3, 3).astype(np.float32))
    module = Module({"main": function([x], call(op("conv"), [x, weights], {"pads": (1,) * 4}))})
    plain, unit = (optimize(module, Target(t), Options(winograd=False)) for t in ("zen4", AMX))
    assert [t.shape for t in _types(plain)] == [t.shape for t in _types(unit)]


def _types(module: Module) -> list[Any]:
    return [e.tensor for e in post_order(module.main) if isinstance(e, Call)]


def network() -> Module:
    """A stem over a picture and two residual blocks, as networks for images have them."""
    rng = np.random.default_rng(0)

    def step(x: GraphExpr, o: int, k: int, stride: int = 1, act: bool = True) -> Call:
        c = int(x.tensor.shape[1])  # type: ignore[arg-type]  # known
        weights = constant((rng.standard_normal((o, c, k, k)) * (2 / (c * k * k)) ** 0.5).astype(np.float32))
        bias = constant((rng.standard_normal((o, 1, 1)) * 0.1).astype(np.float32))
        attrs = {"strides": (stride, stride), "pads": (k // 2,) * 4}
        made = call(op("add"), [call(op("conv"), [x, weights], attrs), bias])
        return call(op("relu"), [made]) if act else made

    x = var("x", (1, 3, 28, 28))
    y: Call = call(op("max_pool"), [step(x, 32, 3, 2)], {"kernel": (2, 2), "strides": (2, 2)})
    for o, stride in ((64, 1), (128, 2)):
        inner = step(step(step(y, 32, 1), 64, 3, stride), o, 1, act=False)
        y = call(op("relu"), [call(op("add"), [inner, step(y, o, 1, stride, act=False)])])
    return Module({"main": function([x], call(op("reduce_mean"), [y], {"axes": (2, 3)}))})


def share_in_tiles(module: Module) -> float:
    """The part of all multiply-adds of windows and products whose kernels use the unit, in bfloat16."""
    total = tiled = 0.0
    for group in all_calls(optimize(module, Target(AMX), Options(precision="bf16"))):
        if {"conv", "matmul"} & set(operators_in(group)):
            program, work = unscheduled(group)
            total += int(work.flops)
            tiled += int(work.flops) * uses_tiles(lowered(program, Target(AMX)).body, Target(AMX).cpu.features)
    return tiled / total


def all_calls(module: Module) -> list[Function]:
    found = [e.target for e in post_order(module.main, into_functions=False) if isinstance(e, Call)]
    return [f for f in found if isinstance(f, Function)]


def test_a_network_runs_in_tiles() -> None:
    assert share_in_tiles(network()) >= 0.9, "all but the stem"


@imitated
def test_a_network_on_the_unit() -> None:
    module, value = network(), np.random.default_rng(1).standard_normal((1, 3, 28, 28)).astype(np.float32)
    wanted = np.asarray(interpret(module, [value]), np.float64).ravel()
    results, counts = on_the_unit(module, [value], Options(precision="bf16"))
    for result in results:
        (got,) = (np.asarray(r, np.float64).ravel() for r in result.values())
        assert got @ wanted >= 0.999 * np.linalg.norm(got) * np.linalg.norm(wanted)
    assert counts.products >= 500


@pytest.mark.slow
def test_resnet50_runs_in_tiles() -> None:
    assert share_in_tiles(weft.load(zoo.or_skip(zoo.light, "resnet50"))) >= 0.9
