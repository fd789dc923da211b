"""Groups on several devices: which goes where, what is copied, and that results do not depend on it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from function_programs import HIGHER_ORDER, TREE, floats, list_of, same, tree
from seeds import seeds
from test_control_flow import while_loop
from toy_device import Toys, toys

import weft
from weft.graph.build import constant, function, size, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Constant, Function, GraphExpr, If, Let, Loop, Module, Project, Tuple, Var, call
from weft.graph.operator import Attrs
from weft.graph.parser import parse
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import post_order
from weft.kernels.cache import Kernel, KernelCache
from weft.lowering.graph_to_program import graph_to_program
from weft.lowering.place import CPU_ALONE, Placement, _makers, _nbytes, place
from weft.ops.catalogue import OPERATORS, op
from weft.pipeline import Options, build_kernels, optimize
from weft.runtime import Executable
from weft.runtime.artifact import Artifact, CodeObject, Variant
from weft.runtime.program import Copy, DeviceSpec, Launch
from weft.support.errors import ModelError
from weft.support.progress import Silent
from weft.target import Target

HOST = Target("cpu")
APART = Options(max_ops=1, jobs=1)
TOYS = (DeviceSpec("pretend", 0), DeviceSpec("pretend", 1))
CACHE = KernelCache(None)


@pytest.fixture
def toy() -> Iterator[Toys]:
    with toys() as made:
        yield made


def o(name: str, *args: GraphExpr, **attrs: Any) -> GraphExpr:
    return call(op(name), list(args), attrs)


class Numbers:
    """Costs by the name of a group's only operator."""

    def __init__(self, seconds: Mapping[str, Sequence[float]], byte: float = 0.0) -> None:
        self.table, self.byte = seconds, byte

    def can_run(self, device: int, group: Function) -> bool:
        costs = self.table.get(name_of(group), ())
        return device < len(costs)

    def seconds(self, device: int, group: Function) -> float:
        costs = self.table.get(name_of(group), (1.0,))
        return costs[device]

    def copy_seconds(self, source: int, target: int, nbytes: int) -> float:
        return self.byte * nbytes


def name_of(group: Function) -> str:
    return str(getattr(getattr(group.body, "target", None), "name", ""))


def groups(module: Module) -> list[Function]:
    calls = [e for f in module.functions.values() for e in post_order(f) if isinstance(e, Call)]
    return list(dict.fromkeys(c.target for c in calls if isinstance(c.target, Function) and c.target.is_primitive))


def toy_code(group: Function, kernel: Kernel) -> str:
    """A kernel of the toy: NumPy calls the reference of the group's only operator."""
    body = group.body
    assert isinstance(body, Call)
    shapes = [p.tensor.shape for p in group.params] + [body.tensor.shape]
    names = {v: f"sizes[{i}]" for i, v in enumerate(kernel.sizes)}
    dims = [[str(names.get(d, d)) for d in shape] for shape in shapes]
    dtypes = [str(p.tensor.dtype) for p in group.params] + [str(body.tensor.dtype)]
    operands = [
        f"views[{group.params.index(a)}]" if isinstance(a, Var) else f"np.array({a.data.tolist()}, '{a.data.dtype}')"
        for a in body.args
        if isinstance(a, (Var, Constant))
    ]
    extents = ", ".join(f"({''.join(d + ',' for d in shape)})" for shape in dims)
    return f"""
from weft.ops.catalogue import OPERATORS
from weft.graph.operator import Attrs

def {kernel.name}(buffers, sizes, launch):
    assert launch[0] == (3, 1, 1)
    def view(b, dtype, shape):
        count = int(np.prod(shape, dtype=np.int64))
        return b[: count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    views = [view(b, t, s) for b, t, s in zip(buffers, {dtypes!r}, [{extents}])]
    op = OPERATORS[{getattr(body.target, "name", "")!r}]
    attrs = Attrs({json.loads(json.dumps(dict(body.attrs)))!r})
    views[-1][...] = op.reference(attrs, {", ".join(operands)})
"""


def built(module: Module, placement: Placement, fused: Module) -> Artifact:
    kernels = build_kernels(groups(fused), HOST, None, CACHE, Silent())
    launch = Launch(((3,), (1,), (1,)))
    named = {g: replace(k, launch=launch) for g, k in kernels.items()}
    program, constants, _ = graph_to_program(fused, named, placement=placement)
    by_name = {k.name: g for g, k in kernels.items()}
    codes = []
    for k in program.kernels:
        group = by_name[k.name]
        made = kernels[group]
        code = (
            Variant(frozenset(), toy_code(group, made).encode(), "python")
            if k.device
            else Variant(made.code.features, made.code.data)
        )
        codes.append(CodeObject((code,)))
    return Artifact(program, tuple(codes), tuple(constants))


