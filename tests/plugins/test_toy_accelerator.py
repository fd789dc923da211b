"""An accelerator from outside of the package: what its back end can do runs on its device, the rest on the CPU."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models_zoo import light, or_skip, random_inputs

import weft
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.support.errors import ModelError, UserError

sys.path.insert(0, str(Path(__file__).parent / "outside"))

from toy_accelerator import PLUGIN, Device

APART = weft.Options(layouts=False, max_ops=1, jobs=1)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def small() -> Module:
    """A convolution for the device between two steps for the CPU."""
    x = build.var("x", (1, 32, 3, 14))
    w = build.constant(random(16, 32, 1, 1, seed=1))
    y = call(op("conv"), [call(op("tanh"), [x]), w])
    return Module.of(build.function([x], call(op("relu"), [y])))


def test_the_device_computes_the_operators_that_it_supports() -> None:
    given = random(1, 32, 3, 14)
    gc.collect()  # executables that are in no use any more close their device
    Device.opened.clear()
    exe = weft.compile(small(), "toy", options=APART, plugins=[PLUGIN])
    made = exe(given)
    wanted = weft.compile(small(), options=APART)(given)
    np.testing.assert_allclose(made, wanted, 1e-5, 1e-5)
    (device,) = Device.opened
    assert device.launches == 1 and device.instructions == 3 * 2 * 2


def test_the_artifact_contains_memory_spaces_and_devices() -> None:
    artifact = weft.compile_artifact(small(), "toy", options=APART, plugins=[PLUGIN])
    assert [d.kind for d in artifact.program.devices] == ["toy"]
    kernels = zip(artifact.program.kernels, artifact.codes, strict=True)
    assert [(k.device, c.variants[0].format) for k, c in kernels] == [(0, "elf"), (1, "toy"), (0, "elf")]
    assert artifact.target.startswith("toy llvm ") and artifact.metadata["plugins"] == [["toy-accelerator", "1.0"]]


def test_a_device_without_a_list_of_operators_is_refused() -> None:
    from dataclasses import replace

    silent = replace(PLUGIN, backends=(replace(PLUGIN.backends[0], offload=None),))
    with pytest.raises(UserError, match="does not say what its device can compute"):
        weft.compile(small(), "toy", options=APART, plugins=[silent])


def test_only_the_first_target_may_have_a_device() -> None:
    with pytest.raises(UserError, match="cannot be a further target"):
        weft.compile(small(), "cpu", also="toy", options=APART, plugins=[PLUGIN])


def test_devices_belong_to_the_process() -> None:
    """Two models on one device share its memory, and tensors there outlive the calls that compiled for it."""
    from dataclasses import replace

    from weft.plugins import PluginDevice

    gc.collect()  # executables that are in no use any more close their device
    Device.opened.clear()
    given = random(1, 32, 3, 14)
    first, second = (weft.compile(small(), "toy", options=APART, plugins=[PLUGIN]) for _ in range(2))
    made = [first(given), second(given)]
    np.testing.assert_array_equal(*made)
    assert len(Device.opened) == 1
    there = weft.nd.array(given, weft.device("toy"))
    np.testing.assert_array_equal(there.numpy(), given)
    assert len(Device.opened) == 1

    other = replace(PLUGIN, name="other", devices=(PluginDevice("toy", lambda index: Device(index)),))
    with pytest.raises(UserError, match="there are devices of kind 'toy' already") as why:
        weft.compile(small(), "toy", options=APART, plugins=[other])
    assert why.value.code == "G012"


def test_programs_with_devices_are_not_specialized() -> None:
    x = build.var("x", (build.size("n"), 32, 3, 14))
    y = call(op("conv"), [call(op("tanh"), [x]), build.constant(random(16, 32, 1, 1, seed=1))])
    module = Module.of(build.function([x], y))
    with pytest.raises(ModelError, match="parts of it run on other devices than the CPU") as why:
        weft.compile(module, "toy", options=APART, plugins=[PLUGIN], specialize={"n": 1})
    assert why.value.code == "M022" and "shapes=" in str(why.value.hint)
    given = random(1, 32, 3, 14)
    alone = weft.compile(module, "toy", options=APART, plugins=[PLUGIN], shapes={"n": 1})
    np.testing.assert_allclose(alone(given), weft.compile(module, options=APART)(given), 1e-5, 1e-5)


@pytest.mark.slow
def test_resnet50() -> None:
    path = or_skip(light, "resnet50")
    (given,) = random_inputs(onnx.load(path), 0).values()
    gc.collect()  # executables that are in no use any more close their device
    Device.opened.clear()
    made = weft.compile(path, "toy", options=APART, plugins=[PLUGIN])(given)
    wanted = weft.compile(path, options=APART)(given)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(made / scale, wanted / scale, 1e-4, 1e-4)
    (device,) = Device.opened
    assert device.launches >= 30


def test_the_file_is_short() -> None:
    lines = (Path(__file__).parent / "outside" / "toy_accelerator.py").read_text().splitlines()
    assert len(lines) < 200, len(lines)
