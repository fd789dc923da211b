"""What a machine is: a kind of back end, an architecture, memory spaces, compute units and a host.

A target prints as one line and parses from it: ``llvm -mcpu=znver4 -num-cores=8``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Final

from weft.cost import REFERENCE, Rates
from weft.support.errors import TargetError
from weft.support.html import facts_table, preformatted
from weft.support.words import did_you_mean
from weft.target.cpu import Cpu
from weft.target.features import added, removed, usable
from weft.target.machines import CPU_FEATURES, MACHINES, Machine
from weft.target.units import ComputeUnit, cpu_units


@dataclass(frozen=True, slots=True)
class TargetKind:
    """The name by which a back end is asked for, and how its targets are read and printed.

    ``parse(kind, words)`` makes a target of the words behind the name, ``words(target)`` gives words that parse back.
    ``device`` is the kind of device that runs its code, ``options`` are settings of the back end besides those of the
    machine: a default and what it is, by name.
    """

    name: str
    device: str
    doc: str
    parse: Callable[[TargetKind, Sequence[str]], Target]
    words: Callable[[Target], Sequence[str]]
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """A memory: its name, its bytes (0: unknown), and whether the host reads and writes it directly."""

    name: str
    nbytes: int = 0
    host_access: bool = False


MAIN_MEMORY: Final = MemorySpace("main", host_access=True)


@dataclass(frozen=True, slots=True, init=False)
class Target:
    """A back end and the machine it generates code for.

    ``Target("cpu")`` is the machine at hand, ``Target("zen4")`` a named machine, ``Target("llvm -mcpu=x86-64-v3")`` a
    CPU level; the text of any target parses back to it. ``arch`` is a record of what the kind of machine needs, a
    :class:`Cpu` for CPUs. ``memory`` lists its memory spaces, that of its buffers first. ``units`` are its compute
    units besides vector arithmetic. ``host`` is the CPU that runs the rest of the program, None where the target is
    one. ``options`` are settings of the back end, by name. Raises TargetError with what would work.
    """

    kind: TargetKind
    arch: Any
    memory: tuple[MemorySpace, ...]
    units: tuple[ComputeUnit, ...]
    host: Target | None
    options: tuple[tuple[str, str], ...]

    def __init__(self, text: str = "cpu") -> None:
        parsed = parse_target(text)
        for f in fields(Target):
            object.__setattr__(self, f.name, getattr(parsed, f.name))

    @staticmethod
    def of(
        kind: TargetKind,
        arch: Any,
        memory: tuple[MemorySpace, ...] = (MAIN_MEMORY,),
        units: tuple[ComputeUnit, ...] = (),
        host: Target | None = None,
        options: tuple[tuple[str, str], ...] = (),
    ) -> Target:
        """A target from its parts."""
        made = object.__new__(Target)
        for f, value in zip(fields(Target), (kind, arch, memory, units, host, options), strict=True):
            object.__setattr__(made, f.name, value)
        return made

    def replace(self, **changes: Any) -> Target:
        """A copy that differs in the given fields."""
        return Target.of(**{f.name: changes.get(f.name, getattr(self, f.name)) for f in fields(Target)})

    @property
    def cpu(self) -> Cpu:
        """The CPU of the target, or of its host. Raises TargetError G006 where there is neither."""
        if isinstance(self.arch, Cpu):
            return self.arch
        if self.host is None:
            raise TargetError(f"'{self.kind.name}' has neither a CPU nor a host", code="G006", hint="name a host")
        return self.host.cpu

    def option(self, name: str) -> str:
        """A setting of the back end, its default where none was given."""
        return dict(self.options).get(name, self.kind.options[name][0])

    def multiplies(self, dtype: str) -> bool:
        """Whether there is a unit, of vectors or of matrix tiles, that multiplies ``dtype`` faster than float32."""
        return self.vector_unit(dtype) is not None or self.tile_unit(dtype) is not None

    def vector_unit(self, dtype: str) -> ComputeUnit | None:
        """The unit that multiplies vectors of ``dtype`` faster than float32, if there is one."""
        return next((u for u in self.units if u.intrinsic and u.left == dtype), None)

    def tile_unit(self, dtype: str) -> ComputeUnit | None:
        """The unit that multiplies matrix tiles of ``dtype``, if there is one."""
        return next((u for u in self.units if u.tile and u.left == dtype), None)

    def __str__(self) -> str:
        return " ".join([self.kind.name, *self.kind.words(self)])

    def __repr__(self) -> str:
        return f'Target("{self}")'

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"back end": self.kind.name}
        if isinstance(self.arch, Cpu):
            cpu = self.arch
            facts |= {"CPU": cpu.mcpu, "triple": cpu.triple, "cores": cpu.cores}
            facts["vectors"] = (
                f"{cpu.vector_bits} bits, {cpu.vector_registers} registers" if cpu.vector_bits else "none"
            )
            facts["caches"] = ", ".join(f"{n >> 10} KiB" for n in (cpu.l1, cpu.l2, cpu.l3) if n)
        facts["units"] = ", ".join(u.name for u in self.units) or "none"
        if self.host is not None:
            facts["host"] = self.host
        facts |= dict(self.options)
        return facts_table("target", facts) + preformatted(str(self))


_RATES: Final = "-rates="


def without_rates(text: str) -> str:
    """The text of a target without the rates that times are estimated with: which machine it is, however fast it was
    measured to be."""
    return " ".join(word for word in text.split(" ") if not word.startswith(_RATES))


def parse_target(text: str, kinds: Mapping[str, TargetKind] | None = None) -> Target:
    """The target that ``text`` names, with the back ends ``kinds`` (default: :data:`KINDS`). Raises TargetError."""
    words = shlex.split(text) if isinstance(text, str) else []
    if not words:
        what = "is empty" if isinstance(text, str) else f"is text, not a {type(text).__name__}"
        raise TargetError(f"the target {what}", hint="for example: cpu, or llvm -mcpu=x86-64-v3")
    name, *rest = words
    known = KINDS if kinds is None else kinds
    if name == "cpu":
        return _with_options(host(), rest)
    if name in MACHINES:
        return _with_options(_cpu_target(KINDS["llvm"], _of_machine(MACHINES[name])), rest)
    if name in known:
        return known[name].parse(known[name], rest)
    names = ["cpu", *known, *MACHINES]
    hint = did_you_mean(name, names, f"one of {', '.join(names)}; see 'weft targets'")
    raise TargetError(f"unknown target '{name}'", code="G002", hint=hint)


# -- targets whose code runs on a CPU ----------------------------------------------------------------------------------


def parse_cpu(kind: TargetKind, words: Sequence[str]) -> Target:
    """A target of ``kind`` for the CPU that the words describe; the machine at hand where they name none."""
    given = _options(kind, words)
    named = "mcpu" in given or "mtriple" in given
    base = _of_machine(_machine_for(given)) if named else host_cpu()
    return _with_options(_cpu_target(kind, base), words)


_NOT_IN_C: Final = ("amx-", "avx512bf16")
"""Prefixes of features whose instructions C code does not use: without them, rules choose what it does."""


def parse_c(kind: TargetKind, words: Sequence[str]) -> Target:
    """A CPU whose code goes through C: without the units that C code does not use, and without vectors if asked.

    Raises TargetError G031 for an unknown setting.
    """
    made = parse_cpu(kind, words)
    features = usable(frozenset(f for f in made.cpu.features if not f.startswith(_NOT_IN_C)))
    cpu = made.cpu.replace(features=features)
    vectors = made.option("vectors")
    if vectors not in ("gnu", "none"):
        raise TargetError(f"-vectors is 'gnu' or 'none', not '{vectors}'", code="G031")
    if made.option("code") not in ("object", "source"):
        raise TargetError(f"-code is 'object' or 'source', not '{made.option('code')}'", code="G031")
    if vectors == "none":
        return made.replace(arch=replace(cpu, vector_bits=0, vector_registers=0), units=())
    return made.replace(arch=cpu, units=cpu_units(features))


_C_OPTIONS: Final = {
    "vectors": ("gnu", "gnu: the vector types of GCC and Clang; none: loops of plain C11"),
    "code": ("object", "object: compiled at once; source: the C text, for weft compile --sources"),
    "cc": ("", "the command of the C compiler; default: the variable CC, else cc, gcc or clang"),
}


def cpu_words(target: Target) -> list[str]:
    """The words that :func:`parse_cpu` reads."""
    c = target.cpu
    machine = f"-mtriple={c.triple} -mcpu={c.mcpu} -mattr={c.feature_string} -num-cores={c.cores}"
    caches = f"-l1={c.l1} -l2={c.l2} -l3={c.l3}"
    named = _machine_with(c.mcpu)
    # A machine at hand whose CPU belongs to a named machine has rates of its own, the reference (-rates=) among them.
    rates = [f"{_RATES}{c.rates.text}"] if c.rates != (named.rates if named is not None else REFERENCE) else []
    return [machine, caches, *rates, *(f"-{name}={shlex.quote(value)}" for name, value in target.options)]


def _cpu_target(kind: TargetKind, cpu: Cpu) -> Target:
    return Target.of(kind, cpu, units=cpu_units(cpu.features))


def _machine_for(given: dict[str, str]) -> Machine:
    mcpu = given.get("mcpu", "x86-64")
    if mcpu == "native":
        mine = host_cpu()
        return Machine(mine.mcpu, mine.triple, mine.cores, mine.l1, mine.l2, mine.l3, "", mine.rates)
    found = _machine_with(mcpu)
    if found is not None:
        return found
    if mcpu not in CPU_FEATURES and "mattr" not in given:
        raise TargetError(
            f"unknown CPU '{mcpu}'",
            code="G003",
            hint=did_you_mean(mcpu, CPU_FEATURES, f"add -mattr=+…, or use one of {', '.join(sorted(CPU_FEATURES))}"),
        )
    triple = given.get("mtriple", _triple_for(mcpu))
    return Machine(mcpu, triple, 4, 32 << 10, 256 << 10, 8 << 20, "")


def _machine_with(mcpu: str) -> Machine | None:
    """The named machine with this CPU; of several, the first."""
    return next((m for m in MACHINES.values() if m.mcpu == mcpu), None)


def _triple_for(mcpu: str) -> str:
    features = CPU_FEATURES.get(mcpu, frozenset({"sse2"}))
    if "vfp4" in features:
        return "armv7-unknown-linux-gnueabihf"
    arch = "aarch64" if "neon" in features else "riscv64" if "m" in features else "x86_64"
    return f"{arch}-unknown-linux-gnu"


def _of_machine(machine: Machine) -> Cpu:
    features = CPU_FEATURES.get(machine.mcpu, frozenset())
    return Cpu.of(
        machine.mcpu, machine.triple, features, machine.cores, machine.l1, machine.l2, machine.l3, machine.rates
    )


_OF_MACHINE: Final = ("mcpu", "mtriple", "mattr", "num-cores", "l1", "l2", "l3", "rates")


def _options(kind: TargetKind, words: Sequence[str]) -> dict[str, str]:
    known = (*_OF_MACHINE, *kind.options)
    out = {}
    for word in words:
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals or key not in known:
            raise TargetError(
                f"unknown target option '{word}'",
                code="G004",
                hint=did_you_mean(key, known, f"-NAME=VALUE with one of {', '.join(known)}"),
            )
        out[key] = value
    return out


def _with_options(target: Target, words: Sequence[str]) -> Target:
    given = _options(target.kind, words)
    cpu = target.cpu
    features = cpu.features
    for item in filter(None, given.get("mattr", "").split(",")):
        features = (removed if item.startswith("-") else added)(features, item.lstrip("+-"))
    numbers = {}
    for key, field_name in (("num-cores", "cores"), ("l1", "l1"), ("l2", "l2"), ("l3", "l3")):
        text = given.get(key, str(getattr(cpu, field_name)))
        if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) < 1:
            raise TargetError(f"-{key} must be a positive whole number, not '{text}'", code="G005")
        numbers[field_name] = int(text)
    rates = _rates(given["rates"]) if "rates" in given else cpu.rates
    changed = cpu.replace(triple=given.get("mtriple", cpu.triple), features=features, rates=rates, **numbers)
    options = dict(target.options) | {k: v for k, v in given.items() if k in target.kind.options}
    return target.replace(arch=changed, units=cpu_units(features), options=tuple(sorted(options.items())))


def _rates(text: str) -> Rates:
    try:
        return Rates.parse(text)
    except ValueError as wrong:
        hint = "-rates=NAME:NUMBER,…; 'weft targets cpu' lists the names"
        raise TargetError(f"-rates cannot be read: {wrong}", code="G007", hint=hint) from None


KINDS: Final[dict[str, TargetKind]] = {
    kind.name: kind
    for kind in (
        TargetKind("llvm", "cpu", "machine code for CPUs through LLVM", parse_cpu, cpu_words),
        TargetKind("c", "cpu", "C for CPUs, compiled by the system's compiler", parse_c, cpu_words, _C_OPTIONS),
    )
}
"""The back ends of the package."""


@cache
def host_cpu() -> Cpu:
    """The CPU at hand: its features by the runtime, its caches and cores by the operating system, its rates from the
    file that ``weft targets --measure`` wrote, if there is one."""
    from weft.target.detect import detect_cpu
    from weft.target.measured import read_rates

    found = detect_cpu()
    rates = read_rates(found)
    return found if rates is None else found.replace(rates=rates)


@cache
def host() -> Target:
    """The machine at hand."""
    return _cpu_target(KINDS["llvm"], host_cpu())
