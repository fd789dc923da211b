"""Every named machine gets code, with its own vectors and no instructions of other machines. Each is compiled in a
separate process, because LLVM ends the process for names that it does not know."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import weft
from weft.backends.c import emit_source
from weft.backends.catalogue import backend_of
from weft.backends.llvm import assembly, emit_ir
from weft.expr.nodes import Cast, Expr, Var, const
from weft.graph.nodes import Call, Function
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.kernels.machine_code import lowered
from weft.lowering.tir_to_kernel import tir_to_kernel
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options, optimize, unscheduled
from weft.support.dtypes import DType
from weft.support.errors import TargetError
from weft.target import CPU_FEATURES, MACHINES, Target
from weft.tir.nodes import Buffer, For, Program, Store

_WINDOW = "dilations=(1, 1), strides=(1, 1), pads=(1, 1, 1, 1)"
MODEL = f"""
def @main(
  %x: f32[1, 16, 12, 12], %x1: f32[16, 16, 3, 3], %x2: f32[16, 1, 3, 3], %a: f32[2, 32, 64], %b: f32[64, 48]
) -> (f32[1, 16, 12, 12], f32[2, 32, 48], f32[2]) {{
  %0: f32[1, 16, 12, 12] = conv(%x, %x1, {_WINDOW})
  %1: f32[1, 16, 12, 12] = conv(%0, %x2, {_WINDOW}, groups=16)
  %2: f32[1, 16, 12, 12] = relu(%1)
  %3: f32[2, 64, 32] = transpose(%a, perm=(0, 2, 1))
  %4: f32[2, 32, 32] = matmul(%a, %3)
  %5: f32[2, 32, 32] = softmax(%4, axis=2)
  %6: f32[2, 32, 64] = matmul(%5, %a)
  %7: f32[2, 32, 48] = matmul(%6, %b)
  %8: f32[2, 32, 48] = gelu(%7)
  %9: f32[2] = reduce_sum(%8, axes=(1, 2), keepdims=false)
  return (%2, %8, %9)
}}"""


def texts(target: Target, precision: str) -> list[str]:
    """The assembly of the model's kernels."""
    fused = optimize(parse(MODEL, OPERATORS), target, Options(precision=precision)).main
    groups = [e.target for e in post_order(fused, into_functions=False) if isinstance(e, Call)]
    return [
        assembly(emit_ir(lowered(unscheduled(g)[0], target), target), target) for g in groups if isinstance(g, Function)
    ]


FOREIGN = (
    # Unless the target has the feature, nothing in its code may match.
    ("avx512f", re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])\b|\{%k[0-7]\}")),
    ("avx512bf16", re.compile(r"\tvdpbf16ps|\tvcvtne2?ps2?bf16")),
    ("amx-bf16", re.compile(r"%tmm|\ttdp")),
    ("avx2", re.compile(r"%ymm")),
    ("avx", re.compile(r"\tv(add|mul|mov)[au]?ps")),
    ("fma", re.compile(r"\tvfn?m(add|sub)")),
)


PLAIN = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "zen4")


@pytest.mark.parametrize(
    ("name", "precision"), [*((n, "f32") for n in PLAIN), ("zen4", "bf16"), ("sapphire-rapids", "bf16")]
)
def test_code_has_no_instructions_of_other_machines(name: str, precision: str) -> None:
    target = Target(name)
    every = "\n".join(texts(target, precision))
    for feature, instructions in FOREIGN:
        if feature not in target.cpu.features:
            found = instructions.search(every)
            assert found is None, f"{found and found[0]} without {feature}"
    assert {512: "%zmm", 256: "%ymm", 128: "%xmm"}[target.cpu.vector_bits] in every
    if precision == "bf16" and target.cpu.has("amx-bf16"):
        assert "tdpbf16ps" in every


@pytest.mark.parametrize(("name", "product"), [("graviton2", r"fmla\tv\d+\.4s"), ("riscv64", r"vfm(acc|add)\.v")])
def test_other_architectures_multiply_and_add_vectors(name: str, product: str) -> None:
    every = "\n".join(texts(Target(name), "f32"))
    assert len(re.findall(product, every)) > 40
    assert not re.search(r"\tfmadd(\.s)?\t", every), "one number at a time"


