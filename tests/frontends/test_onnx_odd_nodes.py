"""Every operator with operands of every kind and attributes of every size: a module, or an error that names the node.

Unlike damaged files (``test_onnx_fuzz.py``), these models are well-formed: what is odd is the node.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper
from seeds import seeds
from test_onnx_fuzz import limited

from weft.frontends import onnx as frontend
from weft.frontends.onnx.converters.table import all_converters
from weft.graph.nodes import Module
from weft.support.errors import InternalError, ModelError

SCHEMAS: dict[tuple[str, str], list[Any]] = defaultdict(list)
for _schema in defs.get_all_schemas_with_history():
    SCHEMAS[_schema.domain, _schema.name].append(_schema)
OPERATORS = sorted({*SCHEMAS, *all_converters()})
INTEGERS = (0, 1, -1, 2, 3, -2, 5, 100, 1 << 31, -(1 << 63), (1 << 63) - 1)
TEXTS = ("", "a", "SAME_UPPER", "linear", "cubic", "reflect", "bidirectional", "ij,jk->ik", "tanh", "é", "fmod", "TF")
RARE = "INT64 INT64 INT32 BOOL STRING FLOAT16 BFLOAT16 UINT8 INT8 DOUBLE UINT64 COMPLEX64 INT4"
DTYPES = [TensorProto.FLOAT] * 5 + [getattr(TensorProto, name) for name in RARE.split()]
OPSETS = (("ai.onnx.ml", 3), ("com.microsoft", 1), ("ai.onnx.preview.training", 1))


class Oddity:
    """A model of one node, drawn at random."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.count = draw, 0
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self.nodes: list[Any] = []

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def array(self) -> np.ndarray[Any, Any]:
        shape = tuple(self.draw.choice([0, 1, 1, 2, 2, 3, 4]) for _ in range(self.draw.choice([0, 1, 1, 1, 2, 3, 4])))
        dtype = self.draw.choice([np.float32, np.int64, np.int64, np.int32, np.bool_, np.uint8, np.float16, object])
        values = (0, 1, -1, 2, 3, -2, 4, 100, 1 << 31, 1e9) if dtype is not object else TEXTS
        made = np.array([self.draw.choice(values) for _ in range(int(np.prod(shape)))], object).reshape(shape)
        with np.errstate(all="ignore"):
            return made if dtype is object else made.astype(np.float64).astype(dtype)

    def operand(self) -> str:
        kind, name = self.draw.random(), self.name()
        if kind < 0.05:
            return ""
        if kind < 0.12:
            parts = [self.operand() for _ in range(self.draw.choice([0, 1, 2]))]
            parts = [p for p in parts if p]
            self.nodes.append(helper.make_node("SequenceConstruct" if parts else "SequenceEmpty", parts, [name]))
        elif kind < 0.15:
            self.nodes.append(helper.make_node("Optional", [], [name], type=helper.make_tensor_type_proto(1, [2])))
        elif kind < 0.45:
            self.weights.append(numpy_helper.from_array(self.array(), name))
        else:
            sizes = [self.draw.choice([0, 1, 1, 2, 3, 8, "n", "m", None]) for _ in range(self.draw.choice(range(6)))]
            self.inputs.append(helper.make_tensor_value_info(name, self.draw.choice(DTYPES), sizes))
        return name

    def attribute(self, kind: int) -> Any:
        real = [0.0, 1.0, -1.0, 0.5, 1e30, float("nan"), float("inf")]
        length = self.draw.choice([1, 1, 2, 3, 4])
        drawn = {
            1: lambda: self.draw.choice(real),
            2: lambda: self.draw.choice(INTEGERS),
            3: lambda: self.draw.choice(TEXTS),
            4: lambda: numpy_helper.from_array(self.array()),
            5: self.graph,
            6: lambda: [self.draw.choice(real[:5]) for _ in range(length)],
            7: lambda: [self.draw.choice(INTEGERS[: self.draw.choice([4, 6, 11])]) for _ in range(length)],
            8: lambda: [self.draw.choice(TEXTS) for _ in range(length)],
        }
        return drawn[kind]() if kind in drawn else None

    def graph(self) -> Any:
        count = self.draw.choice(range(5))
        types = [(self.draw.choice([1, 7, 9]), self.draw.choice([None, [], [2]])) for _ in range(count)]
        inputs = [helper.make_tensor_value_info(self.name(), *t) for t in types]
        known, nodes, outputs = [i.name for i in (*inputs, *self.inputs)], [], []
        for _ in range(self.draw.choice([0, 1, 1, 2, 3])):
            outputs.append(self.name())
            if known and self.draw.random() < 0.7:
                op = self.draw.choice(["Identity", "Relu", "Not", "Shape"])
                nodes.append(helper.make_node(op, [self.draw.choice(known)], outputs[-1:]))
            else:
                nodes.append(
                    helper.make_node("Constant", [], outputs[-1:], value=numpy_helper.from_array(self.array()))
                )
            known.append(outputs[-1])
        ports = [helper.make_tensor_value_info(o, 1, None) for o in outputs]
        return helper.make_graph(nodes, "inner", inputs, ports)

    def model(self) -> onnx.ModelProto:
        domain, op = self.draw.choice(OPERATORS)
        count, outputs, opset, attributes = self.draw.randint(0, 6), self.draw.randint(1, 3), 21, {}
        if (domain, op) in SCHEMAS:
            known = SCHEMAS[domain, op]
            schema = self.draw.choice(known) if self.draw.random() < 0.3 else max(known, key=lambda s: s.since_version)
            least = schema.min_input
            most = max(least, min(schema.max_input, 6))
            count = self.draw.randint(least, most) if self.draw.random() < 0.9 else self.draw.randint(0, most + 1)
            opset = max(7, schema.since_version) if not domain else opset
            for found in schema.attributes.values():
                value = self.attribute(int(found.type)) if self.draw.random() < 0.35 + 0.6 * found.required else None
                attributes.update({} if value is None else {found.name: value})
        names = [f"y{i}" for i in range(outputs)]
        operands = [self.operand() for _ in range(count)]
        self.nodes.append(helper.make_node(op, operands, names, "odd", domain=domain, **attributes))
        ports = [helper.make_tensor_value_info(n, 1, None) for n in names]
        graph = helper.make_graph(self.nodes, "g", self.inputs, ports, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in (("", opset), *OPSETS)])


