"""Weft: an end-to-end optimizing compiler for deep learning.

    import weft

    exe = weft.compile("model.onnx")      # for the CPU at hand
    y = exe(x)                            # NumPy or anything that speaks DLPack
    exe.save("model.weft")                # runs later without the compiler

Everything below is imported when it is first used, so ``import weft`` is light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.support.version import VERSION

__version__ = VERSION

_PUBLIC = {
    "build": "weft.classic.build",
    "compile": "weft.api",
    "compile_artifact": "weft.api",
    "compile_sources": "weft.api",
    "load": "weft.api",
    "load_function": "weft.classic.function",
    "lower": "weft.classic.build",
    "Data": "weft.support.data",
    "Device": "weft.runtime",
    "Executable": "weft.runtime",
    "Options": "weft.pipeline",
    "Plugin": "weft.plugins",
    "Tensor": "weft.runtime",
    "Target": "weft.target",
    "UserError": "weft.support.errors",
    "WeftError": "weft.support.errors",
    "device": "weft.runtime",
    "load_executable": "weft.runtime",
}
_MODULES = {"te": "weft.te", "nd": "weft.runtime.nd", "tir": "weft.tir", "graph": "weft.graph", "rpc": "weft.rpc"}

__all__ = ["__version__", *_PUBLIC, *_MODULES]

if TYPE_CHECKING:
    from weft import graph as graph
    from weft import rpc as rpc
    from weft import te as te
    from weft import tir as tir
    from weft.api import compile as compile
    from weft.api import compile_artifact as compile_artifact
    from weft.api import compile_sources as compile_sources
    from weft.api import load as load
    from weft.classic.build import build as build
    from weft.classic.build import lower as lower
    from weft.classic.function import load_function as load_function
    from weft.pipeline import Options as Options
    from weft.plugins import Plugin as Plugin
    from weft.runtime import Device as Device
    from weft.runtime import Executable as Executable
    from weft.runtime import Tensor as Tensor
    from weft.runtime import device as device
    from weft.runtime import load_executable as load_executable
    from weft.runtime import nd as nd
    from weft.support.data import Data as Data
    from weft.support.errors import UserError as UserError
    from weft.support.errors import WeftError as WeftError
    from weft.target import Target as Target


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module 'weft' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
