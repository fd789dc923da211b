"""Descriptions of the algebraic data types of inputs and outputs, for the runtime (see ``weft.runtime.values``)."""

from __future__ import annotations

from typing import Any

from weft.graph.build import constructor
from weft.graph.nodes import Module
from weft.graph.types import DataType, FunctionType, TensorType, TupleType, Type


class DescribedTypes:
    """Collects descriptions: ``name(t)`` adds ``t`` and all types that it contains to ``found``."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.found: dict[str, Any] = {}

    def name(self, t: DataType) -> str:
        """The name of a type; equal types have one name."""
        waiting = [t]
        while waiting:
            at = waiting.pop()
            if str(at) in self.found:
                continue
            self.found[str(at)] = described = {}
            declared = self.module.types[at.name]
            for own, _ in declared.constructors:
                made = constructor(declared, own, at.args).type
                assert isinstance(made, FunctionType)
                described[own] = [self._field(p, waiting) for p in made.params]
        return str(t)

    def _field(self, t: Type, waiting: list[DataType]) -> list[Any]:
        if isinstance(t, TensorType):
            return ["tensor", str(t.dtype), [d if isinstance(d, int) else -1 for d in t.shape]]
        if isinstance(t, TupleType):
            return ["tuple", [self._field(f, waiting) for f in t.fields]]
        if isinstance(t, DataType):
            waiting.append(t)
            return ["data", str(t)]
        return ["function"]
