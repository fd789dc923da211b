"""Concatenation and slicing without copies: operands are computed in place in the result, slices are read in place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from seeds import seeds

import weft
from weft.graph.build import constant, function, global_var, size, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import GraphExpr, If, Let, Loop, Module, Project, Tuple, Var, apply, call
from weft.graph.passes.aliases import is_join, is_part, outside_of_groups
from weft.graph.passes.place_parts import PlaceParts
from weft.graph.types import TensorType, TupleType
from weft.graph.visit import post_order
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, optimize
from weft.runtime import Executable
from weft.runtime.program import CallKernel, Copy
from weft.support.errors import ArtifactError, InternalError
from weft.target import Target

HOST = Target("cpu")
APART = Options(max_ops=1)
"""Every operator by itself, so that joins and parts stand alone."""


def concat(*parts: GraphExpr, axis: int = 0) -> GraphExpr:
    return call(op("concat"), parts, {"axis": axis})


def relu(x: GraphExpr) -> GraphExpr:
    return call(op("relu"), [x])


def negative(x: GraphExpr) -> GraphExpr:
    return call(op("neg"), [x])


def split(x: GraphExpr, *sizes: int, axis: int = 0) -> list[GraphExpr]:
    made = call(op("split"), [x], {"axis": axis, "sizes": sizes})
    return [Project(made, i) for i in range(len(sizes))]


def module(params: list[Any], *results: GraphExpr) -> Module:
    return Module.of(function(params, list(results) if len(results) > 1 else results[0]))


def run(m: Module, options: Options = APART, seed: int = 0) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """The program, checked on random inputs against the interpreter with one and two threads."""
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal([int(d) for d in p.tensor.shape], np.float32) for p in m.main.params]
    expected = interpret(m, inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    artifact, _ = compile_module(m, [HOST], options=options)
    results = []
    for threads in (1, 2):
        exe = Executable(artifact, threads)
        for _ in range(2):
            found = exe(*inputs)
            results.append(found if isinstance(found, tuple) else (found,))
    for found in results:
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
    return artifact.program, list(expected)


def agrees(m: Module, *inputs: list[np.ndarray[Any, Any]], within: float = 1e-6) -> None:
    """Whether the program computes what the interpreter does, for each of the inputs."""
    artifact, _ = compile_module(m, [HOST], options=APART)
    for given in inputs:
        np.testing.assert_allclose(Executable(artifact, 1)(*given), interpret(m, given), rtol=within, atol=within)


@pytest.mark.parametrize("readers", [1, 2])
def test_the_last_reader_of_a_join_may_write_over_it(readers: int) -> None:
    """Nothing writes the join as a whole, only its halves; what reads both last takes their memory, as the sine of the
    rotary positions of one token does."""
    x = var("x", (32, 32))
    joined = concat(relu(x), negative(x))
    reads = [call(op(name), [joined]) for name in ("exp", "tanh")[:readers]]
    result = negative(reads[0])
    for other in reads[1:]:
        result = call(op("add"), [result, negative(other)])
    program, _ = run(module([x], result))
    calls = [i for i in program.instructions if isinstance(i, CallKernel)]
    places = [program.buffers[n] for c in calls for n in c.buffers[-1:]]
    first = {p.offset for p in places[:2]}
    assert any(p.offset in first for p in places[2:-1]), "a result lies where the join lay"


def kernels(program: Any) -> int:
    return sum(isinstance(i, CallKernel) for i in program.instructions)


def copies(program: Any) -> int:
    return sum(isinstance(i, Copy) for i in program.instructions)


def test_operands_are_computed_in_the_place_of_the_result() -> None:
    x, y = var("x", (4, 16)), var("y", (2, 16))
    program, _ = run(module([x, y], negative(concat(relu(x), negative(y)))))
    assert kernels(program) == 3
    program, _ = run(module([x, y], concat(relu(x), negative(y))))
    assert (kernels(program), copies(program)) == (2, 0)
    assert program.arena_bytes == (0,)


@pytest.mark.parametrize("first", ["-----", "nnnnn", "-n-n-", "nn--n"])
def test_a_chain_of_joins_is_one_stretch_of_memory(first: str) -> None:
    """Each join holds the one before at its beginning, or behind what is new (n)."""
    x = var("x", (16, 16))
    joined: GraphExpr = relu(x)
    for i, where in enumerate(first):
        new = relu(call(op("slice"), [negative(joined)], {"begin": (i,), "end": (i + 4,), "axes": (0,)}))
        joined = concat(new, joined) if where == "n" else concat(joined, new)
    m = module([x], call(op("reduce_sum"), [joined], {"axes": (0,), "keepdims": False}))
    program, _ = run(m)
    assert kernels(program) == 1 + 5 * 2 + 1
    run(m, Options())


def test_a_tensor_is_in_one_join_and_copied_into_others() -> None:
    x = var("x", (8, 16))
    a, b, c = relu(x), negative(x), negative(relu(x))
    m = module([x], relu(concat(a, b)), relu(concat(b, c, c)), relu(concat(a, a)))
    fused = optimize(m, HOST, APART)
    assert sum(map(is_join, post_order(fused.main, into_functions=False))) == 1
    run(m)


def test_results_and_inputs_of_the_model_keep_their_memory() -> None:
    x, y = var("x", (8, 16)), var("y", (2, 16))
    a = relu(x)
    program, _ = run(module([x, y], a, negative(concat(a, y))))
    assert copies(program) == 0
    program, _ = run(module([x, y], concat(x, negative(y)), relu(concat(negative(x), y))))
    assert kernels(program) == 2 + 3
    joined = concat(relu(x), negative(y))
    program, _ = run(module([x, y], joined, relu(joined)))
    assert (kernels(program), copies(program)) == (3, 0)
    program, _ = run(module([x, y], joined, joined))
    assert (kernels(program), copies(program)) == (2, 1)
    outer = concat(joined, relu(negative(y)))
    run(module([x, y], joined, outer))
    run(module([x, y], outer, relu(joined)))


def test_parts_are_read_in_place() -> None:
    x = var("x", (8, 16))
    a, b = split(x, 4, 4)
    program, _ = run(module([x], relu(a), negative(b)))
    assert kernels(program) == 2
    a, b = split(relu(x), 2, 6)
    inner, _ = split(b, 4, 2)
    program, _ = run(module([x], concat(negative(inner), relu(a)), negative(b)))
    assert kernels(program) == 4
    program, _ = run(module([x], a, relu(b)))
    assert kernels(program) == 3, "a part that is a result is copied by a kernel"


def test_slices_of_rows_are_parts() -> None:
    x = var("x", (2, 8, 16))
    part = call(op("slice"), [relu(x)], {"begin": (1, 2), "end": (2, 7), "axes": (0, 1)})
    program, _ = run(module([x], negative(part)))
    assert kernels(program) == 2
    for attrs in (
        {"begin": (1,), "end": (3,), "axes": (1,)},
        {"begin": (6,), "end": (1,), "axes": (1,), "strides": (-1,)},
        {"begin": (0,), "end": (8,), "axes": (1,), "strides": (2,)},
        {"begin": (0, 3), "end": (1, 3), "axes": (0, 1)},
    ):
        program, _ = run(module([x], negative(call(op("slice"), [relu(x)], attrs))))
        assert kernels(program) == 3


@pytest.mark.parametrize("rows", [3, 5])
def test_unaligned_stretches_are_copied(rows: int) -> None:
    x, y = var("x", (rows, 3)), var("y", (8, 3))
    program, _ = run(module([x, y], relu(concat(negative(x), relu(y)))))
    assert kernels(program) == 4
    program, _ = run(module([y], *map(relu, split(y, rows, 8 - rows))))
    assert kernels(program) == 3


def test_many_parts_of_one_tensor_are_read_in_place() -> None:
    """A split into very many parts becomes splits of slices. None of them needs a kernel; those that are results do."""
    x = var("x", (70, 16))
    parts = split(x, *[1] * 70)
    for options in (APART, Options()):
        program, _ = run(module([x], relu(parts[0]), negative(parts[40]), relu(parts[69])), options)
        assert kernels(program) <= 3
    program, _ = run(module([x], *parts), Options())
    assert kernels(program) == 3
    program, _ = run(module([x], relu(parts[33]), *parts[2:]), Options())
    assert kernels(program) <= 4


def test_other_axes_are_copied() -> None:
    x, y = var("x", (2, 16)), var("y", (2, 16))
    program, _ = run(module([x, y], relu(concat(negative(x), relu(y), axis=1))))
    assert kernels(program) == 4
    x, y = var("x", (1, 16, 8)), var("y", (1, 32, 8))
    program, _ = run(module([x, y], relu(concat(negative(x), relu(y), axis=-2))))
    assert kernels(program) == 3


def test_sizes_known_at_run_time_are_copied() -> None:
    n = size("n")
    x = var("x", (n, 16))
    m = module([x], relu(concat(negative(x), relu(x))))
    artifact, _ = compile_module(m, [HOST], options=APART)
    value = np.random.default_rng(0).standard_normal((5, 16), np.float32)
    np.testing.assert_array_equal(Executable(artifact, 1)(value), interpret(m, [value]))
    assert kernels(artifact.program) == 4


def test_blocked_channels_of_convolutions_join_without_copies() -> None:
    rng = np.random.default_rng(0)
    x = var("x", (1, 16, 9, 9))

    def conv(x: GraphExpr, channels: int) -> GraphExpr:
        weights = rng.standard_normal((channels, x.tensor.shape[1], 3, 3)).astype(np.float32) * 0.1
        made = call(op("conv"), [x, constant(weights)], {"pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1)})
        return relu(made)

    first = conv(x, 32)
    joined = concat(first, conv(first, 16), axis=1)
    joined = concat(joined, conv(joined, 48), axis=1)
    m = module([x], conv(joined, 16))
    fused = optimize(m, HOST, Options(winograd=False))
    assert sum(map(is_join, post_order(fused.main, into_functions=False))) == 2
    run(m, Options(winograd=False))


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("max_ops", [1, 64])
def test_random_graphs_of_joins_and_parts(seed: int, max_ops: int) -> None:
    rng = random.Random(seed)
    params = [var(f"x{i}", (rng.choice([1, 4, 7, 8]), 16)) for i in range(3)]
    pool: list[GraphExpr] = list(params)
    for _ in range(rng.randrange(5, 25)):
        pool.extend(_grown(rng, pool))
    results = rng.sample(pool[3:], min(3, len(pool) - 3))
    m = module(params, *results)
    run(m, Options(max_ops=max_ops), seed)


def _grown(rng: random.Random, pool: list[GraphExpr]) -> list[GraphExpr]:
    x = rng.choice(pool)
    rows = int(x.tensor.shape[0])  # type: ignore[call-overload]
    kind = rng.choice(["join", "join", "join", "split", "slice", "one", "one", "two", "sum", "view"])
    if kind == "join" and rows < 60:
        return [concat(*(rng.choice([x, rng.choice(pool[-6:])]) for _ in range(rng.randrange(1, 4))))]
    if kind == "split" and rows > 1:
        cut = rng.randrange(0, rows)
        return split(x, cut, rows - cut) if cut else split(x, 1, rows - 1)
    if kind == "slice":
        begin = rng.randrange(0, rows)
        return [call(op("slice"), [x], {"begin": (begin,), "end": (rng.randrange(begin, rows) + 1,), "axes": (0,)})]
    if kind == "two":
        others = [p for p in pool if p.type == x.type]
        return [call(op("add"), [x, rng.choice(others)])]
    if kind == "sum":
        total = call(op("reduce_mean"), [x], {"axes": (0,), "keepdims": True})
        return [call(op("sub"), [x, total])]
    if kind == "view":
        flat = call(op("reshape"), [x], {"shape": (rows * 2, 8)})
        return [call(op("reshape"), [relu(flat)], {"shape": (rows, 16)})]
    return [rng.choice([relu, negative])(x)]


def branches() -> tuple[Module, list[np.ndarray[Any, Any]]]:
    x, c = var("x", (8, 16)), var("c", (), "bool")
    a, b = split(relu(x), 4, 4)
    joined = negative(concat(negative(b), relu(a)))
    return module([x, c], If(c, joined, x, x.type)), [np.random.default_rng(0).standard_normal((8, 16), np.float32)]


def loops() -> tuple[Module, list[np.ndarray[Any, Any]]]:
    """The state goes through a part and a join in each iteration; what is joined before the loop is joined once."""
    i, times = size("i"), var("times", (3,))
    h = Var("h", TensorType.of((8, 16), "float32"))
    a, b = split(relu(h), 4, 4)
    fixed = concat(negative(times_row(times)), relu(times_row(times)))
    after = concat(negative(b), call(op("add"), [a, call(op("slice"), [fixed], {"begin": (0, 0), "end": (4, 16)})]))
    start = var("start", (8, 16))
    loop = Loop((start,), function([h], Tuple((after,))), TupleType((h.type,)), i, 3, 3)
    rng = np.random.default_rng(0)
    return module([start, times], negative(Project(loop, 0))), [
        rng.standard_normal((8, 16)).astype(np.float32),
        rng.standard_normal(3).astype(np.float32),
    ]


def times_row(times: GraphExpr) -> GraphExpr:
    total = call(op("reduce_sum"), [times], {"axes": (0,), "keepdims": True})
    return call(op("broadcast_to"), [total], {"shape": (4, 16)})


def test_branches_join_in_place() -> None:
    m, inputs = branches()
    fused = optimize(m, HOST, APART)
    assert sum(is_join(e) for e in post_order(fused.main, into_functions=False)) == 1
    assert sum(is_part(e) for e in post_order(fused.main, into_functions=False)) == 1
    agrees(m, *([*inputs, np.array(flag)] for flag in (True, False)), within=0)


def test_loops_join_in_place() -> None:
    m, inputs = loops()
    fused = optimize(m, HOST, APART)
    assert any(is_join(e) for e in outside_of_groups(fused.main))
    agrees(m, inputs, within=0)
    again = PlaceParts().run(fused)
    assert sum(map(is_join, outside_of_groups(again.main))) == sum(map(is_join, outside_of_groups(fused.main)))


def down(behind_a_call: bool) -> Module:
    """A recursive function with a part and a join in each call; ``behind_a_call``: the join is needed after one."""
    h, n = Var("h", TensorType.of((8, 16), "float32")), var("n", (), "int64")
    this = global_var("down", [h.type, n.type], h.type)
    a, b = split(relu(h), 4, 4)
    joined = concat(negative(b), call(op("tanh"), [a]))
    less = call(op("sub"), [n, constant(np.int64(1))])
    again = apply(this, [negative(joined), less])
    again = call(op("add"), [again, joined]) if behind_a_call else again
    body = If(call(op("less"), [constant(np.int64(0)), n]), again, negative(h), h.type)
    x, times = var("x", (8, 16)), var("times", (), "int64")
    return Module({"down": function([h, n], body), "main": function([x, times], relu(apply(this, [x, times])))})


@pytest.mark.parametrize("behind_a_call", [False, True])
def test_recursive_functions_join_in_place(behind_a_call: bool) -> None:
    m = down(behind_a_call)
    fused = optimize(m, HOST, APART)
    nodes = list(outside_of_groups(fused.functions["down"]))
    assert (any(map(is_join, nodes)), any(map(is_part, nodes))) == (not behind_a_call, True)
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    agrees(m, *([x, np.array(times)] for times in range(4)))


def test_closures_join_in_place() -> None:
    x, c, h, g = var("x", (8, 16)), var("c", (), "bool"), var("h", (8, 16)), var("g", (8, 16))
    a, b = split(relu(h), 4, 4)
    inner = function([h], negative(concat(call(op("sub"), [b, split(x, 4, 4)[0]]), relu(a))))
    f = Var("f", inner.type)
    chosen = If(c, inner, function([g], concat(relu(split(g, 4, 4)[1]), negative(split(g, 4, 4)[0]))), inner.type)
    m = module([x, c], Let(f, chosen, call(op("add"), [apply(f, [x]), apply(f, [relu(x)])])))
    fused = optimize(m, HOST, APART)
    assert sum(is_join(e) for e in outside_of_groups(fused.main)) == 2
    value = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    agrees(m, *([value, np.array(flag)] for flag in (True, False)))


def test_a_join_that_goes_where_the_size_is_known_late() -> None:
    """Both branches give rows; how many is known when the model runs. The join has a fixed size of its own."""
    x, c, i, count = var("x", (8, 16)), var("c", (), "bool"), size("i"), size("count")
    h = Var("h", TensorType.of((16,), "float32"))
    start = call(op("slice"), [x], {"begin": (0,), "end": (1,), "axes": (0,)})
    first = call(op("reshape"), [start], {"shape": (16,)})
    new = call(op("mul"), [h, constant(np.float32(0.5))])
    small = call(
        op("less"), [call(op("reduce_max"), [new], {"axes": (0,), "keepdims": False}), constant(np.float32(-9))]
    )
    loop_type = TupleType((h.type, TensorType.of((count, 16), "float32")))
    loop = Loop((first,), function([h], Tuple((small, new, new))), loop_type, i, 8, count, constant(np.array(True)))
    collected = Project(loop, 1)
    body = If(c, concat(relu(x), negative(x)), collected, TensorType.of((size("m"), 16), "float32"))
    m = module([x, c], relu(body))
    value = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    agrees(m, *([value, np.array(flag)] for flag in (True, False)))


def test_a_concat_that_one_branch_needs_stays_a_kernel() -> None:
    x, c = var("x", (8, 16)), var("c", (), "bool")
    shared = concat(negative(x), relu(x))
    body = If(c, relu(shared), If(c, negative(shared), concat(x, x), shared.tensor), shared.tensor)
    m = module([x, c], body)
    value = np.random.default_rng(0).standard_normal((8, 16), np.float32)
    agrees(m, *([value, np.array(flag)] for flag in (True, False)), within=0)


def test_hot_sizes_join_in_place() -> None:
    n = size("n")
    x = var("x", (n, 16))
    m = module([x], call(op("softmax"), [concat(negative(x), relu(x))], {"axis": 0}))
    exe = weft.compile(m, specialize={"n": [4]})
    for rows in (4, 6, 4):
        value = np.random.default_rng(rows).standard_normal((rows, 16), np.float32)
        np.testing.assert_allclose(exe(value), interpret(m, [value]), rtol=1e-5, atol=1e-6)


def test_a_program_with_a_part_outside_of_an_argument_is_refused() -> None:
    x = var("x", (8, 16))
    artifact, _ = compile_module(module([x], *map(relu, split(x, 4, 4))), [HOST], options=APART)
    parts = [b for b in artifact.program.buffers if b.kind == "input" and b.offset != (0,)]
    assert len(parts) == 1
    far = tuple(replace(b, offset=(512,)) if b in parts else b for b in artifact.program.buffers)
    broken = replace(artifact, program=replace(artifact.program, buffers=far))
    with pytest.raises((InternalError, ArtifactError), match="outside"):
        Executable(broken, 1)(np.zeros((8, 16), np.float32))
