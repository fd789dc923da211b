"""A lost optimization fails here, without any timing: see ``perf_metrics``.

``expected_metrics.json`` holds what the compiler reached last. Better numbers pass; write them down with
``pytest tests/perf --bless`` so that they are kept, and review the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import models_zoo as zoo
import perf_cases
import pytest
from perf_metrics import MEANINGS, TARGET, Metrics, effort, groups_of, in_strips, losses, measure

import weft
from weft.graph.nodes import Module
from weft.graph.parser import parse
from weft.kernels.task import KernelTask
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options, optimize
from weft.schedule.library.products import Tile, blocked_product
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.target import Target

EXPECTED = Path(__file__).parent / "expected_metrics.json"
MODELS: dict[str, Callable[[], Path]] = {
    "resnet50": lambda: zoo.light("resnet50"),
    "bert, two layers": lambda: zoo.transformer("bert", "tiny"),
    "mobilenetv2, small": lambda: zoo.transformer("mobilenetv2", "tiny"),
}
SLOW = "resnet50", "mobilenetv2, small"


def check(name: str, found: Metrics, bless: bool) -> None:
    table = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    if bless:
        table[name] = found
        EXPECTED.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")
        return
    assert name in table, f"there are no numbers for {name}: run pytest tests/perf --bless and review them"
    lost = losses(name, found, table[name])
    hint = "If that is meant, run 'pytest tests/perf --bless' and say why in the commit; to look closer: "
    assert not lost, "\n".join([*lost, f"{hint}weft inspect MODEL --target {TARGET} --stage loops"])


@pytest.mark.parametrize("name", perf_cases.CASES)
def test_kernels(name: str, request: pytest.FixtureRequest) -> None:
    check(name, measure(perf_cases.module(name)), request.config.getoption("--bless"))


def test_attention_in_half_precision(request: pytest.FixtureRequest) -> None:
    found = measure(perf_cases.module("products of attention"), Options(precision="bf16"))
    check("products of attention, bfloat16", found, request.config.getoption("--bless"))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS])
def test_models(name: str, request: pytest.FixtureRequest) -> None:
    module = weft.load(zoo.or_skip(MODELS[name]))
    check(name, measure(module), request.config.getoption("--bless"))


@pytest.mark.parametrize("name", ["convolution 3x3", "matrix product with GELU", "layer norm"])
def test_compiling(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found = effort(name, tmp_path)
    assert found["warm_calls"] < found["cold_calls"] / 10
    check(f"compiling: {name}", found, request.config.getoption("--bless"))


# ---- each metric moves when the optimization behind it is taken away -------------------------------------------------


def lost(case: str, name: str, **changes: object) -> set[str]:
    """The metrics of a case that are worse with ``changes`` (arguments of ``measure``) than without."""
    module = perf_cases.module(case)
    said = losses(name, measure(module, **changes), measure(module))  # type: ignore[arg-type]
    return {line.split(": ")[1].split(" ")[0] for line in said}


class Plain:
    """A source of schedules that leaves every loop as it is."""

    def find(self, task: KernelTask) -> Trace | None:
        return Schedule(task.program).trace


class Greedy:
    """Tiles of 14 × 4 vectors: twice the registers that there are."""

    def find(self, task: KernelTask) -> Trace | None:
        s = Schedule(task.program)
        blocked_product(s, "matmul", Tile(14, 4))
        return s.trace


def test_without_schedules_loops_are_scalar() -> None:
    assert {"scalar_loops", "vector_bits", "fused_share"} & lost("layer norm", "plain", schedules=Plain())


def test_without_fusion_kernels_and_bytes_grow() -> None:
    assert {"kernels", "megabytes"} <= lost("element by element", "unfused", options=Options(max_ops=1))


def test_without_merging_one_row_takes_more_kernels() -> None:
    assert "kernels" in lost("one decoding step", "apart", options=Options(merge=False))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", [n for n in perf_cases.CASES if "attention" in n])
def test_strips_are_not_lost_in_silence(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that a primitive refuses is passed over; the numbers say so."""
    options, module = Options(precision=precision), perf_cases.module(name)
    assert attention_strips(module, options) == 1
    monkeypatch.setattr("weft.schedule.rules.cpu.schedule_strips", lambda context, block: False)
    assert attention_strips(module, options) == 0


