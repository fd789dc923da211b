"""Every command but ``bench`` and ``blame``, on real input and on wrong input: what it prints, what it writes, its exit
status."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_runner import Weft
from sample_models import dense, images, onnx, onnxruntime_result, random_input, two_results, window

import weft
from weft.bench.engines import _weft
from weft.cli import main as weft_main
from weft.cli.run_command import read_labels
from weft.cost import Rates
from weft.runtime.artifact import Artifact
from weft.support.errors import InternalError
from weft.target import Target
from weft.target.target import host_cpu

# ---- help, start-up -------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom weft.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = [m for m in ('numpy', 'llvmlite', 'onnx', 'rich', 'torch', 'weft.pipeline') if m in sys.modules]\n"
        "print('heavy', heavy)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("heavy []\n")


def test_unexpected_errors_show_no_traceback(weft_command: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weft_main.COMMANDS, "broken", "a command that has no file")
    answer = weft_command("broken")
    assert answer.status == 70
    assert answer.err.startswith("internal error[W000] ModuleNotFoundError") and "Traceback" not in answer.err
    assert "Traceback" in Path("weft-traceback.txt").read_text()


@pytest.mark.parametrize("target", ["precious.txt", "absent.txt"])
def test_reports_of_bugs_follow_no_links(target: str, weft_command: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have put one into the folder."""
    Path("precious.txt").write_text("precious")
    Path("weft-traceback.txt").symlink_to(target)
    monkeypatch.setitem(weft_main.COMMANDS, "broken", "a command that has no file")
    assert weft_command("broken").status == 70
    assert Path("precious.txt").read_text() == "precious" and not Path("absent.txt").exists()
    report = Path("weft-traceback.txt")
    assert not report.is_symlink() and "Traceback" in report.read_text() and report.stat().st_mode & 0o777 == 0o600


