"""Whole models agree with onnxruntime on three random inputs each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import agreement
import models_zoo as zoo
import numpy as np
import onnx
import pytest
from sample_models import onnxruntime_result

import weft
from weft.graph.interpret import run

LARGE = {"vgg19", "bvlc_alexnet"}  # hundreds of megabytes of weights
PICTURES = {"winml_candy", "winml_mnist"}  # take 0…255; noise around 0 would all be rounding error in the former
SIZES = {"winml_candy": {"None": 1}}
# Results that onnxruntime itself rounds more coarsely than the tolerance: instance normalization over 800×800 values,
# ten times over. Against the graph interpreter (each operator in float64) its root mean square error is ten times ours
# (test_candy_is_closer_to_the_exact_result_than_onnxruntime), so a few elements may miss.
MISSES = {"winml_candy": 2e-3}
SIGNAL = 5e-3
"""Least difference between the results of two inputs, in parts of their size. Below it, an error inside of the model
would hardly be seen in its results, and the test would see little."""


def check(path: Path, sizes: dict[str, int] | None = None, seeds: int = 3) -> None:
    """Results for different inputs agree with onnxruntime's; tolerances are parts of the spread between the inputs."""
    model = onnx.load(path, load_external_data=False)
    exe = weft.compile(path)
    given = [zoo.random_inputs(model, seed, sizes) for seed in range(seeds)]
    if path.stem in PICTURES:
        given = [{k: np.random.default_rng(i).random(v.shape, np.float32) * 255 for k, v in g.items()}
                 for i, g in enumerate(given)]  # fmt: skip
    ours = [list(exe.run(inputs).values()) for inputs in given]
    theirs = [onnxruntime_result(path, **inputs) for inputs in given]
    for name in given[0] if len(given[0]) > 1 else ():
        matters(path, name, given, theirs)
    for i, spec in enumerate(exe.outputs):
        agrees(f"{path.stem} {spec.name}", [r[i] for r in ours], [r[i] for r in theirs], MISSES.get(path.stem, 0.0))


def matters(path: Path, name: str, given: list[dict[str, np.ndarray]], results: list[list[np.ndarray]]) -> None:
    """Check that one input by itself changes a result by more than the tolerance: a compiler that does not read it
    would be seen."""
    others = [g[name] for g in given[1:] if not np.array_equal(g[name], given[0][name])]
    assert others, f"{path.stem}: {name} is always the same: a poor test"
    other = onnxruntime_result(path, **{**given[0], name: others[0]})
    assert any(
        agreement.difference(b, a, agreement.spread([r[i] for r in results]))
        for i, (a, b) in enumerate(zip(results[0], other, strict=True))
    ), f"{path.stem}: {name} hardly matters: a poor test"


def agrees(name: str, ours: list[np.ndarray], theirs: list[np.ndarray], misses: float = 0.0) -> None:
    """Whether one result agrees for several inputs. A share of ``misses`` of its elements may differ by more."""
    want = np.stack(theirs).astype(np.float64)
    assert np.isfinite(want).all(), f"{name}: the model itself runs out of range: a poor test"
    apart, size = agreement.spread(theirs), float(np.sqrt(np.mean(want**2)))
    assert apart >= SIGNAL * size, f"{name}: inputs hardly matter ({apart:.2g} of {size:.2g}): a poor test"
    wrong = agreement.differences(ours, theirs, misses)
    assert not wrong, f"{name}: {wrong}"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in zoo.LIGHT])
def test_light_models(name: str) -> None:
    check(zoo.or_skip(zoo.light, name))


@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
@pytest.mark.parametrize("sizes", ["static", "dynamic"])
def test_small_transformers(name: str, sizes: str) -> None:
    path = zoo.or_skip(zoo.transformer, name, "tiny", sizes)
    check(path, {"batch": 2, "sequence": 7})


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
def test_full_size_transformers(name: str) -> None:
    check(zoo.or_skip(zoo.transformer, name, "base", "static"))


@pytest.mark.parametrize("name", zoo.SHARED)
def test_trained_models(name: str) -> None:
    check(zoo.or_skip(zoo.shared, name), SIZES.get(name))


