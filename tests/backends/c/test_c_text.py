"""What the C of a kernel looks like, and what happens without a compiler."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from compilers import target_of
from kernel_runner import run_kernel

from weft.backends.c import C, compile_object, emit, emit_source
from weft.backends.c.compiler import compiler
from weft.backends.catalogue import backend_of
from weft.backends.protocol import ELF
from weft.expr.intrinsics import call, prefetch
from weft.expr.nodes import Broadcast, Cast, Expr, Load, Ramp, Var, cast, const, make, maximum
from weft.ir.frozen import FrozenMap
from weft.support.errors import InternalError, TargetError
from weft.target import Target
from weft.target.triples import other_machine
from weft.tir.nodes import Allocate, Buffer, Evaluate, For, If, Let, Program, Seq, Store

AVX512 = Target("c -mcpu=cascadelake")
PLAIN = Target("c -mcpu=cascadelake -vectors=none")


def buffer(name: str, size: int, dtype: str = "float32", scope: str = "global") -> Buffer:
    return Buffer(name, (const(size),), dtype, scope)


def lanes(base: Expr | int, n: int = 16) -> Expr:
    return Ramp(const(base) if isinstance(base, int) else base, const(1), n)


def matmul(rows: int, vectors: int, k_extent: int = 64, blocks: int = 4) -> Program:
    """C[blocks*rows, 16*vectors] += A B with a register tile of ``rows`` x ``vectors`` accumulators."""
    width = 16 * vectors
    a, b = buffer("A", blocks * rows * k_extent), buffer("B", k_extent * width)
    c, r = buffer("C", blocks * rows * width), buffer("R", rows * width, scope="register")
    i, k = Var("i"), Var("k")
    tile = [(y, x, lanes(y * width + x * 16)) for y in range(rows) for x in range(vectors)]
    zero = [Store(r, (at,), Broadcast(const(0.0), 16)) for _, _, at in tile]
    update = [
        Store(
            r,
            (at,),
            Load(r, (at,))
            + Broadcast(Load(a, (i * (rows * k_extent) + k + y * k_extent,)), 16)
            * Load(b, (lanes(k * width + x * 16),)),
        )
        for y, x, at in tile
    ]
    write = [Store(c, (lanes(i * (rows * width) + (y * width + x * 16)),), Load(r, (at,))) for y, x, at in tile]
    loop = For(k, const(0), const(k_extent), Seq(tuple(update)))
    body = Allocate(r, Seq((*zero, loop, *write)))
    return Program("matmul", (a, b, c), For(i, const(0), const(blocks), body, "parallel"))


def tail() -> Program:
    """max(x, 0) with a masked last vector, for a size that is not known."""
    n, i = Var("n"), Var("i")
    x, y = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32")
    at = lanes(i * 16)
    mask = make("lt", at, Broadcast(n, 16))
    body = Store(y, (at,), maximum(Load(x, (at,), mask), 0.0), mask)
    return Program("clipped", (x, y), For(i, const(0), (n + 15) // 16, body), sizes=(n,))


def words() -> Program:
    """Integers that wrap, divisions that round down, a branch, a name that C has taken, hints."""
    x, y, i, v = buffer("int", 64, "int32"), buffer("y-1", 64, "int8"), Var("for"), Var("v", "int32")
    loaded = Load(x, (i,))
    inner = If(
        make("gt", v, const(0, "int32")),
        Store(y, (i,), Cast(v * v + 7, y.dtype)),
        Store(y, (i,), Cast(make("floordiv", v, const(7, "int32")) + make("floormod", v, const(8, "int32")), y.dtype)),
    )
    body = Seq((Evaluate(prefetch(Load(x, (i + 8,)))), Let(v, loaded, inner)))
    return Program("words", (x, y), For(i, const(0), const(64), body, annotations=FrozenMap(unroll=4)))


def captured() -> Program:
    """A parallel loop with scratch memory of its own, a size and a number from outside."""
    n, j, k, v = Var("n"), Var("j"), Var("k"), Var("v", "float32")
    x, y = Buffer("x", (n,), "float32"), Buffer("y", (n * 3,), "float32")
    s = Buffer("s", (n * 5000,), "float32", "local")
    first = Store(s, (j * 5000,), Load(x, (j,)) * v)
    inner = Seq((first, Store(y, (k * n + j,), Load(s, (j * 5000,)) + cast(k, "float32"))))
    loop = For(j, const(0), n, Allocate(s, inner), "parallel")
    body = For(k, const(0), const(3), Let(v, cast(k, "float32") + 0.5, loop))
    return Program("capture", (x, y), body, sizes=(n,))


KERNELS = {"matmul": matmul(4, 2), "clipped": tail(), "words": words(), "capture": captured()}


@pytest.mark.parametrize("name", KERNELS)
def test_the_text(name, golden):
    golden(f"{name}.c", emit_source(KERNELS[name], AVX512))


@pytest.mark.parametrize("variant", ["gcc", "clang"])
def test_the_printed_text_computes_the_same(variant):
    target = target_of(variant)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((16, 64)).astype("f"), rng.standard_normal((64, 32)).astype("f")
    c = np.zeros((16, 32), "f")
    run_kernel(KERNELS["matmul"], [a, b, c], target=target)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    for size in (1, 16, 37):
        x, y = rng.standard_normal(size).astype("f"), np.zeros(size, "f")
        run_kernel(KERNELS["clipped"], [x, y], [size], target)
        np.testing.assert_array_equal(y, np.maximum(x, 0))
    x, y = rng.integers(-(1 << 31), 1 << 31, 64, np.int64).astype(np.int32), np.zeros(64, np.int8)
    run_kernel(KERNELS["words"], [x, y], target=target)
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(y, np.where(wide > 0, wide * wide + 7, wide // 7 + wide % 8).astype(np.int8))
    x, y = rng.standard_normal(7).astype("f"), np.zeros((3, 7), "f")
    run_kernel(KERNELS["capture"], [x, y], [7], target)
    np.testing.assert_allclose(y, np.stack([x * (m + 0.5) + m for m in range(3)]), rtol=1e-6)


@pytest.mark.parametrize("variant", ["gcc", "clang"])
def test_sums_stay_in_registers(variant):
    command = target_of(variant).option("cc")
    target = Target(f"c -cc={command} -mcpu=cascadelake")
    text = compile_object(emit_source(matmul(14, 2), target), target, assembly=True).decode()
    (inner,) = [part for part in re.split(r"\n(?=\.L\w+:)", text) if part.count("vfmadd") >= 28]
    assert inner.count("vfmadd231ps") % 28 == 0
    kept = [line for line in re.findall(r"(?:vfmadd231ps|vmov[ua]ps).*", inner) if re.search(r"\(%r[bs]p\)", line)]
    assert not kept, "accumulators live in memory"


@pytest.mark.parametrize("variant", ["gcc", "clang"])
@pytest.mark.parametrize("target", [AVX512, PLAIN], ids=["gnu", "none"])
def test_the_source_has_no_warnings(variant, target, tmp_path):
    """Warnings about vectors as arguments are turned off: how they are passed depends on options of the compiler."""
    command = target_of(variant).option("cc")
    for name in ("words", "capture") if target is PLAIN else KERNELS:
        path = tmp_path / f"{name}.c"
        path.write_text(emit_source(KERNELS[name], target))
        options = ["-Wall", "-Wextra", "-Wno-psabi", "-Werror", "-march=x86-64-v4", "-O1"]
        options += ["-std=c11", "-pedantic"] if target is PLAIN else []
        command_line = [command, *options, "-c", str(path), "-o", str(tmp_path / "out.o")]
        done = subprocess.run(command_line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_backend_as_a_value():
    target = target_of("gcc")
    assert backend_of(target) is C and C.kind.name == "c" and "gcc" in C.version(target)
    code = emit(KERNELS["words"], target)
    assert code.format == ELF and code.data[:4] == b"\x7fELF" and code.data[16] == 1 and code.entry == "words"
    assert [s.name for s in C.texts(KERNELS["words"], target)] == list(C.stages)
    assert Target(str(target)) == target


def test_targets():
    assert PLAIN.cpu.vector_bits == 0 and not PLAIN.units and Target(str(PLAIN)) == PLAIN
    assert not Target("c -mcpu=sapphirerapids").cpu.has("amx-tile")
    named = Target("c -cc='ccache gcc'")
    assert named.option("cc") == "ccache gcc" and Target(str(named)) == named
    with pytest.raises(TargetError, match="vectors is 'gnu' or 'none'"):
        Target("c -vectors=many")


def test_without_a_compiler(monkeypatch):
    with pytest.raises(TargetError, match=r"no-such-cc.*is not there") as caught:
        compile_object("", Target("c -cc=no-such-cc"))
    assert caught.value.code == "G030" and "apt-get install" in str(caught.value.hint)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(TargetError, match="there is no C compiler"):
        compiler()
    monkeypatch.setenv("CC", "another-cc -m64")
    with pytest.raises(TargetError, match="another-cc"):
        compiler()
    monkeypatch.setenv("CC", "'gcc")
    with pytest.raises(TargetError, match=r"'gcc is not understood: No closing quotation"):
        compiler()


@pytest.mark.parametrize("command", ["false", "true", "gcc -mno-such-option"])
def test_a_program_that_compiles_nothing_is_no_bug_of_weft(command):
    with pytest.raises(TargetError, match=f"the C compiler '{command}' makes no code") as caught:
        compile_object("int x;", Target(f"c -cc='{command}'"))
    assert caught.value.code == "G030" and "-cc=PATH" in str(caught.value.hint)


HERE = "x86_64" if platform.machine() in ("x86_64", "AMD64") else platform.machine()
ELSEWHERE = {
    "aarch64": "-mcpu=cortex-a72",
    "riscv64": "-mcpu=generic-rv64",
    "powerpc64le": "-mtriple=powerpc64le-unknown-linux-gnu -mcpu=x86-64",
    "s390x": "-mtriple=s390x-unknown-linux-gnu -mcpu=x86-64",
    "x86_64": "-mcpu=x86-64",
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("assembly", [False, True])
@pytest.mark.parametrize("arch", [a for a in ELSEWHERE if a != HERE])
def test_code_for_another_machine_is_never_taken_for_the_targets(arch, assembly):
    """GCC makes code for one machine alone; an object of this machine must not be saved as another's."""
    with pytest.raises(TargetError, match=f"(makes code for .*, not for {arch})|(makes no code)") as caught:
        compile_object("int x;", Target(f"c {ELSEWHERE[arch]} -cc=gcc"), assembly)
    assert caught.value.code == "G030" and "-cc=" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("number", "triple", "other"),
    [
        (62, "x86_64-unknown-linux-gnu", None),
        (62, "aarch64-unknown-linux-gnu", "x86_64"),
        (62, "sparc64-unknown-linux-gnu", "x86_64"),
        (183, "arm64-unknown-linux-gnu", None),
        (183, "armv7a-unknown-linux-gnueabihf", "aarch64"),
        (40, "thumbv7-none-eabi", None),
        (243, "riscv64-unknown-linux-gnu", None),
        (2, "sparc-unknown-linux-gnu", None),
        (2, "riscv64-unknown-linux-gnu", "ELF machine 2"),
    ],
)
@pytest.mark.parametrize("order", ["little", "big"])
def test_the_machine_of_an_object(number, triple, other, order):
    image = b"\x7fELF\x02" + (b"\x01" if order == "little" else b"\x02") + bytes(12) + number.to_bytes(2, order)
    assert other_machine(image, triple) == other
    assert other_machine(b"MZ" + image[2:], triple) is None