def test_reports_of_bugs_that_cannot_be_written_change_nothing(
    weft_command: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("weft-traceback.txt").mkdir()
    monkeypatch.setitem(weft_main.COMMANDS, "broken", "a command that has no file")
    answer = weft_command("broken")
    assert answer.status == 70 and "internal error[W000]" in answer.err and "weft-traceback.txt" not in answer.err


@pytest.mark.parametrize(("reproducer", "left"), [(None, "weft-traceback.txt"), ("a program", "weft-reproducer.txt")])
def test_a_bug_leaves_what_repeats_it(
    weft_command: Weft, monkeypatch: pytest.MonkeyPatch, reproducer: str | None, left: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise InternalError("two and two make five", code="W021", reproducer=reproducer)

    monkeypatch.setattr(weft_main.cli, "main", broken)
    answer = weft_command("cache")
    assert answer.status == 70
    assert "two and two make five" in answer.err and "Traceback" not in answer.err and left in answer.err
    assert (reproducer or "Traceback") in Path(left).read_text()


@pytest.mark.parametrize(
    "words", [["nonsense"], ["run"], ["run", "--threads", "0", "m.onnx"], ["inspect", "m", "--stage", "x"]]
)
def test_senseless_command_lines_exit_with_2(words: list[str], weft_command: Weft) -> None:
    answer = weft_command(*words)
    assert answer.status == 2 and answer.err.startswith("Usage:")


# ---- compile --------------------------------------------------------------------------------------------------------


def test_the_number_of_processes_does_not_change_the_code(weft_command: Weft, model: Path) -> None:
    for jobs in "12":
        assert weft_command("compile", model, "--no-cache", "--jobs", jobs, "-o", f"by{jobs}.weft").status == 0
    assert Artifact.load("by1.weft").codes == Artifact.load("by2.weft").codes
    assert weft_command("compile", model, "--jobs", "0").status == 2


@pytest.mark.parametrize("written", [("-o", "made.weft"), ("--sources", "made")])
def test_compile_without_the_cache_leaves_it_empty(written: tuple[str, str], model: Path, weft_command: Weft) -> None:
    target = ("--target", "c") if written[0] == "--sources" else ()
    for options, kept in ((("--no-cache",), False), ((), True)):
        answer = weft_command("compile", model, *written, *target, *options)
        assert answer.status == 0, answer.err
        assert any(p.is_file() for p in Path("cache").rglob("*")) == kept


def test_compile_writes_an_artifact(model: Path, weft_command: Weft) -> None:
    answer = weft_command("compile", model)
    assert answer.status == 0 and "small.weft" in answer.out
    assert Path("small.weft").stat().st_size > 1000


def test_compile_for_two_levels(model: Path, weft_command: Weft) -> None:
    assert weft_command("compile", model, "--target", "x86-64-v3", "--also", "x86-64-v2", "-o", "two.weft").status == 0
    shown = weft_command("inspect", "two.weft")
    assert shown.status == 0 and shown.out.count("code for") == 2
    assert "avx2" in shown.out
    assert weft_command("run", "two.weft").status == 0


def test_compile_for_a_machine_that_is_not_at_hand(model: Path, weft_command: Weft) -> None:
    """Writing a file loads nothing; running it here says what this machine lacks."""
    other = "zen4" if "neon" in Target("cpu").cpu.features else "raspberry-pi-4"
    assert weft_command("compile", model, "--target", other, "-o", "other.weft").status == 0
    assert weft_command("inspect", model, "--target", other, "--stage", "program").status == 0
    answer = weft_command("run", "other.weft")
    assert answer.status == 1 and "error[A009] the artifact has no code for this CPU" in answer.err
    with pytest.raises(weft.UserError, match="no code for this CPU"):
        weft.compile(str(model), other)


@pytest.mark.parametrize(
    "words, says",
    [
        (["absent.onnx"], "there is no file 'absent.onnx'"),
        (["smal.onnx"], "did you mean 'small.onnx'?"),
        (["nowhere/small.onnx"], "there is no directory 'nowhere'"),
        (["."], "is a directory"),
        (["small.onnx", "-o", "small.onnx"], "is the model itself"),
        (["small.onnx", "-o", "."], "it is a directory"),
        (["small.onnx", "--shape", "batch=1", "--shape", "batch=2"], "--shape batch is given twice"),
        (["small.onnx", "--target", "toaster"], "toaster"),
        (["small.onnx", "--also", "toaster"], "toaster"),
        (["small.onnx", "-o", "nowhere/small.weft"], "cannot be written"),
        (["small.onnx", "--shape", "batch=zero"], "--shape batch=zero is not understood"),
        (["small.onnx", "--shape", "x=1,25"], "25"),
        (["small.onnx", "--shape", "bach=1"], "no open size 'bach'"),
        (["model.txt"], ".onnx"),
    ],
)
def test_errors_of_compile_are_clear(words: list[str], says: str, model: Path, weft_command: Weft) -> None:
    Path("model.txt").write_text("hello")
    answer = weft_command("compile", *words)
    assert answer.status == 1
    assert answer.err.startswith("error[") and says in answer.err
    assert "Traceback" not in answer.err


def test_truncated_models_are_refused(model: Path, weft_command: Weft) -> None:
    data = model.read_bytes()
    for length in (0, 1, 10, len(data) // 2, len(data) - 1):
        Path("cut.onnx").write_bytes(data[:length])
        answer = weft_command("compile", "cut.onnx")
        assert answer.status == 1 and answer.err.startswith("error[M"), (length, answer)


def test_unsupported_operators_are_listed_together(weft_command: Weft) -> None:
    node = onnx.helper.make_node
    value = onnx.helper.make_tensor_value_info
    nodes = [
        node("Frobnicate", ["x"], ["a"], "one", domain="strange"),
        node("Twist", ["a"], ["y"], "two", domain="strange"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, [2])], [value("y", 1, [2])])
    sets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("strange", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=sets, ir_version=9), "strange.onnx")
    answer = weft_command("compile", "strange.onnx")
    assert answer.status == 1 and "Frobnicate" in answer.err and "Twist" in answer.err


def test_a_missing_extra_is_named(model: Path) -> None:
    code = f"import sys; sys.modules['onnx'] = None\nfrom weft.cli.main import main\nmain(['compile', {str(model)!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error[X001]" in done.stderr and "pip install 'weft[onnx]'" in done.stderr


# ---- Winograd -------------------------------------------------------------------------------------------------------


def test_the_switch_of_winograd_when_compiling(tmp_path: Path, weft_command: Weft) -> None:
    """28×28: on takes tiles of 4×4, 2 those of 2×2, off none. All in one cache."""
    model, kernels, results = window(tmp_path / "window.onnx", 64, 28), {}, {}
    x = random_input((1, 64, 28, 28))
    for word in ("on", "4", "2", "off"):
        answer = weft_command("compile", model, "-o", "w.weft", "--winograd", word)
        assert answer.status == 0, answer.err
        made = weft.load_executable("w.weft")
        kernels[word] = {k.name for k in made.artifact.program.kernels if "conv" in k.name}
        results[word] = made(x)
    assert kernels["on"] == kernels["4"] and kernels["off"] != kernels["on"] != kernels["2"] != kernels["off"]
    assert [any("winograd" in k for k in kernels[w]) for w in ("on", "2", "off")] == [True, True, False]
    for found in results.values():
        np.testing.assert_allclose(found, results["off"], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("word", "there"), [("on", True), ("off", False)])
def test_the_switch_of_winograd_when_measuring(word: str, there: bool, tmp_path: Path, weft_command: Weft) -> None:
    model = window(tmp_path / "window.onnx", 64, 28)
    answer = weft_command("bench", "--runs", 1, "--peers", "none", "--profile", model, "--winograd", word)
    assert answer.status == 0 and ("winograd" in answer.out) == there, answer


def test_the_switch_of_winograd_when_running(tmp_path: Path, weft_command: Weft) -> None:
    model, results = window(tmp_path / "window.onnx", 64, 28), []
    for word in ("on", "2", "off"):
        assert weft_command("run", model, "--winograd", word, "-o", "y.npy").status == 0
        results.append(np.load("y.npy"))
    assert len({r.tobytes() for r in results}) == 3, "each rounds in its own way"
    for found in results:
        np.testing.assert_allclose(found, results[2], rtol=1e-4, atol=1e-3)


def test_the_seed_of_what_a_model_draws(tmp_path: Path, weft_command: Weft) -> None:
    """A number, or an input of the model; artifacts keep it."""
    text = '<ir_version: 10, opset_import: ["" : 22]> g (float[4] x) => (float[4] y) { y = RandomUniformLike (x) }'
    model = tmp_path / "draws.onnx"
    onnx.save(onnx.parser.parse_model(text), model)

    def drawn(*words: object) -> bytes:
        answer = weft_command("run", *words, "-o", "y.npy")
        assert answer.status == 0, answer.err
        return np.load("y.npy").tobytes()

    assert drawn(model, "--random-seed", 7) == drawn(model, "--random-seed", 7) != drawn(model)
    assert drawn(model) == drawn(model, "--random-seed", 0)
    for word, more in ((7, ()), ("input", ("-i", "seed=7"))):
        assert weft_command("compile", model, "--random-seed", word, "-o", "d.weft").status == 0
        assert drawn("d.weft", *more) == drawn(model, "--random-seed", word, *more)
    assert drawn("d.weft", "-i", "seed=7") != drawn("d.weft", "-i", "seed=8")
    assert "neither an integer nor" in weft_command("run", model, "--random-seed", "some").err


@pytest.mark.parametrize("winograd", [True, 2, False])
def test_the_measured_engine_follows_the_switch(
    winograd: bool | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weft.Options] = []
    compiled = weft.compile
    monkeypatch.setattr("weft.api.compile", lambda *a, **k: seen.append(k["options"]) or compiled(*a, **k))
    path, x = dense(tmp_path / "small.onnx"), random_input((1, 24))
    _weft({"model": str(path), "threads": 1, "winograd": winograd}, {"x": x})
    assert [o.winograd for o in seen] == [winograd]


# ---- run ------------------------------------------------------------------------------------------------------------


def test_run_shows_inputs_and_outputs(model: Path, weft_command: Weft) -> None:
    answer = weft_command("run", model, "--shape", "batch=3", "--threads", 1)
    assert answer.status == 0
    assert "x: float32[3, 24] (random)" in answer.out and "[3, 10]" in answer.out


@pytest.mark.parametrize("suffix", ["npy", "npz", "pb"])
def test_run_reads_arrays(suffix: str, model: Path, weft_command: Weft) -> None:
    x = random_input((2, 24))
    if suffix == "npy":
        np.save("x.npy", x)
    elif suffix == "npz":
        np.savez("x.npz", x=x)
    else:
        Path("x.pb").write_bytes(onnx.numpy_helper.from_array(x).SerializeToString())
    answer = weft_command("run", model, "-i", f"x.{suffix}", "-o", "out.npz")
    assert answer.status == 0 and "(random)" not in answer.out
    with np.load("out.npz") as out:
        np.testing.assert_allclose(out["y"], onnxruntime_result(model, x=x)[0], 1e-3, 1e-6)


def test_random_inputs_follow_the_seed(model: Path, artifact: Path, weft_command: Weft) -> None:
    for source in (model, artifact):
        found = []
        for seed in ((), ("--seed", 0), ("--seed", 1), ("--seed", 1), ("--seed", 2)):
            assert weft_command("run", source, "--shape", "batch=2", *seed, "-o", "y.npy").status == 0
            found.append(np.load("y.npy"))
        assert np.array_equal(found[0], found[1]) and np.array_equal(found[2], found[3])
        assert len({y.tobytes() for y in found}) == 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_run_uses_so_many_threads(
    model: Path, artifact: Path, weft_command: Weft, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    seen = []
    init = weft.Executable.__init__
    monkeypatch.setattr(
        weft.Executable, "__init__", lambda self, *a, **k: init(self, *a, **k) or seen.append(self.threads)
    )
    for source in (model, artifact):
        assert weft_command("run", source, "--threads", threads).status == 0
    assert seen == [threads, threads]


def test_run_takes_artifacts_of_open_sizes(artifact: Path, weft_command: Weft) -> None:
    answer = weft_command("run", artifact, "--shape", "batch=5", "-o", "y.npy")
    assert answer.status == 0 and np.load("y.npy").shape == (5, 10)


def test_compile_for_some_sizes_as_well(model: Path, weft_command: Weft) -> None:
    answer = weft_command("compile", model, "-o", "hot.weft", "--specialize", "batch=1,3")
    assert answer.status == 0, answer.err
    assert weft.load_executable("hot.weft").artifact.metadata["specialized"] == [{"batch": 1}, {"batch": 3}]
    assert weft_command("run", "hot.weft", "--shape", "batch=3", "-o", "y.npy").status == 0
    assert np.load("y.npy").shape == (3, 10)
    assert "--specialize batch is not understood" in weft_command("compile", model, "--specialize", "batch").err
    assert "no open size 'rows'" in weft_command("compile", model, "--specialize", "rows=2").err


def test_run_reads_a_picture(weft_command: Weft, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = images(tmp_path / "images.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    image.fromarray(pixels).save("photo.png")
    answer = weft_command("run", path, "-i", "photo.png", "--pixels", "unit", "-o", "y.npy")
    assert answer.status == 0
    x = (pixels.astype(np.float32) / 255).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(np.load("y.npy"), onnxruntime_result(path, x=x)[0], 1e-3, 1e-5)


def test_run_shows_the_best_with_labels_and_a_profile(model: Path, weft_command: Weft) -> None:
    Path("names.txt").write_text("\n".join(f"class number {i}" for i in range(10)))
    np.save("x.npy", random_input((1, 24)))
    answer = weft_command("run", model, "-i", "x.npy", "--top", 2, "--labels", "names.txt", "--profile", "-o", "y.npy")
    best = int(np.argmax(np.load("y.npy")))
    assert answer.status == 0
    assert answer.out.count("class number") == 2 and f"class number {best}" in answer.out
    assert "GFLOP/s" in answer.out


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("0: cat\n2: dog\n", ["cat", "", "dog"]),
        ("1 a\n\n0 b c\n", ["b c", "a"]),
        ("cat\ndog", ["cat", "dog"]),
        ("0 cat\ndog", ["0 cat", "dog"]),
        ("0 cat\n1", ["0 cat", "1"]),
        ("", []),
        ("² squared\n", ["² squared"]),
        ("٣ three", ["٣ three"]),
        ("-1 x", ["-1 x"]),
        ("10000000000 far", ["10000000000 far"]),
        ("9" * 5000 + " endless", ["9" * 5000 + " endless"]),
    ],
)
def test_labels_are_lines_or_have_numbers(text: str, labels: list[str], tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text, encoding="utf-8")
    assert read_labels(str(path)) == labels


@pytest.mark.parametrize(
    "words, says",
    [
        (["-i", "absent.npy"], "there is no input file"),
        (["-i", "."], "is a directory"),
        (["-i", "x=x.npy", "-i", "x=x.npy"], "input 'x' is given twice"),
        (["-i", "z=x.npy"], "no input 'z'"),
        (["-i", "wrong.npy"], "dimension 1 is 25, not 24"),
        (["-i", "double.npy"], "must be float32"),
        (["-i", "broken.npy"], "cannot be read"),
        (["-i", "broken.npz"], "not an .npz archive"),
        (["-i", "broken.pb"], "cannot be read"),
        (["-i", "photo.png"], "is not an image input"),
        (["-i", "notes.txt"], "unknown file type"),
        (["-o", "nowhere/y.npz"], "cannot be written"),
        (["-o", "y.txt"], ".npz or .npy"),
        (["--labels", "absent.txt", "--top", "1"], "'absent.txt' cannot be read: No such file"),
        (["--labels", "photo.png"], "'photo.png' cannot be read: it is not text"),
    ],
)
def test_errors_of_run_are_clear(words: list[str], says: str, model: Path, weft_command: Weft) -> None:
    np.save("x.npy", random_input((1, 24)))
    np.save("wrong.npy", random_input((1, 25)))
    np.save("double.npy", np.zeros((1, 24)))
    for suffix in ("npy", "npz", "pb"):
        Path(f"broken.{suffix}").write_bytes(b"\x01\x02broken")
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save("photo.png")
    Path("notes.txt").write_text("hello")
    answer = weft_command("run", model, *words)
    assert answer.status == 1 and answer.err.startswith("error[I") and says in answer.err, answer


def test_one_npy_cannot_hold_two_outputs(weft_command: Weft, tmp_path: Path) -> None:
    answer = weft_command("run", two_results(tmp_path / "two.onnx"), "-o", "y.npy")
    assert answer.status == 1 and "2 outputs" in answer.err


@pytest.mark.parametrize(
    "words", [["--target", "x86-64-v3"], ["--precision", "bf16"], ["--winograd", "2"], ["--random-seed", "1"]]
)
def test_options_of_compiling_are_refused_for_artifacts(words: list[str], artifact: Path, weft_command: Weft) -> None:
    answer = weft_command("run", artifact, *words)
    assert answer.status == 1 and "already compiled" in answer.err


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "absent"])
def test_damaged_artifacts_are_refused(damage: str, artifact: Path, weft_command: Weft) -> None:
    data = bytearray(artifact.read_bytes())
    data[40] ^= 1
    wrong = {"cut": data[:100], "flip": data, "text": b"some text", "absent": b""}[damage]
    artifact.unlink() if damage == "absent" else artifact.write_bytes(wrong)
    for words in (["run", artifact], ["inspect", artifact]):
        answer = weft_command(*words)
        assert answer.status == 1 and answer.err.startswith("error[I" if damage == "absent" else "error[A"), answer


