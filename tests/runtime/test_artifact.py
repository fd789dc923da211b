"""Artifacts: round trip, and files that are damaged, cut off, foreign or too new."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seeds
from small_artifacts import artifact, vector_program
from test_executor import CONSTANT, chain, chain_result, loop_program, select_program

from weft.runtime.artifact import FORMAT_VERSION, MAGIC, Artifact, CodeObject, Variant, digest, quick_digest
from weft.runtime.executable import Executable, load_executable
from weft.runtime.serialize import program_from_json, program_to_json
from weft.runtime.threads import cpu_features
from weft.support.errors import ArtifactError, InputError, UserError


@pytest.fixture
def saved(kernels, tmp_path) -> Path:
    path = tmp_path / "model.weft"
    made = artifact(chain("n"), kernels, (CONSTANT,), target="llvm", metadata={"model": "chain", "list": [1, 2]})
    made.save(path)
    return path


def test_round_trip(saved, kernels):
    loaded = Artifact.load(saved, verify=True)
    assert loaded.program == chain("n") and loaded.target == "llvm"
    assert loaded.metadata == {"model": "chain", "list": [1, 2]}
    assert loaded.codes == (CodeObject((Variant(frozenset(), kernels),)),)
    np.testing.assert_array_equal(loaded.constants[0], CONSTANT)
    assert loaded.constants[0].ctypes.data % 64 == 0 and not loaded.constants[0].flags.writeable
    exe = load_executable(saved, threads=1)
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    np.testing.assert_allclose(exe(x), chain_result(x), rtol=1e-5, atol=1e-5)
    assert "chain" in repr(exe)
    second = saved.with_name("again.weft")
    exe.save(second)
    assert second.read_bytes() == saved.read_bytes()


def test_how_an_artifact_shows_itself(saved, kernels):
    loaded = Artifact.load(saved)
    count, *_, target = loaded.facts
    assert count == "3 kernels" and "llvm" in target
    assert repr(loaded) == f"<Artifact chain: {', '.join(loaded.facts)}>"
    assert all(words in loaded._repr_html_() for words in ("chain", *loaded.facts))
    assert repr(artifact(chain("n"), kernels, (CONSTANT,))).startswith("<Artifact model: 3 kernels, ")


@pytest.mark.parametrize("program", [chain("n"), chain(8), select_program(), loop_program()])
def test_programs_survive_json(program):
    import json

    assert program_from_json(json.loads(json.dumps(program_to_json(program)))) == program


def test_quick_digests_read_all_of_small_sections_and_parts_of_large_ones():
    small, large = bytes(1 << 12), bytes(1 << 26)
    assert quick_digest(small) == digest(small) and quick_digest(large) != digest(large)
    assert quick_digest(large) != quick_digest(large + b"\0")


def test_integers_of_headers_have_64_bits():
    header = program_to_json(chain("n"))
    for number, fits in (((1 << 63) - 1, True), (-(1 << 63), True), (1 << 63, False), (-(1 << 63) - 1, False)):
        header["inputs"][0][-1] = number  # the space of an input
        if fits:
            assert program_from_json(header).inputs[0].space == number
        else:
            with pytest.raises(ArtifactError, match="is not an integer of 64 bits"):
                program_from_json(header)


def test_constants_of_every_dtype(tmp_path, kernels):
    import ml_dtypes

    constants = (
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.arange(5).astype(ml_dtypes.bfloat16),
        np.array(True),
        np.zeros((0, 4), np.float16),
        np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
    )
    artifact(vector_program("double_plus_one"), kernels, constants).save(tmp_path / "c.weft")
    for a, b in zip(constants, Artifact.load(tmp_path / "c.weft", verify=True).constants, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def test_every_flipped_byte_of_prefix_and_header_is_found(saved):
    data = saved.read_bytes()
    header = struct.unpack_from("<I", data, 12)[0]
    damaged_path = saved.with_name("damaged.weft")
    for at in range(40 + header):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        damaged_path.write_bytes(damaged)
        with pytest.raises(ArtifactError):
            Artifact.load(damaged_path)


def test_every_flipped_byte_of_code_and_constants_is_found(saved, kernels):
    data = saved.read_bytes()
    starts = [(data.index(kernels), len(kernels)), (data.rindex(CONSTANT.tobytes()), CONSTANT.nbytes)]
    damaged_path = saved.with_name("damaged.weft")
    for start, size in starts:
        for at in range(start, start + size, 7):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            damaged_path.write_bytes(damaged)
            with pytest.raises(ArtifactError, match="checksum"):
                Artifact.load(damaged_path)


def test_large_constants_are_sampled_and_verified_on_request(tmp_path, kernels):
    constant = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    path = tmp_path / "large.weft"
    artifact(vector_program("double_plus_one"), kernels, (constant,)).save(path)
    data = bytearray(path.read_bytes())
    at = bytes(data).index(constant[:100].tobytes())
    for where, found in [(at, True), (at + constant.nbytes - 1, True), (at + constant.nbytes // 2 + 20_000, False)]:
        damaged = bytearray(data)
        damaged[where] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match="a constant"):
            Artifact.load(path, verify=True)
        if found:
            with pytest.raises(ArtifactError, match="a constant"):
                Artifact.load(path)


def test_a_pipe_gets_the_bytes_of_a_file(tmp_path, kernels):
    """A file gets its header when its sections are written, a pipe before."""
    constants = tuple(np.random.default_rng(i).bytes(n) for i, n in enumerate((3 << 20, 0, 100, 1 << 20)))
    made = artifact(vector_program("double_plus_one"), kernels, tuple(np.frombuffer(c, np.uint8) for c in constants))
    path, pipe = tmp_path / "large.weft", tmp_path / "pipe"
    made.save(path)
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    made.save(pipe)
    reader.join()
    assert got == [path.read_bytes()]
    header = json.loads(got[0][40 : 40 + struct.unpack_from("<I", got[0], 12)[0]])
    found = [(s["digest"], s["quick"]) for s in header["sections"] if s["kind"] == "constant"]
    assert found == [(digest(c), quick_digest(c)) for c in constants]
    loaded = Artifact.load(path, verify=True)
    assert [c.tobytes() for c in loaded.constants] == list(constants)


@pytest.mark.parametrize("size", [100, 2 << 20])
def test_a_section_that_cannot_be_read_leaves_the_old_file(saved, kernels, monkeypatch, size):
    before = saved.read_bytes()
    constant = np.zeros(size, np.uint8)

    def fails(data: Any) -> str:
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr("weft.runtime.artifact.quick_digest", fails)
    with pytest.raises(UserError, match="broken"):
        artifact(vector_program("double_plus_one"), kernels, (constant,)).save(saved)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]


def test_cut_off_and_longer_files(saved):
    data = saved.read_bytes()
    path = saved.with_name("cut.weft")
    for length in [*range(0, 60), *range(60, len(data), 61), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"cut off|not a compiled|checksum"):
            Artifact.load(path)
    path.write_bytes(data + b"x")
    with pytest.raises(ArtifactError, match="too many"):
        Artifact.load(path)


def test_foreign_newer_and_missing_files(saved, tmp_path):
    path = tmp_path / "other"
    for foreign in (b"", b"PK\3\4" + bytes(100), MAGIC.replace(b"\r\n", b"\n") + bytes(100)):
        path.write_bytes(foreign)
        with pytest.raises(ArtifactError, match="is not a compiled Weft model"):
            Artifact.load(path)
    data = bytearray(saved.read_bytes())
    for version, words in ((FORMAT_VERSION + 1, "with the version"), (FORMAT_VERSION - 1, "compile the model again")):
        struct.pack_into("<I", data, 8, version)
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match=f"has format {version}, .* reads format {FORMAT_VERSION}") as refused:
            Artifact.load(path)
        assert words in (refused.value.hint or "")
        assert refused.value.code == "A006"
    with pytest.raises(InputError, match="no file"):
        load_executable(tmp_path / "missing.weft")
    with pytest.raises(ArtifactError, match="cannot read"):
        Artifact.load(tmp_path)
    with pytest.raises(UserError, match="cannot write"):
        Artifact.load(saved).save(tmp_path / "no" / "folder.weft")


@pytest.mark.parametrize("size", [1, 4096, 65536, 65537, 70001, 300_000])
def test_bytes_that_samples_notice(size: int) -> None:
    """All of small sections; of large ones the whole first and last block, and never a gap above what 16 leave."""
    data = np.arange(size, dtype=np.uint32).astype(np.uint8)
    before = quick_digest(data.tobytes())
    assert before != quick_digest(data[:-1].tobytes()), "the length counts"
    noticed = []
    ends = {*range(min(size, 4096))[::455], *range(max(0, size - 4096), size)[::455], size - 1}
    for at in sorted({*range(0, size, 509), *ends}):
        data[at] ^= 1
        noticed += [at] if quick_digest(data.tobytes()) != before else []
        data[at] ^= 1
        assert noticed[-1:] == [at] or (size > 65536 and 4096 <= at < size - 4096), at
    gaps = np.diff(noticed)
    assert size == 1 or gaps.max() <= max(509, (size - 4096) / 15 - 4096 + 2 * 509)


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_random_damage(saved, seed):
    data = saved.read_bytes()
    rng = random.Random(seed)
    path = saved.with_name("random.weft")
    for _ in range(300):
        damaged = bytearray(data)
        start = rng.randrange(len(data))
        damaged[start : start + rng.randrange(1, 200)] = rng.randbytes(rng.randrange(200))
        path.write_bytes(damaged)
        try:
            loaded = Artifact.load(path, verify=True)
        except ArtifactError:
            continue
        assert loaded.program == chain("n")  # only padding was hit


def test_the_best_variant_for_the_cpu_is_picked(compile_c):
    template = "int k(void *const *b, const long *s) {{ *(float *)b[1] = {}; return 0; }}"
    have = sorted(cpu_features())[:2]
    variants = (
        Variant(frozenset(), compile_c(template.format(1))),
        Variant(frozenset(have[:1]), compile_c(template.format(2))),
        Variant(frozenset(have), compile_c(template.format(3))),
        Variant(frozenset([*have, "no-such-feature"]), compile_c(template.format(4))),
    )
    program = vector_program("k", size=1)
    x = np.zeros(1, np.float32)
    for count, expected in [(1, 1), (2, 2), (3, 3), (4, 3)]:
        assert Executable(Artifact(program, (CodeObject(variants[:count]),)))(x)[0] == expected
    with pytest.raises(ArtifactError, match="lacks no-such-feature"):
        Executable(Artifact(program, (CodeObject(variants[3:]),)))
    with pytest.raises(ArtifactError, match="no code for this CPU"):
        Executable(Artifact(program, (CodeObject(()),)))


def test_other_abi_versions_are_refused(kernels):
    made = artifact(vector_program("double_plus_one"), kernels)
    with pytest.raises(ArtifactError, match="runtime"):
        Executable(replace(made, abi_version=99))


def test_a_runtime_built_from_other_sources_is_refused(kernels, monkeypatch):
    monkeypatch.setattr("weft.runtime.executable.VERSION", 99)
    with pytest.raises(ArtifactError, match=r"built from other sources: .* version 5, these are 99") as refused:
        Executable(artifact(vector_program("double_plus_one"), kernels))
    assert refused.value.code == "A007"


def test_loading_needs_no_compiler(saved):
    """A process in which the compiler's dependencies cannot be imported loads and runs an artifact."""
    script = textwrap.dedent(
        """
        import sys
        for name in ("llvmlite", "onnx", "onnxruntime", "click", "rich", "ml_dtypes", "torch"):
            sys.modules[name] = None
        import numpy as np
        import weft
        exe = weft.load_executable(sys.argv[1])
        assert exe(np.zeros(4, np.float32)).shape == (4,)
        outside = [m for m in sys.modules if m.startswith("weft.") and m.split(".")[1] not in ("runtime", "support")]
        assert not outside, outside
        """
    )
    done = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_saving_leaves_the_umask_alone(kernels, tmp_path, monkeypatch):
    """It belongs to the process: files that other threads make meanwhile would get other permissions."""

    def changed(mask: int) -> int:
        raise AssertionError("the umask was changed")

    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", changed)
            artifact(chain("n"), kernels, (CONSTANT,)).save(tmp_path / "new.weft")
    finally:
        assert os.umask(before) == 0o027
    assert (tmp_path / "new.weft").stat().st_mode & 0o777 == 0o640
