"""Attention and mixtures of experts of com.microsoft with sizes known at run time: one executable for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from one_node import MICROSOFT, Array, OneNode, by_onnxruntime, f, n
from onnx import helper

import weft

HEADS, SHARED, WIDTH, ROOM = 4, 2, 16, 12
COS, SIN = f(ROOM, WIDTH // 2), f(ROOM, WIDTH // 2)


def model(op: str, operands: dict[str, tuple[Any, ...]], outputs: int, dtypes: dict[str, Any], **attrs: Any) -> Any:
    """A node whose operands have the given shapes, an empty one standing for none."""
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(np.dtype(dtypes.get(k, np.float32))), s)
        for k, s in operands.items()
        if not k.startswith("_")
    ]
    names = ["" if k.startswith("_") else k for k in operands]
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph([helper.make_node(op, names, made, domain=MICROSOFT, **attrs)], "sizes", inputs,
                              [onnx.ValueInfoProto(name=m) for m in made])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)],
                             ir_version=10)  # fmt: skip


def test_multi_head_attention_with_a_growing_past() -> None:
    hidden = 32
    shapes = {
        "query": ("batch", "new", hidden), "key": ("batch", "new", hidden), "value": ("batch", "new", hidden),
        "_bias": (), "mask": ("batch", "total"), "_attention_bias": (), "past_key": ("batch", 2, "past", 16),
        "past_value": ("batch", 2, "past", 16),
    }  # fmt: skip
    run = weft.compile(model("MultiHeadAttention", shapes, 3, {"mask": np.int32}, num_heads=2, unidirectional=1))
    for batch, new, past in ((1, 1, 5), (2, 3, 0), (2, 3, 4)):
        q, k, v = (f(batch, new, hidden) for _ in range(3))
        mask = np.ones((batch, new + past), np.int32)
        mask[-1, 1:2] = 0
        states = f(batch, 2, past, 16), f(batch, 2, past, 16)
        case = OneNode(
            "MultiHeadAttention", (q, k, v, None, mask, None, *states), {"num_heads": 2, "unidirectional": 1}, 3
        )
        for made, expected in zip(run(q, k, v, mask, *states), by_onnxruntime(case), strict=True):
            np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_group_query_attention_in_a_buffer() -> None:
    shapes = {
        "query": ("batch", "new", HEADS * WIDTH), "key": ("batch", "new", SHARED * WIDTH),
        "value": ("batch", "new", SHARED * WIDTH), "past_key": ("batch", SHARED, "room", WIDTH),
        "past_value": ("batch", SHARED, "room", WIDTH), "lengths": ("batch",), "total": (1,),
        "cos": (ROOM, WIDTH // 2), "sin": (ROOM, WIDTH // 2),
    }  # fmt: skip
    attrs = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1, "local_window_size": 4}
    run = weft.compile(model("GroupQueryAttention", shapes, 3, {"lengths": np.int32, "total": np.int32}, **attrs))
    for new, ends in ((5, (5, 5)), (1, (6, 3)), (1, (9, 8)), (3, (7,))):
        batch = len(ends)
        q = f(batch, new, HEADS * WIDTH)
        k, v = (f(batch, new, SHARED * WIDTH) for _ in range(2))
        past = [f(batch, SHARED, ROOM, WIDTH) for _ in range(2)]
        rest: tuple[Array, ...] = (n(*(e - 1 for e in ends)), n(max(ends)), COS, SIN)
        case = OneNode("GroupQueryAttention", (q, k, v, *past, *rest), attrs, 3)
        made, expected = run(q, k, v, *past, *rest), by_onnxruntime(case)
        np.testing.assert_allclose(made[0], expected[0], rtol=1e-4, atol=1e-5)
        for b, end in enumerate(ends):
            for state, wanted in zip(made[1:], expected[1:], strict=True):
                np.testing.assert_allclose(state[b, :, :end], wanted[b, :, :end], rtol=1e-4, atol=1e-5)


def test_packed_weights_for_any_number_of_rows() -> None:
    rng = np.random.default_rng(3)
    packed, scales = rng.integers(0, 256, (40, 2, 16)).astype(np.uint8), f(40, 2)
    attrs = {"K": 64, "N": 40, "bits": 4, "block_size": 32}
    shapes = {"a": ("rows", 64), "b": packed.shape, "scales": scales.shape}
    made = model("MatMulNBits", shapes, 1, {"b": np.uint8}, **attrs)
    run = weft.compile(made)
    for rows in (1, 7, 20):
        a = f(rows, 64)
        (expected,) = by_onnxruntime(OneNode("MatMulNBits", (a, packed, scales), attrs, known=(1, 2)))
        np.testing.assert_allclose(run(a, packed, scales), expected, rtol=1e-3, atol=1e-3)


def test_experts_of_any_number_of_tokens() -> None:
    weights = {"fc1": f(4, 12, 8), "fc2": f(4, 8, 12)}
    shapes = {"x": ("batch", "length", 8), "router": ("tokens", 4), "fc1": (4, 12, 8), "_": (), "fc2": (4, 8, 12)}
    given = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    run = weft.compile(model("MoE", shapes, 1, {}, **given))
    for batch, length in ((1, 1), (2, 5), (3, 1)):
        x, router = f(batch, length, 8), f(batch * length, 4)
        case = OneNode("MoE", (x, router, weights["fc1"], None, weights["fc2"]), given)
        made = run(x, router, *weights.values())
        np.testing.assert_allclose(made, by_onnxruntime(case)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(weft.UserError):
        run(f(2, 3, 8), f(5, 4), *weights.values())