def _one_nan(x: np.ndarray) -> np.ndarray:
    return np.where(np.arange(x.size).reshape(x.shape) == 0, np.float32(np.nan), x)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros_like,
        lambda x: -x,
        lambda x: x * np.nan,
        _one_nan,
        lambda x: np.roll(x, 1, -1),
        lambda x: x[:2],
        lambda x: x.astype(np.float64),
        lambda x: x + np.float32(2e-3),
    ],
)
def test_a_wrong_result_is_seen(wrong: Callable[[np.ndarray], np.ndarray]) -> None:
    right = [np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32) for seed in range(3)]
    agrees("itself", right, right)
    with pytest.raises(AssertionError):
        agrees("wrong", [wrong(x) for x in right], right)
    with pytest.raises(AssertionError):
        agrees("wrong", [*right[:2], wrong(right[2])], right)
    if wrong is not np.zeros_like:  # zeros need no further test
        with pytest.raises(AssertionError):
            agrees("a share", [wrong(x) for x in right], right, misses=0.01)


def test_a_wide_spread_widens_nothing_and_a_constant_part_hides_nothing() -> None:
    want = [np.float32([0, 1000]), np.float32([500, -1000])]
    assert agreement.differences([x + np.float32(0.01) for x in want], want), "0.01 where the number is 0"
    near = [np.float32([1000, 1000.25]), np.float32([1000.5, 1000])]
    assert agreement.differences([x + np.float32(0.5) for x in near], near), "more than the inputs change"
    assert not agreement.differences([x + np.float32(0.0001) for x in near], near)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_are_equal(dtype: str) -> None:
    want = [np.array([0, 1, 1], dtype), np.array([1, 0, 1], dtype)]
    assert not agreement.differences(want, want)
    assert agreement.differences([want[0], want[0]], want) == "2 of 3 elements differ"


def test_infinities_and_nan_are_at_the_same_positions() -> None:
    want = np.float32([np.nan, np.inf, -np.inf, 1])
    assert not agreement.differences([want], [want])
    assert agreement.differences([np.float32([np.nan, np.inf, np.inf, 1])], [want])
    assert agreement.differences([np.float32([np.nan, np.inf, -np.inf, np.nan])], [want])


def test_results_that_ignore_the_input_are_no_test() -> None:
    same = [np.ones((3, 8), np.float32)] * 3
    with pytest.raises(AssertionError, match="inputs hardly matter"):
        agrees("constant", same, same)


def test_dynamic_sizes_are_compiled_once() -> None:
    """One executable runs at several batch sizes and sequence lengths."""
    path = zoo.or_skip(zoo.transformer, "bert", "tiny", "dynamic")
    exe, model = weft.compile(path), onnx.load(path)
    for batch, sequence in ((1, 16), (3, 5), (2, 31)):
        inputs = zoo.random_inputs(model, batch, {"batch": batch, "sequence": sequence})
        for ours, theirs in zip(exe.run(inputs).values(), onnxruntime_result(path, **inputs), strict=True):
            assert not agreement.differences([ours], [theirs])


@pytest.mark.slow
def test_candy_is_closer_to_the_exact_result_than_onnxruntime() -> None:
    path = zoo.or_skip(zoo.shared, "winml_candy")
    x = np.random.default_rng(0).standard_normal((1, 3, 720, 720), dtype=np.float32)
    exact = np.asarray(run(weft.load(path), [x])).reshape(1, 3, 720, 720).astype(np.float64)
    (theirs,) = onnxruntime_result(path, **{weft.load(path).main.params[0].name: x})
    errors = [float(np.sqrt(np.mean((v - exact) ** 2))) for v in (weft.compile(path)(x), theirs)]
    assert errors[0] < errors[1] / 2


def test_masks_pad() -> None:
    """A mask of ones would test nothing: each has a row that ends early, and no row is empty."""
    for shape in ([1, 7], [2, 7], [3, 2], [2, 1, 1, 16], [1, 128]):
        for seed in range(20):
            mask = zoo.padded(np.random.default_rng(seed), shape)
            assert mask.shape == tuple(shape) and mask[..., 0].all() and not mask.all()
            assert (np.diff(mask.astype(int), axis=-1) <= 0).all(), "1, and then 0"
    assert zoo.padded(np.random.default_rng(0), [2, 1]).all() and not zoo.padded(np.random.default_rng(0), [2, 0]).size


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_models_compiled_without_strictness(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As users have it: tests turn WEFT_STRICT on, which makes of a rule that fails an error. Kernels are the same."""
    path = zoo.or_skip(zoo.transformer, name, "tiny", "dynamic")
    compiled = {}
    for strict in ("0", "1"):
        monkeypatch.setenv("WEFT_STRICT", strict)
        monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / strict))
        check(path, {"batch": 2, "sequence": 7}, seeds=2)
        compiled[strict] = weft.compile(path).artifact
    assert compiled["0"].codes == compiled["1"].codes


def test_the_basic_pitch_network() -> None:
    check(zoo.or_skip(zoo.shared, "basic_pitch_nmp"))