def test_digits_are_recognized(models: Path, weft_command: Weft) -> None:
    pytest.importorskip("PIL")
    right = 0
    for digit in range(10):
        picture = models / "data" / f"tflm_sample{digit}.png"
        answer = weft_command("run", models / "winml_mnist.onnx", "-i", picture, "--pixels", "raw", "--top", 1)
        assert answer.status == 0, answer.err
        best = re.search(r"^\s+(\d)\s+\S+", answer.out.split("label")[1], re.M)
        right += best is not None and int(best[1]) == digit
    assert right == 10


# ---- inspect --------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text without the numbers of parameters: in an artifact these are unique in the module, not in the group."""
    return re.sub(r"\bp(\d+)_\d+\b", r"p\1", text)


@pytest.mark.parametrize(
    "stage, says",
    [
        ("summary", "operators"),
        ("imported", "def @main"),
        ("groups", "primitive=true"),
        ("te", "te[batch]("),
        ("tir", "program "),
        ("trace", "s.get_"),
        ("scheduled", "block "),
        ("kernel", "program "),
        ("llvm", "define "),
        ("assembly", ".text"),
        ("loops", "fused multiply-adds"),
        ("slow", "times the bound"),
        ("program", "instruction"),
    ],
)
def test_inspect_shows_every_stage(stage: str, says: str, model: Path, artifact: Path, weft_command: Weft) -> None:
    of_model = weft_command("inspect", model, "--stage", stage)
    assert of_model.status == 0 and says in of_model.out, of_model
    of_artifact = weft_command("inspect", artifact, "--stage", stage)
    assert of_artifact.status == 0
    if stage != "summary":
        assert plain(of_artifact.out) == plain(of_model.out)


