"""What can be said about performance without a clock: counted in the program, its memory and its assembly.

Everything is compiled for one named target, so that the numbers are the same wherever the tests run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from perf_operations import Counts, count

from weft.api import kernel_disk_cache
from weft.backends.llvm import assembly, emit_ir
from weft.expr.nodes import Binary, Load
from weft.graph.nodes import Call, Function, Module
from weft.graph.visit import post_order
from weft.ir.structural import structural_hash
from weft.kernels.cache import KernelCache
from weft.kernels.machine_code import lowered, scheduled
from weft.kernels.task import KernelTask
from weft.pipeline import Options, ScheduleSource, compile_module, operators_in, optimize, unscheduled
from weft.target import Target
from weft.tir.nodes import Block, For, Store
from weft.tir.visit import postorder, walk
from weft.view.assembly import LoopCode, hot_loop

TARGET = "zen4"
_GATHERS = re.compile(r"\tvp?gather|\tvpinsr|\tvinsertps")
Metrics = dict[str, float]


@dataclass(frozen=True)
class Meaning:
    """Whether larger is better, how much worse a number may get (relative, absolute), and what a worse number means."""

    more: bool
    slack: float
    lost: str
    room: float = 0.0


MEANINGS: dict[str, Meaning] = {
    "cold_calls": Meaning(False, 0.15, "compiling takes more steps: something is simplified, walked or built again"),
    "warm_calls": Meaning(False, 0.15, "compiling what is known takes more steps: kernels are looked up too late"),
    "kernels": Meaning(False, 0.0, "operators are no longer fused: more kernels run"),
    "strips": Meaning(True, 0.0, "two products and the rows between them no longer run strip by strip in one loop"),
    "conversions": Meaning(False, 0.0, "layouts are converted more often"),
    "megabytes": Meaning(False, 0.01, "kernels move more bytes: something is no longer fused or aliased"),
    "arena": Meaning(False, 0.01, "the memory plan is larger: tensors no longer share memory"),
    "operations": Meaning(
        False, 0.02, "kernels do more: an algorithm, a tile, vectors or what follows a product was lost"
    ),
    "tiles": Meaning(False, 0.0, "products take more matrix tiles: they are emptier, or hidden ones are not left out"),
    "jumps": Meaning(False, 0.02, "memory is read out of order: an operand is no longer packed, or columns one by one"),
    "gathers": Meaning(False, 0.0, "lanes are read one by one where contiguous reads and a shuffle did", 4),
    "streams": Meaning(True, 0.0, "fewer kernels write large results past the caches"),
    "vector_bits": Meaning(True, 0.0, "the narrowest hot loop has narrower vectors: a loop is no longer vectorized"),
    "scalar_loops": Meaning(False, 0.0, "more kernels work on one number at a time in their hot loop"),
    "spills": Meaning(False, 0.0, "registers are spilled in hot loops: a register tile has become too large", 4),
    "fused_share": Meaning(True, 0.04, "hot loops have more instructions for each fused multiply-add"),
}


def measure(
    module: Module, options: Options | None = None, schedules: ScheduleSource | None = None, target: str = TARGET
) -> Metrics:
    """All metrics of a model. ``fused_share`` is that of the kernels which have fused multiply-adds in their hot loop,
    by the operations they do; ``vector_bits`` is the least of all kernels that are not scalar."""
    machine = Target(target)
    fused = optimize(module, machine, options)
    groups = groups_of(fused)
    code: dict[str, LoopCode] = {}
    counts: dict[str, Counts] = {}
    streams: set[str] = set()
    gathers: dict[str, int] = {}
    loops: list[tuple[LoopCode, int]] = []
    done: list[Counts] = []
    moved = 0
    for group in groups:
        program, work = unscheduled(group)
        moved += int(work.bytes)
        key = structural_hash(program)
        if key not in code:
            trace = schedules.find(KernelTask(program, machine)) if schedules is not None else None
            kernel = lowered(program, machine, trace)
            text = assembly(emit_ir(kernel, machine), machine)
            code[key], counts[key] = hot_loop(text), count(kernel)
            gathers[key] = len(_GATHERS.findall(text))
            streams |= {key} if "\tvmovnt" in text else set()
        done.append(counts[key])
        loops.append((code[key], int(work.flops)))
    names = [name for g in groups for name in operators_in(g)]
    cache = KernelCache(kernel_disk_cache())
    _, report = compile_module(module, [machine], options=options, schedules=schedules, cache=cache)
    products = [(v.fused / v.instructions, work) for v, work in loops if v.fused]
    found: Metrics = {
        "kernels": len(groups),
        "conversions": names.count("layout_transform"),
        "megabytes": round(moved / 1e6, 3),
        "arena": report.arena_bytes,
        "operations": round(sum(c.operations for c in done) / 1e6, 3),
        "jumps": sum(c.jumps for c in done),
        "gathers": sum(gathers.values()),
        "streams": len(streams),
        "vector_bits": min((v.vector_bits for v in code.values() if not v.scalar), default=0),
        "scalar_loops": sum(v.scalar for v in code.values()),
        "spills": sum(v.spills for v in code.values()),
    }
    if schedules is None and (strips := sum(in_strips(g, machine) for g in dict.fromkeys(groups))):
        found["strips"] = strips
    if tiles := sum(c.tiles for c in done):
        found["tiles"] = tiles
    if products:
        found["fused_share"] = round(sum(d * w for d, w in products) / max(1, sum(w for _, w in products)), 3)
    return found


def groups_of(fused: Module) -> list[Function]:
    """The kernels of an optimized model, one for each call."""
    calls = [e for e in post_order(fused.main, into_functions=False) if isinstance(e, Call)]
    return [c.target for c in calls if isinstance(c.target, Function)]


def in_strips(group: Function, machine: Target) -> bool:
    """Whether two sums of products stand under one loop around everything: neither's result is made as a whole."""
    plain, _ = unscheduled(group)
    sums = [s for s in walk(plain.body) if isinstance(s, Block) and _sums_products(s)]
    return len(sums) > 1 and isinstance(scheduled(plain, machine).program.body, For)


