"""The C runtime under sanitizers: malformed programs and objects, and many threads at once.

A build that fails is a failure, not a skip: only a compiler without the sanitizer's library is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from onnx import parser as onnx_text
from seeds import seeds
from small_artifacts import KERNELS, vector_program

import weft
from weft.graph.parser import parse
from weft.ops.catalogue import OPERATORS
from weft.runtime.encode import encode

NATIVE = Path(__file__).parent / "native"
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
FINDINGS = "exitcode=99:allocator_may_return_null=1:max_allocation_size_mb=256:detect_stack_use_after_return=1"

FOLD = """
type List<t> { Nil(); Cons(t, List<t>) }
def @foldl<n>(%f: fn(f32[n], f32[n]) -> f32[n], %z: f32[n], %xs: List<f32[n]>) -> f32[n] {
  %0: f32[n] = match %xs {
    Nil() => { return %z }
    Cons(%x: f32[n], %rest: List<f32[n]>) => {
      %1: f32[n] = %f(%z, %x)
      %2: f32[n] = @foldl(%f, %1, %rest)
      return %2
    }
  }
  return %0
}
def @main<n>(%xs: List<f32[n]>, %w: f32[n]) -> f32[n] {
  %0 = fn(%a: f32[n], %b: f32[n]) {
    %1: f32[n] = mul(%b, %w)
    %2: f32[n] = add(%a, %1)
    return %2
  }
  %3: f32[n] = broadcast_to(0.0f32, shape=(n,))
  %4: f32[n] = @foldl(%0, %3, %xs)
  return %4
}
"""
PAIR = """
type List<t> { Nil(); Cons(t, List<t>) }
def @main<n>(%x: f32[n]) -> List<f32[n]> {
  %0: List<f32[n]> = List<f32[n]>::Nil()
  %1: List<f32[n]> = List<f32[n]>::Cons(%x, %0)
  %2: List<f32[n]> = List<f32[n]>::Cons(%x, %1)
  return %2
}
"""
LOOP = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[n] x, int64 k, int64[m] at) => (float[q] y, int64[r] places, float[p] picked) {
  cond = Constant <value = bool {1}> ()
  y = Loop (k, cond, x) <body = b (int64 i, bool c, float[a] s) => (bool go, float[d] t) {
    go = Identity (c)
    t = Concat <axis = 0> (s, x)
  }>
  found = NonZero (x)
  flat = Constant <value_ints = [-1]> ()
  places = Reshape (found, flat)
  picked = Gather (x, at)
}
"""
OBJECTS = """
@table = internal constant [4 x float] [float 1.0, float 2.0, float 3.0, float 4.0]
@state = global i64 0
@shared = common global i64 0
declare float @expf(float)
define i32 @f(ptr %b, ptr %s) {
  %x = load float, ptr %b
  %y = call float @expf(float %x)
  %n = load i64, ptr @state
  %p = getelementptr [4 x float], ptr @table, i64 0, i64 %n
  %t = load float, ptr %p
  %z = fadd float %y, %t
  store float %z, ptr %b
  store i64 %n, ptr @shared
  ret i32 0
}
"""
MACHINES = (  # triple, features, relocations, code model
    ("x86_64-unknown-linux-gnu", "", "pic", "small"),
    ("x86_64-unknown-linux-gnu", "", "static", "large"),
    ("aarch64-unknown-linux-gnu", "", "pic", "small"),
    ("aarch64-unknown-linux-gnu", "", "pic", "large"),
    ("riscv64-unknown-linux-gnu", "+m,+f,+d", "pic", "medium"),
    ("armv7-unknown-linux-gnueabihf", "+neon", "pic", "small"),
    ("armv7-unknown-linux-gnueabihf", "+neon", "static", "small"),
    ("thumbv7-unknown-linux-gnueabihf", "+neon", "static", "small"),
)


def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


