"""Traces of the default rules: they replay to the identical kernel, and other decisions give other legal schedules."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models_zoo as zoo
import numpy as np
import pytest
import representative
import sample_models
from kernel_runner import run_program
from schedule_cases import inputs_for
from seeds import named

import weft
from weft.graph.nodes import Call, Function, Module
from weft.graph.visit import post_order
from weft.ir.structural import structural_hash
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.pipeline import Options
from weft.pipeline.graph import optimize
from weft.pipeline.kernels import unscheduled
from weft.schedule import Schedule, Trace
from weft.schedule.rules.cpu import default_schedule
from weft.support.errors import ScheduleError
from weft.target import Target
from weft.tir.interpret import run
from weft.tir.nodes import Program
from weft.tir.text import to_text
from weft.tir.verify import verify

TARGETS = ("x86-64-v3", "zen4", "sapphire-rapids", "graviton3")
MUTANTS = 14
"""Of each kernel."""


def replays(program: Program, target: Target) -> Trace:
    """The default trace, which after JSON and as Python is the same trace and gives the same program."""
    made = default_schedule(program, target)
    trace = Trace.from_json(made.trace.to_json())
    assert trace == made.trace
    executed = Schedule(program)
    exec(trace.to_python(), {"s": executed})
    for other in (Schedule(program).replay(trace), executed):
        assert other.trace == trace
        assert to_text(other.program) == to_text(made.program)
        assert structural_hash(other.program) == structural_hash(made.program)
    return trace


def kernels_of(module: Module, target: Target, precision: str = "f32") -> Iterator[Program]:
    """The plain loops of each fused group of a model, of equal ones once."""
    seen = set()
    fused = optimize(module, target, Options(precision=precision))
    calls = (e for f in fused.functions.values() for e in post_order(f) if isinstance(e, Call))
    for group in dict.fromkeys(c.target for c in calls if isinstance(c.target, Function) and c.target.is_primitive):
        program = unscheduled(group)[0]
        key = structural_hash(program)
        if key not in seen:
            seen.add(key)
            yield program


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
def test_default_traces_of_representative_kernels_replay(target: str) -> None:
    machine = Target(target)
    for _, program in representative.programs(machine):
        trace = replays(program, machine)
        replayed = Schedule(program).replay(Trace.from_json(trace.to_json())).program
        made = default_schedule(program, machine).program
        assert structural_hash(tir_to_kernel(replayed, machine)) == structural_hash(tir_to_kernel(made, machine))


@pytest.mark.parametrize("build", [sample_models.dense, sample_models.images], ids=lambda f: f.__name__)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_default_traces_of_small_models_replay(build: Callable[..., Path], precision: str, tmp_path: Path) -> None:
    module = weft.load(str(build(tmp_path / "model.onnx")))
    target = Target("sapphire-rapids")
    assert [replays(p, target) for p in kernels_of(module, target, precision)]


def snapshot_models() -> list[tuple[str, Callable[[], Path], dict[str, Any]]]:
    """The models that two versions of the compiler are compared by."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "snapshot.py"
    spec = importlib.util.spec_from_file_location("snapshot", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.models())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "build", "arguments"), snapshot_models(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_default_traces_of_the_zoo_replay(name: str, build: Callable[[], Path], arguments: dict[str, Any]) -> None:
    module = weft.load(str(zoo.or_skip(build)))
    target = Target(arguments.get("target", "cpu"))
    assert [replays(p, target) for p in kernels_of(module, target, arguments.get("precision", "f32"))]


def mutants(trace: Trace, name: str, count: int) -> Iterator[Trace]:
    """Traces with one to three other decisions."""
    rng = named(f"mutants of {name}")
    free = [d for d in trace.decisions if len(d.candidates) > 1]
    for _ in range(count if free else 0):
        made = trace
        for d in rng.sample(free, min(len(free), rng.randint(1, 3))):
            made = made.with_decision(d.position, rng.choice([c for c in d.candidates if c != d.decision]))
        yield made


def judge_mutants(target: Target, precision: str, count: int, compiled: bool = False) -> Counter[str]:
    """Each of ``count`` mutants of each representative kernel is refused, or verifies and computes what the loops
    without a schedule compute. How many were refused, the same program, and another one."""
    found: Counter[str] = Counter()
    for name, program in representative.programs(target, precision):
        default = default_schedule(program, target)
        given = inputs_for(program)
        expected = run(program, given)
        for mutant in mutants(default.trace, f"{name} {target} {precision}", count):
            try:
                made = Schedule(program).replay(mutant)
            except ScheduleError:
                found["refused"] += 1
                continue
            found["changed" if to_text(made.program) != to_text(default.program) else "same"] += 1
            verify(made.program)
            verify(tir_to_kernel(made.program, target), "kernel")
            results = [run(made.program, given)]
            if compiled:
                results.append(run_program(made.program, given, ()))
            for result in results:
                for want, got in zip(expected, result, strict=True):
                    rounding = 2**-7 if str(want.dtype) == "bfloat16" else 1e-5
                    wanted, gotten = (np.asarray(v, np.float64) for v in (want, got))
                    np.testing.assert_allclose(
                        gotten, wanted, rtol=rounding, atol=rounding, err_msg=f"{name}\n{mutant.to_python()}"
                    )
    return found


def test_other_decisions_give_other_schedules_or_refusals() -> None:
    found = judge_mutants(Target(representative.TARGET), "f32", MUTANTS)
    assert found["changed"] >= 120, found


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_other_decisions_on_every_machine(target: str, precision: str) -> None:
    found = judge_mutants(Target(target), precision, 4 * MUTANTS, compiled=True)
    assert found["changed"] >= 400, found


def test_rules_leave_decisions_of_every_kind() -> None:
    """Numbers, orders and places are drawn, each with alternatives."""
    target = Target(representative.TARGET)
    drawn = Counter(
        d.name
        for _, program in representative.programs(target)
        for d in default_schedule(program, target).trace.decisions
        if len(d.candidates) > 1
    )
    assert min(drawn[name] for name in ("sample_choice", "sample_order", "sample_location")) >= 3, drawn