def _sums_products(block: Block) -> bool:
    """Whether a reduction adds products of two loads."""
    if not any(it.kind == "reduce" for it in block.iters) or not isinstance(block.body, Store):
        return False
    products = [e for e in postorder(block.body.value) if isinstance(e, Binary) and e.op == "mul"]
    return any(sum(isinstance(x, Load) for x in postorder(e)) > 1 for e in products)


_COUNT = """
import json, sys
import perf_cases
from weft.kernels.cache import KernelCache
from weft.pipeline import compile_module
from weft.support.cache import DiskCache
from weft.target import Target
from pathlib import Path

def calls(disk):
    count = 0
    def see(frame, event, argument):
        nonlocal count
        count += event == "call"
    module, cache, target = perf_cases.module(sys.argv[1]), KernelCache(disk), Target(sys.argv[3])
    sys.setprofile(see)
    try:
        compile_module(module, [target], cache=cache)
    finally:
        sys.setprofile(None)
    return count

disk = DiskCache(Path(sys.argv[2]), 1 << 24)
print(json.dumps({"cold_calls": calls(disk), "warm_calls": calls(disk)}))
"""


def effort(name: str, cache: Path) -> Metrics:
    """Python functions called to compile a case, with an empty and with a full kernel cache: compile time without a
    clock. In a process of its own, since expressions are remembered as long as one lives."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", _COUNT, name, str(cache), TARGET]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: Metrics = json.loads(done.stdout)
    return found


def losses(name: str, found: Metrics, expected: Metrics) -> list[str]:
    """What is worse than expected, in words."""
    said = []
    for key, before in expected.items():
        meaning = MEANINGS[key]
        now = found.get(key, 0)
        slip = before * meaning.slack + meaning.room
        limit = before - slip if meaning.more else before + slip
        if now < limit if meaning.more else now > limit:
            said.append(f"{name}: {key} went from {before:g} to {now:g}: {meaning.lost}")
    return said
