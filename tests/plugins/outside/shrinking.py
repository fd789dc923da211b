"""A package of somebody else: an operator, a graph pass, converters of ONNX nodes, a front end and a machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import weft
from weft import te
from weft.graph import build
from weft.graph.nodes import Call, Module, call
from weft.graph.operator import Attribute
from weft.graph.visit import map_functions, rewrite
from weft.ops import relations as rel
from weft.ops.definition import Case, OpDef
from weft.plugins import Frontend, NamedMachine, OnnxConverter, PlacedPass
from weft.support.errors import ModelError


def infer(attrs, *types):
    (x,) = rel.tensors("soft_shrink", types, 1)
    rel.want_kind("soft_shrink", x, "float")
    return x


def compute(attrs, out, x):
    cut, zero = te.const(attrs.threshold, out.dtype), te.const(0, out.dtype)

    def element(*i):
        return te.if_then_else(x[i] > cut, x[i] - cut, te.if_then_else(x[i] < -cut, x[i] + cut, zero))

    return te.compute(out.shape, element, name="soft_shrink")


def reference(attrs, x):
    return (np.sign(x) * np.maximum(np.abs(x) - attrs.threshold, 0)).astype(x.dtype)


SOFT_SHRINK = OpDef(
    "soft_shrink",
    (Attribute("threshold", 0.5, "what is taken off"),),
    infer,
    reference,
    compute=compute,
    elementwise=True,
    cases=(Case((((2, 3), "float32"),), {}), Case((((0, 4), "float32"),), {"threshold": 1.0})),
    doc="magnitudes less a threshold, 0 below it",
)


@dataclass(frozen=True, slots=True)
class JoinShrinks:
    """Two of them, one after the other, are one that takes off the sum."""

    name: str = "join-shrinks"

    def run(self, module: Module) -> Module:
        return map_functions(module, lambda f: rewrite(f, self._node))

    def _node(self, e):
        if not (isinstance(e, Call) and e.target is SOFT_SHRINK):
            return None
        inner = e.args[0]
        if not (isinstance(inner, Call) and inner.target is SOFT_SHRINK):
            return None
        both = e.attrs.threshold + inner.attrs.threshold
        return call(SOFT_SHRINK, inner.args, {"threshold": both}, origin=e.origin)


def load_toy(path: Path) -> Module:
    """A file of thresholds, one a line, that are applied one after the other to vectors of any length."""
    x = build.var("x", (build.size("n"),))
    made = x
    for line in path.read_text().split():
        try:
            made = call(SOFT_SHRINK, [made], {"threshold": float(line)})
        except ValueError as error:
            raise ModelError(f"'{line}' is no threshold", code="M003") from error
    return Module.of(build.function([x], made))


PLUGIN = weft.Plugin(
    name="shrinking",
    version="1.2",
    operators=(SOFT_SHRINK,),
    graph_passes=(PlacedPass(JoinShrinks(), at="simplified"),),
    machines=(NamedMachine("our-server", "llvm -mcpu=x86-64-v3 -num-cores=12", "where it runs"),),
    frontends=(Frontend(".toy", load_toy, "thresholds, one a line"),),
    onnx_converters=(
        OnnxConverter(
            "com.example",
            "SoftShrink",
            lambda node: node.call(SOFT_SHRINK, node.data(0), threshold=node.real("lambd", 0.5)),
        ),
    ),
)
