"""The zoo of ``benchmarks.zoo``: a sample of its architectures agrees with onnxruntime; all of them with ``--slow``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import models_zoo as zoo
import numpy as np
import pytest

from benchmarks.zoo import agreement, cache
from benchmarks.zoo.__main__ import Row, table
from benchmarks.zoo.entry import Entry, Input, ids, only
from benchmarks.zoo.lists import ENTRIES, FAMILIES
from weft.bench import engines
from weft.bench.turns import Record

FEWEST_ARCHITECTURES = 120
EVERY = [e if e.sample else pytest.param(e, marks=pytest.mark.slow) for e in ENTRIES]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("entry", EVERY, ids=lambda e: e.name)
def test_agrees_with_onnxruntime(entry: Entry) -> None:
    path = zoo.or_skip(cache.model, entry)
    found = agreement.gaps(path, entry)
    assert found, "a model without outputs"
    wrong = [f"{g.output}: {g.wrong}" for g in found if not g.agrees]
    assert not wrong, "\n".join(wrong)


def test_the_lists_are_large_and_wide() -> None:
    assert len({(e.package, e.source) for e in ENTRIES}) >= FEWEST_ARCHITECTURES
    assert len(FAMILIES) >= 20
    assert len({e.name for e in ENTRIES}) == len({e.key for e in ENTRIES}) == len(ENTRIES)
    sampled = {e.family for e in ENTRIES if e.sample}
    assert len(sampled) >= 8, sampled


def test_lists_are_read_without_the_packages_that_build_them() -> None:
    code = "import sys, benchmarks.zoo.__main__; print({'torch', 'transformers', 'timm', 'diffusers'} & {*sys.modules})"
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_names_are_parts_or_exact() -> None:
    assert {"llama", "llama-open"} <= {e.name for e in only(ENTRIES, ["llama"])}
    assert [e.name for e in only(ENTRIES, ["=llama"])] == ["llama"]
    assert {e.family for e in only(ENTRIES, families=["flow"])} == {"flow"}


def test_different_models_have_different_files() -> None:
    entry = Entry("m", "f", "transformers", "LlamaModel", (ids(8),), {"hidden_size": 8})
    others = [
        Entry("m", "f", "transformers", "LlamaModel", (ids(8),), {"hidden_size": 16}),
        Entry("m", "f", "transformers", "LlamaModel", (ids(9),), {"hidden_size": 8}),
        Entry("m", "f", "transformers", "OlmoModel", (ids(8),), {"hidden_size": 8}),
    ]
    assert len({e.key for e in (entry, *others)}) == 4
    assert entry.key == Entry("m", "f", "transformers", "LlamaModel", (ids(8),), {"hidden_size": 8}).key


def test_inputs_are_seeded_and_unrelated() -> None:
    entry = Entry("m", "f", "nets", "tables:gcn", (Input("x", (4, 8)), Input("edges", (2, 9), "ids", 4)))
    first, again, other = entry.feed(0), entry.feed(0), entry.feed(1)
    for name in ("x", "edges"):
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])
    assert first["x"].dtype == np.float32 and first["edges"].max() < 4


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEFT_TEST_CACHE", str(tmp_path))
    monkeypatch.setattr(Entry, "needs", ("numpy", "no_such_package"))
    with pytest.raises(zoo.Unavailable, match=r"needs no_such_package: pip install"):
        cache.model(ENTRIES[0])


@pytest.mark.parametrize(
    ("ours", "theirs", "agrees"),
    [
        ([[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0], [3.0, 5.0]], True),
        ([[100.0, 100.01], [100.0, 100.02]], [[100.0, 100.01], [100.0, 100.0]], False),  # small beside the values only
        ([[np.nan, 2.0], [3.0, 5.0]], [[1.0, 2.0], [3.0, 5.0]], False),
        ([[np.nan, 2.0], [3.0, 5.0]], [[np.nan, 2.0], [3.0, 5.0]], False),
        ([[1.0], [3.0]], [[1.0, 2.0], [3.0, 5.0]], False),
        ([[1.0, 2.0], [1.0, 2.1]], [[1.0, 2.0], [1.0, 2.0]], False),  # an output that nothing changes hides nothing
    ],
)
def test_differences_count_relative_to_the_spread(
    ours: list[list[float]], theirs: list[list[float]], agrees: bool
) -> None:
    gap = agreement.gap("y", [np.array(v) for v in ours], [np.array(v) for v in theirs])
    assert gap.agrees is agrees


def test_an_export_that_fails_is_an_error_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("torch", "onnxscript"):
        pytest.importorskip(package)
    monkeypatch.setenv("WEFT_TEST_CACHE", str(tmp_path))
    entry = Entry("none", "f", "nets", "tables:no_such_net", (Input("x", (1, 4)),))
    for _ in range(2):
        with pytest.raises(cache.ExportError, match=r"export of none failed: [\s\S]*no_such_net"):
            cache.model(entry)
    assert not [*(tmp_path / "zoo").iterdir()], "a failure is not kept"


def test_only_listed_models_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {*cache.NOT_EXPORTED} <= {e.name for e in ENTRIES if not e.sample}
    monkeypatch.setenv("WEFT_TEST_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "NOT_EXPORTED", {ENTRIES[0].name: "no such operator"})
    with pytest.raises(zoo.Unavailable, match=f"{ENTRIES[0].name} is not exported: no such operator"):
        cache.model(ENTRIES[0])


def test_weights_that_carry_no_signal_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from benchmarks.zoo.signal import MIN_OUTPUT_SPREAD, give_signal, spread

    torch.manual_seed(0)
    deep = torch.nn.Sequential(*(m for _ in range(12) for m in (torch.nn.Linear(32, 32), torch.nn.ReLU()))).eval()
    first, second = torch.randn(4, 32), torch.randn(4, 32)
    with torch.no_grad():
        before = spread([deep(first)], [deep(second)])
        give_signal(deep, [first])
        after = spread([deep(first)], [deep(second)])
    assert before[0] < MIN_OUTPUT_SPREAD < 0.1 < after[0]
    assert spread([torch.full((2,), torch.nan)], [torch.zeros(2)]) == [0.0]


def test_the_table_lists_rows_that_it_does_not_count() -> None:
    def record(engine: str, milliseconds: float, apart: float = 0.0) -> Record:
        return Record("m", engine, "1", "f32", 1, milliseconds, milliseconds, 9, apart, apart)

    ours = record("weft", 1.0)
    rows = [
        Row("counted", "f", 1, (ours, record("onnxruntime", 2.0)), {}),
        Row("broken", "f", 1, (), {"weft": "no"}),
        Row("alone", "f", 1, (ours,), {"onnxruntime": "no"}),
        Row("apart", "f", 1, (ours, record("onnxruntime", 0.1, 0.5)), {}),
    ]
    made = table(rows, ["onnxruntime"])
    assert made.note.endswith("1 models. Weft fails: 1 (broken). No peer runs: 1 (alone). No peer agrees: 1 (apart).")
    assert made.rows[-1][-1] == "0.500"


def test_onnxruntime_gets_the_sizes_that_a_file_leaves_open(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper.make_tensor_value_info
    shapes = {"x": ["batch", 3, "length"], "y": [None, 4]}
    given = [make(k, onnx.TensorProto.FLOAT, v) for k, v in shapes.items()]
    node = onnx.helper.make_node("Relu", ["x"], ["z"])
    graph = onnx.helper.make_graph([node], "g", given, [make("z", onnx.TensorProto.FLOAT, None)])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    inputs = {"x": np.zeros((2, 3, 7), np.float32), "y": np.zeros((5, 4), np.float32)}
    assert engines._open_sizes(str(tmp_path / "m.onnx"), inputs) == {"batch": 2, "length": 7}
