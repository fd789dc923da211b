"""A measuring process in which schedules can ask for trouble: a decision of theirs names it."""

from __future__ import annotations

import ctypes
import os
import sys
import time

from weft.kernels.machine_code import MachineCode
from weft.kernels.machine_code import machine_code as built
from weft.kernels.task import KernelTask
from weft.support.errors import InternalError
from weft.tir.nodes import Program
from weft.tir.text import parse, to_text
from weft.tune.measure import bench, worker

TROUBLE = ("none", "crash", "hang", "noise", "unbuildable", "wrong")


def trouble_of(task: KernelTask) -> str:
    if task.trace is None:
        return "none"
    return next((str(d.values[d.decision]) for d in task.trace.decisions if d.values == TROUBLE), "none")


def machine_code(task: KernelTask) -> MachineCode:
    match trouble_of(task):
        case "crash":
            print("last words", file=sys.stderr, flush=True)
            ctypes.string_at(0)
        case "hang":
            time.sleep(1000)
        case "noise":
            print("words on the standard output", flush=True)
            os.write(1, b"\x00\xff" * 50_000)
            os.write(2, b"noise\n" * 1000)
        case "unbuildable":
            raise InternalError("this cannot be built")
        case "wrong":
            return built(KernelTask(sum_of(task.program), task.target))
    return built(task)


def sum_of(product: Program) -> Program:
    """The program of a product, with sums instead of products."""
    return parse(to_text(product).replace("x[y, r] * w[r, x_1]", "x[y, r] + w[r, x_1]"))


def serve() -> None:
    bench.machine_code = machine_code  # type: ignore[attr-defined]  # what it imports
    worker.serve()