def test_inspect_shows_one_kernel(model: Path, weft_command: Weft) -> None:
    every = weft_command("inspect", model, "--stage", "te").out
    name = every.splitlines()[0].removeprefix("# ")
    one = weft_command("inspect", model, "--stage", "te", "--kernel", name)
    assert one.status == 0 and name in one.out
    none = weft_command("inspect", model, "--stage", "te", "--kernel", "no such kernel")
    assert none.status == 1 and "no kernel's name contains" in none.err


def test_inspect_takes_the_names_that_profiles_print(model: Path, artifact: Path, weft_command: Weft) -> None:
    printed = weft_command("run", artifact, "--profile").out
    table = printed[printed.index("median ms") :].splitlines()[1:]
    names = [line.split()[0] for line in table if line.strip()]
    assert names
    for name in names:
        for source in (model, artifact):
            shown = weft_command("inspect", source, "--stage", "te", "--kernel", name)
            assert shown.status == 0 and shown.out.startswith("# "), (name, shown)


# ---- opt ------------------------------------------------------------------------------------------------------------


def test_opt_lists_passes(weft_command: Weft) -> None:
    answer = weft_command("opt", "--list")
    assert answer.status == 0 and "fuse" in answer.out and "schedule" in answer.out


@pytest.mark.filterwarnings("ignore:.*made up from their names")
@pytest.mark.filterwarnings("ignore:.*made up from their names")
def test_opt_runs_passes(model: Path, weft_command: Weft) -> None:
    Path("graph.txt").write_text(weft_command("inspect", model, "--stage", "imported").out)
    fused = weft_command("opt", "graph.txt", "-p", "fuse")
    assert fused.status == 0 and "primitive=true" in fused.out
    Path("te.txt").write_text(weft_command("inspect", model, "--stage", "te").out.split("\n\n")[0])
    loops = weft_command("opt", "te.txt", "-p", "loops", "-o", "loops.txt")
    assert loops.status == 0 and Path("loops.txt").read_text().startswith("program ")
    assert weft_command("opt", "loops.txt", "-p", "schedule", "-p", "kernel").status == 0


