"""Which features of CPUs need which others: without AVX2 there is no AVX-512.

LLVM takes a feature away with all that need it, and adds it with all that it needs. Weft must count alike: where it
believed that a unit is left that LLVM has taken away, LLVM would end the process at the first instruction of it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

_OF_512: Final = "avx512bw avx512cd avx512dq avx512ifma avx512vl avx512vnni avx512vpopcntdq"
_OF_512_BYTES: Final = "avx512bf16 avx512bitalg avx512vbmi avx512vbmi2"
_OF_256: Final = "avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 sha512 sm4 vaes"


def _each(names: str, needs: str) -> dict[str, frozenset[str]]:
    return dict.fromkeys(names.split(), frozenset(needs.split()))


NEEDS: Final[dict[str, frozenset[str]]] = {
    # x86-64: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, detection of each extension.
    **_each("sse2", "sse"),
    **_each("sse3 gfni", "sse2"),
    **_each("ssse3 sse4a", "sse3"),
    **_each("sse4.1", "ssse3"),
    **_each("sse4.2", "sse4.1"),
    **_each("avx", "sse4.2"),
    **_each("avx2 f16c fma sm3 vpclmulqdq", "avx"),
    **_each("fma4", "avx sse4a"),
    **_each("xop", "fma4"),
    **_each(_OF_256, "avx2"),
    **_each("avx512f", "avx2 f16c fma"),
    **_each(f"{_OF_512} avx512vp2intersect", "avx512f"),
    **_each(_OF_512_BYTES, "avx512bw"),
    **_each("avx512fp16", "avx512bw avx512dq avx512vl"),
    **_each("avx10.1", f"{_OF_512} {_OF_512_BYTES} avx512fp16"),
    **_each("avx10.2", "avx10.1"),
    **_each("amx-bf16 amx-complex amx-fp16 amx-int8", "amx-tile"),
    # AArch64 and 32-bit Arm.
    **_each("bf16 dotprod i8mm", "neon"),
    **_each("sve fp16fml", "fullfp16"),
    **_each("sve2", "sve"),
    **_each("vfp4", "fp16"),
    # RISC-V.
    **_each("d", "f"),
    **_each("v", "d"),
}
"""Features, by LLVM's names, and those that each needs directly. It lists those that code may depend on
(:data:`weft.target.machines.CODE_FEATURES`) or that need such a one."""


def added(features: frozenset[str], name: str) -> frozenset[str]:
    """``features`` with ``name`` and all that it needs."""
    return features | _needed(name)


def removed(features: frozenset[str], name: str) -> frozenset[str]:
    """``features`` without ``name`` and all that need it."""
    return frozenset(f for f in features if name not in _needed(f))


def usable(features: frozenset[str]) -> frozenset[str]:
    """Those of ``features`` with all that they need: a virtual machine may hide some of the others from its guests."""
    return frozenset(f for f in features if features.issuperset(_needed(f)))


@cache
def _needed(name: str) -> frozenset[str]:
    """``name`` and all that it needs, directly or not."""
    return frozenset((name,)).union(*map(_needed, NEEDS.get(name, ())))
