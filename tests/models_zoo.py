"""The models that tests and benchmarks use, built once and kept in a cache outside the repository.

* :func:`light` — the nine architectures that ship with the ``onnx`` package, given seeded random weights;
* :func:`transformer` — BERT, DistilBERT, GPT-2 (a prompt, or one token after a cache), ViT, MobileNetV2, EfficientNet
  and ConvNeXt built by ``transformers`` from their configurations, and an LSTM of ``torch.nn``, exported by PyTorch,
  full size (``"base"``) or small (``"tiny"``), static or with dynamic sizes;
* :func:`shared` — trained models of the folder ``WEFT_MODELS`` (default ``../shared/models`` seen from the repository).

Each returns the path of an ONNX file or raises :class:`Unavailable` with the reason, which tests turn into a skip
(:func:`or_skip`). Exports run in a process of their own:
``python tests/models_zoo.py bert base static dynamo out.onnx``.
The cache is ``WEFT_TEST_CACHE`` or ``~/.cache/weft-tests``; delete it to build everything anew.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SMALLEST_PICTURE = 28
"""Height and width from which on an input of one or three channels is filled with a picture, not with noise."""
REVISION = "2"  # part of every cached name: count up when a recipe below changes

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
TRANSFORMERS = ("bert", "distilbert", "gpt2", "gpt2-decode", "vit", "mobilenetv2", "efficientnet", "convnext", "lstm")
NOT_EXPORTED = {("gpt2", "classic"): "PyTorch's classic exporter has no aten::diff, which GPT-2's mask needs"}
"""Exports that PyTorch is known to refuse. Any other that fails is a failed test, not a skipped one."""
SHARED = (
    "ulfd_version-RFB-320",
    "FastestDet",
    "osf_lm_model0_opt",
    "winml_SqueezeNet_fp16",
    "winml_candy",
    "winml_mnist",
)


class Unavailable(Exception):
    """A model is not available here; the message says why."""


def or_skip(build: Callable[..., Path], *args: Any, **kwargs: Any) -> Path:
    """``build(*args, **kwargs)``, or a skipped test that names the reason."""
    import pytest

    try:
        return build(*args, **kwargs)
    except Unavailable as why:
        pytest.skip(str(why))


def cache_dir() -> Path:
    path = Path(os.environ.get("WEFT_TEST_CACHE") or Path.home() / ".cache" / "weft-tests")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _cached(name: str, write: Callable[[Path], None]) -> Path:
    path = cache_dir() / f"{name}-r{REVISION}.onnx"
    if not path.exists():
        draft = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
        try:
            write(draft)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return path


def need_products_of(dtype: str) -> None:
    """Skip the test on CPUs that would compute in float32 instead."""
    import pytest

    from weft.target import Target

    if not Target("cpu").multiplies(dtype):
        pytest.skip(f"this CPU has no products of {dtype}")


def _need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise Unavailable(f"the package '{package}' is not installed")


def light(name: str, seed: int = 0) -> Path:
    """One of :data:`LIGHT` with random weights, scaled such that its results depend on its input."""
    _need("onnx", "onnxruntime")

    def write(path: Path) -> None:
        path.write_bytes(_randomize(light_source(name), seed))

    return _cached(f"light-{name}-{seed}", write)


def light_source(name: str) -> Path:
    """The file of the ``onnx`` package: the architecture, its weights all made by ConstantOfShape."""
    import onnx.backend.test

    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"


def _randomize(source: Path, seed: int) -> bytes:
    carry_signal, randomize_weights = _example("carry_signal"), _example("random_weights").randomize_weights
    import onnx

    model = randomize_weights(onnx.load(source), seed)
    weights = {w.name for w in model.graph.initializer}
    (given,) = (i for i in model.graph.input if i.name not in weights)
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    examples = [{given.name: picture} for picture in carry_signal.pictures(16, shape, seed)]
    data: bytes = carry_signal.carry_signal(model, examples, seed).SerializeToString()
    return data


def _example(name: str) -> Any:
    """A module of the folder ``examples``."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def transformer(name: str, size: str = "base", sizes: str = "static", exporter: str = "dynamo") -> Path:
    """One of :data:`TRANSFORMERS`: ``size`` base or tiny, ``sizes`` static or dynamic, by dynamo or classic."""
    _need("torch", "transformers", "onnxscript")

    if (name, exporter) in NOT_EXPORTED:
        raise Unavailable(NOT_EXPORTED[name, exporter])

    def write(path: Path) -> None:
        command = [sys.executable, __file__, name, size, sizes, exporter, str(path)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if run.returncode != 0 or not path.exists():
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"the {exporter} export of {name} ({size}, {sizes}) failed: {last}")

    return _cached(f"{name}-{size}-{sizes}-{exporter}", write)


