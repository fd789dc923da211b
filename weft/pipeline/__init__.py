"""The whole pipeline: a graph becomes an artifact.

    graph ── optimize ──▶ fused graph ── build_kernels ──▶ machine code ─┐
                                    └──── graph_to_program ──▶ program ──┴──▶ artifact

:func:`compile_module` runs it from end to end; :func:`kernel_stages` shows the stages of one fused group: graph → te →
tir → scheduled tir → kernel → machine code.
"""

from weft.backends.protocol import StageText
from weft.kernels.stages import task_stages
from weft.pipeline.graph import graph_passes, optimize
from weft.pipeline.kernels import Observer, build_kernels, unscheduled
from weft.pipeline.options import PRECISIONS, Options
from weft.pipeline.program import compile_module, operators_in
from weft.pipeline.report import Report
from weft.pipeline.schedules import ScheduleSource
from weft.pipeline.stages import kernel_stages

__all__ = [
    "PRECISIONS",
    "Observer",
    "Options",
    "Report",
    "ScheduleSource",
    "StageText",
    "build_kernels",
    "compile_module",
    "graph_passes",
    "kernel_stages",
    "operators_in",
    "optimize",
    "task_stages",
    "unscheduled",
]
