"""Whole models through C give what they give through LLVM."""

from __future__ import annotations

import models_zoo
import numpy as np
import pytest
import sample_models
from compilers import VARIANTS, target_of

import weft
from benchmarks.zoo import agreement, cache
from benchmarks.zoo.entry import Entry
from benchmarks.zoo.lists import ENTRIES


def _agree(path, target, tolerance, **options):
    ours, theirs = (weft.compile(str(path), target=t, **options) for t in (str(target), str(weft.Target("cpu"))))
    rng = np.random.default_rng(0)
    shapes = [[_extent(d) for d in x.shape] for x in ours.inputs]
    inputs = [rng.random(s).astype(x.dtype) for s, x in zip(shapes, ours.inputs, strict=True)]
    for got, want in zip(_several(ours(*inputs)), _several(theirs(*inputs)), strict=True):
        scale = np.abs(want.astype(np.float64)).max()
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), tolerance, tolerance * scale)


def _extent(dimension):
    """A known dimension, and 3 for one that is not known; a specification lists the factors of each."""
    known = dimension[0] if isinstance(dimension, tuple) else dimension
    return known if isinstance(known, int) else 3


def _several(result):
    return result if isinstance(result, (tuple, list)) else (result,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_small_network(tmp_path, variant):
    _agree(sample_models.images(tmp_path / "images.onnx"), target_of(variant), 1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_size_that_is_not_known(tmp_path, variant):
    _agree(sample_models.dense(tmp_path / "dense.onnx"), target_of(variant), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("name", models_zoo.LIGHT)
def test_light_models(name, variant):
    _agree(models_zoo.or_skip(models_zoo.light, name), target_of(variant), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("name", models_zoo.SHARED)
def test_shared_models(name, variant):
    _agree(models_zoo.or_skip(models_zoo.shared, name), target_of(variant), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_architectures_of_the_zoo(entry: Entry) -> None:
    """Agree with onnxruntime as they do through LLVM."""
    target = target_of("gcc")
    found = agreement.gaps(models_zoo.or_skip(cache.model, entry), entry, target=str(target))
    assert found, "a model without outputs"
    wrong = [f"{g.output}: {g.wrong}" for g in found if not g.agrees]
    assert not wrong, "\n".join(wrong)