_COMPILE = """
import sys
from weft.backends.llvm import compile_object, emit_ir
from weft.graph.nodes import Call, Function
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.ops.catalogue import OPERATORS
from weft.kernels.machine_code import lowered
from weft.pipeline import optimize, unscheduled
from weft.target import Target
for name in sys.argv[2:]:
    target = Target(name)
    for e in post_order(optimize(parse(sys.argv[1], OPERATORS), target).main, into_functions=False):
        if isinstance(e, Call) and isinstance(e.target, Function):
            assert compile_object(emit_ir(lowered(unscheduled(e.target)[0], target), target), target)
    print(name)
"""
ROWS = """
def @main(%x: f32[64, 80], %w: f32[80, 48], %g: f32[48], %b: f32[48]) -> f32[48, 64] {
  %0: f32[64, 48] = matmul(%x, %w)
  %1: f32[64, 48] = gelu(%0)
  %2: f32[64, 48] = layer_norm(%1, %g, %b, axis=1, epsilon=0.001)
  %out: f32[48, 64] = transpose(%2, perm=(1, 0))
  return %out
}"""


def test_every_machine_and_processor_compiles() -> None:
    names = [*MACHINES, *(f"llvm -mcpu={n}" for n in CPU_FEATURES if n not in {m.mcpu for m in MACHINES.values()})]
    names.append("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=unheard-of -mattr=+m,+a,+f,+d,+c,+v")
    done = subprocess.run([sys.executable, "-c", _COMPILE, ROWS, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.split("\n")[:-1] == names, done.stdout[-200:] + done.stderr[-2000:]


def test_machines_that_cannot_run_the_code_are_refused_before_it_is_compiled() -> None:
    module = parse(ROWS, OPERATORS)
    with pytest.raises(TargetError, match="cannot load object files of 'apple-macos'"):
        weft.compile(module, target="apple-m1")
    with pytest.raises(TargetError, match="cannot load code for 'armv6'"):
        weft.compile(module, target="llvm -mtriple=armv6-unknown-linux-gnueabihf -mcpu=arm1176jzf-s -mattr=+vfp2")
    with pytest.raises(TargetError, match="floating-point numbers in core registers"):
        weft.compile(module, target="llvm -mtriple=armv7-unknown-linux-gnueabi -mcpu=cortex-a7")
    target = Target("llvm -mtriple=i686-unknown-linux-gnu -mcpu=x86-64")
    with pytest.raises(TargetError, match="addresses of 32 bits"):
        texts(target, "f32")


# -- 32-bit addresses --------------------------------------------------------------------------------------------------

SMALL = "raspberry-pi-2"


def test_indices_have_the_width_of_addresses() -> None:
    """Loops of known size count in one register, and indices are divided in 32 bits or not at all."""
    every = "\n".join(texts(Target(SMALL), "f32"))
    assert len(re.findall(r"v(fma|mla|mul)\.f32\tq", every)) > 40
    assert "divmod" not in every and "__aeabi_l" not in every
    assert "divmod" in one_loop(Target(SMALL), Var("n"), 7)
    assert "divmod" not in one_loop(Target(SMALL), const(1000), 7)


def one_loop(target: Target, extent: Expr, divisor: int) -> str:
    """The assembly of a loop that stores quotients of its variable."""
    y, i = Buffer("Y", (extent,), "int32"), Var("i")
    body = For(i, const(0), extent, Store(y, (i,), Cast(i // divisor, DType("int32"))))
    sizes = (extent,) if isinstance(extent, Var) else ()
    return assembly(emit_ir(tir_to_kernel(Program("one", (y,), body, sizes=sizes), target), target), target)


@pytest.mark.parametrize("kind", ["llvm", "c"])
@pytest.mark.parametrize(("elements", "fits"), [((1 << 29) - 1, True), (1 << 29, False)])
def test_buffers_beyond_the_address_space_are_refused(kind: str, elements: int, fits: bool) -> None:
    target = Target(f"{kind} -mcpu=cortex-a7")
    y, i = Buffer("Y", (const(elements),), "float32"), Var("i")
    program = Program("large", (y,), For(i, const(0), const(9), Store(y, (i,), const(1.0))))
    backend = backend_of(target)
    emitted = emit_source if kind == "c" else emit_ir
    if fits:
        assert emitted(backend.lower(program, target), target)
        return
    with pytest.raises(TargetError, match="2147483648 bytes; addresses of 32 bits allow 2147483647") as refused:
        emitted(backend.lower(program, target), target)
    assert refused.value.code == "G028"
    same = Target(f"{kind} -mcpu=cortex-a72")
    assert emitted(backend.lower(program, same), same), "64-bit addresses reach it"
