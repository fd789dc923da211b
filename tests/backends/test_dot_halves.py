"""Products of bfloat16 in pairs: equal to the interpreter for every shape; the instruction is used if it exists."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.graph.build import constant, function, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import kernel_stages, operators_in, optimize, unscheduled
from weft.target import Target
from weft.tir.interpret import run as judge

BF16 = ml_dtypes.bfloat16
TARGETS = ("zen4", "sapphire-rapids", "x86-64-v3")


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(BF16)


def product(m: int, k: int, n: int, seed: int = 0, weights: bool = True) -> tuple[Module, list[np.ndarray[Any, Any]]]:
    x, y, z = var("x", (m, k), "bfloat16"), var("y", (k, n), "bfloat16"), var("z", (n,))
    a, b, c = normal(seed, m, k), normal(seed + 1, k, n), normal(seed + 2, n).astype(np.float32)
    made = call(op("matmul"), [x, constant(b) if weights else y], {"out_dtype": "float32"})
    made = call(op("cast"), [call(op("relu"), [call(op("add"), [made, z])])], {"to": "bfloat16"})
    if weights:
        return Module({"main": function([x, z], made)}), [a, c]
    return Module({"main": function([x, y, z], made)}), [a, b, c]


def group(module: Module, target: str) -> Function:
    found = [e.target for e in post_order(optimize(module, Target(target)).main) if isinstance(e, Call)]
    return next(f for f in found if isinstance(f, Function) and "matmul" in operators_in(f))


def agree(module: Module, values: list[np.ndarray[Any, Any]]) -> None:
    wanted = np.asarray(interpret(module, values), np.float64)
    got = np.asarray(weft.compile(module, cache=False)(*values), np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1.6e-2, atol=2e-2)


@settings(max_examples=12)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70), st.booleans(), st.integers(0, 9))
def test_random_products(m: int, k: int, n: int, weights: bool, seed: int) -> None:
    agree(*product(m, k, n, seed, weights))


@pytest.mark.parametrize("shape", [(8, 64, 48), (13, 30, 33), (1, 64, 32), (5, 4, 17), (3, 2, 16), (4, 7, 16)])
def test_products(shape: tuple[int, int, int]) -> None:
    agree(*product(*shape))
    agree(*product(*shape, weights=False))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [16, 24, 40])
def test_convolutions(channels: int, stride: int) -> None:
    x = var("x", (1, channels, 9, 7), "bfloat16")
    w = constant(normal(1, 20, channels, 3, 3))
    attrs = {"out_dtype": "float32", "pads": (1, 1, 1, 1), "strides": (stride, stride)}
    agree(Module({"main": function([x], call(op("conv"), [x, w], attrs))}), [normal(0, 1, channels, 9, 7)])


@pytest.mark.parametrize("equation", ["bshd,bthd->bhst", "bhst,bthd->bshd"])
def test_products_of_computed_operands(equation: str) -> None:
    shapes = ((2, 6, 3, 8), (2, 10, 3, 8)) if equation.startswith("bs") else ((2, 3, 6, 10), (2, 10, 3, 18))
    x, y = (var(name, shape, "bfloat16") for name, shape in zip("xy", shapes, strict=True))
    made = call(op("einsum"), [x, y], {"equation": equation, "out_dtype": "float32"})
    agree(Module({"main": function([x, y], made)}), [normal(i, *s) for i, s in enumerate(shapes)])


def test_infinities_and_not_a_number_stay() -> None:
    module, (a, c) = product(3, 16, 16)
    a[0, 3], a[1, 2] = np.inf, np.nan
    got = np.asarray(weft.compile(module, cache=False)(a, c), np.float32)
    wanted = np.asarray(interpret(module, [a, c]), np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(wanted)) and np.array_equal(np.isinf(got), np.isinf(wanted))


@pytest.mark.parametrize("target", TARGETS)
def test_the_instruction_is_chosen_by_the_target(target: str) -> None:
    """31 rows are no whole tiles, which a matrix unit would take."""
    stages = {s.name: s.text for s in kernel_stages(group(product(31, 64, 48)[0], target), Target(target))}
    assert "dot2" in stages["kernel"]
    assert ("vdpbf16ps" in stages["assembly"]) == (Target(target).vector_unit("bfloat16") is not None)
    assert ("vcvtneps2bf16" in stages["assembly"]) == (Target(target).vector_unit("bfloat16") is not None)


def test_the_judge_runs_the_schedule() -> None:
    program, _ = unscheduled(group(product(13, 12, 20)[0], "zen4"))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([int(d) for d in p.shape]).astype(p.dtype.numpy) for p in program.params[:-1]]  # type: ignore[call-overload]
    plain, tiled = judge(program, inputs), judge(scheduled(program, Target("zen4")).program, inputs)
    for a, b in zip(plain, tiled, strict=True):
        np.testing.assert_allclose(b.astype(np.float32), a.astype(np.float32), rtol=1e-2, atol=1e-2)
