"""Weft: an end-to-end optimizing compiler for deep learning.

    import weft

    exe = weft.compile("model.onnx")      # for the CPU at hand
    y = exe(x)                            # NumPy or anything that speaks DLPack
    exe.save("model.weft")                # runs later without the compiler

Everything below is imported when it is first used, so ``import weft`` is light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "compile": "weft.api",
    "load": "weft.api",
    "build": "weft.api",
    "lower": "weft.api",
    "Executable": "weft.runtime",
    "Options": "weft.pipeline",
    "Tensor": "weft.runtime",
    "Target": "weft.target",
    "UserError": "weft.support.errors",
    "WeftError": "weft.support.errors",
    "device": "weft.runtime",
    "load_executable": "weft.runtime",
}
_MODULES = {"te": "weft.te", "nd": "weft.runtime.nd", "tir": "weft.tir", "graph": "weft.graph"}

__all__ = ["__version__", *_PUBLIC, *_MODULES]  # noqa: PLE0604

if TYPE_CHECKING:
    from weft import graph, te, tir
    from weft.api import build, compile, load, lower
    from weft.pipeline import Options
    from weft.runtime import Executable, Tensor, device, load_executable, nd
    from weft.support.errors import UserError, WeftError
    from weft.target import Target


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'weft' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