def moves(artifact: Artifact) -> list[tuple[int, int]]:
    """The spaces of the copies between spaces."""
    buffers = artifact.program.buffers
    pairs = [
        (buffers[i.source].space, buffers[i.target].space) for i in artifact.program.instructions if isinstance(i, Copy)
    ]
    return [p for p in pairs if p[0] != p[1]]


def check(module: Module, on: Mapping[str, int], *runs: tuple[Any, ...]) -> Artifact:
    """Compile with the operators of these names on devices, and compare runs with the interpreter's."""
    fused = optimize(module, HOST, APART)
    claims = Numbers(dict.fromkeys(on, (1.0,) * 3))
    placement = place(
        fused, TOYS, claims, lambda e: on.get(name_of(e.target), 0) if isinstance(e.target, Function) else 0
    )
    artifact = built(module, placement, fused)
    exe = Executable(artifact, 1)
    for inputs in runs:
        wanted = interpret(module, inputs)
        for _ in range(2):
            same(exe(*inputs), wanted)
    return artifact


n = size("n")
x = var("x", (n, 4))
y = var("y", (n, 4))
flag = var("flag", (), "bool")
YES, NO = np.array(True), np.array(False)


def test_a_tensor_is_copied_once_for_all_that_read_it(toy: Toys) -> None:
    e = o("exp", x)
    m = Module.of(function([x], o("mul", o("relu", e), o("neg", e))))
    artifact = check(m, {"relu": 1, "neg": 1, "mul": 1}, (floats(3, 4),), (floats(0, 4),))
    assert moves(artifact) == [(0, 1)]
    assert [t.space for t in (*artifact.program.inputs, *artifact.program.outputs)] == [0, 1]
    assert toy[0].log.count("launch") == 2 * 3 * 2


def test_data_goes_there_and_back_only_where_it_must(toy: Toys) -> None:
    m = Module.of(function([x], o("exp", o("neg", o("relu", o("tanh", x))))))
    assert moves(check(m, {"neg": 1, "relu": 1}, (floats(2, 4),))) == [(0, 1), (1, 0)]
    assert moves(check(m, {"neg": 1, "relu": 2}, (floats(2, 4),))) == [(0, 2), (2, 1), (1, 0)]


def test_inputs_and_results_are_where_they_are_used(toy: Toys) -> None:
    m = Module.of(function([x, y], [o("relu", x), o("exp", y), o("neg", o("exp", y))]))
    artifact = check(m, {"relu": 1, "neg": 2}, (floats(2, 4), floats(2, 4, seed=1)))
    assert [t.space for t in artifact.program.inputs] == [1, 0]
    assert [t.space for t in artifact.program.outputs] == [1, 0, 2]
    exe = Executable(artifact)
    there = weft.nd.array(floats(2, 4), weft.device("pretend"))
    toy[0].log.clear()
    exe(there, floats(2, 4))
    assert "copy_in" not in toy[0].log


def test_constants_are_uploaded_once(toy: Toys) -> None:
    c = constant(floats(4, seed=5))
    m = Module.of(function([x], o("add", o("mul", x, c), c)))
    artifact = check(m, {"mul": 1, "add": 1}, (floats(2, 4),))
    assert moves(artifact) == [] and len(artifact.constants) == 1
    assert toy[0].log.count("copy_in") == 1 + 2  # and the input of each run


@pytest.mark.parametrize(
    "on", [{"relu": 1}, {"relu": 1, "exp": 1}, {"neg": 1, "add": 2}, {"relu": 1, "exp": 2, "neg": 1}]
)
def test_branches(toy: Toys, on: dict[str, int]) -> None:
    e = o("exp", x)
    body = o("neg", If(flag, o("relu", e), o("add", e, o("relu", e)), x.type))
    m = Module.of(function([flag, x], body))
    check(m, on, (YES, floats(3, 4)), (NO, floats(5, 4)), (YES, floats(0, 4)))


def test_a_copy_made_in_one_branch_is_not_taken_for_granted_in_the_other(toy: Toys) -> None:
    e = o("exp", x)
    first = If(flag, o("relu", e), o("neg", e), x.type)
    m = Module.of(function([flag, x], o("add", first, o("tanh", e))))
    artifact = check(m, {"relu": 1, "tanh": 1}, (YES, floats(3, 4)), (NO, floats(5, 4)))
    assert moves(artifact).count((0, 1)) == 2


