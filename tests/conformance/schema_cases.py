"""Small valid models of single nodes, for every operator, version and dtype that the schemas of ONNX list.

A recipe (``schema_recipes``) makes operands and attributes for one operator; the schema says which dtypes each operand
may have. One type parameter varies at a time, the others keep their usual dtype.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import defs, helper

Array: TypeAlias = "np.ndarray[Any, Any]"

DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(bfloat16)": np.dtype(ml_dtypes.bfloat16),
    **{f"tensor({k}{b})": np.dtype(f"{k}{b}") for k in ("int", "uint") for b in (8, 16, 32, 64)},
    "tensor(bool)": np.dtype(bool),
    "tensor(float8e4m3fn)": np.dtype(ml_dtypes.float8_e4m3fn),
    "tensor(float8e4m3fnuz)": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "tensor(float8e5m2)": np.dtype(ml_dtypes.float8_e5m2),
    "tensor(float8e5m2fnuz)": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "tensor(float8e8m0)": np.dtype(ml_dtypes.float8_e8m0fnu),
    "tensor(float4e2m1)": np.dtype(ml_dtypes.float4_e2m1fn),
    "tensor(float6e2m3)": np.dtype(ml_dtypes.float6_e2m3fn),
    "tensor(float6e3m2)": np.dtype(ml_dtypes.float6_e3m2fn),
    "tensor(int4)": np.dtype(ml_dtypes.int4),
    "tensor(uint4)": np.dtype(ml_dtypes.uint4),
    "tensor(int2)": np.dtype(ml_dtypes.int2),
    "tensor(uint2)": np.dtype(ml_dtypes.uint2),
}
"""All that has numbers; strings and complex numbers are left out."""

USUAL = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(bool)")
SIGNED = ("int2", "int4", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint2", "uint4", "uint8", "uint16", "uint32", "uint64")


def code_of(dtype: np.dtype[Any]) -> int:
    """The number that ONNX has for a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


@dataclass
class Maker:
    """What a recipe sees: the version of the operator, and arrays of the dtypes that its operands have now.

    ``types`` is the dtype of each type parameter."""

    schema: Any
    types: dict[str, np.dtype[Any]]
    rng: np.random.Generator

    @property
    def version(self) -> int:
        return int(self.schema.since_version)

    def dtype(self, i: int) -> np.dtype[Any]:
        """The dtype of operand ``i``; behind the last, that of the last (variadic) one."""
        formal = self.schema.inputs[min(i, len(self.schema.inputs) - 1)].type_str
        return self.types[formal] if formal in self.types else DTYPES[formal]

    def of(self, i: int, values: Any) -> Array:
        """Operand ``i`` with these values."""
        return np.asarray(values).astype(self.dtype(i))

    def x(self, i: int, *shape: int, low: float = -3, high: float = 3) -> Array:
        """Operand ``i``: quarters between the bounds, whole numbers where it has no fractions."""
        dtype = self.dtype(i)
        if dtype.kind == "b":
            return self.rng.random(shape) > 0.5
        if dtype.name in UNSIGNED:
            low, high = max(low, 0), max(high, 0) if dtype.name == "uint2" else max(high, 1)
        if dtype.name in SIGNED or dtype.name in UNSIGNED:
            low, high = (max(low, -2), min(high, 1)) if dtype.name == "int2" else (low, high)
            return self.rng.integers(math.ceil(low), math.floor(high) + 1, shape).astype(np.int64).astype(dtype)
        made = self.rng.integers(math.ceil(low * 4), math.floor(high * 4) + 1, shape) / 4
        return np.asarray(np.abs(made) + 0.25 if dtype.name == "float8_e8m0fnu" else made).astype(dtype)

    def has(self, i: int) -> bool:
        """Whether this version has an operand ``i``."""
        return i < len(self.schema.inputs)

    def known(self, name: str) -> bool:
        """Whether this version has the attribute."""
        return name in self.schema.attributes


Made: TypeAlias = "tuple[Sequence[Array | None], dict[str, Any]]"
Recipe: TypeAlias = Callable[[Maker], "Made | None"]


@dataclass(frozen=True)
class Case:
    """One node with its operands. ``label`` names operator, version, recipe and dtypes."""

    label: str
    schema: Any
    operands: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    result: np.dtype[Any] | None = None

    def model(self, *, known: Sequence[int] = ()) -> onnx.ModelProto:
        """The model; operands in ``known`` are weights."""
        names = [f"x{i}" if v is not None else "" for i, v in enumerate(self.operands)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.schema.name, names, outputs, domain=self.schema.domain, **self.attributes)
        inputs = [
            helper.make_tensor_value_info(names[i], code_of(v.dtype), v.shape)
            for i, v in enumerate(self.operands)
            if v is not None and i not in known
        ]
        weights = [onnx.numpy_helper.from_array(v, names[i]) for i in known if (v := self.operands[i]) is not None]
        infos = [onnx.ValueInfoProto(name=n) for n in outputs]
        if self.result is not None:
            infos[0].type.tensor_type.elem_type = code_of(self.result)
        graph = helper.make_graph([node], "one", inputs, infos, weights)
        imports = [helper.make_opsetid(self.schema.domain, self.schema.since_version)]
        if self.schema.domain:
            imports.append(helper.make_opsetid("", 21))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds(self) -> dict[str, Array]:
        return {f"x{i}": v for i, v in enumerate(self.operands) if v is not None}


def allowed(schema: Any) -> dict[str, list[np.dtype[Any]]]:
    """The dtypes of each type parameter of the operands, the usual one first."""
    used = {i.type_str for i in schema.inputs}
    found = {}
    for constraint in schema.type_constraints:
        names = sorted(constraint.allowed_type_strs, key=lambda n: (USUAL.index(n) if n in USUAL else 9, n))
        kinds = [DTYPES[n] for n in names if n in DTYPES]
        if constraint.type_param_str in used and kinds:
            found[constraint.type_param_str] = kinds
    return found


def assignments(schema: Any) -> Iterator[dict[str, np.dtype[Any]]]:
    """One dtype for each type parameter: the usual ones, then each other dtype of one of them."""
    choices = allowed(schema)
    usual = {p: kinds[0] for p, kinds in choices.items()}
    yield usual
    for param, kinds in choices.items():
        for kind in kinds[1:]:
            yield {**usual, param: kind}


def schemas() -> list[Any]:
    """Every version of every operator that has not been withdrawn."""
    found = [s for s in defs.get_all_schemas_with_history() if not s.deprecated]
    return sorted(found, key=lambda s: (s.domain, s.name, s.since_version))


def cases(schema: Any, recipes: Sequence[Recipe]) -> Iterator[Case]:
    """All cases of one version of an operator."""
    for number, recipe in enumerate(recipes):
        for types in assignments(schema):
            label = f"{schema.name}-{schema.since_version}.{number}({', '.join(d.name for d in types.values())})"
            maker = Maker(schema, types, np.random.default_rng(zlib.crc32(label.encode())))
            made = recipe(maker)
            if made is None:
                continue
            operands, attributes = made
            attributes = dict(attributes)
            outputs, result = attributes.pop("_outputs", 1), attributes.pop("_result", None)
            yield Case(label, schema, tuple(operands), attributes, outputs, result)
