"""A package of somebody else: a schedule rule, a tensor intrinsic, and a back end that leaves loops as they are."""

from __future__ import annotations

import weft
from weft import te
from weft.backends import llvm
from weft.backends.protocol import Backend
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.plugins import ScheduleRule
from weft.schedule import Schedule, TensorIntrinsic
from weft.target import TargetKind
from weft.target.target import cpu_words, parse_cpu


def leave_in_order(context, block):
    """Copies and arithmetic of single elements stay one serial loop nest."""
    if not context.is_injective(block):
        return False
    context.done.add(block.name)
    return True


def four_products() -> TensorIntrinsic:
    """``c[0] += a[0..3] * b[0..3]``, one after the other."""
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((1,), lambda i: te.sum(a[k] * b[k], axis=k), name="c")
    program = te_to_tir("four_products", [a, b], [c])
    return TensorIntrinsic("four_products", program, program)


RULES = weft.Plugin("in-order", "0.1", schedule_rules=(ScheduleRule("leave-in-order", leave_in_order),))


def schedule(program, target, rules=(), intrinsics=()):
    """The loops without a schedule."""
    return Schedule(program, intrinsics=intrinsics)


PLAIN = Backend(
    kind=TargetKind("plain", "cpu", "loops as they come, through LLVM", parse_cpu, cpu_words),
    schedule=schedule,
    lower=tir_to_kernel,
    emit=llvm.emit,
    texts=llvm.LLVM.texts,
    version=llvm.LLVM.version,
    stages=llvm.LLVM.stages,
)
BACKEND = weft.Plugin("plain-code", "0.1", backends=(PLAIN,), intrinsics=(four_products(),))
