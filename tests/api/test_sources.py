"""Models as C sources: written without a compiler, built by the system's, called through ctypes."""

from __future__ import annotations

import ctypes
import io
import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import weft
from weft.cli.main import main
from weft.graph import build
from weft.graph.nodes import Module, call
from weft.ops.catalogue import op
from weft.runtime.program import CallKernel, Check
from weft.runtime.sizes import BINARY
from weft.support.errors import ArtifactError, InputError, TargetError, UserError
from weft.view.c_program import HELPERS, c_size
from weft.view.sources import write_sources

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
V3 = "c -mcpu=x86-64-v3"


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def convolutions() -> Module:
    """Fixed sizes, constants and several kernels."""
    x = build.var("x", (1, 8, 12, 12))
    y = call(op("relu"), [call(op("conv"), [x, build.constant(random(16, 8, 3, 3, seed=1))])])
    y = call(op("conv"), [y, build.constant(random(4, 16, 1, 1, seed=2))])
    return Module.of(build.function([x], call(op("softmax"), [y], {"axis": 1})))


def open_sizes() -> Module:
    x = build.var("x", (build.size("n"), 32))
    y = call(op("matmul"), [x, build.constant(random(32, 24, seed=3))])
    return Module.of(build.function([x], call(op("softmax"), [y], {"axis": 1})))


def checked_indices() -> Module:
    table, at = build.constant(random(50, 6)), build.var("at", (9,), "int64")
    known = call(op("in_range"), [at], {"low": (-50,), "high": (49,)})
    return Module.of(build.function([at], call(op("gather"), [table, known], {"axis": 0})))


LOOPED = """<ir_version: 10, opset_import: ["" : 20]>
sums (float[n] x, int64 k) => (float[n] y, float[k, n] rows) {
  cond = Constant <value = bool {1}> ()
  y, rows = Loop (k, cond, x) <body = b (int64 i, bool c, float[n] s) => (bool go, float[n] s2, float[n] row) {
    go = Identity (c)
    s2 = Add (s, s)
    row = Identity (s2)
  }>
}"""


def built(folder: Path) -> ctypes.CDLL:
    """The library that the command of README.md makes."""
    (command,) = re.findall(r"^    (cc .*)$", (folder / "README.md").read_text(), re.M)
    made = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return ctypes.CDLL(str(folder / "libmodel.so"))


def aligned(nbytes: int) -> np.ndarray:
    whole = np.zeros(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes]


def place(array: np.ndarray) -> np.ndarray:
    made = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def pointers(*arrays: np.ndarray) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def run(folder: Path, given: np.ndarray, out: tuple[int, ...], sizes: tuple[int, ...] = ()) -> tuple[int, np.ndarray]:
    """The status and the only output of the model in ``folder``."""
    library = built(folder)
    numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
    library.weft_model_arena_bytes.restype = ctypes.c_int64
    arena = aligned(library.weft_model_arena_bytes(numbers))
    constants = place(np.fromfile(folder / "constants.bin", np.uint8))
    made = place(np.full(out, np.nan, np.float32))
    inputs = place(given)
    status = library.weft_model_run(
        pointers(inputs),
        pointers(made),
        numbers,
        ctypes.c_void_p(constants.ctypes.data),
        ctypes.c_void_p(arena.ctypes.data),
    )
    return status, made


@needs_cc
@pytest.mark.parametrize("target", [V3, f"{V3} -vectors=none", "c"])
def test_a_model_runs_from_its_sources(target: str, tmp_path: Path) -> None:
    if target == V3 and "avx2" not in weft.Target("cpu").cpu.features:
        pytest.skip("the machine has no AVX2")
    files = weft.compile_sources(convolutions(), tmp_path / "out", target)
    assert {f.name for f in files} >= {"model.c", "model.h", "plan.txt", "README.md", "constants.bin"}
    assert all(f.is_file() for f in files)
    given = random(1, 8, 12, 12, seed=4)
    status, made = run(tmp_path / "out", given, (1, 4, 10, 10))
    assert status == 0
    np.testing.assert_allclose(made, weft.compile(convolutions(), target)(given), rtol=1e-5, atol=1e-6)


@needs_cc
def test_open_sizes_are_arguments(tmp_path: Path) -> None:
    weft.compile_sources(open_sizes(), tmp_path)
    exe = weft.compile(open_sizes(), "c")
    for n in (1, 7, 100):
        given = random(n, 32, seed=n)
        status, made = run(tmp_path, given, (n, 24), (n,))
        assert status == 0
        np.testing.assert_allclose(made, exe(given), rtol=1e-5, atol=1e-6)


