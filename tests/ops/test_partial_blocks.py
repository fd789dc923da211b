"""Convolutions over channels that do not fill the blocks of the data: padding is not multiplied."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from weft.cost import REFERENCE
from weft.expr.nodes import Var
from weft.graph import build
from weft.graph.interpret import run
from weft.graph.nodes import Call, Function, GraphExpr, Module, call
from weft.graph.types import TensorType
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.ops.rules import winograd
from weft.ops.winograd import WINOGRAD_CONV
from weft.pipeline import Options, compile_module, optimize
from weft.runtime import Executable
from weft.support.dtypes import FLOAT32, DType
from weft.target import Target

RANDOM = np.random.default_rng(5)
IN_C = pytest.param("c", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"))
WIDE = Target("skylake-x -num-cores=2")
"""A machine with vectors, and so blocks, of sixteen channels."""


def chain(channels: tuple[int, ...], space: tuple[int, ...], kernel: int, batch: Any = 1, **changes: int) -> Module:
    """Convolutions one after the other: the data of all but the first is in blocks of channels."""
    rank = len(space)
    strides, dilations = (changes.get(name, 1) for name in ("strides", "dilations"))
    x: GraphExpr = build.var("x", (batch, channels[0], *space))
    e = x
    for inputs, outputs in pairwise(channels):
        weights = RANDOM.standard_normal((outputs, inputs, *(kernel,) * rank)) / np.sqrt(inputs * kernel**rank)
        pads = (dilations * (kernel // 2),) * 2 * rank
        attributes = {"strides": (strides,) * rank, "dilations": (dilations,) * rank, "pads": pads}
        e = call(op("conv"), [e, build.constant(weights.astype(np.float32))], attributes)
    return Module.of(build.function([x], e))  # type: ignore[list-item]  # a variable


def kernels_of(
    module: Module, options: Options | None = None, target: Target = WIDE
) -> list[tuple[str, tuple[Any, ...]]]:
    """The layout and the shape of each convolution's weights, as layouts were chosen."""
    found = []
    for group in post_order(optimize(module, target, options).main):
        if isinstance(group, Call) and isinstance(group.target, Function):
            for e in post_order(group.target):
                if isinstance(e, Call) and getattr(e.target, "name", "") == "conv":
                    found.append((str(e.attrs.kernel_layout), tuple(e.args[1].tensor.shape)))
    return found


