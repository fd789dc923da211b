"""Loops found in assembly text, and their instruction counts."""

from __future__ import annotations

import pytest

from weft import te
from weft.backends.llvm import assembly, emit_ir
from weft.lowering.te_to_tir import te_to_tir
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.schedule import Schedule
from weft.schedule.rules.cpu import default_schedule
from weft.target import Target
from weft.view.assembly import LoopCode, hot_loop, innermost_loops

NESTED = """
	.type	f.work,@function
f.work:
	pushq	%rbx
	xorl	%eax, %eax
.LBB0_1:
	vmovups	(%rdi), %ymm0
.LBB0_2:                                # a loop
	vfmadd231ps	(%rsi,%rax), %zmm1, %zmm2
	vmovups	%zmm3, 64(%rsp)                 # 64-byte Spill
	vaddps	%zmm1, %zmm1, %zmm1
	incq	%rax
	cmpq	$8, %rax
	jne	.LBB0_2
	leaq	8(%rsp), %rcx
	jne	.LBB0_1
.LBB0_3:
	vaddss	%xmm1, %xmm2, %xmm3
	jne	.LBB0_3
	retq
.Lfunc_end0:
	.size	f.work, .Lfunc_end0-f.work
	.type	f,@function
f:
	movq	%rdi, (%rsi)
	retq
.Lfunc_end1:
"""


def test_innermost_loops_and_their_counts() -> None:
    inner, scalar, straight = innermost_loops(NESTED)
    assert inner == LoopCode(instructions=6, fused=1, arithmetic=1, spills=1, vector_bits=512, depth=2)
    assert scalar == LoopCode(instructions=2, fused=0, arithmetic=1, spills=0, vector_bits=32, depth=1)
    assert straight.depth == 0 and straight.vector_bits == 64
    assert hot_loop(NESTED) is not scalar and hot_loop(NESTED) == inner
    assert inner.fused / inner.instructions == pytest.approx(1 / 6) and scalar.scalar and not inner.scalar


def test_single_lanes_and_calls_are_counted() -> None:
    body = ["vpinsrd\t$1, %edi, %xmm0, %xmm0", "vgatherdps\t(%rax,%zmm1,4), %zmm2 {%k1}", "callq\tfmodf@PLT"]
    text = "\n".join(
        ["\t.type\tf,@function", "f:", ".LBB0_1:", *(f"\t{b}" for b in body), "\tjne\t.LBB0_1", ".Lfunc_end0:"]
    )
    loop = hot_loop(text)
    assert (loop.lanes, loop.calls) == (2, ("fmodf",))


def test_no_code_has_no_loop() -> None:
    assert innermost_loops("") == [] and hot_loop("").instructions == 0


@pytest.mark.parametrize("machine, bits", [("zen4", 512), ("zen3", 256)])
def test_default_rules_reach_the_width_of_the_machine(machine: str, bits: int) -> None:
    target = Target(machine)
    a, b = te.placeholder((64, 128), name="A"), te.placeholder((128, 96), name="B")
    k = te.reduce_axis((0, 128), "k")
    c = te.compute((64, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    program = te_to_tir("product", [a, b], [c])

    def loop(s: Schedule) -> LoopCode:
        return hot_loop(assembly(emit_ir(tir_to_kernel(s.program, target), target), target))

    scheduled, plain = loop(default_schedule(program, target)), loop(Schedule(program))
    assert scheduled.vector_bits == bits and scheduled.fused >= 8 and scheduled.spills == 0
    assert scheduled.fused / scheduled.instructions > plain.fused / plain.instructions