@pytest.mark.parametrize("seed", seeds(6))
def test_odd_nodes(seed: int) -> None:
    draw = Random(seed)
    outcomes = []
    for trial in range(250):
        model = Oddity(draw).model()
        what = f"trial {trial}: {model.graph.node[-1].op_type}\n{onnx.printer.to_text(model)[:2000]}"
        with limited(what), warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                outcomes.append(isinstance(frontend.load(model), Module))
            except InternalError as why:
                raise AssertionError(f"{what}: {why}") from why
            except ModelError as why:
                outcomes.append(False)
                assert str(why).startswith("error["), what
            except Exception as why:
                raise AssertionError(f"{what}: {type(why).__name__}") from why
    assert any(outcomes) and not all(outcomes)


@pytest.mark.parametrize(
    ("op", "domain", "operands", "says"),
    [
        (
            "Pad",
            "",
            [np.zeros((2, 2), np.float32), np.zeros(4, np.int64), np.array("a", object)],
            "0 and 2 must both",
        ),
        ("Relu", "", [np.array(["a"], object)], "input 0 is text"),
        ("Sum", "", [np.zeros(1, np.float32), np.array(["a"], object)], "input 1 is text"),
        ("Trilu", "", [np.zeros((2, 2), np.float32), np.array(["a"], object)], "input 1 is text"),
        ("Pad", "com.microsoft", [np.zeros(2, np.float32), np.zeros(2, np.int64), np.array("a", object)], "'odd'"),
        ("MoE", "com.microsoft", [np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)], "the weights of two"),
    ],
)
def test_text_and_missing_weights(op: str, domain: str, operands: list[Any], says: str) -> None:
    names = [f"x{i}" for i in range(len(operands))]
    node = helper.make_node(op, names, ["y"], "odd", domain=domain)
    weights = [numpy_helper.from_array(v, n) for n, v in zip(names, operands, strict=True)]
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in (("", 21), *OPSETS)])
    with pytest.raises(ModelError, match="'odd'") as caught:
        frontend.load(model)
    assert says in str(caught.value)
