"""Random ONNX models of control flow: loops, scans, branches, sequences and optionals, nested in each other.

A block (the main graph, a branch, a body) grows node by node beside sample values: those of the inputs, and in a body
those of its first iteration. A node that no engine can run on them is not used. All numbers are whole and small: every
result is exact, whatever computes it. Sizes of inputs may be open; each model comes with several sets of inputs.
"""

from __future__ import annotations

import atexit
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from apart import Apart, Failed
from control_judge import NotDefined, evaluate
from fuzz_graphs import Unfit
from onnx import TensorProto, helper, numpy_helper

OPSET = 21
LIMIT = 50
"""Greatest magnitude of numbers after arithmetic."""
MAX_ELEMENTS = 600
MAX_DEPTH = 3
NUMBERS = ("float32", "int64", "float64", "int32")
KINDS = (*NUMBERS, "bool", "object")
SIZES = (2, 3, 4, 5, 1)

Value: TypeAlias = "np.ndarray[Any, Any] | list[Any] | None"
"""A tensor, a sequence of tensors, or an optional without a value."""


@dataclass(frozen=True, eq=False)
class Item:
    """A name of the model with its sample value; ``optional`` if its type is an optional."""

    name: str
    value: Any
    optional: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, np.ndarray) and not self.optional

    @property
    def kind(self) -> str:
        return str(self.value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)


@dataclass
class Input:
    """An input of the model: the names of its dimensions (None: known) and the sizes of the sample."""

    name: str
    kind: str
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    of: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray[Any, Any]]


@dataclass
class Shared:
    """What all blocks of one model share."""

    pick: random.Random
    count: int = 0
    inputs: list[Input] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cases:
    """A model and the values of its inputs, several times; the first ones are those that it grew with."""

    model: onnx.ModelProto
    feeds: list[dict[str, Any]]


