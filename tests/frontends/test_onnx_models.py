"""Whole models through the importer and the graph interpreter, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agreement
import models_zoo as zoo
import numpy as np
import onnx
import onnxruntime
import pytest

from weft.frontends import onnx as frontend
from weft.graph import interpret

HEAVY = ("vgg19", "bvlc_alexnet", "zfnet512")
"""Light models with hundreds of megabytes of weights; their operators all occur in the others."""


def outputs_of(path: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, inputs)
    return found


def assert_agrees(path: Path, *sizes: dict[str, int], seed: int = 0, **options: Any) -> None:
    """Import once; compare with ONNX Runtime at each of the given sizes."""
    module, model = frontend.load(path, **options), onnx.load(path)
    for i, chosen in enumerate(sizes or ({},)):
        inputs = zoo.random_inputs(model, seed + i, chosen)
        expected, others = (outputs_of(path, given) for given in (inputs, zoo.random_inputs(model, seed + 77, chosen)))
        made = interpret.run(module, inputs)
        made = made if isinstance(made, tuple) else (made,)
        assert len(made) == len(expected) == len(module.attrs.outputs)
        for name, a, b, other in zip(module.attrs.outputs, made, expected, others, strict=True):
            wrong = agreement.difference(a, b, agreement.spread([b, other]))
            assert not wrong, f"{name}: {wrong}"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [n for n in zoo.LIGHT if n not in HEAVY])
def test_light(name: str) -> None:
    assert_agrees(zoo.or_skip(zoo.light, name))


@pytest.mark.parametrize("name", HEAVY)
def test_light_structure(name: str) -> None:
    """The files as they ship: weights by ConstantOfShape."""
    module = frontend.load(zoo.light_source(name))
    assert [str(d) for d in module.main.body.tensor.shape] == ["1", "1000"]


@pytest.mark.parametrize("exporter", ["dynamo", "classic"])
@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
def test_transformers_static(name: str, exporter: str) -> None:
    assert_agrees(zoo.or_skip(zoo.transformer, name, "tiny", "static", exporter))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("exporter", ["dynamo", "classic"])
@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
def test_transformers_dynamic(name: str, exporter: str) -> None:
    path = zoo.or_skip(zoo.transformer, name, "tiny", "dynamic", exporter)
    assert_agrees(path, {"batch": 1, "sequence": 16}, {"batch": 3, "sequence": 7}, {"batch": 2, "sequence": 33})


@pytest.mark.parametrize("name", ["ulfd_version-RFB-320", "FastestDet", "winml_SqueezeNet_fp16", "winml_mnist"])
def test_shared(name: str) -> None:
    assert_agrees(zoo.or_skip(zoo.shared, name))


def test_shared_dynamic_batch() -> None:
    assert_agrees(zoo.or_skip(zoo.shared, "osf_lm_model0_opt"), {"batch_size": 1}, {"batch_size": 2})


def test_shared_old_operators() -> None:
    """Style transfer with operators of the first operator sets, on a smaller picture than it was made for."""
    path = zoo.or_skip(zoo.shared, "winml_candy")
    module = frontend.load(path, shapes={"None": 1})
    assert str(module.main.body.tensor) == "f32[1, 3, 720, 720]"


def test_fixed_dimensions() -> None:
    path = zoo.or_skip(zoo.transformer, "bert", "tiny", "dynamic", "dynamo")
    by_name = frontend.load(path, shapes={"batch": 2, "sequence": 5})
    by_input = frontend.load(path, shapes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 5)))
    for module in (by_name, by_input):
        assert all(p.tensor.shape == (2, 5) for p in module.main.params)
        assert module.attrs.requires == ()
