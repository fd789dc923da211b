"""Tuning: search for schedules by measuring them.

    from weft.tune import tune_model

    tune_model("resnet.onnx", database="tuned.db", minutes=30, progress=True)

Everything below is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "KernelResult": "weft.tune.results",
    "Knobs": "weft.tune.template",
    "TuningResult": "weft.tune.results",
    "TuningStopped": "weft.tune.results",
    "tune_corpus": "weft.tune.corpus.api",
    "tune_kernel": "weft.tune.api",
    "tune_model": "weft.tune.api",
}

__all__ = [*_PUBLIC]

if TYPE_CHECKING:
    from weft.tune.api import tune_kernel as tune_kernel
    from weft.tune.api import tune_model as tune_model
    from weft.tune.corpus.api import tune_corpus as tune_corpus
    from weft.tune.results import KernelResult as KernelResult
    from weft.tune.results import TuningResult as TuningResult
    from weft.tune.results import TuningStopped as TuningStopped
    from weft.tune.template import Knobs as Knobs


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'weft.tune' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
