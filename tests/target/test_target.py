"""Targets parse from what they print, know their vectors, and refuse what they do not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.support.errors import TargetError
from weft.target import CPU_FEATURES, MACHINES, Target, host
from weft.target.detect import cache_sizes


@pytest.mark.parametrize("name", ["cpu", *MACHINES])
def test_text_round_trip(name: str) -> None:
    target = Target(name)
    assert Target(str(target)) == target


@pytest.mark.parametrize(("name", "bits"), [("zen4", 512), ("x86-64-v3", 256), ("x86-64-v2", 128), ("graviton2", 128)])
def test_vector_width_follows_features(name: str, bits: int) -> None:
    assert Target(name).vector_bits == bits


def test_every_machine_has_a_known_cpu() -> None:
    assert {m.mcpu for m in MACHINES.values()} <= set(CPU_FEATURES)


def test_llvm_alone_is_the_host() -> None:
    assert Target("llvm") == host()
    assert Target("llvm").kind.name == "llvm"


def test_attributes_add_and_remove() -> None:
    target = Target("llvm -mcpu=x86-64-v4 -mattr=-avx512f -num-cores=3")
    assert target.vector_bits == 256
    assert target.cores == 3
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
    assert Target(f"llvm -mcpu=skylake-avx512 -mattr={tiles}").multiplies_bfloat16
    assert not Target("skylake-x").multiplies_bfloat16
