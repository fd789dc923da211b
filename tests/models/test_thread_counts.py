"""Results are equal to the bit for any number of threads, also for more threads than processors."""

from __future__ import annotations

from pathlib import Path

import models_zoo as zoo
import numpy as np
import onnx
import pytest

import weft
from weft.graph.build import constant, function, var
from weft.graph.nodes import GraphExpr, Module, call
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module
from weft.runtime import Executable
from weft.runtime.artifact import Artifact
from weft.target import Target

COUNTS = (2, 3, 7, 16, 64)
Arrays = dict[str, np.ndarray]


def same(artifact: Artifact, *inputs: Arrays) -> None:
    for given in inputs:
        first = Executable(artifact, 1).run(given)
        for threads in COUNTS:
            other = Executable(artifact, threads).run(given)
            for name, value in first.items():
                assert other[name].tobytes() == value.tobytes(), f"{name}: {threads} threads"


def of_model(path: Path, sizes: list[dict[str, int]], precision: str = "f32") -> None:
    model = onnx.load(path, load_external_data=False)
    artifact = weft.compile(path, precision=precision).artifact
    same(artifact, *(zoo.random_inputs(model, i, s) for i, s in enumerate(sizes)))


def test_convolutions() -> None:
    of_model(zoo.or_skip(zoo.light, "squeezenet"), [{}])


@pytest.mark.parametrize("name", [n for n in zoo.TRANSFORMERS if n != "efficientnet"])
def test_small_models(name: str) -> None:
    of_model(zoo.or_skip(zoo.transformer, name, "tiny"), [{}])


@pytest.mark.parametrize("name", ["bert", "gpt2", "convnext"])
def test_open_sizes(name: str) -> None:
    path = zoo.or_skip(zoo.transformer, name, "tiny", "dynamic")
    of_model(path, [{"batch": 1, "sequence": 7}, {"batch": 5, "sequence": 33}])


@pytest.mark.parametrize("name", ["bert", "vit", "mobilenetv2"])
def test_half_precision(name: str) -> None:
    zoo.need_products_of("bfloat16")
    of_model(zoo.or_skip(zoo.transformer, name, "tiny"), [{}], "bf16")


def test_a_trained_model() -> None:
    of_model(zoo.or_skip(zoo.shared, "ulfd_version-RFB-320"), [{}])


def one(name: str, *args: GraphExpr, **attrs: object) -> GraphExpr:
    return call(op(name), args, attrs)


def winograd(channels: int) -> Module:
    x = var("x", (2, channels, 33, 30))
    weights = constant(np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float32))
    window = {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)}
    return Module.of(function([x], one("conv", x, weights, **window)))


def attention() -> Module:
    q, k, v = (var(n, (2, 3, 200, 40)) for n in "qkv")
    return Module.of(function([q, k, v], one("scaled_dot_product_attention", q, k, v, causal=True)))


def product() -> Module:
    a, b = var("a", (260, 900)), var("b", (900, 1100))
    return Module.of(function([a, b], one("matmul", a, b)))


def reduced(axis: int) -> Module:
    x = var("x", (3000, 512))
    sums = one("reduce_sum", x, axes=(axis,), keepdims=False)
    return Module.of(function([x], [sums, one("reduce_max", x, axes=(axis,), keepdims=False)]))


def whole_sum() -> Module:
    x = var("x", (700_003,))
    return Module.of(function([x], one("reduce_mean", x, axes=(0,), keepdims=False)))


def normalized() -> Module:
    x, g, b = var("x", (50, 20, 65, 3)), var("g", (20,)), var("b", (20,))
    return Module.of(function([x, g, b], one("softmax", one("instance_norm", x, g, b, epsilon=1e-5), axis=2)))


def ordered() -> Module:
    x = var("x", (40, 900))
    places = one("argsort", x, axis=1)
    return Module.of(function([x], [places, one("cumsum", x, axis=1)]))


def scattered() -> Module:
    x, y = var("x", (3000, 64)), var("y", (5000, 64))
    places = constant(np.random.default_rng(1).integers(0, 3000, (5000, 1)))
    return Module.of(function([x, y], one("scatter_nd", x, places, y, reduction="add")))


MODULES = {
    "winograd": lambda: winograd(64),
    "winograd, 2 × 2": lambda: winograd(256),
    "attention": attention,
    "product": product,
    "sums of rows": lambda: reduced(1),
    "sums of columns": lambda: reduced(0),
    "one sum": whole_sum,
    "normalized": normalized,
    "ordered": ordered,
    "scattered": scattered,
}


@pytest.mark.parametrize("cores", [2, 64])
@pytest.mark.parametrize("name", MODULES)
def test_kernels(name: str, cores: int) -> None:
    """Compiled for few cores and for many."""
    module = MODULES[name]()
    target = Target(f"cpu -num-cores={cores}")
    options = Options(winograd=2 if name.endswith("2 × 2") else True)
    artifact, _ = compile_module(module, [target], options=options)
    if name.startswith("winograd"):
        assert any("winograd" in k.name for k in artifact.program.kernels)
    rng = np.random.default_rng(0)
    same(
        artifact,
        {p.name: rng.standard_normal([int(d) for d in p.tensor.shape], np.float32) for p in module.main.params},
    )
