"""The PyTorch peer computes the same results as onnxruntime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from contrib_various_cases import FUSED
from one_node import RNG, OneNode, agree, by_onnxruntime, f, given, make_model, n, s

from weft.frontends.onnx.in_torch import torch_module
from weft.support.errors import ModelError

torch: Any = pytest.importorskip("torch")

PICTURE = f(1, 4, 9, 8)
LAYERS = (
    OneNode("Conv", (PICTURE, f(6, 2, 3, 3), f(6)), {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}, domain=""),
    OneNode("Conv", (PICTURE, f(6, 4, 3, 2)), {"auto_pad": "SAME_UPPER"}, domain="", name="same"),
    OneNode("MaxPool", (PICTURE,), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, domain=""),
    OneNode("Clip", (PICTURE, s(-0.5), s(0.5)), domain=""),
    OneNode("Gemm", (f(3, 4), f(5, 4), f(5)), {"transB": 1, "alpha": 0.5, "beta": 2.0}, domain=""),
)
CASES = (*(c for c in FUSED if c.op == "FusedConv"), *LAYERS)


X = f(2, 4, 6)
I64 = np.int64


def plain(op: str, *operands: Any, opset: int = 20, name: str = "", **attrs: Any) -> OneNode:
    return OneNode(op, operands, attrs, domain="", opset=opset, name=name, known=tuple(range(1, len(operands))))


SPECIAL = np.array([[np.inf, -np.inf, np.nan, 1.0]], np.float32)
TIES = np.array([[1, 3, 3, 2], [5, 0, 5, 5]], np.float32)
REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceProd",
    "ReduceLogSumExp",
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
)
ATTRIBUTES = (
    *(plain(op, X, opset=11, axes=[-2, 0], keepdims=k, name=f"axes{k}") for op in REDUCTIONS for k in (0, 1)),
    *(plain(op, X, n(1, -1, dtype=I64), keepdims=0, name="input") for op in REDUCTIONS),
    *(plain(op, X, noop_with_empty_axes=v, name=f"noop{v}") for op in ("ReduceSum", "ReduceProd") for v in (0, 1)),
    *(plain("Trilu", X, np.array(k, I64), upper=u, name=f"{k}{u}") for k in (-2, 1, 3) for u in (0, 1)),
    *(
        plain("IsInf", SPECIAL, detect_negative=low, detect_positive=high, name=f"{low}{high}")
        for low in (0, 1)
        for high in (0, 1)
    ),
    *(
        plain(op, TIES, axis=a, keepdims=k, select_last_index=last, name=f"{a}{k}{last}")
        for op in ("ArgMax", "ArgMin")
        for a, k, last in ((0, 0, 1), (1, 1, 1), (-1, 0, 0))
    ),
    plain("Selu", X, alpha=1.25, gamma=0.5), plain("Selu", X, alpha=0.75, name="alpha"),
    plain("Selu", X, name="default"), plain("LogSoftmax", X, axis=1, name="new"),
    *(
        plain("CumSum", X, np.array(1, I64), exclusive=e, reverse=r, name=f"{e}{r}")
        for e in (0, 1)
        for r in (0, 1)
    ),
    *(plain("DepthToSpace", f(1, 8, 2, 3), blocksize=2, mode=m, name=m) for m in ("DCR", "CRD")),
    plain("GatherElements", X, np.array(RNG.integers(-4, 4, (2, 3, 6)), I64), axis=1),
    plain("PRelu", f(2, 3, 4), f(4), name="last"), plain("PRelu", f(2, 3, 4), f(3, 1), name="channels"),
    plain("PRelu", f(2, 3, 4), f(1), name="one"),
    plain("MaxPool", PICTURE, kernel_shape=[2, 2], dilations=[2, 3], name="dilated"),
    plain("Shape", X, start=1, end=-1), plain("Shape", X, start=-2, name="start"),
    plain("TopK", f(3, 7), n(2, dtype=I64), axis=0, largest=0),
    plain("RMSNormalization", X, f(6), opset=23, epsilon=0.5), plain("RMSNormalization", X, f(4, 1), opset=23, axis=1),
)  # fmt: skip


OLD = (  # the reference evaluator has the new ones only
    *(plain(op, X, opset=11, axis=axis, name=f"{axis}") for op in ("LogSoftmax", "Softmax") for axis in (0, 1, -1)),
    plain("LogSoftmax", X, opset=11, name="default"),
)


@pytest.mark.parametrize("case", OLD, ids=str)
def test_attributes_of_old_versions_are_obeyed(case: OneNode, tmp_path: Path) -> None:
    agree(case, in_torch(case, tmp_path), by_onnxruntime(case))


@pytest.mark.parametrize("case", ATTRIBUTES, ids=lambda c: f"{c}-{c.opset}")
def test_attributes_are_obeyed(case: OneNode, tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    given_to = {f"x{i}": v for i, v in enumerate(case.operands) if i not in case.known}
    wanted = ReferenceEvaluator(make_model(case)).run(None, given_to)
    np.testing.assert_allclose(in_torch(case, tmp_path)[0], wanted[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        plain("AveragePool", PICTURE, kernel_shape=[2, 2], dilations=[2, 2]),
        plain("Resize", PICTURE, None, s(2.0).repeat(4), mode="cubic", exclude_outside=1),
        plain("BatchNormalization", X, f(4), f(4), f(4), f(4) ** 2, training_mode=1),
        plain("Elu", X, made_up=1),
    ],
    ids=str,
)
def test_other_attributes_are_refused_by_name(case: OneNode, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"no converter for {case.op} with [a-z_]*="):
        in_torch(case, tmp_path)


def test_default_values_need_not_be_obeyed(tmp_path: Path) -> None:
    case = plain("BatchNormalization", X, f(4), f(4), f(4), f(4) ** 2, training_mode=0)
    agree(case, in_torch(case, tmp_path), by_onnxruntime(case))


def in_torch(case: OneNode, folder: Path) -> Any:
    onnx.save(make_model(case), folder / "model.onnx")
    module = torch_module(folder / "model.onnx")
    with torch.no_grad():
        made = module(*(torch.from_numpy(np.array(v)) for v in given(case)))
        return [np.asarray(m) for m in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_node_agrees_with_onnxruntime(case: OneNode, tmp_path: Path) -> None:
    agree(case, in_torch(case, tmp_path), by_onnxruntime(case))


@pytest.mark.parametrize(
    "case",
    [
        OneNode("FusedConv", (PICTURE, f(6, 4, 3, 3)), {"activation": "Cube"}),
        OneNode("QuickGelu", (PICTURE,)),
    ],
    ids=str,
)
def test_operators_without_a_converter_are_refused_by_name(case: OneNode, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"the PyTorch peer has no converter for {case.op}"):
        in_torch(case, tmp_path)


WINDOWS = (
    *(
        plain("ConvTranspose", f(1, 4, *sizes), f(4, 3, *(3,) * len(sizes)), f(6), name=f"{len(sizes)}{i}", group=2,
              **attrs)
        for sizes in ((7,), (5, 6), (3, 4, 2))
        for i, attrs in enumerate(
            (
                {"auto_pad": "VALID", "strides": [2] * len(sizes)},
                {"auto_pad": "SAME_UPPER", "strides": [2] * len(sizes)},
                {"auto_pad": "SAME_LOWER", "strides": [3] * len(sizes)},
                {"pads": [0] * len(sizes) + [1] * len(sizes), "strides": [2] * len(sizes)},
                {"pads": [1] * 2 * len(sizes), "strides": [2] * len(sizes), "output_padding": [1] * len(sizes)},
                {"pads": [2] * 2 * len(sizes), "dilations": [2] * len(sizes)},
            )
        )
    ),
    plain("ConvTranspose", f(1, 4, 5, 6), f(4, 2, 3, 3), output_shape=[10, 14], strides=[2, 2], name="shape"),
    *(
        plain(op, f(1, 2, *sizes), name=str(len(sizes)), kernel_shape=[3] * len(sizes),
              strides=[2] * len(sizes), **more)
        for sizes in ((9,), (9, 8), (5, 6, 7))
        for op, more in (("MaxPool", {"pads": [1] * 2 * len(sizes)}), ("AveragePool", {"ceil_mode": 1}))
    ),
    plain("GlobalMaxPool", f(2, 3, 4, 5)), plain("AveragePool", PICTURE, kernel_shape=[2, 3], auto_pad="VALID"),
)  # fmt: skip
PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
RESIZED = tuple(
    plain("Resize", f(1, 2, 4, 5), None, np.array([1, 1, *scales], np.float32), mode=mode, name=f"{mode}-{where}-{i}",
          coordinate_transformation_mode=where, **more)
    for i, scales in enumerate(((2, 2), (1, 3), (0.5, 0.75), (2.5, 1.6)))
    for where in PLACES
    for mode, more in (
        ("linear", {}),
        ("cubic", {"cubic_coeff_a": -0.5}),
        *(("nearest", {"nearest_mode": rounding}) for rounding in ("floor", "ceil", "round_prefer_ceil")),
    )
)  # fmt: skip
H = 4
RECURRENT = tuple(
    OneNode(
        op,
        (f(5, 2, 3), f(both, gates * H, 3), f(both, gates * H, H), f(both, 2 * gates * H), None,
         *(f(both, 2, H),) * states),
        {"hidden_size": H, "direction": direction, **more},
        domain="", outputs=2, known=(1, 2, 3), name=direction,
    )
    for op, gates, states, more in (("LSTM", 4, 2, {}), ("GRU", 3, 1, {"linear_before_reset": 1}), ("RNN", 1, 1, {}))
    for direction, both in (("forward", 1), ("reverse", 1), ("bidirectional", 2))
)  # fmt: skip


@pytest.mark.parametrize("case", (*WINDOWS, *RECURRENT), ids=str)
def test_windows_and_recurrences_agree_with_onnxruntime(case: OneNode, tmp_path: Path) -> None:
    agree(case, in_torch(case, tmp_path), by_onnxruntime(case))


@pytest.mark.parametrize("case", RESIZED, ids=str)
def test_resampling_agrees_with_the_reference(case: OneNode, tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    wanted = ReferenceEvaluator(make_model(case)).run(None, {"x0": case.operands[0]})
    np.testing.assert_allclose(in_torch(case, tmp_path)[0], wanted[0], rtol=1e-4, atol=1e-5)


TIED = re.compile(r"test_top_k_same_values.*")
"""Which of equal values comes first is not the same in PyTorch."""


def tensors(values: Any) -> list[Any] | None:
    """``values`` as tensors; None if PyTorch has no such dtype."""
    try:
        return [torch.from_numpy(np.array(v)) for v in values]
    except TypeError:
        return None


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning", "ignore:.*:UserWarning")  # casts that overflow in the suite
def test_all_nodes_of_the_suite_agree_or_are_refused(tmp_path: Path) -> None:
    """Whatever the peer computes is right: attributes, optional inputs and outputs, old and new opsets."""
    from onnx.backend.test.case.node import collect_testcases

    agreed, wrong = 0, []
    for case in collect_testcases(None):
        if case.model is None or TIED.fullmatch(case.name):
            continue
        onnx.save(case.model, tmp_path / "model.onnx")
        for inputs, wanted in case.data_sets:
            try:
                module, operands = torch_module(tmp_path / "model.onnx"), tensors(inputs)
                if operands is None:
                    continue
                with torch.no_grad():
                    made = module(*operands)
            except ModelError as refused:
                assert refused.code == "M040"
                continue
            except NotImplementedError as refused:  # some integers have no arithmetic in PyTorch
                assert "not implemented for 'UInt" in str(refused)
                continue
            found = made if isinstance(made, tuple) else (made,)
            try:
                for a, b in zip(found, wanted, strict=True):
                    assert np.asarray(a).dtype == np.asarray(b).dtype
                    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4)
                agreed += 1
            except AssertionError as problem:
                wrong.append((case.name, str(problem)[:300]))
    assert not wrong
    assert agreed >= 1000
