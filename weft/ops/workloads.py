"""Kernels as networks have them, for what learns how fast kernels are: the corpus of the tuner's cost model.

A workload is a chain of operators on operands of given sizes; after the optimization of its graph it is one kernel or a
few. The table has each family of operators in sizes that fit into the first-level cache, into the second, and into
neither, odd ones among them. The operators that no chain has come from the cases of the catalogue, with larger extents.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from weft.graph.build import var
from weft.graph.nodes import Constant, Function, GraphExpr, Module, Var, call
from weft.graph.types import TensorType, TupleType, Type
from weft.ops.catalogue import OPERATORS
from weft.ops.definition import Case, OpDef
from weft.support.dtypes import DType
from weft.support.errors import WeftError

Shape = tuple[int, ...]
Step = tuple[str, str, Mapping[str, Any]]
"""An operator, the names of its operands (``.``: the result of the step before, ``0``, ``1``, …: of that step), and
its attributes."""

SCALED_BYTES: Final = (24 << 10, 400 << 10, 6 << 20)
"""About so many bytes have the operands of operators that come from the catalogue: one of these."""
MAX_SCALE: Final = 4096
EVERY_ELEMENTWISE: Final = 4
"""Of the operators that are computed element by element, every so many-th: their kernels are alike."""


@dataclass(frozen=True, slots=True)
class OperatorChain:
    """A chain of operators. ``operands`` are shapes by name, with the dtype where it is not float32; those of
    ``weights`` are constants. ``family`` is the kind of operator that decides how the kernel is made."""

    family: str
    operands: Mapping[str, Shape | tuple[Shape, str]]
    steps: Sequence[Step]
    weights: str = ""

    def module(self) -> Module:
        """The workload as a model. Raises TypeRelationError for shapes that do not fit."""
        known: dict[str, GraphExpr] = {}
        for name, given in self.operands.items():
            shape, dtype = given if isinstance(given[-1], str) else (given, "float32")
            made = _weight(name, shape, dtype) if name in self.weights.split() else var(name, shape, dtype)
            known[name] = made
        for number, (operator, operands, attrs) in enumerate(self.steps):
            known[str(number)] = known["."] = call(OPERATORS[operator], [known[n] for n in operands.split()], attrs)
        params = tuple(v for v in known.values() if isinstance(v, Var))
        return Module.of(Function(tuple(dict.fromkeys(params)), known["."]))


def _weight(name: str, shape: Any, dtype: str) -> Constant:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return Constant((rng.standard_normal(shape) / np.sqrt(prod(shape[1:]) or 1)).astype(DType(dtype).numpy))


def _product(m: int, k: int, n: int, *then: str) -> OperatorChain:
    steps: list[Step] = [("matmul", "x w", {})]
    steps += [(name, ". b" if name == "add" else ".", {}) for name in then]
    operands = {"x": (m, k), "w": (k, n), "b": (n,)}
    return OperatorChain("matmul", {n: s for n, s in operands.items() if n != "b" or "add" in then}, steps, "w b")


def _batched(x: Shape, y: Shape, transposed: bool = False) -> OperatorChain:
    return OperatorChain("batched matmul", {"x": x, "y": y}, [("matmul", "x y", {"transpose_b": transposed})])


def _conv(
    family: str, x: Shape, w: Shape, then: Sequence[str] = ("relu",), operator: str = "conv", **attrs: Any
) -> OperatorChain:
    steps: list[Step] = [(operator, "x w", attrs), *((name, ".", {}) for name in then)]
    return OperatorChain(family, {"x": x, "w": w}, steps, "w")


def _one(family: str, operator: str, x: Shape, *then: str, **attrs: Any) -> OperatorChain:
    return OperatorChain(family, {"x": x}, [(operator, "x", attrs), *((name, ".", {}) for name in then)])


def _norm(operator: str, x: Shape, scale: Shape, shifts: bool = True, **attrs: Any) -> OperatorChain:
    operands = {"x": x, "g": scale, "b": scale} if shifts else {"x": x, "g": scale}
    return OperatorChain("normalization", operands, [(operator, " ".join(operands), attrs)], "g b")


def _attention(heads: int, queries: int, keys: int, width: int) -> OperatorChain:
    operands = {"q": (heads, queries, width), "k": (heads, keys, width), "v": (heads, keys, width)}
    return OperatorChain(
        "attention", operands, [("matmul", "q k", {"transpose_b": True}), ("softmax", ".", {}), ("matmul", ". v", {})]
    )


def _same(window: int) -> Shape:
    return (window // 2,) * 4


CHAINS: Final = (
    _product(32, 64, 64),
    _product(128, 256, 256),
    _product(197, 333, 129, "add", "relu"),
    _product(1, 1024, 1024),
    _product(512, 512, 512),
    _product(64, 768, 3072, "add", "gelu"),
    _product(9, 2048, 1000, "add"),
    _product(256, 2048, 64),
    _batched((12, 64, 64), (12, 64, 64)),
    _batched((8, 128, 128), (8, 128, 32)),
    _batched((4, 49, 32), (4, 196, 32), True),
    _batched((16, 17, 80), (16, 33, 80), True),
    _batched((100, 300), (200, 300), True),
    _conv("convolution", (1, 32, 28, 28), (32, 32, 3, 3), pads=_same(3)),
    _conv("convolution", (1, 64, 56, 56), (64, 64, 3, 3), pads=_same(3)),
    _conv("convolution", (1, 3, 112, 112), (16, 3, 3, 3), pads=_same(3), strides=(2, 2)),
    _conv("convolution", (1, 17, 19, 23), (23, 17, 3, 3)),
    _conv("convolution", (1, 128, 14, 14), (128, 128, 3, 3), pads=_same(3)),
    _conv("convolution", (1, 3, 66, 66), (16, 3, 5, 5), ()),
    _conv("convolution", (1, 32, 400), (32, 32, 5)),
    _conv("convolution", (1, 8, 10, 14, 14), (16, 8, 3, 3, 3)),
    _conv("dilated convolution", (1, 32, 28, 28), (32, 32, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2)),
    _conv("pointwise convolution", (1, 64, 28, 28), (128, 64, 1, 1)),
    _conv("pointwise convolution", (1, 256, 14, 14), (64, 256, 1, 1), ()),
    _conv("pointwise convolution", (1, 96, 13, 13), (40, 96, 1, 1), ("silu",)),
    _conv("pointwise convolution", (1, 24, 56, 56), (144, 24, 1, 1)),
    _conv("depthwise convolution", (1, 64, 56, 56), (64, 1, 3, 3), pads=_same(3), groups=64),
    _conv("depthwise convolution", (1, 128, 28, 28), (128, 1, 3, 3), pads=_same(3), groups=128, strides=(2, 2)),
    _conv("depthwise convolution", (1, 30, 61, 61), (30, 1, 5, 5), (), groups=30),
    _conv("depthwise convolution", (1, 32, 112, 112), (32, 1, 3, 3), ("silu",), pads=_same(3), groups=32),
    _conv("grouped convolution", (1, 64, 28, 28), (64, 16, 3, 3), pads=_same(3), groups=4),
    _conv("grouped convolution", (1, 48, 21, 21), (96, 16, 1, 1), groups=3),
    _conv("transposed convolution", (1, 16, 16, 16), (16, 8, 4, 4), (), "conv_transpose", strides=(2, 2)),
    _conv("transposed convolution", (1, 32, 28, 28), (32, 16, 2, 2), ("relu",), "conv_transpose", strides=(2, 2)),
    _one("pooling", "max_pool", (1, 64, 57, 57), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    _one("pooling", "max_pool", (1, 128, 28, 28), kernel=(2, 2), strides=(2, 2)),
    _one("pooling", "avg_pool", (1, 32, 111, 111), kernel=(3, 3), strides=(2, 2)),
    _one("softmax", "softmax", (256, 256)),
    _one("softmax", "softmax", (64, 1000)),
    _one("softmax", "softmax", (1024, 65)),
    _one("softmax", "softmax", (8, 32000)),
    _one("softmax", "log_softmax", (4, 21, 500), axis=1),
    _norm("layer_norm", (128, 768), (768,)),
    _norm("layer_norm", (1000, 97), (97,)),
    _norm("rms_norm", (32, 2048), (2048,), shifts=False),
    _norm("group_norm", (1, 32, 28, 28), (32,), num_groups=8),
    _norm("instance_norm", (1, 16, 60, 60), (16,)),
    _attention(4, 64, 64, 32),
    _attention(12, 128, 128, 64),
    _attention(6, 1, 257, 64),
    OperatorChain(
        "elementwise",
        {"x": (256, 1024), "y": (256, 1024), "b": (1024,)},
        [("add", "x y", {}), ("mul", ". b", {}), ("sigmoid", ".", {})],
        "b",
    ),
    OperatorChain("elementwise", {"x": (2000, 2000), "y": (2000, 2000)}, [("add", "x y", {}), ("relu", ".", {})]),
    OperatorChain("elementwise", {"x": (33, 97), "y": (33, 1)}, [("sub", "x y", {}), ("exp", ".", {})]),
    OperatorChain(
        "elementwise", {"x": (1, 64, 56, 56), "s": (1, 64, 1, 1)}, [("mul", "x s", {}), ("hard_swish", ".", {})]
    ),
    _one("elementwise", "gelu", (64, 3072)),
    _one("elementwise", "tanh", (1 << 20,)),
    _one("elementwise", "silu", (77, 640)),
    _one("reduce", "reduce_sum", (256, 1024), axes=(1,), keepdims=False),
    _one("reduce", "reduce_sum_square", (2048, 100), axes=(1,), keepdims=False),
    _one("reduce", "reduce_max", (4096, 64), axes=(0,), keepdims=False),
    _one("reduce", "reduce_mean", (1, 256, 28, 28), axes=(2, 3)),
    _one("reduce", "reduce_sum", (32, 65536), axes=(1,), keepdims=False),
    _one("reduce", "reduce_sum", (5, 301, 403), axes=(1,), keepdims=False),
    _one("transposition", "transpose", (8, 128, 128), perm=(0, 2, 1)),
    _one("transposition", "transpose", (1, 3, 224, 224), perm=(0, 2, 3, 1)),
    _one("transposition", "transpose", (12, 64, 49), perm=(1, 0, 2)),
    _one("transposition", "transpose", (1023, 769), "relu", perm=(1, 0)),
    OperatorChain("look-up", {"x": (30000, 128), "i": ((512,), "int64")}, [("gather", "x i", {})]),
    OperatorChain(
        "look-up",
        {"x": (1000, 96), "i": ((64, 33), "int64"), "b": (96,)},
        [("gather", "x i", {}), ("add", ". b", {})],
        "b",
    ),
    OperatorChain(
        "joining", {"x": (1, 64, 56, 56), "y": (1, 32, 56, 56)}, [("concat", "x y", {"axis": 1}), ("relu", ".", {})]
    ),
    _one("resizing", "resize", (1, 16, 40, 40), sizes=(1, 16, 80, 80)),
    _one("resizing", "resize", (1, 32, 28, 28), sizes=(1, 32, 56, 56), mode="nearest"),
    _one("scan", "cumsum", (256, 500), axis=1),
    _one("scan", "cumsum", (600, 128), axis=0),
    _one("search", "argmax", (256, 1000), axis=1),
)
"""Chains by family."""


def workloads() -> list[OperatorChain]:
    """All workloads: the chains, then one for each other operator of the catalogue that a kernel computes and whose
    cases can be made larger. Always the same."""
    used = {operator for w in CHAINS for operator, _, _ in w.steps}
    found = list(CHAINS)
    elementwise = 0
    for operator in OPERATORS.values():
        if operator.name in used or operator.compute is None or operator.host or operator.checks or not operator.pure:
            continue
        elementwise += operator.elementwise
        if operator.elementwise and elementwise % EVERY_ELEMENTWISE:
            continue
        made = _scaled(operator)
        if made is not None:
            found.append(made)
    return found


def _scaled(operator: OpDef) -> OperatorChain | None:
    """The first case of an operator that still fits with larger extents, in one of the sizes."""
    wanted = SCALED_BYTES[zlib.crc32(operator.name.encode()) % len(SCALED_BYTES)]
    for case in operator.cases:
        scale, best = 2, None
        while scale <= MAX_SCALE:
            types = _types(case, scale)
            result = None if types is None else _inferred(operator, case, types)
            if types is None or result is None or _nbytes([*types, *_fields(result)]) > wanted:
                break
            best = types
            scale = scale + 1 if scale < 8 else int(scale * 1.3)
        if best is not None and _nbytes(best) > wanted // 16:
            operands = {
                f"x{n}": (tuple(d for d in t.shape if isinstance(d, int)), str(t.dtype)) for n, t in enumerate(best)
            }
            family = (operator.compute.__module__ if operator.compute else "").rpartition(".")[2]
            return OperatorChain(family, operands, [(operator.name, " ".join(operands), dict(case.attrs))])
    return None


def _types(case: Case, scale: int) -> list[TensorType] | None:
    """The types of a case's operands with all extents but those of 1 so many times as large; None with operands whose
    values matter."""
    if any(isinstance(given, np.ndarray) for given in case.inputs):
        return None
    return [TensorType.of([e if e <= 1 else e * scale for e in shape], dtype) for shape, dtype in case.inputs]


def _inferred(operator: OpDef, case: Case, types: Sequence[TensorType]) -> Type | None:
    try:
        return operator.infer(operator.complete(case.attrs), *types)
    except WeftError:
        return None


def _fields(result: Type) -> list[TensorType]:
    fields = result.fields if isinstance(result, TupleType) else (result,)
    return [t for t in fields if isinstance(t, TensorType)]


def _nbytes(types: Sequence[TensorType]) -> int:
    return sum(prod(d for d in t.shape if isinstance(d, int)) * t.dtype.nbytes for t in types)
