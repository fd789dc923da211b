"""Kernels and records for tests of the tuning database."""

from __future__ import annotations

from weft.kernels.task import KernelTask
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Trace
from weft.target import Target
from weft.tir.text import parse
from weft.tune.record import Outcome, TrialRecord

PROGRAM = """program "NAME"(x: f32[N, K], w: f32[K, M]) -> (out: f32[N, M]):
  for i in serial(0, N):
    for j in serial(0, M):
      for k in serial(0, K):
        block "out"(y: spatial N = i, x_1: spatial M = j, r: reduce K = k):
          reads x[y, r], w[r, x_1]
          writes out[y, x_1]
          init:
            out[y, x_1] = 0.0
          body:
            out[y, x_1] = out[y, x_1] + x[y, r] * w[r, x_1]
"""


def product(n: int, m: int, k: int, name: str = "dense", target: str = "zen4", text: str = PROGRAM) -> KernelTask:
    """A matrix product of n × k and k × m."""
    for letter, value in (("NAME", name), ("N", n), ("M", m), ("K", k)):
        text = text.replace(letter, str(value))
    return KernelTask(parse(text), Target(target))


def split_by(task: KernelTask, factor: int) -> Trace:
    """A schedule of a product: the columns in parts."""
    s = Schedule(task.program)
    s.split(s.get_loops("out")[1], factors=(None, factor))
    return s.trace


def timed(trace: Trace | None, seconds: float, relative: float | None = None, threads: int = 1) -> TrialRecord:
    """A trial that succeeded."""
    return TrialRecord(trace, Outcome.OK, seconds, (seconds, seconds), relative, threads)