@pytest.mark.parametrize("on", [{"tanh": 1}, {"add": 1}, {"tanh": 1, "add": 1, "neg": 1}, {"tanh": 2, "add": 1}])
def test_loops(toy: Toys, on: dict[str, int]) -> None:
    h = Var("h", TensorType.of((4,), "float32"))
    start, i = var("start", (4,)), size("i")
    row = o("reshape", o("slice", x, begin=(i,), end=(i + 1,), in_bounds=True), shape=(4,))
    after = o("tanh", o("add", row, h))
    loop = Loop((start,), function([h], Tuple((after, o("neg", after)))), TupleType((h.type, x.type)), i, n, n)
    check(Module.of(function([x, start], loop)), on, (floats(3, 4), floats(4, seed=1)), (floats(0, 4), floats(4)))


@pytest.mark.parametrize("on", [{"add": 1}, {"less": 1, "reduce_max": 1}, {"mul": 1, "less": 2, "add": 1}])
def test_conditions_and_swapped_states(toy: Toys, on: dict[str, int]) -> None:
    params, loop = while_loop()
    on = {name: number for name, number in on.items() if name != "reduce_max"}
    check(Module.of(function(params, loop)), on, (floats(2) + 1, floats(2) + 2), (floats(2) + 100, floats(2)))


@pytest.mark.parametrize("on", [{"relu": 1}, {"exp": 1}, {"exp": 1, "relu": 2, "neg": 2}])
def test_sizes_known_at_run_time(toy: Toys, on: dict[str, int]) -> None:
    k, row, m = var("k", (1,), "int64"), var("row", (1, 4)), size("m")
    rows = o("broadcast_to", o("exp", row), shape=(m, 4))
    body = Let(Var("v", k.type), o("bind_sizes", k, sizes=(m,)), o("neg", o("relu", rows)))
    check(Module.of(function([row, k], body)), on, (floats(1, 4), np.array([3])), (floats(1, 4), np.array([0])))


@pytest.mark.parametrize("on", [{"tanh": 1}, {"add": 1}, {"matmul": 1, "tanh": 2}])
def test_recursion_over_data(toy: Toys, on: dict[str, int]) -> None:
    check(parse(TREE, OPERATORS), on, *((tree(depth), floats(4, 4)) for depth in (0, 1, 4)))


@pytest.mark.parametrize("on", [{"exp": 1}, {"mul": 1, "exp": 1}, {"maximum": 1, "add": 2}])
def test_closures(toy: Toys, on: dict[str, int]) -> None:
    values = [floats(5, seed=i) for i in range(3)]
    check(parse(HIGHER_ORDER, OPERATORS), on, (list_of(*values), floats(5, seed=9)), (list_of(), floats(5)))


# ---- which goes where -----------------------------------------------------------------------------------------------


def chosen(module: Module, claims: Numbers, wanted: Mapping[str, int] | None = None) -> dict[str, int]:
    fused = optimize(module, HOST, APART)
    said = wanted or {}
    found = place(
        fused, TOYS, claims, lambda e: said.get(name_of(e.target)) if isinstance(e.target, Function) else None
    )
    kinds = {i: d.index + 1 for i, d in enumerate(found.devices, 1)}
    return {name_of(g): kinds.get(found.groups.get(g, 0), 0) for g in groups(fused)}


def chain() -> Module:
    fixed = var("x", (100,))
    return Module.of(function([fixed], o("exp", o("neg", o("relu", o("tanh", fixed))))))


def test_the_fastest_device_that_can() -> None:
    claims = Numbers({"tanh": (5, 1, 3), "neg": (5, 4, 1), "relu": (1, 2)})
    assert chosen(chain(), claims) == {"tanh": 1, "relu": 0, "neg": 2, "exp": 0}


def test_copies_count() -> None:
    claims = Numbers({"tanh": (5, 1), "relu": (1, 2), "neg": (5, 1), "exp": (1, 3)}, byte=0.002)
    assert chosen(chain(), claims) == {"tanh": 1, "relu": 1, "neg": 1, "exp": 0}  # 1.6 there and back for relu's 1
    dear = Numbers(claims.table, byte=0.1)
    assert set(chosen(chain(), dear).values()) == {0}


class Tolls(Numbers):
    """Copies cost by direction."""

    def copy_seconds(self, source: int, target: int, nbytes: int) -> float:
        return (1 + 2 * source + 5 * target) * nbytes / 1000


NAMES = ("tanh", "exp", "neg", "relu", "erf")


def least_cost(
    uses: Sequence[Sequence[int]], seconds: Sequence[Sequence[float]], tolls: Tolls, nbytes: int, results: Sequence[int]
) -> tuple[float, list[tuple[int, ...]]]:
    """The smallest cost of all placements, and those that have it. Operator ``i`` reads the values ``uses[i]``: -1 is
    the input, others are results of operators."""
    costs: dict[tuple[int, ...], float] = {}
    for on in itertools.product(*(range(len(s)) for s in seconds)):
        cost = sum(seconds[i][d] for i, d in enumerate(on)) + sum(
            on[i] and tolls.copy_seconds(on[i], 0, nbytes) for i in results
        )
        for reader, values in enumerate(uses):
            for value in values:
                source = 0 if value < 0 else on[value]
                cost += tolls.copy_seconds(source, on[reader], nbytes) if source != on[reader] else 0
        costs[on] = cost
    least = min(costs.values())
    return least, [on for on, cost in costs.items() if cost <= least + 1e-9]


