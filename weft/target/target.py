"""What a machine is: a kind of back end and a record of what the hardware can do.

A target prints as one line and parses from it: ``llvm -mcpu=znver4 -num-cores=8``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from weft.support.errors import TargetError
from weft.target.machines import CPU_FEATURES, MACHINES, Machine


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A back end: its name, the devices it runs on and what it is for."""

    name: str
    device: str
    doc: str


KINDS: Final[dict[str, TargetKind]] = {
    k.name: k for k in (TargetKind("llvm", "cpu", "machine code for CPUs through LLVM"),)
}

# From a feature to (vector bits, architectural vector registers); the first that is present decides.
_VECTORS: Final = (
    ("avx512f", 512, 32),
    ("avx2", 256, 16),
    ("avx", 256, 16),
    ("sse2", 128, 16),
    ("neon", 128, 32),
    ("v", 128, 32),
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The numbers that schedule rules ask for.

    ``vector_bits`` is 0 without vector units. ``l1``, ``l2`` are bytes for one core, ``l3`` bytes in all. ``fma`` says
    that multiply-add is one instruction.
    """

    vector_bits: int
    vector_registers: int
    fma: bool
    cores: int
    l1: int
    l2: int
    l3: int

    def lanes(self, bits: int) -> int:
        """How many elements of ``bits`` one vector register holds (at least 1)."""
        return max(1, self.vector_bits // max(8, bits))


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A back end and the machine it generates code for.

    ``Target("cpu")`` is the machine at hand, ``Target("zen4")`` a named machine, ``Target("llvm -mcpu=x86-64-v3")`` a
    CPU level; the text of any target parses back to it. Raises TargetError with what would work.
    """

    kind: TargetKind
    mcpu: str
    triple: str
    features: frozenset[str]
    capabilities: Capabilities

    def __init__(self, text: str = "cpu") -> None:
        parsed = _parse(text)
        for name in _FIELDS:
            object.__setattr__(self, name, getattr(parsed, name))

    @staticmethod
    def of(kind: TargetKind, mcpu: str, triple: str, features: frozenset[str], capabilities: Capabilities) -> Target:
        """A target from its parts."""
        made = object.__new__(Target)
        for name, value in zip(_FIELDS, (kind, mcpu, triple, features, capabilities), strict=True):
            object.__setattr__(made, name, value)
        return made

    def replace(self, **changes: Any) -> Target:
        """A copy that differs in the given fields."""
        return Target.of(**{name: changes.get(name, getattr(self, name)) for name in _FIELDS})

    @property
    def vector_bits(self) -> int:
        """Width of a vector register."""
        return self.capabilities.vector_bits

    @property
    def vector_registers(self) -> int:
        """How many vector registers there are."""
        return self.capabilities.vector_registers

    @property
    def cores(self) -> int:
        """How many cores there are."""
        return self.capabilities.cores

    def has(self, *features: str) -> bool:
        """Whether all the LLVM features are present."""
        return all(f in self.features for f in features)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether there are instructions for products of bfloat16, faster than those of float32: of pairs (AVX-512
        BF16) or of matrix tiles (AMX)."""
        return self.has("avx512bf16", "avx512vl") or self.tiles_bfloat16

    @property
    def tiles_bfloat16(self) -> bool:
        """Whether there is a matrix unit that multiplies tiles of bfloat16 (AMX)."""
        return self.has("amx-tile", "amx-bf16")

    @property
    def feature_string(self) -> str:
        """Features in LLVM's notation, sorted, with those of the named CPU that are absent: ``+avx2,+fma,-avx512f``."""
        absent = CPU_FEATURES.get(self.mcpu, frozenset()) - self.features
        return ",".join([*(f"+{f}" for f in sorted(self.features)), *(f"-{f}" for f in sorted(absent))])

    def __str__(self) -> str:
        c = self.capabilities
        return (
            f"{self.kind.name} -mtriple={self.triple} -mcpu={self.mcpu} -mattr={self.feature_string} "
            f"-num-cores={c.cores} -l1={c.l1} -l2={c.l2} -l3={c.l3}"
        )


def capabilities_of(features: frozenset[str], cores: int, l1: int, l2: int, l3: int) -> Capabilities:
    """Derive vector width and registers from the features."""
    bits, registers = next(((b, r) for f, b, r in _VECTORS if f in features), (0, 0))
    fma = bool({"fma", "avx512f", "neon", "v"} & features)
    return Capabilities(bits, registers, fma, cores, l1, l2, l3)


_FIELDS: Final = ("kind", "mcpu", "triple", "features", "capabilities")


def _parse(text: str) -> Target:
    words = shlex.split(text) if isinstance(text, str) else []
    if not words:
        what = "is empty" if isinstance(text, str) else f"is text, not a {type(text).__name__}"
        raise TargetError(f"the target {what}", hint="for example: cpu, or llvm -mcpu=x86-64-v3")
    name, *rest = words
    if name == "cpu":
        return _with_options(host(), rest)
    if name in MACHINES:
        return _with_options(_of_machine(MACHINES[name]), rest)
    if name in KINDS:
        given = _options(rest)
        base = host() if "mcpu" not in given and "mtriple" not in given else _of_machine(_machine_for(given))
        return _with_options(base, rest)
    known = ", ".join(["cpu", *KINDS, *MACHINES])
    raise TargetError(f"unknown target '{name}'", code="G002", hint=f"one of {known}; see 'weft targets'")


def _machine_for(given: dict[str, str]) -> Machine:
    mcpu = given.get("mcpu", "x86-64")
    if mcpu == "native":
        mine = host()
        c = mine.capabilities
        return Machine(mine.mcpu, mine.triple, c.cores, c.l1, c.l2, c.l3, "")
    found = next((m for m in MACHINES.values() if m.mcpu == mcpu), None)
    if found is not None:
        return found
    if mcpu not in CPU_FEATURES and "mattr" not in given:
        raise TargetError(
            f"unknown CPU '{mcpu}'", code="G003", hint=f"add -mattr=+…, or use one of {', '.join(sorted(CPU_FEATURES))}"
        )
    triple = given.get("mtriple", _triple_for(mcpu))
    return Machine(mcpu, triple, 4, 32 << 10, 256 << 10, 8 << 20, "")


def _triple_for(mcpu: str) -> str:
    features = CPU_FEATURES.get(mcpu, frozenset({"sse2"}))
    arch = "aarch64" if "neon" in features else "riscv64" if "m" in features else "x86_64"
    return f"{arch}-unknown-linux-gnu"


def _of_machine(machine: Machine) -> Target:
    features = CPU_FEATURES.get(machine.mcpu, frozenset())
    found = capabilities_of(features, machine.cores, machine.l1, machine.l2, machine.l3)
    return Target.of(KINDS["llvm"], machine.mcpu, machine.triple, features, found)


def _options(words: list[str]) -> dict[str, str]:
    out = {}
    for word in words:
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals or key not in _KNOWN_OPTIONS:
            raise TargetError(
                f"unknown target option '{word}'",
                code="G004",
                hint=f"-NAME=VALUE with one of {', '.join(_KNOWN_OPTIONS)}",
            )
        out[key] = value
    return out


_KNOWN_OPTIONS: Final = ("mcpu", "mtriple", "mattr", "num-cores", "l1", "l2", "l3")


def _with_options(target: Target, words: list[str]) -> Target:
    given = _options(words)
    features = set(target.features)
    for item in filter(None, given.get("mattr", "").split(",")):
        (features.discard if item.startswith("-") else features.add)(item.lstrip("+-"))
    c = target.capabilities
    numbers = {}
    for key, now in (("num-cores", c.cores), ("l1", c.l1), ("l2", c.l2), ("l3", c.l3)):
        text = given.get(key, str(now))
        if not text.isdigit() or int(text) < 1:
            raise TargetError(f"-{key} must be a positive whole number, not '{text}'", code="G005")
        numbers[key] = int(text)
    frozen = frozenset(features)
    found = capabilities_of(frozen, numbers["num-cores"], numbers["l1"], numbers["l2"], numbers["l3"])
    return target.replace(triple=given.get("mtriple", target.triple), features=frozen, capabilities=found)


@cache
def host() -> Target:
    """The machine at hand: its CPU features by LLVM, its caches and cores by the operating system."""
    from weft.target.detect import detect_host

    mcpu, triple, features, cores, (l1, l2, l3) = detect_host()
    return Target.of(KINDS["llvm"], mcpu, triple, features, capabilities_of(features, cores, l1, l2, l3))
