"""Where the tensors of programs lie: results take the memory of operands, in branches too; the verifier of plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import weft
from weft.graph.build import function, size, var
from weft.graph.interpret import run as interpret
from weft.graph.nodes import Call, Function, GraphExpr, If, Module, call
from weft.graph.visit import post_order
from weft.lowering import functions
from weft.lowering.control_parts import Place
from weft.lowering.graph_to_program import graph_to_program
from weft.lowering.kernel_interface import KernelInterface
from weft.lowering.lifetimes import Lifetimes
from weft.lowering.verify_memory import verify_memory
from weft.ops.catalogue import op
from weft.pipeline import Options, compile_module, optimize
from weft.runtime import Executable
from weft.runtime.program import Allocate, CallKernel, ExecutableProgram, Free
from weft.support.errors import InternalError
from weft.target import Target

APART = Options(max_ops=1, jobs=1)
HOST = Target("cpu")


def everywhere(e: Call) -> Iterable[tuple[int, int]]:
    return [(0, 0)] if e.args[0].type == e.type else []


def planned(module: Module, **options: Any) -> tuple[ExecutableProgram, Any]:
    fused = optimize(module, HOST, APART)
    calls = [e for f in fused.functions.values() for e in post_order(f) if isinstance(e, Call)]
    kernels = {
        c.target: KernelInterface(f"k{i}", (), (0,), (0,), (0,))
        for i, c in enumerate(calls)
        if isinstance(c.target, Function)
    }
    program, _, plan = graph_to_program(fused, kernels, **options)
    return program, plan


def chain(x: GraphExpr, length: int) -> GraphExpr:
    for i in range(length):
        x = call(op(("tanh", "exp")[i % 2]), [x])
    return x


def test_a_chain_needs_two_buffers_or_one_in_place() -> None:
    x = var("x", (16, 16))
    module = Module.of(function([x], chain(x, 9)))
    assert planned(module)[1].arena_bytes == 2 * 1024
    plan = planned(module, in_place=everywhere)[1]
    assert plan.arena_bytes == 1024 == plan.largest_live_set


def test_results_need_no_memory_and_workspaces_do() -> None:
    x = var("x", (4, 16))
    module = Module.of(function([x], chain(x, 1)))
    program, plan = planned(module)
    assert plan.arena_bytes == 0 and [b.kind for b in program.buffers] == ["input", "output"]
    program, plan = planned(module, workspace=lambda e: 100)
    assert plan.arena_bytes == 128 and program.buffers[2].nbytes == (100,)


def test_branches_work_in_place() -> None:
    n = size("n")
    x, flag = var("x", (n, 16)), var("flag", (), "bool")
    module = Module.of(function([flag, x], chain(If(flag, chain(x, 4), chain(chain(x, 1), 5), x.type), 2)))
    apart, shared = planned(module)[1], planned(module, in_place=everywhere)[1]
    assert shared.assumed_bytes < apart.assumed_bytes
    exe = Executable(compile_module(module, [HOST], options=APART)[0], 1)
    for value in (True, False):
        inputs = np.array(value), np.random.default_rng(0).standard_normal((3, 16), np.float32)
        np.testing.assert_allclose(exe(*inputs), interpret(module, inputs), rtol=1e-6)


def test_an_operand_that_is_read_again_keeps_its_memory() -> None:
    x = var("x", (16, 16))
    a = chain(x, 2)
    module = Module.of(function([x], call(op("add"), [chain(a, 3), a])))
    assert planned(module, in_place=everywhere)[1].arena_bytes == 2 * 1024


def test_a_loop_does_not_overwrite_operands_that_it_reads_again() -> None:
    from test_control_flow import while_loop

    params, loop = while_loop()
    module = Module.of(function(params, loop))
    exe = weft.compile(module, threads=1)
    inputs = np.array([1.0, 2.0], np.float32), np.array([2.0, 0.5], np.float32)
    for got, wanted in zip(exe(*inputs), interpret(module, inputs), strict=True):  # type: ignore[arg-type]  # a tuple
        np.testing.assert_allclose(got, wanted)


# ---- the verifier ---------------------------------------------------------------------------------------------------


def branches() -> Module:
    x, flag = var("x", (16, 16)), var("flag", (), "bool")
    a = chain(x, 2)
    return Module.of(function([flag, x], call(op("add"), [If(flag, chain(a, 3), a, x.type), a])))


def straight() -> Module:
    x = var("x", (16, 16))
    a = chain(x, 2)
    return Module.of(function([x], call(op("add"), [chain(a, 3), a])))


@pytest.mark.parametrize("module", [straight, branches])
def test_the_verifier_finds_overlaps(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    planner = functions.plan_lives

    def at_zero(lives: Any) -> Any:
        made = planner(lives)
        return replace(made, offsets=(0,) * len(made.offsets))

    monkeypatch.setattr(functions, "plan_lives", at_zero)
    with pytest.raises(InternalError, match="still to be read"):
        planned(module())


@pytest.mark.parametrize(("change", "words"), [({"total": 64}, "outside the arena"), ({"offsets": 8}, "unaligned")])
def test_the_verifier_knows_the_arena(monkeypatch: pytest.MonkeyPatch, change: dict[str, int], words: str) -> None:
    planner = functions.plan_lives

    def wrong(lives: Any) -> Any:
        made = planner(lives)
        if "total" in change:
            return replace(made, total=64)
        return replace(made, offsets=tuple(o + 8 for o in made.offsets), total=made.total + 64)

    monkeypatch.setattr(functions, "plan_lives", wrong)
    with pytest.raises(InternalError, match=words):
        planned(straight())


def test_the_verifier_knows_what_may_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    planned(straight(), in_place=everywhere)
    monkeypatch.setattr(functions, "verify_memory", lambda *given: verify_memory(*given[:-1], {}))
    with pytest.raises(InternalError, match="still to be read"):
        planned(straight(), in_place=everywhere)


def test_what_is_allocated_at_run_time_is_freed_after_its_last_use() -> None:
    """Sizes that the data decide: of a chain of results, two exist at a time."""
    names = ("Exp", "Neg", "Tanh", "Neg", "Exp")
    steps = "".join(f"v{i + 1} = {name} (v{i}) " for i, name in enumerate(names))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[64] x) => (float[2,k] v5) '
        f"{{ at = NonZero (x) v0 = Cast <to = 1> (at) {steps} }}"
    )
    program = compile_module(weft.load(model), [HOST], options=APART)[0].program
    held: set[int] = set()
    most = 0
    for item in program.instructions:
        if isinstance(item, Allocate):
            held.add(item.buffer)
        elif isinstance(item, Free):
            held.discard(item.buffer)
        most = max(most, len(held))
    assert most == 2 and not held and sum(isinstance(i, Allocate) for i in program.instructions) >= 5
    for at, item in enumerate(program.instructions):
        if isinstance(item, Free):
            later = [i for i in program.instructions[at + 1 :] if isinstance(i, CallKernel)]
            assert all(item.buffer not in i.buffers for i in later)


def test_only_whole_places_take_the_memory_of_operands() -> None:
    """Operands and results that are parts of other places stay where these are."""
    items = [CallKernel(0, (0, 1)), CallKernel(1, (1, 2, 3)), CallKernel(2, (2, 3, 4))]

    def taking(part: str) -> list[Place | None]:
        whole = Place(5, "arena", 128, "uint8")
        places = [
            Place(n, "arena", 64, "uint8", parent=whole if name == part else None)
            for n, name in enumerate(("x", "operand", "first", "second", "y"))
        ]
        found = Lifetimes([*places, whole])
        found.places, found.items = [*places, whole], items
        found.written = {0: 1, 1: 2, 2: 1}
        found.exchanges = {1: [(places[1], places[2]), (places[1], places[3])]}
        found.measure()
        found.exchange()
        return [p.takes for p in places[2:4]]

    assert [p and p.number for p in taking("")] == [1, None]
    assert [p and p.number for p in taking("first")] == [None, 1], "the other result takes it"
    assert [p and p.number for p in taking("second")] == [1, None]
    assert taking("operand") == [None, None]


def test_memory_whose_size_is_known_late_is_not_exchanged_but_freed_after_its_last_use() -> None:
    items = [CallKernel(0, (0, 1)), CallKernel(1, (1, 2)), CallKernel(2, (2,))]
    for late in ({0, 1, 2}, {1, 2}, {1}, {2}, set()):
        places = [Place(n, "arena", 64, "uint8", late=n in late) for n in range(3)]
        found = Lifetimes(places)
        found.places, found.items, found.written = places, list(items), {0: 1, 1: 1, 2: 0}
        found.exchanges = {1: [(places[1], places[2])]}
        found.measure()
        found.exchange()
        assert (places[2].takes is places[1]) == late.isdisjoint({1, 2})
        found.free_late()
        freed = [(n, item.buffer) for n, item in enumerate(found.items) if isinstance(item, Free)]
        assert [buffer for _, buffer in freed] == sorted(late), "in the order of their last uses"
        assert all(isinstance(found.items[n - 1], CallKernel) for n, _ in freed)
