"""From a model file to results, and from a saved artifact to the same results in a process without the compiler."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sample_models import dense, images, onnxruntime_result, random_input, two_results

import weft
from weft.api import compile_with_report, kernel_disk_cache
from weft.support.errors import ArtifactError, InputError, ModelError, TargetError, WeftError

pytestmark = pytest.mark.usefixtures("private_cache")


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    return folder


def run_python(code: str, *args: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("make, shape", [(dense, (1, 24)), (images, (1, 3, 16, 16))])
def test_results_agree_with_a_reference(make, shape, tmp_path: Path) -> None:
    path = make(tmp_path / "model.onnx")
    exe = weft.compile(path)
    for seed in range(3):
        x = random_input(shape, seed)
        np.testing.assert_allclose(exe(x), onnxruntime_result(path, x=x)[0], 1e-3, 1e-5)


WITHOUT_COMPILER = """
import sys
for name in ("llvmlite", "onnx", "onnxruntime", "ml_dtypes_blocked", "click", "rich"):
    sys.modules[name] = None
import numpy as np
import weft
exe = weft.load_executable(sys.argv[1])
np.save(sys.argv[3], exe(np.load(sys.argv[2])))
rooms = ("weft.lowering", "weft.backends", "weft.tir", "weft.graph", "weft.api")
compiler = [m for m in sys.modules if m.startswith(rooms)]
assert not compiler, compiler
"""


@pytest.mark.parametrize("make, shape", [(dense, (2, 24)), (images, (1, 3, 16, 16))])
def test_artifact_runs_without_the_compiler(make, shape, tmp_path: Path) -> None:
    exe = weft.compile(make(tmp_path / "model.onnx"))
    x = random_input(shape)
    exe.save(tmp_path / "model.weft")
    np.save(tmp_path / "x.npy", x)
    run_python(WITHOUT_COMPILER, tmp_path / "model.weft", tmp_path / "x.npy", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), exe(x))


def test_one_executable_for_many_batch_sizes(tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx")
    exe = weft.compile(path)
    for batch in (1, 2, 7, 64, 3):
        x = random_input((batch, 24), batch)
        np.testing.assert_allclose(exe(x), onnxruntime_result(path, x=x)[0], 1e-3, 1e-6)


def test_sizes_can_be_fixed(tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx")
    assert weft.compile(path, shapes={"batch": 4})(random_input((4, 24))).shape == (4, 10)
    assert weft.load(weft.load(path), shapes={"batch": 4}).main.params[0].tensor.shape == (4, 24)
    fixed = weft.compile(path, shapes={"x": (5, 24)})
    assert fixed(random_input((5, 24))).shape == (5, 10)
    with pytest.raises(InputError, match="dimension 0 is 4, not 5"):
        fixed(random_input((4, 24)))


@pytest.mark.parametrize("make, shape", [(dense, (33, 24)), (images, (1, 3, 16, 16))])
def test_thread_counts_give_identical_bits(make, shape, tmp_path: Path) -> None:
    path = make(tmp_path / "model.onnx")
    x = random_input(shape)
    results = [weft.compile(path, threads=n)(x) for n in (1, 2, 3)]
    assert all(np.array_equal(results[0].view(np.uint32), r.view(np.uint32)) for r in results)


def test_second_compilation_builds_nothing(tmp_path: Path) -> None:
    path = images(tmp_path / "model.onnx")
    first, cold = compile_with_report(path)
    second, warm = compile_with_report(path)
    assert cold.built > 0 and warm.built == 0 and warm.cached == cold.built
    x = random_input((1, 3, 16, 16))
    np.testing.assert_array_equal(first(x), second(x))
    _, without = compile_with_report(path, cache=False)
    assert without.built == cold.built


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_damaged_cache_entries_are_rebuilt(damage: str, tmp_path: Path, private_cache: Path) -> None:
    path = dense(tmp_path / "model.onnx", batch=2)
    first, cold = compile_with_report(path)
    files = [p for p in private_cache.rglob("*") if p.is_file() and p.stat().st_size > 100]
    assert files
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x40
        wrong = {"truncated": data[: len(data) // 2], "flipped": data, "empty": b"", "foreign": b"hello" * 100}
        file.write_bytes(bytes(wrong[damage]))
    again, report = compile_with_report(path)
    assert report.built == cold.built and report.cached == 0
    x = random_input((2, 24))
    np.testing.assert_array_equal(first(x), again(x))
    _, healed = compile_with_report(path)
    assert healed.built == 0


CONCURRENT = """
import sys, numpy as np, weft
np.save(sys.argv[3], weft.compile(sys.argv[1], threads=1)(np.load(sys.argv[2])))
"""


def test_processes_may_compile_the_same_model_at_once(tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx", batch=2)
    np.save(tmp_path / "x.npy", random_input((2, 24)))
    command = [sys.executable, "-c", CONCURRENT, str(path), str(tmp_path / "x.npy")]
    running = [subprocess.Popen([*command, str(tmp_path / f"{i}.npy")]) for i in range(3)]
    assert [p.wait(timeout=120) for p in running] == [0, 0, 0]
    results = [np.load(tmp_path / f"{i}.npy") for i in range(3)]
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    assert kernel_disk_cache().stats().entries > 0


def test_several_outputs_and_names(tmp_path: Path) -> None:
    exe = weft.compile(two_results(tmp_path / "model.onnx"))
    a, b = random_input((4,), 1), random_input((4,), 2)
    total, product = exe(a, b)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(product, a * b)
    named = exe.run({"b": b, "a": a})
    assert list(named) == ["total", "product"]
    np.testing.assert_array_equal(named["total"], a + b)
    with pytest.raises(InputError, match="'b' is missing"):
        exe.run({"a": a})


def test_torch_tensors_go_in_without_a_copy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    exe = weft.compile(dense(tmp_path / "model.onnx"))
    x = random_input((3, 24))
    np.testing.assert_array_equal(exe(torch.from_numpy(x)), exe(x))
    out = torch.empty(3, 10)
    exe(torch.from_numpy(x), out=out)
    np.testing.assert_array_equal(out.numpy(), exe(x))
    np.testing.assert_array_equal(torch.from_dlpack(exe(x)).numpy(), exe(x))


@pytest.mark.parametrize("make", [dense, images, two_results])
def test_every_pass_gives_valid_programs(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_VERIFY", "1")
    weft.compile(make(tmp_path / "model.onnx"), cache=False)


def test_code_for_two_cpu_levels(tmp_path: Path) -> None:
    exe = weft.compile(dense(tmp_path / "model.onnx"), target="x86-64-v3", also=["x86-64-v2"])
    path = tmp_path / "model.weft"
    exe.save(path)
    loaded = weft.load_executable(path)
    assert {len(c.variants) for c in loaded.artifact.codes} == {2}
    x = random_input((2, 24))
    np.testing.assert_array_equal(loaded(x), exe(x))


def test_unknown_things_are_refused_with_words(tmp_path: Path) -> None:
    path = dense(tmp_path / "model.onnx")
    with pytest.raises(TargetError):
        weft.compile(path, target="toaster")
    with pytest.raises(InputError, match="no file"):
        weft.compile(tmp_path / "absent.onnx")
    with pytest.raises(InputError, match="no file"):
        weft.load_executable(tmp_path / "absent.weft")
    (tmp_path / "cut.onnx").write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelError):
        weft.compile(tmp_path / "cut.onnx")
    (tmp_path / "text.weft").write_text("not an artifact")
    with pytest.raises(ArtifactError):
        weft.load_executable(tmp_path / "text.weft")
    (tmp_path / "model.txt").write_text("")
    with pytest.raises(WeftError, match=r"\.onnx"):
        weft.load(tmp_path / "model.txt")


@pytest.mark.parametrize("position", [0.0, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_damaged_artifacts_are_refused(position: float, tmp_path: Path) -> None:
    path = tmp_path / "model.weft"
    weft.compile(dense(tmp_path / "model.onnx")).save(path)
    data = bytearray(path.read_bytes())
    at = int(position * len(data))
    data[at] ^= 0x10
    path.write_bytes(bytes(data))
    x = random_input((1, 24))
    try:
        weft.load_executable(path, verify=True)(x)
    except ArtifactError:
        return
    untouched = bytearray(path.read_bytes())  # only padding between sections may be damaged unnoticed
    assert untouched[at] == 0x10, "a damaged byte went unnoticed"


def test_errors_survive_pickling(tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(b"\x08\x07")
    with pytest.raises(WeftError) as caught:
        weft.compile(tmp_path / "cut.onnx")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)


def test_a_model_can_come_as_bytes_proto_or_graph(tmp_path: Path) -> None:
    import onnx

    path = dense(tmp_path / "model.onnx")
    x = random_input((2, 24))
    wanted = weft.compile(path)(x)
    for model in (str(path), path.read_bytes(), onnx.load(path), weft.load(path)):
        np.testing.assert_array_equal(weft.compile(model)(x), wanted)