def attention_strips(module: Module, options: Options) -> int:
    machine = Target(TARGET)
    return sum(in_strips(group, machine) for group in groups_of(optimize(module, machine, options)))


def test_without_layouts_products_are_slower() -> None:
    assert lost("convolution 1x1", "plain layout", options=Options(layouts=False))


@pytest.mark.parametrize(
    ("case", "place", "nothing", "metric"),
    [
        ("convolution 3x3", "pipeline.graph.winograd_rules", lambda *a: (), "operations"),
        ("product of two inputs", "schedule.rules.cpu.contraction._pack_panels", lambda *a: (), "jumps"),
        ("larger than the caches", "schedule.rules.common.context.Context.stream_large", lambda *a: None, "streams"),
        (
            "convolution of each channel",
            "schedule.rules.cpu.reduction.steps_of",
            lambda s: 1 << 30,
            "operations",
        ),
        ("transpose", "schedule.rules.cpu.elementwise._transposed", lambda *a: False, "jumps"),
        ("sum of columns", "schedule.rules.cpu.reduction.schedule_columns", lambda *a: False, "operations"),
        ("mean of a middle axis", "schedule.rules.cpu.reduction.schedule_columns", lambda *a: False, "jumps"),
        ("mean of a middle axis in a cache", "schedule.rules.cpu.reduction._columns", lambda *a: 1, "operations"),
        ("mean of pictures", "schedule.rules.cpu.reduction._joined", lambda v: 1, "operations"),
        ("average pool", "schedule.rules.cpu.reduction.MAX_UNROLLED_STEPS", 0, "vector_bits"),
        ("enlarged picture", "backends.llvm.memory.stretches", lambda *a: (), "gathers"),
    ],
)
def test_each_lost_optimization_shows(
    case: str, place: str, nothing: object, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, expected = perf_cases.module(case), json.loads(EXPECTED.read_text())[case]
    monkeypatch.setattr(f"weft.{place}", nothing)
    said = losses(case, measure(module), expected)
    assert any(f": {metric} went from" in line for line in said), said


def test_on_a_narrower_machine_vectors_are_narrower() -> None:
    assert "vector_bits" in lost("element by element", "narrow", target="zen3")


def test_a_tile_beyond_the_registers_spills() -> None:
    text = """
def @main(%x: f32[112, 96], %w: f32[96, 128]) -> f32[112, 128] {
  %out: f32[112, 128] = matmul(%x, %w)
  return %out
}"""
    module, plain = parse(text, OPERATORS), Options(layouts=False)
    said = losses("greedy", measure(module, plain, Greedy()), measure(module, plain))
    assert any("spills" in line and "registers are spilled" in line for line in said), said


def test_losses_are_told_in_words() -> None:
    good: Metrics = {"kernels": 10, "vector_bits": 512, "megabytes": 100.0, "fused_share": 0.6}
    assert losses("m", good, good) == []
    assert losses("m", {**good, "megabytes": 100.9, "fused_share": 0.58}, good) == [], "within the slack"
    assert losses("m", {"kernels": 9, "vector_bits": 512, "megabytes": 50.0, "fused_share": 0.7}, good) == []
    (narrow,) = losses("m", {**good, "vector_bits": 256}, good)
    assert "m: vector_bits went from 512 to 256" in narrow and MEANINGS["vector_bits"].lost in narrow
    (gone,) = losses("m", {k: v for k, v in good.items() if k != "fused_share"}, good)
    assert "fused_share went from 0.6 to 0" in gone
