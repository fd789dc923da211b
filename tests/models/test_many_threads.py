"""Kernels compiled for 64 cores: how many cores real networks use, and that small work stays in one thread."""

from __future__ import annotations

from pathlib import Path

import models_zoo as zoo
import pytest
from pool_shares import busy, divide

from weft.cost import REFERENCE
from weft.cost.threads import MAX_SHARE_OF_ONE_THREAD
from weft.expr.nodes import Const
from weft.frontends.onnx import load
from weft.graph.nodes import Call, Function
from weft.graph.visit import post_order
from weft.kernels.machine_code import scheduled
from weft.pipeline import optimize, unscheduled
from weft.schedule.rules.common.work import cycles_of, pieces_of, worth_parallel
from weft.target import Target
from weft.tir.nodes import For
from weft.tir.visit import walk

CORES = 64
TARGET = Target(f"x86-64-v4 -num-cores={CORES}")
BLOCKS_APART = 4
"""Times that the operations of a fused group, counted by rules block by block, exceed those of the group as a whole."""
MODELS = {
    "squeezenet": lambda: zoo.or_skip(zoo.light, "squeezenet"),
    "mobilenetv2": lambda: zoo.or_skip(zoo.transformer, "mobilenetv2", "tiny"),
    "bert": lambda: zoo.or_skip(zoo.transformer, "bert", "tiny"),
}


def plans(path: Path) -> list[tuple[str, float, list[For]]]:
    """Name, scalar operations (or half the bytes) and parallel loops of each kernel."""
    found: dict[Function, tuple[str, float, list[For]]] = {}
    for e in post_order(optimize(load(path), TARGET).main, into_functions=False):
        if isinstance(e, Call) and isinstance(e.target, Function) and e.target not in found:
            program, cost = unscheduled(e.target)
            assert isinstance(cost.flops, Const) and isinstance(cost.bytes, Const)
            body = scheduled(program, TARGET).program.body
            loops = [s for s in walk(body) if isinstance(s, For) and s.kind == "parallel"]
            found[e.target] = program.name, max(float(cost.flops.value), float(cost.bytes.value) / 2), loops
    return list(found.values())


def speedup(loop: For) -> float:
    """The speed-up over one thread if all iterations take equally long."""
    assert isinstance(loop.extent, Const)
    extent = int(loop.extent.value)
    return extent / max(busy(divide(extent, int(loop.annotations.get("grain", 1)), CORES), CORES))


def worthwhile(work: float) -> int:
    """The number of threads that pays, by the cost model."""
    return min(CORES, pieces_of(work, TARGET)) if worth_parallel(work, TARGET) else 1


@pytest.mark.parametrize(("name", "times"), [("squeezenet", 1.25), ("mobilenetv2", 1.25), ("bert", 2.5)])
def test_real_networks(name: str, times: float) -> None:
    """How much longer each model may take than with all threads busy that pay. The products of a BERT as small as this
    are a few register tiles each, which are not divided."""
    kernels = plans(MODELS[name]())
    for kernel, work, loops in kernels:
        if loops:
            least = (REFERENCE.fork_cycles + 2 * REFERENCE.claim_cycles) / MAX_SHARE_OF_ONE_THREAD
            assert cycles_of(BLOCKS_APART * work, TARGET) > least, f"{kernel}: threads for too little work"
    alone = sum(work for _, work, _ in kernels)
    planned = sum(work / max([1.0, *map(speedup, loops)]) for _, work, loops in kernels)
    wanted = sum(work / worthwhile(work) for _, work, _ in kernels)
    assert planned <= times * wanted, f"{alone / planned:.1f} of {alone / wanted:.1f} threads' worth"
