"""Hashes of graphs without their weights: what was measured in a model is found again by them."""

from __future__ import annotations

from typing import Final

from weft.graph.nodes import Function, Module
from weft.ir.structural import structural_hash

LARGEST_COUNTED: Final = 8
"""Elements of the largest constant whose values count: those of shapes and factors, not those of weights, which may
take gigabytes and do not change how long a run takes."""


def module_hash(module: Module) -> str:
    """A hexadecimal digest of what ``module`` computes; its name, and the names in it, do not count."""
    return structural_hash(module.functions, largest_array=LARGEST_COUNTED)


def function_hash(function: Function) -> str:
    """A hexadecimal digest of what ``function`` computes; names do not count."""
    return structural_hash(function, largest_array=LARGEST_COUNTED)
