"""The default schedule gives products of bfloat16 and of bytes to matrix tiles where the target has them, elsewhere to
vectors of groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import models_zoo as zoo
import numpy as np
import pytest
import tile_unit

import weft
from weft.expr.nodes import Var
from weft.graph.build import constant, function, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, kernel_stages, operators_in, optimize, unscheduled
from weft.runtime import executable
from weft.target import Target
from weft.tir.interpret import run as judge

imitated = pytest.mark.skipif(tile_unit.absent() is not None, reason=str(tile_unit.absent()))
AMX = "sapphire-rapids"


def halves(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16)


def product(m: int, k: int, n: int, weights: bool = True, rounded: bool = True) -> tuple[Module, list[Any]]:
    """``relu(x @ y + z) + r``, the weights known or not, the result rounded or not."""
    x, y, z, r = var("x", (m, k), "bfloat16"), var("y", (k, n), "bfloat16"), var("z", (n,)), var("r", (m, n))
    a, b = halves(0, m, k), halves(1, k, n)
    c, d = halves(2, n).astype(np.float32), halves(3, m, n).astype(np.float32)
    made = call(op("matmul"), [x, constant(b) if weights else y], {"out_dtype": "float32"})
    made = call(op("add"), [call(op("relu"), [call(op("add"), [made, z])]), r])
    made = call(op("cast"), [made], {"to": "bfloat16"}) if rounded else made
    return Module({"main": function([x, *([] if weights else [y]), z, r], made)}), [a, *([] if weights else [b]), c, d]


def einsum(equation: str, *shapes: tuple[int, ...]) -> tuple[Module, list[Any]]:
    x, y = (var(name, shape, "bfloat16") for name, shape in zip("xy", shapes, strict=True))
    made = call(op("einsum"), [x, y], {"equation": equation, "out_dtype": "float32"})
    return Module({"main": function([x, y], made)}), [halves(i, *s) for i, s in enumerate(shapes)]


def byte_product(m: int, k: int, n: int, weights: bool = True) -> tuple[Module, list[Any]]:
    """``x @ y + z`` of unsigned and signed bytes, up to the ends of their ranges, the sums in int32."""
    x, y, z = var("x", (m, k), "uint8"), var("y", (k, n), "int8"), var("z", (n,), "int32")
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    c = rng.integers(-1000, 1000, n).astype(np.int32)
    made = call(op("matmul"), [x, constant(b) if weights else y], {"out_dtype": "int32"})
    made = call(op("add"), [made, z])
    return Module({"main": function([x, *([] if weights else [y]), z], made)}), [a, *([] if weights else [b]), c]


def group(module: Module, target: str, name: str = "matmul") -> Function:
    found = [e.target for e in post_order(optimize(module, Target(target)).main) if isinstance(e, Call)]
    return next(f for f in found if isinstance(f, Function) and name in operators_in(f))


def stages(module: Module, target: str, name: str = "matmul") -> dict[str, str]:
    return {s.name: s.text for s in kernel_stages(group(module, target, name), Target(target))}


def hot_loop(text: str) -> list[str]:
    """The instructions from the label before the first product to the jump after the last one."""
    lines = [line.strip() for line in text.splitlines()]
    at = [n for n, line in enumerate(lines) if line.startswith("tdpb")]
    start = max(n for n in range(at[0]) if lines[n].startswith(".LBB"))
    end = min(n for n in range(at[-1], len(lines)) if lines[n].startswith("j"))
    return lines[start:end]


def on_the_unit(
    module: Module, values: Mapping[str, Any] | list[Any], options: Options | None = None
) -> tuple[list[dict[str, Any]], tile_unit.Counts]:
    """The results of the imitated unit, in one thread (those of the pool let no signal through), and, where the CPU has
    one, of this in one thread and in several; instructions carried out."""
    artifact, _ = compile_module(module, [tile_unit.machine()], options=options)
    if isinstance(values, list):
        values = {i.name: v for i, v in zip(artifact.program.inputs, values, strict=True)}
    with tile_unit.imitated() as counts, pytest.MonkeyPatch.context() as patch:
        patch.setattr(executable, "cpu_features", lambda: tile_unit.machine().cpu.features)
        results = [executable.Executable(tile_unit.trapping_artifact(artifact), 1).run(values)]
    if tile_unit.here():
        one, several = (executable.Executable(artifact, n).run(values) for n in (1, 3))
        for name, value in one.items():
            assert value.tobytes() == several[name].tobytes(), "threads change the result"
        results.append(one)
    return results, counts


def agree(module: Module, values: list[Any], products: int, options: Options | None = None) -> tile_unit.Counts:
    """The interpreter agrees; so many products of tiles."""
    wanted = np.asarray(interpret(module, values), np.float64)
    results, counts = on_the_unit(module, values, options)
    for result in results:
        (got,) = result.values()
        np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=1.6e-2, atol=2e-2)
    assert counts.products == products
    return counts


@pytest.mark.parametrize(
    "shape, products, loads",
    [
        ((128, 768, 768), 4, 4),
        ((128, 768, 3072), 4, 4),
        ((384, 1024, 64), 4, 4),
        ((16, 64, 64), 4, 5),
        ((48, 96, 80), 3, 4),
        ((16, 64, 48), 3, 4),
        ((16, 64, 32), 2, 3),
        ((16, 64, 16), 1, 2),
    ],
)
def test_the_hot_loop(shape: tuple[int, int, int], products: int, loads: int) -> None:
    """Sums stay in registers: in the loop operands are read, each once, and multiplied; nothing is stored."""
    loop = hot_loop(stages(product(*shape)[0], AMX)["assembly"])
    assert sum(line.startswith("tdpbf16ps") for line in loop) == products
    assert sum(line.startswith("tileloadd") for line in loop) == loads
    assert not any(line.startswith(("tilestored", "tilezero", "vdpbf16ps")) for line in loop)


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    "shape, products, loads",
    [((128, 768, 768), 4, 4), ((1024, 1024, 1024), 4, 4), ((16, 128, 48), 3, 4), ((4, 128, 16), 1, 2)],
)
def test_the_hot_loop_of_bytes(shape: tuple[int, int, int], products: int, loads: int, weights: bool) -> None:
    loop = hot_loop(stages(byte_product(*shape, weights)[0], AMX)["assembly"])
    assert sum(line.startswith("tdpbusd") for line in loop) == products
    assert sum(line.startswith("tileloadd") for line in loop) == loads
    assert not any(line.startswith(("tilestored", "tilezero", "vpdpbusd")) for line in loop)


def test_spills_are_none() -> None:
    text = stages(product(128, 768, 768)[0], AMX)["assembly"]
    assert text.count("tdpbf16ps") == text.count("tilestored") == 4
    assert text.count("tileloadd") == text.count("tilezero") == 4, "four sums before the loop, four operands in it"


@pytest.mark.parametrize("target", ["zen4", "x86-64-v3", "x86-64-v4"])
def test_other_targets_have_none(target: str) -> None:
    assert "tile" not in stages(product(128, 768, 768)[0], target)["kernel"]


@pytest.mark.parametrize("shape", [(17, 32, 48), (32, 48, 32), (32, 64, 40), (1, 64, 64)])
def test_partial_tiles_use_the_pair_instructions(shape: tuple[int, int, int]) -> None:
    text = stages(product(*shape)[0], AMX)["assembly"]
    assert "tdpbf16ps" not in text and "vdpbf16ps" in text


@imitated
@pytest.mark.parametrize("shape", [(16, 32, 16), (32, 64, 32), (16, 96, 64), (64, 32, 16), (48, 64, 80), (96, 160, 96)])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("rounded", [True, False])
def test_products(shape: tuple[int, int, int], weights: bool, rounded: bool) -> None:
    m, k, n = shape
    agree(*product(*shape, weights, rounded), m // 16 * (n // 16) * (k // 32))


@imitated
@pytest.mark.parametrize(
    ("shape", "tiles"), [((13, 64, 48), 1), ((49, 128, 32), 7), ((28, 64, 32), 2), ((3, 256, 16), 1)]
)
def test_tiles_of_fewer_rows(shape: tuple[int, int, int], tiles: int) -> None:
    """Rows that are no multiple of 16 are cut into tiles of equal height."""
    _, k, n = shape
    agree(*product(*shape), tiles * (n // 16) * (k // 32))


@imitated
@pytest.mark.parametrize("weights", [True, False])
def test_rows_and_columns_are_rounded_up(weights: bool) -> None:
    agree(*product(17, 768, 64, weights), 2 * 4 * 24)
    agree(*product(37, 64, 70, weights), 3 * 5 * 2)


@imitated
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 40])
def test_any_number_of_rows(rows: int) -> None:
    """Whole tiles of an open number of rows; what is beyond the end is computed from zeros and not stored."""
    n, rng = Var("n"), np.random.default_rng(rows)
    b, z = rng.integers(-128, 128, (64, 80)).astype(np.int8), var("z", (80,), "int32")
    made = call(op("matmul"), [x := var("x", (n, 64), "uint8"), constant(b)], {"out_dtype": "int32"})
    module = Module({"main": function([x, z], call(op("add"), [made, z]))})
    values = [rng.integers(0, 256, (rows, 64)).astype(np.uint8), rng.integers(-9, 9, 80).astype(np.int32)]
    results, counts = on_the_unit(module, values)
    for result in results:
        (got,) = result.values()
        np.testing.assert_array_equal(got, values[0].astype(np.int32) @ b.astype(np.int32) + values[1])
    assert counts.products == -(-rows // 16) * 5


@imitated
@pytest.mark.parametrize("shape", [(17, 32, 16), (16, 768, 63), (32, 33, 32), (32, 48, 32), (32, 64, 40), (1, 64, 64)])
@pytest.mark.parametrize("weights", [True, False])
def test_products_of_other_sizes(shape: tuple[int, int, int], weights: bool) -> None:
    agree(*product(*shape, weights), 0)


@imitated
@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        ((16, 64, 16), 1),
        ((48, 128, 80), 3 * 2 * 5),
        ((13, 64, 48), 3),
        ((1, 64, 64), 0),
        ((32, 68, 32), 0),
        ((32, 63, 32), 0),
        ((32, 64, 40), 0),
        ((17, 64, 64), 2 * 4),
        ((131, 128, 80), 9 * 5 * 2),
        ((34, 64, 64), 3 * 4),
        ((33, 64, 131), 3 * 9),
        ((17, 64, 131), 2 * 9),
    ],
)
@pytest.mark.parametrize("weights", [True, False])
def test_products_of_bytes(shape: tuple[int, int, int], tiles: int, weights: bool) -> None:
    """Exact, also where sums have other than whole tiles."""
    module, values = byte_product(*shape, weights)
    (wanted,) = [np.asarray(interpret(module, values))]
    results, counts = on_the_unit(module, values)
    for result in results:
        (got,) = result.values()
        np.testing.assert_array_equal(got, wanted)
    assert counts.products == tiles


@imitated
@pytest.mark.parametrize(
    "equation, x, y, tiles",
    [
        ("bshd,bthd->bhst", (2, 32, 3, 64), (2, 48, 3, 64), 2 * 3 * 2 * 3 * 2),
        ("bhst,bthd->bshd", (2, 3, 32, 64), (2, 64, 3, 32), 2 * 3 * 2 * 2 * 2),
        ("bmk,bkn->bmn", (3, 16, 64), (3, 64, 32), 3 * 2 * 2),
        ("km,kn->mn", (64, 32), (64, 32), 0),
    ],
)
def test_products_of_computed_operands(equation: str, x: tuple[int, ...], y: tuple[int, ...], tiles: int) -> None:
    agree(*einsum(equation, x, y), tiles)


@imitated
@pytest.mark.parametrize(("causal", "products"), [(False, 2 * 24), (True, 2 * 8)])
def test_products_around_a_softmax(causal: bool, products: int) -> None:
    """Attention of whole tiles: what stands between the products is placed by the rule for rows. Tiles that the causal
    mask hides, here half of those of the first product, are left out; the second, where one of a pair may be hidden, is
    a product of float32."""
    q, k, v = (var(name, shape) for name, shape in zip("qkv", ((2, 32, 64), (2, 64, 64), (2, 64, 32)), strict=True))
    attrs = {"scale": None, "causal": causal}
    made = call(
        op("scaled_dot_product_attention"),
        [call(op("reshape"), [x], {"shape": (1, *x.tensor.shape)}) for x in (q, k, v)],
        attrs,
    )
    module = Module({"main": function([q, k, v], made)})
    values = [halves(i, *p.tensor.shape).astype(np.float32) for i, p in enumerate((q, k, v))]
    agree(module, values, products, Options(precision="bf16"))


def test_the_judge_runs_the_schedule() -> None:
    program, _ = unscheduled(group(product(32, 64, 32)[0], AMX))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal([int(d) for d in p.shape]).astype(p.dtype.numpy) for p in program.params[:-1]]  # type: ignore[call-overload]
    plain, tiled = judge(program, inputs), judge(scheduled(program, Target(AMX)).program, inputs)
    for a, b in zip(plain, tiled, strict=True):
        np.testing.assert_allclose(b.astype(np.float32), a.astype(np.float32), rtol=1e-2, atol=1e-2)


@imitated
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_small_transformers(name: str) -> None:
    import onnx

    path = zoo.or_skip(zoo.transformer, name, "tiny")
    inputs = zoo.random_inputs(onnx.load(path, load_external_data=False), 0)
    wanted = weft.compile(path).run(inputs)
    results, counts = on_the_unit(weft.load(path), inputs, Options(precision="bf16"))
    assert counts.products >= 100
    for got, (key, exact) in itertools.product(results, wanted.items()):
        x, y = exact.astype(np.float64).ravel(), got[key].astype(np.float64).ravel()
        assert x @ y >= 0.999 * np.linalg.norm(x) * np.linalg.norm(y)