@needs_cc
def test_checks_are_made(tmp_path: Path) -> None:
    weft.compile_sources(checked_indices(), tmp_path)
    given = np.array([0, 49, -1, 7, 7, 3, -50, 20, 1])
    status, made = run(tmp_path, given, (9, 6))
    assert status == 0
    np.testing.assert_array_equal(made, random(50, 6)[given])
    given[3] = 50
    assert run(tmp_path, given, (9, 6))[0] < 0


@needs_cc
def test_one_kernel_is_called_through_its_own_function(tmp_path: Path) -> None:
    x = build.var("x", (64,))
    module = Module.of(build.function([x], call(op("relu"), [x])))
    weft.compile_sources(module, tmp_path)
    (source,) = (tmp_path / "kernels").iterdir()
    assert "(written)" in source.read_text() and "buffers, in order" in source.read_text()
    library = tmp_path / "kernel.so"
    assert CC is not None
    words = [CC, "-std=gnu11", "-O1", "-march=native", "-w", "-shared", "-fPIC", "-o", str(library), str(source)]
    words += [str(tmp_path / "weft_serial.c"), "-lm"]
    subprocess.run(words, check=True, capture_output=True)
    given, made = place(random(64)), place(np.zeros(64, np.float32))
    status = getattr(ctypes.CDLL(str(library)), source.stem)(pointers(given, made), None)
    assert status == 0
    np.testing.assert_array_equal(made, np.maximum(given, 0))


def test_programs_without_a_form_in_c_have_a_plan(tmp_path: Path) -> None:
    files = weft.compile_sources(onnx.parser.parse_model(LOOPED), tmp_path)
    assert not (tmp_path / "model.c").exists() and (tmp_path / "plan.txt") in files
    text = (tmp_path / "README.md").read_text()
    assert "`model.c` does not exist: it" in text and " model.c" not in text.split("cc ")[1].splitlines()[0]
    plan = (tmp_path / "plan.txt").read_text()
    assert all(f"{f.stem}(b" in plan for f in (tmp_path / "kernels").iterdir())


def test_no_compiler_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    files = weft.compile_sources(open_sizes(), tmp_path / "out", "c -mcpu=cortex-a72", cache=False)
    assert sum(f.parent.name == "kernels" for f in files) >= 1
    with pytest.raises(TargetError, match="there is no C compiler"):
        weft.compile_artifact(open_sizes(), "c", cache=False)


def test_wrong_targets_for_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no C sources for the target 'llvm'") as why:
        weft.compile_sources(open_sizes(), tmp_path, "cpu")
    assert why.value.code == "G032"
    with pytest.raises(TargetError, match="-code is 'object' or 'source', not 'text'"):
        weft.Target("c -code=text")
    with pytest.raises(ArtifactError, match="holds C sources, not code"):
        weft.compile(open_sizes(), "c -code=source")
    with pytest.raises(UserError, match="is no C source") as why:
        write_sources(weft.compile_artifact(open_sizes(), "cpu"), tmp_path, "")
    assert why.value.code == "B020"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        weft.compile_sources(open_sizes(), tmp_path / "file")


def test_the_command(tmp_path: Path) -> None:
    from weft.graph.text import dump

    def command(*words: str) -> tuple[int, str]:
        written = io.StringIO()
        with redirect_stdout(written), redirect_stderr(written):
            try:
                main(list(words))
            except SystemExit as end:
                return int(end.code or 0), written.getvalue()
        return 0, written.getvalue()

    model, folder = tmp_path / "model.graph", tmp_path / "out"
    dump(open_sizes(), model)
    status, text = command("compile", str(model), "--target", "c", "--sources", str(folder))
    assert status == 0 and "as C, compiled in" in text, text
    assert (folder / "model.c").is_file()
    assert command("compile", str(model), "--sources", str(folder))[0] == 1
    status, text = command("compile", str(model), "--target", "c", "--sources", str(folder), "-o", "m.weft")
    assert status == 2 and "--sources goes with neither" in text


