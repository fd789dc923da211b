"""What a CPU is: its instruction set, vector registers, cores and caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from weft.cost import REFERENCE, Rates
from weft.target.machines import CPU_FEATURES
from weft.target.triples import is_arm_32, pointer_bits

# From a feature to (vector bits, architectural vector registers); the first that is present decides.
_VECTORS: Final = (
    ("avx512f", 512, 32),
    ("avx2", 256, 16),
    ("avx", 256, 16),
    ("sse2", 128, 16),
    ("neon", 128, 32),
    ("v", 128, 32),
)
_VECTORS_ARM_32: Final = (("neon", 128, 16),)
_GRANTED_ARM_32: Final = frozenset({"neon", "d32"})
"""What LLVM takes for granted on ARMv7-A, and processors with the smallest floating-point unit lack."""
_MULTIPLY_ADD: Final = frozenset({"fma", "avx512f", "neon", "v"})
_MULTIPLY_ADD_ARM_32: Final = frozenset({"vfp4"})
_GUARDED_GATHERS: Final = frozenset(
    {"skylake", "skylake-avx512", "cascadelake", "cooperlake"}
    | {"icelake-client", "icelake-server", "tigerlake", "rocketlake"}
)
"""Processors, by LLVM's names, whose microcode since 2023 guards gathers against sampling of their data (Intel security
advisory 00828, "Downfall"): a lane takes about five cycles."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU. ``mcpu``, ``triple`` and ``features`` are LLVM's names.

    ``l1`` and ``l2`` are bytes for one core, ``l3`` bytes in all. ``vector_bits`` is 0 without vector units; ``fma``
    says that multiply-add is one instruction. ``rates`` are what times are estimated with.
    """

    mcpu: str
    triple: str
    features: frozenset[str]
    cores: int
    l1: int
    l2: int
    l3: int
    vector_bits: int
    vector_registers: int
    fma: bool
    rates: Rates = REFERENCE

    @staticmethod
    def of(
        mcpu: str,
        triple: str,
        features: frozenset[str],
        cores: int,
        l1: int,
        l2: int,
        l3: int,
        rates: Rates = REFERENCE,
    ) -> Cpu:
        """A CPU whose vector registers follow from its features."""
        arm_32 = is_arm_32(triple)
        table = _VECTORS_ARM_32 if arm_32 else _VECTORS
        bits, registers = next(((b, r) for f, b, r in table if f in features), (0, 0))
        fma = bool((_MULTIPLY_ADD_ARM_32 if arm_32 else _MULTIPLY_ADD) & features)
        return Cpu(mcpu, triple, features, cores, l1, l2, l3, bits, registers, fma, rates)

    def replace(self, **changes: Any) -> Cpu:
        """A CPU that differs in these fields; its vector registers follow from its features."""
        names = ("mcpu", "triple", "features", "cores", "l1", "l2", "l3", "rates")
        return Cpu.of(**{name: changes.get(name, getattr(self, name)) for name in names})

    def lanes(self, bits: int) -> int:
        """How many elements of ``bits`` one vector register holds (at least 1)."""
        return max(1, self.vector_bits // max(8, bits))

    def has(self, *features: str) -> bool:
        """Whether all the features are present."""
        return self.features.issuperset(features)

    @property
    def pointer_bits(self) -> int:
        """Bits of an address: 32 or 64."""
        return pointer_bits(self.triple)

    @property
    def gathers_are_slow(self) -> bool:
        """Whether single loads are faster than a gather of elements from any places."""
        return self.mcpu in _GUARDED_GATHERS

    @property
    def feature_string(self) -> str:
        """Features in LLVM's notation, sorted, with those of the named CPU that are absent: ``+avx2,+fma,-avx512f``."""
        absent = CPU_FEATURES.get(self.mcpu, frozenset()) - self.features
        if is_arm_32(self.triple) and "neon" not in self.features:
            absent |= _GRANTED_ARM_32 - self.features
        return ",".join([*(f"+{f}" for f in sorted(self.features)), *(f"-{f}" for f in sorted(absent))])