@pytest.mark.parametrize(
    ("inputs", "block", "part"),
    [
        *((24, 16, 8), (40, 16, 8), (136, 16, 8), (20, 16, 4), (12, 16, 4), (17, 16, 4), (24, 32, 8)),
        *((16, 16, 16), (30, 16, 16), (31, 16, 16), (200, 16, 16), (1000, 16, 16)),
        *((12, 8, 4), (20, 8, 4), (24, 8, 8), (6, 4, 4)),
    ],
)
@pytest.mark.parametrize("letters", ["W", "HW", "DHW"])
def test_the_kernel_has_blocks_that_hold_little_padding(inputs: int, block: int, part: int, letters: str) -> None:
    n = len(letters)
    data = TensorType((1, inputs, *(9,) * n), FLOAT32)
    kernel = TensorType((32, inputs, *(3,) * n), FLOAT32)
    conv = op("conv")
    assert conv.layout is not None
    choices = conv.layout(conv.complete({"pads": (1,) * 2 * n}), (data, kernel), block, 0, REFERENCE)
    (packed,) = [c for c in choices if c.inputs[0] == f"NC{letters}{block}c"]
    assert packed.inputs[1] == f"OI{letters}{part}i{block}o"
    whole = -(-inputs // part) * part * (-(-32 // block) * block)
    work = 9**n * whole * 3**n
    assert packed.cost == pytest.approx(work / REFERENCE.packed_products)


def test_groups_of_halves_keep_their_blocks() -> None:
    """Instructions that add pairs of products take no condition and no part of a block."""
    types = (TensorType((1, 24, 9, 9), DType("bfloat16")), TensorType((32, 24, 3, 3), DType("bfloat16")))
    conv = op("conv")
    assert conv.layout is not None
    choices = conv.layout(conv.complete({"out_dtype": "float32"}), types, 16, 0, REFERENCE)
    assert [c.inputs[1] for c in choices if c.inputs[0] == "NCHW16c"] == ["OIHW8i16o2i"]


@pytest.mark.parametrize("space", [(20,), (12, 20), (4, 8, 12)])
def test_padding_is_not_multiplied(space: tuple[int, ...]) -> None:
    found = kernels_of(chain((3, 24, 20, 32), space, 3), Options(winograd=False))
    letters = "DHW"[-len(space) :]
    assert [layout for layout, _ in found[1:]] == [f"OI{letters}8i16o", f"OI{letters}4i16o"]
    assert [shape[1] * shape[-2] for _, shape in found[1:]] == [24, 20]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("channels", "space", "kernel", "batch", "changes"),
    [
        ((3, 24, 48), (4, 8, 12), 3, 1, {}),
        ((3, 24, 20, 40), (4, 6, 10), 3, 4, {}),
        ((3, 24, 20, 40), (5, 9, 11), 3, 1, {"strides": 2}),
        ((3, 17, 20), (5, 9, 11), 3, 1, {"dilations": 2}),
        ((5, 12, 24), (1, 1, 1), 3, 1, {}),
        ((3, 24, 40, 16), (14, 15), 1, 1, {}),
        ((3, 24, 40, 16), (14, 15), 3, 4, {}),
        ((3, 24, 20, 7), (33, 18), 5, 1, {"strides": 2}),
        ((3, 12, 20), (40,), 3, 2, {"dilations": 3}),
        ((24, 40, 24), (56,), 1, 1, {}),
    ],
)
def test_agrees_with_the_interpreter(
    channels: tuple[int, ...], space: tuple[int, ...], kernel: int, batch: int, changes: dict[str, int]
) -> None:
    module = chain(channels, space, kernel, batch, **changes)
    x = np.random.default_rng(1).standard_normal((batch, channels[0], *space)).astype(np.float32)
    expected = np.asarray(run(module, [x]))
    artifact, _ = compile_module(module, [Target("cpu -num-cores=2")], options=Options(jobs=1))
    results = [np.asarray(Executable(artifact, threads)(x)) for threads in (1, 2)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", [IN_C, "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("space", [(9, 11), (3, 5, 9)])
def test_agrees_on_other_machines(target: str, space: tuple[int, ...]) -> None:
    """Blocks of eight and of four channels, and of other back ends."""
    if "v3" in target and "avx2" not in Target("cpu").cpu.features:
        pytest.skip("the machine has no AVX2")
    module = chain((3, 12, 20, 8), space, 3)
    x = np.random.default_rng(3).standard_normal((1, 3, *space)).astype(np.float32)
    artifact, _ = compile_module(module, [Target(target)], options=Options(jobs=1))
    np.testing.assert_allclose(np.asarray(Executable(artifact)(x)), np.asarray(run(module, [x])), rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("space", [(20,), (12, 20), (4, 8, 12)])
def test_an_open_number_of_images(space: tuple[int, ...]) -> None:
    module = chain((3, 24, 20, 40), space, 3, Var("n"))
    artifact, _ = compile_module(module, [Target("cpu -num-cores=2")], options=Options(jobs=1, winograd=False))
    for count in (0, 1, 2, 5):
        x = np.random.default_rng(count).standard_normal((count, 3, *space)).astype(np.float32)
        found = np.asarray(Executable(artifact, 2)(x))
        np.testing.assert_allclose(found, np.asarray(run(module, [x])), rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("inputs", [24, 20, 40])
def test_transformed_weights_have_whole_blocks(tile: int, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Winograd's products are over whole blocks of the data."""
    monkeypatch.setattr(winograd, "best_tile", lambda *_: tile)
    module = chain((3, inputs, 32), (13, 18), 3)
    groups = post_order(optimize(module, Target("cpu")).main)
    inside = [e for g in groups if isinstance(g, Call) and isinstance(g.target, Function) for e in post_order(g.target)]
    assert any(isinstance(e, Call) and e.target is WINOGRAD_CONV for e in inside)
    x = np.random.default_rng(2).standard_normal((1, 3, 13, 18)).astype(np.float32)
    artifact, _ = compile_module(module, [Target("cpu")], options=Options(jobs=1))
    np.testing.assert_allclose(np.asarray(Executable(artifact)(x)), np.asarray(run(module, [x])), rtol=1e-3, atol=1e-3)


def test_few_channels_keep_the_faster_form() -> None:
    """Winograd's algorithm stays the form of 24 channels of 28² pixels, though the direct one leaves out padding."""
    assert [layout for layout, _ in kernels_of(chain((3, 24, 24), (28, 28), 3), target=Target("zen4"))] == ["OIHW16o"]