@pytest.mark.parametrize(
    "text, words, says",
    [
        ("hello world", [], "P020"),
        ("def @main(%x: f32[2]) -> f32[2] {\n  return %y\n}\n", [], "%y"),
        ("def @main(%x: f32[2]) -> f32[2] {\n  return %x\n}\n", ["-p", "nothing"], "no pass 'nothing'"),
        ("te(A: f32[2]) -> (B):\n  B[i: 2] = A[j]\n", [], "j"),
        ("program f(A: f32[2], B: f32[2]):\n  B[0] = A[5]\n", [], "error["),
    ],
)
def test_opt_points_at_the_error(text: str, words: list[str], says: str, weft_command: Weft) -> None:
    Path("wrong.txt").write_text(text)
    answer = weft_command("opt", "wrong.txt", *words)
    assert answer.status == 1 and says in answer.err, answer
    for words in (["absent.txt"], ["bytes.txt"], ["wrong.txt", "-o", "nowhere/made.txt"]):
        Path("bytes.txt").write_bytes(b"\x89\xff")
        refused = weft_command("opt", *words)
        assert refused.status == 1 and refused.err.startswith("error[I") and "Errno" not in refused.err
    assert weft_command("opt").status == 2


# ---- cache, targets -------------------------------------------------------------------------------------------------