@pytest.mark.parametrize("seed", seeds(1, 5))
def test_placements_are_the_cheapest_of_all(seed: int) -> None:
    """Chains and trees of four operators, two results, sizes that are known or not: against trying every placement."""
    pick, kinds = random.Random(seed), set()
    for trial in range(60):
        symbolic = trial % 3 == 0
        source = var("x", (n, 4) if symbolic else (100,))
        nbytes = 16 * 4 * 4 if symbolic else 400
        values: list[GraphExpr] = []
        uses: list[list[int]] = []
        for i, name in enumerate(NAMES[:4]):
            at = pick.choice([-1, *range(i)]) if i else -1
            uses.append([at])
            values.append(o(name, source if at < 0 else values[at]))
        read = {v for u in uses for v in u}
        ends = [i for i in range(4) if i not in read]
        both = pick.randrange(4)
        results = ends if both in ends else [*ends, both]
        seconds = [[float(pick.randint(1, 30)) for _ in range(pick.choice((1, 2, 3)))] for _ in range(4)]
        tolls = Tolls(dict(zip(NAMES, seconds, strict=False)))
        body = values[results[0]] if len(results) == 1 else Tuple(tuple(values[i] for i in results))
        found = chosen(Module.of(function([source], body)), tolls)
        _, best = least_cost(uses, seconds, tolls, nbytes, results)
        assert tuple(found[name] for name in NAMES[:4]) in best, (uses, seconds, results)
        kinds |= set(found.values())
    assert kinds == {0, 1, 2}


def test_requested_devices_are_used() -> None:
    claims = Numbers({"tanh": (5, 1), "relu": (1, 2), "neg": (1, 1), "exp": (1, 1)})
    assert chosen(chain(), claims, {"tanh": 0, "relu": 1}) | {"neg": 0, "exp": 0} == {
        "tanh": 0, "relu": 1, "neg": 0, "exp": 0,
    }  # fmt: skip
    with pytest.raises(ModelError, match="which it cannot compute") as failed:
        chosen(chain(), claims, {"tanh": 2})
    assert failed.value.code == "M023"


def test_devices_without_work_are_no_part_of_the_program(toy: Toys) -> None:
    m = Module.of(function([x], o("exp", x)))
    artifact = check(m, {}, (floats(2, 4),))
    assert artifact.program.devices == () and not toy.made


def test_copies_are_of_what_computes_a_value() -> None:
    """Tuples, their fields and views, in each other, are looked through; constants are computed by nobody."""
    source = var("x", (6, 2))
    plain, several = o("relu", source), o("topk", source, axis=0, k=2)
    wrapped: list[tuple[GraphExpr, set[GraphExpr]]] = [(plain, {plain}), (several, {several}), (source, {source})]
    for _ in range(2):
        for e, makers in wrapped[:]:
            both = Tuple((e, constant(np.zeros(3, "float32")), plain))
            wrapped += [(both, {*makers, plain}), (Project(both, 0), {*makers, plain})]
            if isinstance(e.type, TupleType):
                wrapped += [(Project(e, i), makers) for i in range(2)]
            elif isinstance(e.type, TensorType):
                wrapped.append((o("reshape", e, shape=e.tensor.shape[::-1]), makers))
    for e, makers in wrapped:
        assert set(_makers(e)) == makers, e


def test_bytes_that_copies_move() -> None:
    """Strings and values are passed as objects: no bytes of them are copied."""
    numbers, text = TensorType.of((3, 4), "float16"), TensorType.of((5,), "string")
    open_ = TensorType.of((n, 2), "int64")
    other = TupleType((numbers,))
    assert _nbytes(numbers) == 24 and _nbytes(open_) == 16 * 2 * 8
    assert _nbytes(text) == 0 == _nbytes(TupleType((text, other)))
    assert _nbytes(TupleType((numbers, text, open_, other))) == 24 + 256


def test_without_a_placement_everything_is_on_the_cpu() -> None:
    x = var("x", (2,))
    group = function([x], call(op("exp"), [x]))
    for called in (call(op("exp"), [x]), Call(group, (x,), Attrs(), x.type)):
        assert CPU_ALONE.device(called) == 0
    assert Placement(groups={group: 2}).device(Call(group, (x,), Attrs(), x.type)) == 2
