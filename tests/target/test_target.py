"""Targets parse from their own text, know the width of their vectors, and refuse unknown names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.backends.catalogue import BACKENDS, backend_of
from weft.support.errors import TargetError
from weft.target import CPU_FEATURES, KINDS, MACHINES, Target, TargetKind, host, parse_target
from weft.target.detect import cache_sizes, host_triple, nearest_cpu


@pytest.mark.parametrize("name", ["cpu", *MACHINES])
def test_text_round_trip(name: str) -> None:
    target = Target(name)
    assert Target(str(target)) == target


@pytest.mark.parametrize(("name", "bits"), [("zen4", 512), ("x86-64-v3", 256), ("x86-64-v2", 128), ("graviton2", 128)])
def test_vector_width_follows_features(name: str, bits: int) -> None:
    assert Target(name).cpu.vector_bits == bits


def test_every_machine_has_a_known_cpu() -> None:
    assert {m.mcpu for m in MACHINES.values()} <= set(CPU_FEATURES)


def test_llvm_alone_is_the_host() -> None:
    assert Target("llvm") == host()
    assert Target("llvm").kind.name == "llvm"


def test_attributes_add_and_remove() -> None:
    target = Target("llvm -mcpu=x86-64-v4 -mattr=-avx512f -num-cores=3")
    assert target.cpu.vector_bits == 256
    assert target.cpu.cores == 3
    assert Target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        (3, "the target is text, not a int"),
        ("gpu", "unknown target 'gpu'"),
        ("llvm -mcpu=pentium9", "unknown CPU 'pentium9'"),
        ("llvm -fast", "unknown target option"),
        ("cpu -num-cores=0", "positive whole number"),
        ("cpu -num-cores=²", "positive whole number"),
        (f"cpu -l1={'9' * 5000}", "positive whole number"),
    ],
)
def test_refusals(text: Any, part: str) -> None:
    with pytest.raises(TargetError, match=part) as caught:
        Target(text)
    assert caught.value.hint or "number" in part


def test_cache_detection_reads_sysfs(tmp_path: Path) -> None:
    for i, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M")]):
        entry = tmp_path / f"index{i}"
        entry.mkdir()
        (entry / "level").write_text(f"{level}\n")
        (entry / "type").write_text(f"{kind}\n")
        (entry / "size").write_text(f"{size}\n")
    l1, l2, l3 = cache_sizes(tmp_path)
    assert (l1, l2) == (48 << 10, 2 << 20)
    assert l3 > 0


def test_a_matrix_unit_alone_multiplies_bfloat16() -> None:
    tiles = "+amx-tile,+amx-int8,+amx-bf16"
    assert Target(f"llvm -mcpu=skylake-avx512 -mattr={tiles}").multiplies("bfloat16")
    assert not Target("skylake-x").multiplies("bfloat16")


INTEL = CPU_FEATURES["sapphirerapids"]


@pytest.mark.parametrize(
    ("features", "maker", "name"),
    [
        (CPU_FEATURES["znver4"], "AuthenticAMD", "znver4"),
        (INTEL, "GenuineIntel", "sapphirerapids"),
        (INTEL - {"amx-tile", "amx-int8", "amx-bf16"}, "GenuineIntel", "icelake-server"),
        (CPU_FEATURES["cascadelake"] | {"rdrnd"}, "GenuineIntel", "cascadelake"),
        (CPU_FEATURES["x86-64-v3"] | {"avx512f"}, "SomebodyElse", "x86-64-v3"),
        (frozenset(), "GenuineIntel", "generic"),
    ],
)
def test_the_cpu_at_hand_is_the_nearest_of_its_maker(features: frozenset[str], maker: str, name: str) -> None:
    assert nearest_cpu(features, "x86_64-unknown-linux-gnu", maker) == name


def test_arm_cores_are_not_taken_for_others() -> None:
    assert nearest_cpu(CPU_FEATURES["neoverse-n1"], "aarch64-unknown-linux-gnu", "") in ("neoverse-n1", "apple-m1")
    assert nearest_cpu(CPU_FEATURES["x86-64-v4"], "aarch64-unknown-linux-gnu", "") == "generic"


def test_triples_of_systems() -> None:
    assert host_triple("AMD64", "win32") == "x86_64-pc-windows-msvc"
    assert host_triple("arm64", "darwin") == "arm64-apple-macos"
    assert host_triple("riscv64", "linux") == "riscv64-unknown-linux-gnu"


def test_units_follow_from_features() -> None:
    assert [u.name for u in Target("zen4").units] == ["avx512-bf16", "avx512-vnni"]
    tiles = Target("sapphire-rapids").tile_unit("bfloat16")
    assert tiles is not None and (tiles.rows, tiles.columns, tiles.group) == (16, 16, 2)
    assert Target("zen3").vector_unit("bfloat16") is None and Target("zen4").tile_unit("bfloat16") is None


def test_a_target_without_a_cpu_says_so() -> None:
    kind = TargetKind("toy", "toy", "a machine without a host", lambda kind, words: Target.of(kind, None), lambda t: [])
    alone = parse_target("toy", {"toy": kind})
    with pytest.raises(TargetError, match="neither a CPU nor a host"):
        _ = alone.cpu
    assert alone.replace(host=Target("zen4")).cpu.mcpu == "znver4"
    assert str(alone) == "toy"


def test_every_target_has_a_back_end() -> None:
    assert {b.kind.name for b in BACKENDS} == set(KINDS)
    other = Target.of(TargetKind("other", "cpu", "", lambda kind, words: Target(), lambda t: []), None)
    with pytest.raises(TargetError, match="no back end 'other'"):
        backend_of(other)