@pytest.mark.parametrize(
    ("size", "text", "value"),
    [
        (("n", 4, "mul", 3, "add"), "plus(times(v, 4, &bad), 3, &bad)", 43),
        (
            ("n", -3, "floordiv", "n", 7, "floormod", "max"),
            "larger(floor_div(v, -3, &bad), floor_mod(v, 7, &bad))",
            3,
        ),
        (("n", 5, "gt", "not", "n", 1, "ge", "or"), "(!(v > 5) || (v >= 1))", 1),
        ((1 << 40,), "INT64_C(1099511627776)", 1 << 40),
        ((-(1 << 63),), "INT64_MIN", -(1 << 63)),
    ],
)
def test_sizes_are_expressions_of_c(size: tuple[Any, ...], text: str, value: int, tmp_path: Path) -> None:
    assert c_size(size, {"n": "v"}) == text
    if CC is not None:
        assert size_function(size, tmp_path)(10, 0) == (value, 0)


def size_function(size: tuple[Any, ...], folder: Path) -> Callable[[int, int], tuple[int, int]]:
    """A function of the sizes ``n`` and ``m`` that gives the value of a size in C, and ``bad``."""
    source = folder / "size.c"
    text = c_size(size, {"n": "v", "m": "w"})
    body = f"int64_t size(int64_t v, int64_t w, int *told) {{ int bad = 0; v = {text}; *told = bad; return v; }}"
    source.write_text(f"#include <stdint.h>\n{HELPERS}\n{body}\n")
    words = [str(CC), "-fsanitize=undefined", "-fno-sanitize-recover", "-shared", "-fPIC"]
    subprocess.run([*words, "-o", str(folder / "size.so"), str(source)], check=True)
    function = ctypes.CDLL(str(folder / "size.so")).size
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def call_it(n: int, m: int) -> tuple[int, int]:
        bad = ctypes.c_int(0)
        return function(n, m, ctypes.addressof(bad)), bad.value

    return call_it


@needs_cc
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "floordiv", "floormod"])
def test_arithmetic_on_sizes_never_overflows(operation: str, tmp_path: Path) -> None:
    function = size_function(("n", "m", operation), tmp_path)
    largest = (1 << 63) - 1
    ends = [largest, largest - 1, largest // 2, largest // 3, 1 << 32, (1 << 32) - 1, 3037000500, 3037000499]
    values = [0, 1, 2, 3, 7, *ends]
    values += [-v for v in values] + [-largest - 1]
    for a, b in itertools.product(values, values):
        exact = BINARY[operation](a, b) if b or operation in ("add", "sub", "mul") else None
        expected = (0, 1) if exact is None or not -largest - 1 <= exact <= largest else (exact, 0)
        assert function(a, b) == expected, (operation, a, b)


def test_names_in_comments_are_no_buffers(tmp_path: Path) -> None:
    """What a program uses is found from its instructions, not from the text made of them."""
    artifact = weft.compile_artifact(open_sizes(), "c -code=source")
    named = [
        replace(i, label="b100 inputs[7] b3 */ b4") if isinstance(i, CallKernel) else i
        for i in artifact.program.instructions
    ]
    program = replace(artifact.program, instructions=(*named, Check((1,), "b100 and b101")))
    write_sources(replace(artifact, program=program), tmp_path, "")
    text = (tmp_path / "model.c").read_text()
    assert "b100" in text and "*const b100" not in text and "*const b4 " not in text


@needs_cc
@pytest.mark.parametrize("size", [-1, -(1 << 63), 1 << 62, (1 << 63) - 1, 1 << 57])
def test_sizes_that_fit_no_model_are_refused(size: int, tmp_path: Path) -> None:
    x = build.var("x", (build.size("n"), 32))
    y = call(op("softmax"), [call(op("matmul"), [x, build.constant(random(32, 24, seed=3))])], {"axis": 0})
    y = call(op("matmul"), [call(op("relu"), [y]), build.constant(random(24, 8, seed=4))])
    weft.compile_sources(Module.of(build.function([x], y)), tmp_path)
    library = built(tmp_path)
    library.weft_model_arena_bytes.restype = ctypes.c_int64
    sizes = (ctypes.c_int64 * 1)(size)
    assert library.weft_model_arena_bytes(sizes) == -1
    assert library.weft_model_run(None, None, sizes, None, None) == -(1 << 31)


def test_a_second_run_leaves_no_files_of_the_first(tmp_path: Path) -> None:
    weft.compile_sources(convolutions(), tmp_path)
    own = tmp_path / "kernels" / "own.c"
    own.write_text("int own;")
    hostile = tmp_path.parent / "outside.c"
    hostile.write_text("int outside;")
    with open(tmp_path / "sources.txt", "a") as listed:
        listed.write("../outside.c\nkernels/../../outside.c\n")
    files = weft.compile_sources(onnx.parser.parse_model(LOOPED), tmp_path)
    there = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert there == {*files, own} and hostile.exists()
    assert not (tmp_path / "model.h").exists()