def test_cache_counts_and_clears(model: Path, weft_command: Weft) -> None:
    assert "kernels    0" in weft_command("cache").out
    weft_command("compile", model)
    shown = weft_command("cache")
    assert shown.status == 0 and "kernels    0" not in shown.out
    assert "removed" in weft_command("cache", "clear").out
    assert "kernels    0" in weft_command("cache").out


def test_targets_are_listed_and_shown(weft_command: Weft) -> None:
    answer = weft_command("targets")
    assert answer.status == 0 and "cpu" in answer.out and "x86-64-v3" in answer.out
    assert "512 bits" in weft_command("targets", "x86-64-v4").out
    wrong = weft_command("targets", "toaster")
    assert wrong.status == 1 and wrong.err.startswith("error[G")


def test_rates_are_measured_shown_and_forgotten(weft_command: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.measure.rates.measured_rates", lambda: Rates(far_bytes=1.5e10))
    assert "those of the reference" in weft_command("targets", "zen4").out
    assert "fork_cycles 900" in weft_command("targets", "zen4 -rates=fork_cycles:900").out
    try:
        answer = weft_command("targets", "--measure")
        assert answer.status == 0 and "far_bytes 1.5e+10 (reference 2.3e+10)" in answer.out
        host_cpu.cache_clear()
        assert Target("llvm").cpu.rates.far_bytes == 1.5e10
        assert "are removed" in weft_command("targets", "--forget").out
        host_cpu.cache_clear()
        assert Target("llvm").cpu.rates == Rates()
    finally:
        host_cpu.cache_clear()
    assert "there were no" in weft_command("targets", "--forget").out
    for words in (["zen4", "--measure"], ["--measure", "--forget"]):
        assert weft_command("targets", *words).status == 2
