"""``precision="bf16"``: results stay close to float32, whatever the model and its sizes.

That threads do not change them is tested in test_thread_counts.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import models_zoo as zoo
import numpy as np
import onnx
import pytest
import sample_models

import weft
from weft.api import compile_with_report
from weft.pipeline import Options, compile_module
from weft.target import Target

LEAST = 0.999
"""Cosine similarity of every output to the float32 result."""


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def check(path: Path, *sizes: dict[str, int]) -> None:
    zoo.need_products_of("bfloat16")
    model = onnx.load(path, load_external_data=False)
    exact, rounded = weft.compile(path), weft.compile(path, precision="bf16")
    for seed, given in enumerate(sizes or ({},)):
        inputs = zoo.random_inputs(model, seed, given)
        wanted, got = exact.run(inputs), rounded.run(inputs)
        assert list(wanted) == list(got)
        for name, value in wanted.items():
            assert got[name].dtype == value.dtype and got[name].shape == value.shape
            assert cosine(got[name], value) >= LEAST, f"{path.stem} {name}"
            assert not np.array_equal(got[name], value), "nothing was rounded"


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_small_transformers(name: str) -> None:
    check(zoo.or_skip(zoo.transformer, name, "tiny"))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_dynamic_sizes(name: str) -> None:
    path = zoo.or_skip(zoo.transformer, name, "tiny", "dynamic")
    check(path, {"batch": 1, "sequence": 7}, {"batch": 2, "sequence": 16}, {"batch": 3, "sequence": 1})


def test_convolutions() -> None:
    check(zoo.or_skip(zoo.light, "squeezenet"))


@pytest.mark.parametrize("build", [sample_models.residual, sample_models.inverted_residual])
def test_small_networks_of_convolutions(build: Callable[[Path], Path], tmp_path: Path) -> None:
    check(build(tmp_path / "model.onnx"), {}, {}, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_full_size(name: str) -> None:
    check(zoo.or_skip(zoo.transformer, name))


def scores(result: np.ndarray) -> np.ndarray:
    """Results without what a softmax adds: its logarithm up to a constant."""
    found = result.astype(np.float64).ravel()
    found = np.log(found) if found.min() > 0 and abs(found.sum() - 1) < 1e-3 else found
    return found - found.mean()


@pytest.mark.slow
@pytest.mark.parametrize(("build", "name"), [(zoo.transformer, "mobilenetv2"), (zoo.light, "resnet50")])
def test_deep_convolutions_are_as_close_as_in_pytorch(build: Callable[[str], Path], name: str) -> None:
    """Random weights that keep the variance carry rounding errors through 50 layers, so that no number says how close
    results must be. PyTorch rounds the same operands, and results too: it is farther from float32."""
    torch = pytest.importorskip("torch")
    from weft.frontends.onnx.in_torch import torch_module

    zoo.need_products_of("bfloat16")
    path = zoo.or_skip(build, name)
    inputs = zoo.random_inputs(onnx.load(path, load_external_data=False), 0)
    (exact,) = weft.compile(path).run(inputs).values()
    (ours,) = weft.compile(path, precision="bf16").run(inputs).values()
    module, tensors = torch_module(path), [torch.from_numpy(v) for v in inputs.values()]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        theirs = module(*tensors).float().numpy()
    wanted = scores(exact)
    far, farther = (float(np.linalg.norm(scores(v) - wanted) / np.linalg.norm(wanted)) for v in (ours, theirs))
    assert 0 < far <= farther
    assert farther < 0.3, "the comparison means nothing"


def test_a_target_without_the_instructions_computes_in_float32() -> None:
    path = zoo.or_skip(zoo.transformer, "vit", "tiny")
    with pytest.warns(RuntimeWarning, match="no products of bf16"):
        exe, report = compile_with_report(path, "x86-64-v3", precision="bf16")
    assert len(report.notes) == 1 and exe.artifact.metadata["precision"] == "f32"
    inputs = zoo.random_inputs(onnx.load(path), 0)
    wanted = weft.compile(path, "x86-64-v3").run(inputs)
    assert all(np.array_equal(v, wanted[k]) for k, v in exe.run(inputs).items())


def test_precision_is_an_option_too() -> None:
    path = zoo.or_skip(zoo.transformer, "vit", "tiny")
    artifact, report = compile_module(weft.load(path), [Target("sapphire-rapids")], options=Options(precision="bf16"))
    assert report.notes == [] and artifact.metadata["precision"] == "bf16"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(weft.UserError, match="unknown precision 'fp8'") as found:
        weft.compile("absent.onnx", precision="fp8")
    assert found.value.code == "I022" and "bf16" in str(found.value.hint)