def shared(name: str) -> Path:
    """One of the trained models of the folder ``WEFT_MODELS``."""
    folder = Path(os.environ.get("WEFT_MODELS") or ROOT.parent / "shared" / "models")
    path = folder / f"{name}.onnx"
    if not path.exists():
        raise Unavailable(f"{path} is absent (the folder is named by WEFT_MODELS)")
    return path


def batched(path: Path, batch: int | str) -> Path:
    """The model of ``path``, whose input has one image, for ``batch`` of them, or for any number, named ``batch``:
    input sizes, reshapes by constants."""
    _need("onnx")
    import onnx
    from onnx import numpy_helper

    def write(out: Path) -> None:
        model = onnx.load(path)
        graph = model.graph
        weights = {w.name: w for w in graph.initializer}
        for value in (*(i for i in graph.input if i.name not in weights), *graph.output):
            first = value.type.tensor_type.shape.dim[0]
            if isinstance(batch, str):
                first.dim_param = batch
            else:
                first.dim_value = batch
        for shape in {n.input[1] for n in graph.node if n.op_type == "Reshape" and n.input[1] in weights}:
            sizes = numpy_helper.to_array(weights[shape]).copy()
            if sizes[0] == 1:
                sizes[0] = 0 if isinstance(batch, str) else batch  # 0: the size that comes in
            weights[shape].CopyFrom(numpy_helper.from_array(sizes, shape))
        del graph.value_info[:]
        out.write_bytes(model.SerializeToString())

    return _cached(f"{path.stem}-batch{batch}", write)


