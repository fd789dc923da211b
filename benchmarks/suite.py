"""The models that are measured: name → how to get the file, and the sizes it runs at."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import models_zoo as zoo


@dataclass(frozen=True)
class Entry:
    """A model of the suite; ``quick`` ones are measured with ``--quick`` too. ``torch`` names the recipe of the zoo for
    PyTorch's own form of the model, which PyTorch's engines run; without it they run the ONNX nodes as calls of torch.
    Models of ``pictures`` take pixels from 0 to 255: their results for noise around 0 would be rounding errors."""

    name: str
    build: Callable[[], Path]
    shapes: tuple[str, ...] = ()
    quick: bool = False
    torch: str | None = None
    pictures: bool = False

    @property
    def group(self) -> str:
        """``images``, ``images8`` (eight at once) or ``sequences``."""
        return "sequences" if self.torch in SEQUENCES else "images8" if self.name.endswith("×8") else "images"

    @property
    def torch_source(self) -> str | None:
        """What makes the torch module, as ``weft bench --torch-module`` takes it."""
        return f"{zoo.__file__}:torch_module,{self.torch}" if self.torch else None


SEQUENCES = ("bert", "distilbert", "gpt2", "gpt2-decode", "lstm")
GROUPS = ("images", "images8", "sequences")


def _of_eight(name: str) -> Path:
    return zoo.batched(zoo.light(name), 8)


def _open(name: str) -> Callable[[], Path]:
    return partial(zoo.transformer, name, sizes="dynamic")


SUITE = (
    Entry("ResNet-50", partial(zoo.light, "resnet50"), quick=True),
    Entry("MobileNetV2", partial(zoo.transformer, "mobilenetv2"), quick=True, torch="mobilenetv2"),
    Entry("SqueezeNet", partial(zoo.light, "squeezenet"), quick=True),
    Entry("DenseNet-121", partial(zoo.light, "densenet121")),
    Entry("Inception-v2", partial(zoo.light, "inception_v2")),
    Entry("ShuffleNet", partial(zoo.light, "shufflenet")),
    Entry("EfficientNet-B0", partial(zoo.transformer, "efficientnet"), torch="efficientnet"),
    Entry("ConvNeXt-T", partial(zoo.transformer, "convnext"), torch="convnext"),
    Entry("BERT-base 128", partial(zoo.transformer, "bert"), quick=True, torch="bert"),
    Entry("DistilBERT 128", partial(zoo.transformer, "distilbert"), torch="distilbert"),
    Entry("GPT-2 prefill 64", partial(zoo.transformer, "gpt2"), torch="gpt2"),
    Entry("GPT-2 step, cache 64", partial(zoo.transformer, "gpt2-decode"), torch="gpt2-decode"),
    Entry("ViT-B/16", partial(zoo.transformer, "vit"), torch="vit"),
    Entry("LSTM, 2 layers of 512, 100 steps", partial(zoo.transformer, "lstm"), torch="lstm"),
    Entry("RFB-320 detector", partial(zoo.shared, "ulfd_version-RFB-320")),
    Entry("FastestDet", partial(zoo.shared, "FastestDet")),
    Entry("face landmarks", partial(zoo.shared, "osf_lm_model0_opt"), ("batch_size=1",)),
    Entry("candy style transfer", partial(zoo.shared, "winml_candy"), ("None=1",), pictures=True),
    Entry("ResNet-50 ×8", partial(_of_eight, "resnet50")),
    Entry("MobileNetV2 ×8", _open("mobilenetv2"), ("batch=8",), torch="mobilenetv2"),
    Entry("SqueezeNet ×8", partial(_of_eight, "squeezenet")),
    Entry("DenseNet-121 ×8", partial(_of_eight, "densenet121")),
    Entry("Inception-v2 ×8", partial(_of_eight, "inception_v2")),
    Entry("ShuffleNet ×8", partial(_of_eight, "shufflenet")),
    Entry("EfficientNet-B0 ×8", _open("efficientnet"), ("batch=8",), torch="efficientnet"),
    Entry("ConvNeXt-T ×8", _open("convnext"), ("batch=8",), torch="convnext"),
    Entry("RFB-320 detector ×8", lambda: zoo.batched(zoo.shared("ulfd_version-RFB-320"), 8)),
    Entry("face landmarks ×8", partial(zoo.shared, "osf_lm_model0_opt"), ("batch_size=8",)),
    Entry("candy style transfer ×8", partial(zoo.shared, "winml_candy"), ("None=8",), pictures=True),
)


def available(quick: bool = False, entries: Sequence[Entry] = SUITE) -> Iterator[tuple[Entry, Path]]:
    """The ``entries`` whose model is available here, with its file; the others are named on standard error."""
    for entry in entries:
        if quick and not entry.quick:
            continue
        try:
            yield entry, entry.build()
        except zoo.Unavailable as why:
            print(f"{entry.name} is left out: {why}", file=sys.stderr)