def build(csrc: Path, folder: Path, sanitizer: str, source: str, *flags: str) -> Path:
    """``source`` with the runtime, under a sanitizer. Fails if it does not compile; skips where nothing does."""
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    flag = f"-fsanitize={sanitizer}"
    probe = subprocess.run([compiler(), flag, "probe.c", "-o", "probe"], cwd=folder, capture_output=True)
    if probe.returncode:
        pytest.skip(f"the compiler has no {sanitizer} sanitizer")
    (folder / "main.c").write_text(source)
    sources = sorted(str(p) for p in (csrc / "src").glob("*.c"))
    include = [f"-I{csrc / 'include'}", f"-I{csrc / 'src'}"]
    more = ["-fno-sanitize-recover=all"] if "undefined" in sanitizer else []
    command = [compiler(), *STRICT, flag, *more, *flags, *include, "main.c", *sources, "-lm", "-o", "main"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return folder / "main"


def run(program: Path, *arguments: str, timeout: int = 300) -> str:
    """What it prints. Address spaces are not randomized, as the thread sanitizer needs it on new kernels."""
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    if fixed and subprocess.run([*fixed, "true"], capture_output=True).returncode:
        fixed = []
    environment = os.environ | {
        "ASAN_OPTIONS": FINDINGS,
        "TSAN_OPTIONS": "exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    done = subprocess.run(
        [*fixed, str(program), *arguments], capture_output=True, text=True, timeout=timeout, env=environment
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr[-8000:]}"
    return done.stdout + done.stderr


def corpus(folder: Path, compile_c) -> list[str]:
    models = [parse(FOLD, OPERATORS), parse(PAIR, OPERATORS), onnx_text.parse_model(LOOP)]
    programs = [weft.compile(model).artifact.program for model in models]
    programs += [vector_program("f"), vector_program("f", 3, size="n")]
    for i, program in enumerate(programs):
        (folder / f"{i}.words").write_bytes(encode(program).tobytes())
    (folder / "kernels.o").write_bytes(compile_c(KERNELS))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for i, (triple, features, relocations, model) in enumerate(MACHINES):
        target = llvm.Target.from_triple(triple)
        machine = target.create_target_machine(features=features, reloc=relocations, codemodel=model, opt=1)
        made = machine.emit_object(llvm.parse_assembly(f'target triple = "{triple}"\n' + OBJECTS))
        (folder / f"{i}-{triple}.o").write_bytes(made)
    return sorted(str(p) for p in (*folder.glob("*.words"), *folder.glob("*.o")))


@pytest.fixture(scope="module")
def fuzzer(csrc, tmp_path_factory, compile_c):
    folder = tmp_path_factory.mktemp("fuzz")
    program = build(csrc, folder, "address,undefined", (NATIVE / "fuzz.c").read_text())
    inputs = folder / "corpus"
    inputs.mkdir()
    return program, corpus(inputs, compile_c)


def check_counts(printed: str, files: list[str], count: int) -> None:
    assert "is refused" not in printed, printed
    whole, *counts, blocks = map(int, printed.split())
    assert whole == len(files)
    assert sum(counts) == count and blocks == 0
    assert min(counts) > count // 100, f"changes are too gentle or too coarse: {counts}"


@pytest.mark.parametrize("seed", seeds(2, 1))
def test_malformed_programs_and_objects(fuzzer, seed):
    program, files = fuzzer
    check_counts(run(program, str(seed), "4000", *files), files, 4000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, 10))
def test_a_million_malformed_programs_and_objects(fuzzer, seed):
    program, files = fuzzer
    check_counts(run(program, str(seed), "100000", *files, timeout=3600), files, 100_000)


@pytest.mark.parametrize(
    ("flags", "sanitizer"),
    [
        ((), "thread"),
        ((), "address,undefined"),
        (("-DWEFT_NO_FUTEX",), "thread"),
        pytest.param(("-DWEFT_NO_FUTEX",), "address,undefined", marks=pytest.mark.slow),
    ],
)
def test_many_threads(csrc, tmp_path, sanitizer, flags):
    words = ",".join(f"{w}LL" for w in encode(vector_program("kernel")).tolist())
    source = (NATIVE / "stress.c").read_text().replace("WORDS", words)
    assert run(build(csrc, tmp_path, sanitizer, source, *flags), "100") == "0 failures\n"


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_a_build_error_is_a_failure(tmp_path, sanitizer):
    with pytest.raises(AssertionError, match="error"):
        build(tmp_path / "no sources", tmp_path, sanitizer, "int main(void) { return nothing; }\n")