def random_inputs(model: Any, seed: int, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Seeded inputs for a ModelProto: pictures, normal floats, token-like integers, masks of padded rows; dimensions by
    ``sizes`` or 1."""
    import onnx

    rng = np.random.default_rng(seed)
    weights = {w.name for w in model.graph.initializer}
    made: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value or (sizes or {}).get(d.dim_param, 1) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made[value.name] = _random(rng, value.name, shape, dtype)
    return made


def padded(rng: np.random.Generator, shape: list[int]) -> np.ndarray:
    """An attention mask of rows that end early: 1 for at least half of the places, and 0 behind, at least once."""
    length = shape[-1]
    kept = rng.integers(min(length, length // 2 + 1), length + 1, shape[:-1])
    kept.reshape(-1)[:1] = max(1, min(int(kept.reshape(-1)[0]), length - 1))
    made: np.ndarray = np.arange(length) < kept[..., None]
    return made


def _random(rng: np.random.Generator, name: str, shape: list[int], dtype: np.dtype) -> np.ndarray:
    if np.issubdtype(dtype, np.integer):
        if "mask" in name:
            return padded(rng, shape).astype(dtype)
        return rng.integers(0, 2 if "type" in name else 100, shape).astype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if len(shape) == 4 and shape[1] in (1, 3) and min(shape[2:]) >= SMALLEST_PICTURE:
        (picture,) = _example("carry_signal").pictures(1, shape, int(rng.integers(1 << 31)))
        return picture.astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


# --- below runs only in the exporting process -----------------------------------------------------------------------


def _bert(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(**({"num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4,
                            "intermediate_size": 192, "vocab_size": 200} if tiny else {}))  # fmt: skip
    length = 16 if tiny else 128
    ids = torch.randint(0, 100, (1, length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    axes = {name: {0: "batch", 1: "sequence"} for name in inputs}
    return BertModel(config), inputs, axes, ["last_hidden_state", "pooler_output"]


def _gpt2(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        use_cache=False, **({"n_layer": 2, "n_embd": 96, "n_head": 4, "vocab_size": 200} if tiny else {})
    )
    ids = torch.randint(0, 100, (1, 16 if tiny else 64))
    return GPT2LMHeadModel(config), {"input_ids": ids}, {"input_ids": {0: "batch", 1: "sequence"}}, ["logits"]


def _distilbert(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    import torch
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        **({"n_layers": 2, "dim": 96, "n_heads": 4, "hidden_dim": 192, "vocab_size": 200} if tiny else {})
    )
    ids = torch.randint(0, 100, (1, 16 if tiny else 128))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    axes = {name: {0: "batch", 1: "sequence"} for name in inputs}
    return DistilBertModel(config), inputs, axes, ["last_hidden_state"]


def _gpt2_decode(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    """One token after a cache: ``past_key_0, past_value_0, …`` → logits and ``present_key_0, present_value_0, …``."""
    import torch
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**({"n_layer": 2, "n_embd": 96, "n_head": 4, "vocab_size": 200} if tiny else {}))
    layers, shape = range(config.n_layer), (1, config.n_head, 16 if tiny else 64, config.n_embd // config.n_head)
    names = [f"{kind}_{i}" for i in layers for kind in ("key", "value")]

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(config)

        def forward(self, input_ids: Any, **past: Any) -> Any:
            cache = DynamicCache()
            for i in layers:
                cache.update(past[f"past_key_{i}"], past[f"past_value_{i}"], i)
            found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
            present = [t for layer in found.past_key_values.layers for t in (layer.keys, layer.values)]
            return found.logits, *present

    inputs = {"input_ids": torch.randint(0, 100, (1, 1)), **{f"past_{n}": torch.randn(shape) for n in names}}
    axes = {name: {0: "batch"} if name == "input_ids" else {0: "batch", 2: "sequence"} for name in inputs}
    return Step(), inputs, axes, ["logits", *(f"present_{n}" for n in names)]


def _vit(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000, **({"num_hidden_layers": 2, "hidden_size": 96, "num_attention_heads": 4,
                                            "intermediate_size": 192, "image_size": 64} if tiny else {}))  # fmt: skip
    pixels = torch.randn(1, 3, config.image_size, config.image_size)
    return ViTForImageClassification(config), {"pixel_values": pixels}, {"pixel_values": {0: "batch"}}, ["logits"]


def _trained_looking(model: Any, shape: Sequence[int]) -> None:
    """Weights that keep the scale, and the running statistics of pictures of this shape."""
    import torch

    normalizations = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_in")
    for module in normalizations:
        torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        torch.nn.init.normal_(module.bias, 0, 0.3)
        module.momentum = 1.0
    pictures = torch.from_numpy(np.concatenate(_example("carry_signal").pictures(16, shape)))
    model.train()
    with torch.no_grad():
        model(pictures)
    model.eval()


def _mobilenetv2(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    import torch
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(num_labels=1000, **({"depth_multiplier": 0.35, "image_size": 96} if tiny else {}))
    model = MobileNetV2ForImageClassification(config)
    pixels = torch.randn(1, 3, config.image_size, config.image_size)
    _trained_looking(model, pixels.shape)
    return model, {"pixel_values": pixels}, {"pixel_values": {0: "batch"}}, ["logits"]


def _efficientnet(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    """EfficientNet-B0 (the default configuration is B7)."""
    import torch
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    size, width, depth = (64, 0.35, 0.35) if tiny else (224, 1.0, 1.0)
    config = EfficientNetConfig(
        num_labels=1000,
        image_size=size,
        width_coefficient=width,
        depth_coefficient=depth,
        hidden_dim=448 if tiny else 1280,  # 1280 times the width, as its last layers have it
    )
    model = EfficientNetForImageClassification(config)
    # All of space, as its window of hidden_dim with ceil_mode is, which some engines refuse.
    model.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)
    _trained_looking(model, (1, 3, size, size))
    return model, {"pixel_values": torch.randn(1, 3, size, size)}, {"pixel_values": {0: "batch"}}, ["logits"]


def _convnext(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    """ConvNeXt-T."""
    import torch
    from transformers import ConvNextConfig, ConvNextForImageClassification

    small = {"depths": (1, 1, 2, 1), "hidden_sizes": (24, 48, 96, 192), "image_size": 64} if tiny else {}
    config = ConvNextConfig(num_labels=1000, layer_scale_init_value=0.5, **small)
    pixels = torch.randn(1, 3, config.image_size, config.image_size)
    return ConvNextForImageClassification(config), {"pixel_values": pixels}, {"pixel_values": {0: "batch"}}, ["logits"]


def _lstm(tiny: bool) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    """Two layers over a sequence, from torch.nn."""
    import torch

    hidden, steps = (24, 7) if tiny else (512, 100)

    class Sequence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)

        def forward(self, x: Any) -> Any:
            output, (state, cell) = self.lstm(x)
            return output, state, cell

    axes = {"x": {0: "batch", 1: "sequence"}}
    return Sequence(), {"x": torch.randn(1, steps, hidden)}, axes, ["output", "state", "cell"]


_RECIPES = {
    "bert": _bert,
    "distilbert": _distilbert,
    "gpt2": _gpt2,
    "gpt2-decode": _gpt2_decode,
    "vit": _vit,
    "mobilenetv2": _mobilenetv2,
    "efficientnet": _efficientnet,
    "convnext": _convnext,
    "lstm": _lstm,
}


def torch_module(name: str, size: str = "base") -> Any:
    """The module behind :func:`transformer`: the model's inputs in order → a tuple of its outputs."""
    return _plain(name, size)[0]


def _plain(name: str, size: str) -> tuple[Any, dict[str, Any], dict[str, dict[int, str]], list[str]]:
    """A recipe's model with tensors for inputs and outputs, its example inputs, open axes and names of outputs."""
    import torch

    torch.manual_seed(0)
    model, inputs, axes, outputs = _RECIPES[name](size == "tiny")

    class Plain(torch.nn.Module):
        """Takes tensors by name, returns a tuple of tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            result = self.inner(**dict(zip(inputs, args, strict=True)))
            return result if type(result) is tuple else tuple(getattr(result, key) for key in outputs)

    return Plain().eval(), inputs, axes, outputs


def _export(name: str, size: str, sizes: str, exporter: str, out: str) -> None:
    import torch

    model, inputs, axes, outputs = _plain(name, size)
    dynamic = sizes == "dynamic"
    options: dict[str, Any] = {"input_names": list(inputs), "output_names": outputs, "dynamo": exporter == "dynamo"}
    if exporter == "dynamo":
        options["external_data"] = False
    else:
        options["opset_version"] = 17
    examples = tuple(torch.cat([x, x]) if dynamic else x for x in inputs.values())
    if dynamic and exporter == "dynamo":
        dims = {label: torch.export.Dim(label, min=1 if label == "batch" else 2, max=4096 if label == "batch" else 512)
                for label in ("batch", "sequence")}  # fmt: skip
        options["dynamic_shapes"] = (tuple({k: dims[v] for k, v in axes[n].items()} for n in inputs),)
    elif dynamic:
        options["dynamic_axes"] = axes
    with torch.no_grad():
        torch.onnx.export(model, examples, out, **options)


if __name__ == "__main__":
    _export(*sys.argv[1:6])
