"""Models of one node: through Weft (the graph interpreter, or compiled) and through onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

import weft
from weft.frontends import onnx as frontend
from weft.graph import interpret

EXACT_BYTES = "session.x64quantprecision", "1"
"""For onnxruntime: without it, CPUs that lack products of bytes add pairs of products of unsigned and signed ones in 16
bits, which saturate. It works for signed bytes that are constants."""

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(7)


def f(*shape: int, dtype: Any = np.float32, scale: float = 1.0) -> Array:
    """Normally distributed numbers."""
    return np.asarray(RNG.standard_normal(shape) * scale).astype(dtype)


def i8(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def s(value: float) -> Array:
    """A float32 without dimensions."""
    return np.array(value, np.float32)


def z(value: int, dtype: Any = np.uint8) -> Array:
    """A zero point."""
    return np.array(value, dtype)


def n(*values: int, dtype: Any = np.int32) -> Array:
    """A vector of whole numbers."""
    return np.array(values, dtype)


@dataclass(frozen=True)
class OneNode:
    """A node with its operands (None: omitted). ``known`` are the operands that are weights of the model, ``compared``
    the outputs that have a defined value; ``rows`` picks what is defined of them, ``declared`` gives their dtypes where
    nothing else tells. ``instead`` means the same, where onnxruntime does not run the case itself."""

    op: str
    operands: tuple[Array | None, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    known: tuple[int, ...] = ()
    domain: str = MICROSOFT
    opset: int = 21
    name: str = ""
    rtol: float = 1e-4
    atol: float = 1e-5
    compared: tuple[int, ...] | None = None
    rows: Any = None
    declared: dict[int, Any] = field(default_factory=dict)
    instead: OneNode | None = None

    def __str__(self) -> str:
        return f"{self.op}-{self.name}" if self.name else self.op


def make_model(case: OneNode, *, symbolic: bool = False) -> onnx.ModelProto:
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(case.operands)]
    node = helper.make_node(case.op, names, [f"y{i}" for i in range(case.outputs)], domain=case.domain, **case.attrs)
    inputs, weights = [], []
    for i, value in enumerate(case.operands):
        if value is None:
            continue
        if i in case.known:
            weights.append(onnx.numpy_helper.from_array(value, names[i]))
        else:
            shape = [f"d{i}_{a}" for a in range(value.ndim)] if symbolic else value.shape
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            inputs.append(helper.make_tensor_value_info(names[i], kind, shape))
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(case.outputs)]
    for i, dtype in case.declared.items():
        outputs[i].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", case.opset)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, 3 if case.domain == "ai.onnx.ml" else 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def given(case: OneNode) -> list[Array]:
    return [v for i, v in enumerate(case.operands) if v is not None and i not in case.known]


def by_interpreter(case: OneNode) -> list[Array]:
    module = frontend.load(make_model(case))
    made = interpret.run(module, given(case))
    return list(made) if isinstance(made, tuple) else [made]


def by_compiler(case: OneNode) -> list[Array]:
    made = weft.compile(make_model(case))(*given(case))
    return [np.asarray(m) for m in (made if isinstance(made, tuple) else (made,))]


def is_signed(value: Array | None) -> bool:
    return value is not None and value.dtype == np.int8


def takes_mixed_bytes(case: OneNode) -> bool:
    """Whether unsigned bytes, those of the first operand or what its floats become, are multiplied by signed ones."""
    return any(map(is_signed, case.operands)) and not is_signed(case.operands[0])


def by_onnxruntime(case: OneNode) -> list[Array]:
    import onnxruntime

    case = case.instead or case
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if takes_mixed_bytes(case):
        options.add_session_config_entry(*EXACT_BYTES)
        case = replace(case, known=tuple(i for i, v in enumerate(case.operands) if i in case.known or is_signed(v)))
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        make_model(case).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": v for i, v in enumerate(case.operands) if v is not None and i not in case.known}
    found = session.run(None, feeds)
    assert isinstance(found, Sequence)
    return [np.asarray(f) for f in found]


def agree(case: OneNode, made: Sequence[Array], expected: Sequence[Array]) -> None:
    """Raises AssertionError where results differ by more than the case allows."""
    for i, (a, b) in enumerate(zip(made, expected, strict=True)):
        if case.compared is not None and i not in case.compared:
            continue
        assert a.shape == b.shape, f"output {i}: {a.shape}, not {b.shape}"
        assert a.dtype == b.dtype, f"output {i}: {a.dtype}, not {b.dtype}"
        if case.rows is not None:
            a, b = case.rows(i, a), case.rows(i, b)
        wide = np.int64 if a.dtype.kind in "iub" else np.float64
        if a.dtype in (np.float16, ml_dtypes.bfloat16):
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=2e-2, atol=2e-2, err_msg=f"output {i}")
        else:
            np.testing.assert_allclose(
                a.astype(wide), b.astype(wide), rtol=case.rtol, atol=case.atol, err_msg=f"output {i}"
            )
