"""Row operands whose steps are in different pages: a transposed matrix is copied, the pixels of blocked channels are
prefetched."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.graph import build
from weft.graph.build import function, var
from weft.graph.nodes import Call, Function, Module, call
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.ops.catalogue import op
from weft.pipeline import optimize, unscheduled
from weft.schedule.schedule import Schedule
from weft.target import Target

TARGET = Target("zen4")


def transposed(depth: int | str, rows: int | str, columns: int | str, *batch: int, dtype: str = "float32") -> Module:
    """A ᵀ B of two inputs; sizes that are texts are open."""
    sizes = {s: build.size(s) for s in (depth, rows, columns) if isinstance(s, str)}
    k, m, n = (sizes[s] if isinstance(s, str) else s for s in (depth, rows, columns))
    a, b = var("a", (*batch, k, m), dtype), var("b", (*batch, k, n), dtype)
    last = len(batch)
    turned = call(op("transpose"), [a], {"perm": (*range(last), last + 1, last)})
    return Module.of(function([a, b], call(op("matmul"), [turned, b])))


def pointwise(channels: int, outputs: int, height: int, width: int, stride: int = 1, groups: int = 1) -> Module:
    """A 1×1 convolution of blocked channels."""
    x = var("x", (1, channels // 16, height, width, 16))
    w = var("w", (outputs // 16, channels // 16 // groups, 1, 1, 16, 16))
    blocked = {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o", "out_layout": "NCHW16c"}
    attrs = {**blocked, "strides": (stride, stride), "groups": groups}
    return Module.of(function([x, w], call(op("conv"), [x, w], attrs)))


def schedule_of(module: Module, kernel: str) -> Schedule:
    fused = optimize(module, TARGET).main
    groups = [e.target for e in post_order(fused) if isinstance(e, Call) and isinstance(e.target, Function)]
    found = [scheduled(unscheduled(g)[0], TARGET) for g in groups]
    return next(s for s in found if any(b.name == kernel for b in s.get_blocks()))


def copied(module: Module) -> list[int] | None:
    """The shape of the copy of the transposed matrix; None if it is read as it is."""
    s = schedule_of(module, "einsum")
    blocks = [s.state.block(b) for b in s.get_blocks() if b.name == "p0_global"]
    return [int(x) for x in blocks[0].writes[0].buffer.shape] if blocks else None


def fetched(module: Module) -> dict[str, tuple[object, ...]]:
    """What each loop around the sums of a convolution prefetches: buffer and distance."""
    s = schedule_of(module, "conv")
    loops = [s.state.loop(x) for x in s.get_loops("conv")]
    return {str(x.var.name): tuple(x.annotations["prefetch"]) for x in loops if "prefetch" in x.annotations}


@pytest.mark.parametrize("sizes", [(3072, 1024, 768), (2048, 2500, 256), (784, 2048, 128)], ids=str)
def test_a_transposed_matrix_is_copied_into_panels_of_whole_lines(sizes: tuple[int, int, int]) -> None:
    depth, rows, _ = sizes
    shape = copied(transposed(*sizes))
    assert shape is not None
    panels, steps, wide = shape
    assert steps == depth and wide * 4 >= 64 and panels == -(-rows // wide)


@pytest.mark.parametrize("sizes", [(40, 2048, 768), (256, 16, 768), (2048, 2500, 32), (200, 48, 96)], ids=str)
def test_a_matrix_in_few_pages_or_rarely_read_is_not_copied(sizes: tuple[int, int, int]) -> None:
    assert copied(transposed(*sizes)) is None


@pytest.mark.parametrize(
    ("sizes", "groups"), [((3072, 768, 64, 64), 1), ((2048, 256, 50, 50), 1), ((1024, 1024, 64, 64), 4)]
)
def test_channels_of_a_large_image_are_prefetched(sizes: tuple[int, int, int, int], groups: int) -> None:
    ((loop, asked),) = fetched(pointwise(*sizes, groups=groups)).items()
    ((buffer, distance),) = asked  # type: ignore[misc]
    assert loop == "ic" and buffer == "p0" and distance in (2, 3, 4)


def test_an_image_in_the_second_level_cache_is_not_prefetched() -> None:
    assert fetched(pointwise(256, 64, 14, 14)) == {}
    assert fetched(pointwise(64, 64, 28, 28)) == {}


SIZES = [(300, 1030, 130), (257, 1500, 97), (1024, 1025, 200), (300, 1024, 0), (0, 1024, 128), (130, 2049, 1)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_transposed_products_agree_with_numpy(sizes: tuple[int, int, int], dtype: str) -> None:
    depth, rows, columns = sizes
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal((depth, n)).astype(dtype) for n in (rows, columns))
    exe = weft.compile(transposed(*sizes, dtype=dtype))
    results = []
    for threads in (1, 2):
        exe.threads = threads
        results.append(np.asarray(exe(a, b)))
    rounding = max(depth, 1) * np.finfo(dtype).eps
    np.testing.assert_allclose(results[0], a.astype("float64").T @ b, rtol=rounding, atol=rounding)
    assert results[0].tobytes() == results[1].tobytes()


def test_transposed_products_of_a_batch() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((3, 200, n)).astype("float32") for n in (1037, 128))
    found = np.asarray(weft.compile(transposed(200, 1037, 128, 3))(a, b))
    np.testing.assert_allclose(found, np.swapaxes(a.astype("float64"), 1, 2) @ b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("open_size", ["depth", "rows", "columns"])
def test_transposed_products_of_open_sizes(open_size: str) -> None:
    sizes: dict[str, int | str] = {"depth": 150, "rows": 1100, "columns": 120}
    exe = weft.compile(transposed(*{**sizes, open_size: "n"}.values()))
    rng = np.random.default_rng(2)
    for n in (0, 1, 7, 129):
        depth, rows, columns = (int(x) for x in {**sizes, open_size: n}.values())
        a, b = (rng.standard_normal((depth, m)).astype("float32") for m in (rows, columns))
        np.testing.assert_allclose(exe(a, b), a.astype("float64").T @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("height", "width", "stride", "groups"), [(37, 41, 1, 1), (64, 64, 2, 1), (1, 2049, 1, 1), (48, 48, 1, 2)]
)
def test_pointwise_convolutions_agree_with_numpy(height: int, width: int, stride: int, groups: int) -> None:
    module = pointwise(512, 64, height, width, stride, groups)
    rng = np.random.default_rng(height)
    x = rng.standard_normal((1, 32, height, width, 16)).astype("float32")
    w = rng.standard_normal((4, 32 // groups, 1, 1, 16, 16)).astype("float32")
    seen = x[:, :, ::stride, ::stride].astype("float64").reshape(groups, 32 // groups, -1, 16)
    kernel = w[:, :, 0, 0].reshape(groups, 4 // groups, 32 // groups, 16, 16)
    expected = np.einsum("gipc,gricx->grpx", seen, kernel)
    found = np.asarray(weft.compile(module)(x, w))
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
