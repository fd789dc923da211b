"""Stands in for torchvision, which ``timm`` imports for transforms of pictures that building a model does not need.

PyPI's torchvision cannot be loaded together with the CPU build of PyTorch. Every name that is looked up in the stand-in
is an empty class; those that models really use are written out.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from enum import Enum
from types import ModuleType
from typing import Any

NAME = "torchvision"

_MODES = Enum(
    "InterpolationMode",
    {n: n.lower() for n in ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")},
)


class _Stub(ModuleType):
    """A module that has every name."""

    __path__: list[str] = []  # noqa: RUF012  # a package, so that its submodules are asked for too
    __version__ = "0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _MODES if name == "InterpolationMode" else type(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == NAME or name.startswith(f"{NAME}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def without_torchvision() -> None:
    """Make ``import torchvision`` succeed in this process, unless it is installed."""
    if importlib.util.find_spec(NAME) is None:
        sys.meta_path.append(_Finder())