def code_of(kind: str) -> int:
    return TensorProto.STRING if kind == "object" else int(helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def type_of(value: Any, shape: Any = None, optional: bool = False) -> Any:
    """The ONNX type of a sample value; ``shape`` only for tensors."""
    if optional:
        return helper.make_optional_type_proto(type_of(value))
    if isinstance(value, list):
        if not value:
            raise Unfit
        return helper.make_sequence_type_proto(type_of(value[0]))
    return helper.make_tensor_type_proto(code_of(str(value.dtype)), shape)


def samples(rng: np.random.Generator, kind: str, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if kind == "bool":
        return np.asarray(rng.random(tuple(shape)) > 0.5)
    whole = np.asarray(rng.integers(-6, 7, tuple(shape)))
    if kind == "object":
        return np.array([f"t{v}" for v in whole.ravel()], object).reshape(whole.shape)
    return whole.astype(kind)


class Block:
    """A graph, a branch or a body under construction."""

    def __init__(self, model: Shared, outer: Block | None = None) -> None:
        self.model, self.outer, self.pick = model, outer, model.pick
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.items: list[Item] = []
        self.nodes: list[onnx.NodeProto] = []

    # --- choices ----------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.pick.random() < p

    def of(self, values: Sequence[Any]) -> Any:
        if not values:
            raise Unfit
        return values[self.pick.randrange(len(values))]

    def name(self, prefix: str) -> str:
        self.model.count += 1
        return f"{prefix}{self.model.count}"

    def visible(self) -> list[Item]:
        return self.items + (self.outer.visible() if self.outer else [])

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        return tuple(0 if self.chance(0.04) else self.of(SIZES) for _ in range(self.pick.randint(low, high)))

    # --- operands ---------------------------------------------------------------------------------------------------

    def tensor(self, kinds: Sequence[str] = KINDS, fits: Callable[[Item], bool] = lambda t: True) -> Item:
        """A tensor of this block or of one around it, else a new one."""
        own = [t for t in self.items if t.is_tensor and t.kind in kinds and fits(t)]
        found = own[-5:] if own and self.chance(0.6) else []
        found = found or [t for t in self.visible() if t.is_tensor and t.kind in kinds and fits(t)]
        if found and self.chance(0.85):
            return self.of(found)
        weighted = [k for k in kinds if k in ("float32", "int64")] * 3 + list(kinds)
        made = samples(np.random.default_rng(self.pick.getrandbits(32)), self.of(weighted), self.shape())
        if not fits(Item("", made)):
            raise Unfit
        return self.fresh(made)

    def fresh(self, value: np.ndarray[Any, Any]) -> Item:
        """A new input of the model, or a constant."""
        if self.chance(0.35):
            return self.weight(value)
        return self.given(value.shape, str(value.dtype), lambda rng, s: samples(rng, str(value.dtype), s))

    def given(self, shape: tuple[int, ...], kind: str, of: Callable[..., Any], opened: float = 0.5) -> Item:
        """A new input of the model; ``of`` makes its values."""
        name = self.name("x")
        names: list[str | None] = []
        for d in shape:
            symbol = f"n{d}"
            if self.chance(opened):
                self.model.symbols[symbol] = d
            names.append(symbol if symbol in self.model.symbols and self.chance(opened) else None)
        self.model.inputs.append(Input(name, kind, shape, tuple(names), of))
        made = Item(name, of(np.random.default_rng(1), shape))
        self.main().items.append(made)
        return made

    def main(self) -> Block:
        return self if self.outer is None else self.outer.main()

    def weight(self, value: Any, kind: str = "") -> Item:
        """A constant: a weight of the model, or a node of this block."""
        array = np.asarray(value, kind or None)
        if array.dtype == object:
            proto = helper.make_tensor("", TensorProto.STRING, array.shape, [s.encode() for s in array.ravel()])
        else:
            proto = numpy_helper.from_array(array)
        made = Item(self.name("w"), array)
        if self.chance(0.5):
            self.nodes.append(helper.make_node("Constant", [], [made.name], value=proto))
            self.items.append(made)
        else:
            proto.name = made.name
            self.model.weights.append(proto)
            self.main().items.append(made)
        return made

    # --- nodes ------------------------------------------------------------------------------------------------------

    def add(self, op: str, operands: Sequence[Item | None], outputs: int = 1, **attrs: Any) -> list[Item]:
        """Add a node; its results are computed from the sample values. Raises Unfit if no engine can."""
        made = [self.name("y") for _ in range(outputs)]
        node = helper.make_node(op, [t.name if t else "" for t in operands], made, **attrs)
        seen = {t.name: t for t in self.visible()}
        needed = {n: seen[n] for n in [*node.input, *_captured(node)] if n in seen}
        values = run_one(node, list(needed.values()))
        for v in values:
            for part in v if isinstance(v, list) else [v]:
                if part is not None and np.asarray(part).size > MAX_ELEMENTS:
                    raise Unfit
        self.nodes.append(node)
        found = [Item(n, v, op == "Optional") for n, v in zip(made, values, strict=True)]
        self.items += found
        return found

    def placed(self, node: onnx.NodeProto, value: Any) -> Item:
        """Add a node of one result whose value is known."""
        self.nodes.append(node)
        self.items.append(Item(node.output[0], value))
        return self.items[-1]

    def limited(self, t: Item) -> Item:
        """``t`` with its numbers limited, so that they stay exact."""
        if t.kind not in NUMBERS:
            return t
        return self.add("Clip", [t, self.weight(-LIMIT, t.kind), self.weight(LIMIT, t.kind)])[0]

    def grow(self, wanted: int, makers: Sequence[Callable[[Block], None]]) -> None:
        for _ in range(4 * wanted):
            if sum(n.op_type not in ("Constant", "Clip") for n in self.nodes) >= wanted:
                break
            with suppress(Unfit):
                self.of(makers)(self)

    def results(self, items: Sequence[Item]) -> list[Item]:
        """Results of a branch or body: what it takes from outside, or hands through, gets a name of its own."""
        made: list[Item] = []
        for t in items:
            own = t in self.items and t not in made
            made.append(t if own else self.add("Identity", [t])[0])
        return made

    def finished(self) -> Cases:
        """The whole model; results are what nothing reads, and a few more."""
        used = {n for node in self.nodes for n in [*node.input, *_captured(node)]}
        made = [t for t in self.items if t.name.startswith("y")]
        made = [t for t in made if not isinstance(t.value, list) or t.value]
        results = [t for t in made if t.name not in used or self.chance(0.1)][-12:]
        shown = [helper.make_value_info(t.name, type_of(t.value, optional=t.optional)) for t in results]
        inputs = [i for i in self.model.inputs if i.name in used]
        infos = [
            helper.make_tensor_value_info(
                i.name, code_of(i.kind), [n or d for n, d in zip(i.names, i.shape, strict=True)]
            )
            for i in inputs
        ]
        weights = [w for w in self.model.weights if w.name in used]
        sizes = [{}, *({s: self.of((0, 1, d + 1, 7)) for s, d in self.model.symbols.items()} for _ in range(2))]
        feeds = []
        for k, chosen in enumerate(sizes):
            rng = np.random.default_rng(self.pick.getrandbits(32))
            shapes = [[chosen.get(n or "", d) for n, d in zip(i.names, i.shape, strict=True)] for i in inputs]
            rng = np.random.default_rng(1) if k == 0 else rng
            feeds.append({i.name: i.of(rng, tuple(s)) for i, s in zip(inputs, shapes, strict=True)})
        return Cases(model_of(helper.make_graph(self.nodes, "control", infos, shown, weights)), feeds)

    def proto(self, inputs: Sequence[Any], outputs: Sequence[Item], name: str) -> onnx.GraphProto:
        infos = [helper.make_value_info(t.name, type_of(t.value, optional=t.optional)) for t in outputs]
        return helper.make_graph(self.nodes, name, list(inputs), infos)


def _captured(node: onnx.NodeProto) -> list[str]:
    found: list[str] = []
    for a in node.attribute:
        if a.HasField("g"):
            for inner in a.g.node:
                found += [*inner.input, *_captured(inner)]
            found += [o.name for o in a.g.output]
    return found


# --- engines ----------------------------------------------------------------------------------------------------------


def by_specification(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """What the wording of the specification says. Raises Unfit where it says nothing."""
    try:
        return evaluate(model, feeds)
    except NotDefined as why:
        raise Unfit(str(why)) from why


def by_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    """What onnxruntime computes. Raises Unfit where it refuses or ends."""
    try:
        return [tidy(v) for v in _APART.run(model.SerializeToString(), feeds)]
    except Failed as why:
        raise Unfit(str(why)) from why


_APART = Apart()
atexit.register(_APART.close)


def tidy(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [tidy(v) for v in value]
    made = np.asarray(value)
    return made.astype(object) if made.dtype.kind in "US" else made


def run_one(node: onnx.NodeProto, given: Sequence[Item]) -> list[Any]:
    """The results of a node on sample values."""
    infos = [helper.make_value_info(t.name, type_of(t.value, optional=t.optional)) for t in given]
    for info, t in zip(infos, given, strict=True):
        if t.is_tensor:
            info.CopyFrom(helper.make_value_info(t.name, type_of(t.value, list(t.shape))))
    outputs = [onnx.ValueInfoProto(name=n) for n in node.output]
    model = model_of(helper.make_graph([node], "node", infos, outputs))
    feeds = {t.name: t.value for t in given}
    for engine in (by_specification, by_onnxruntime):
        try:
            return engine(model, feeds)
        except Unfit:
            continue
    raise Unfit


def model_of(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


# --- arithmetic and movement ------------------------------------------------------------------------------------------


def binary(g: Block) -> None:
    x = g.tensor(NUMBERS)
    y = g.tensor((x.kind,), lambda t: _broadcasts(t.shape, x.shape))
    g.limited(g.add(g.of(("Add", "Sub", "Mul", "Max", "Min")), [x, y])[0])


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def unary(g: Block) -> None:
    g.add(g.of(("Neg", "Abs", "Identity", "Sign")), [g.tensor(NUMBERS)])


def compare(g: Block) -> None:
    x = g.tensor(NUMBERS)
    y = g.tensor((x.kind,), lambda t: _broadcasts(t.shape, x.shape))
    found = g.add(g.of(("Less", "Equal", "GreaterOrEqual")), [x, y])[0]
    if g.chance(0.5):
        z = g.tensor((x.kind,), lambda t: _broadcasts(t.shape, found.shape))
        g.add("Where", [found, z, x])


def logic(g: Block) -> None:
    x = g.tensor(("bool",))
    if g.chance(0.4):
        g.add("Not", [x])
    else:
        g.add(g.of(("And", "Or", "Xor")), [x, g.tensor(("bool",), lambda t: _broadcasts(t.shape, x.shape))])


def cast(g: Block) -> None:
    g.add("Cast", [g.tensor((*NUMBERS, "bool"))], to=code_of(g.of((*NUMBERS, "bool"))))


def reduce(g: Block) -> None:
    x = g.tensor(NUMBERS, lambda t: len(t.shape) > 0)
    op = g.of(("ReduceSum", "ReduceMax", "ReduceMin")) if 0 not in x.shape else "ReduceSum"
    axes = [g.weight([g.pick.randrange(len(x.shape))], "int64")] if g.chance(0.8) else []
    g.limited(g.add(op, [x, *axes], keepdims=int(g.chance(0.5)))[0])


def product(g: Block) -> None:
    x = g.tensor(("float32", "float64"), lambda t: len(t.shape) in (1, 2))
    y = g.tensor((x.kind,), lambda t: len(t.shape) in (1, 2) and t.shape[0] == x.shape[-1])
    g.limited(g.add("MatMul", [x, y])[0])


def join(g: Block) -> None:
    x = g.tensor(KINDS, lambda t: len(t.shape) > 0)
    axis = g.pick.randrange(len(x.shape))
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    y = g.tensor((x.kind,), lambda t: len(t.shape) == len(x.shape) and t.shape[:axis] + t.shape[axis + 1 :] == rest)
    g.add("Concat", [x, y], axis=axis)


def cut(g: Block) -> None:
    x = g.tensor(KINDS, lambda t: len(t.shape) > 0)
    axis, step = g.pick.randrange(len(x.shape)), g.of((1, 1, 1, 2, -1))
    first, last = g.of((0, 1, -1, -2)), g.of((1, 2, -1, 1 << 40))
    if step < 0:
        first, last = g.of((-1, 2, 1)), g.of((0, -(1 << 40), -3))
    bounds = [g.weight([v], "int64") for v in (first, last, axis, step)]
    g.add("Slice", [x, *bounds])


def turn(g: Block) -> None:
    x = g.tensor((*NUMBERS, "bool"), lambda t: len(t.shape) > 1)
    g.add("Transpose", [x], perm=g.pick.sample(range(len(x.shape)), len(x.shape)))


def flat(g: Block) -> None:
    g.add("Reshape", [g.tensor(KINDS, lambda t: 0 not in t.shape), g.weight([-1], "int64")])


def raised(g: Block) -> None:
    x = g.tensor(KINDS, lambda t: len(t.shape) < 3)
    g.add("Unsqueeze", [x, g.weight([g.pick.randint(0, len(x.shape))], "int64")])


def looked_up(g: Block) -> None:
    x = g.tensor(KINDS, lambda t: len(t.shape) > 0)
    axis = g.pick.randrange(len(x.shape))
    inside = [t for t in g.visible() if t.is_tensor and t.kind == "int64" and t.shape == ()]
    inside = [t for t in inside if 0 <= int(t.value) < x.shape[axis]]
    if inside and g.chance(0.5):
        g.add("Gather", [x, g.of(inside)], axis=axis)
    elif x.shape[axis]:
        place = g.pick.randint(-x.shape[axis], x.shape[axis] - 1)
        g.add("Gather", [x, g.weight(g.of((place, [place], [place, 0])), "int64")], axis=axis)


def extent(g: Block) -> None:
    found = g.add("Shape", [g.tensor()])[0]
    if g.chance(0.3) and found.shape[0]:
        g.add("Gather", [found, g.weight(0, "int64")])
    elif g.chance(0.4):
        kind = g.of(NUMBERS)
        g.add("ConstantOfShape", [found], value=numpy_helper.from_array(np.array([g.pick.randint(-3, 3)], kind)))


def spread(g: Block) -> None:
    x = g.tensor(NUMBERS, lambda t: len(t.shape) == 2 and 1 in t.shape)
    g.add("Expand", [x, g.weight([g.of(SIZES) if d == 1 else d for d in x.shape], "int64")])


def marked(g: Block) -> None:
    """The size of the result depends on the data."""
    x = g.tensor((*NUMBERS, "bool"), lambda t: 0 < len(t.shape) < 3)
    found = g.add("NonZero", [x])[0]
    if g.chance(0.5):
        g.add("ReduceSum", [found], keepdims=0)


PLAIN = (binary, binary, binary, unary, compare, logic, cast, reduce, product, join, cut, turn, flat, raised, looked_up,
         extent, spread, marked)  # fmt: skip