def test_code_that_only_the_generator_can_have_spoiled_is_a_bug_of_weft():
    with pytest.raises(InternalError, match="refuses the generated code") as caught:
        compile_object("int x = ;", Target("c -cc=gcc"))
    assert caught.value.reproducer == "int x = ;"


def test_errors_of_the_c_compiler_are_reported():
    with pytest.raises(InternalError, match="refuses") as caught:
        compile_object("int f( {", target_of("gcc"))
    assert caught.value.reproducer == "int f( {"


def test_dtypes_without_arithmetic_are_refused():
    x, y = buffer("x", 4, "float8_e5m2"), buffer("y", 4, "float8_e5m2")
    with pytest.raises(TargetError, match="float8_e5m2"):
        emit_source(Program("fp8", (x, y), Store(y, (const(0),), Load(x, (const(0),)))), AVX512)


def test_malformed_kernels_are_internal_errors():
    x, y = buffer("x", 4), buffer("y", 4)
    with pytest.raises(InternalError, match="undefined variable"):
        emit_source(Program("free", (x, y), Store(y, (Var("i"),), const(0.0))), AVX512)
    with pytest.raises(InternalError, match="unallocated"):
        emit_source(Program("free", (y,), Store(y, (const(0),), Load(x, (const(0),)))), AVX512)


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="aarch64-linux-gnu-gcc is not installed")
def test_another_machine():
    target = Target("c -cc=aarch64-linux-gnu-gcc -mcpu=cortex-a72")
    code = emit(KERNELS["words"], target)
    assert code.data[:4] == b"\x7fELF" and code.data[18] == 183


def test_common_subexpressions_are_computed_once():
    x, y, i = buffer("x", 64), buffer("y", 64), Var("i")
    shared = call("sqrt", Load(x, (i,)))
    stores = Seq(tuple(Store(y, (i,), shared + float(n)) for n in range(4)))
    text = emit_source(Program("shared", (x, y), For(i, const(0), const(64), stores)), PLAIN)
    assert text.count("sqrt_f32(x[i])") == 1


@pytest.mark.parametrize("condition", [True, False])
def test_a_constant_condition_needs_its_header(condition):
    """``true`` and ``false`` come from stdbool.h, also where no variable is a bool."""
    y = buffer("y", 1)
    body = Seq((Store(y, (const(0),), const(1.0)), If(const(condition), Store(y, (const(0),), const(2.0)))))
    got = np.zeros(1, "f")
    run_kernel(Program("constant", (y,), body), [got], target=target_of("gcc"))
    assert got == (2.0 if condition else 1.0)
