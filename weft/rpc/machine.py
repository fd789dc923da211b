"""What a remote machine says of itself, and the target that code for it is compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from weft.rpc.errors import RemoteError
from weft.runtime.artifact import ABI_VERSION
from weft.runtime.encode import VERSION as PROGRAM_VERSION
from weft.target import CODE_FEATURES, Cpu, Target
from weft.target.detect import host_triple, nearest_cpu
from weft.target.features import usable

_DEFAULT_CACHES: Final = (32 << 10, 512 << 10, 8 << 20)
"""Sizes of caches where the machine does not tell."""
_PLAIN_FEATURES: Final = {"riscv64": "m a f d c"}


@dataclass(frozen=True, slots=True)
class RemoteMachine:
    """A machine that code runs on. ``features`` are LLVM's names; sizes are bytes, 0 where they are not known;
    ``formats`` are those of code that it loads. Of the limits of a session, 0 means that there is none."""

    name: str
    system: str
    architecture: str
    maker: str
    features: frozenset[str]
    cores: int
    memory: int
    caches: tuple[int, int, int]
    formats: tuple[str, ...]
    request_seconds: int
    session_seconds: int
    session_bytes: int
    sessions: int

    @classmethod
    def of(cls, told: Mapping[str, str]) -> RemoteMachine:
        """The machine that a text describes (INFO in docs/rpc-protocol.md). Raises RemoteError N009 if it does not,
        N002 if the machine's runtime is of another version."""
        try:
            numbers = {name: int(told[name]) for name in _NUMBERS}
            words = {name: told[name] for name in ("name", "system", "architecture", "features", "formats")}
        except (KeyError, ValueError) as error:
            raise RemoteError(f"a machine does not say what it is: {error}", code="N009") from None
        versions = numbers["abi"], numbers["program"]
        if versions != (ABI_VERSION, PROGRAM_VERSION):
            raise RemoteError(
                f"the runtime of '{words['name']}' has the versions {versions}, this one "
                f"{(ABI_VERSION, PROGRAM_VERSION)}",
                code="N002",
                hint="build the server from the same version of Weft",
            )
        return cls(
            name=words["name"],
            system=words["system"],
            architecture=words["architecture"],
            maker=told.get("maker", ""),
            features=frozenset(filter(None, words["features"].split(","))),
            cores=max(1, numbers["cores"]),
            memory=numbers["memory"],
            caches=(numbers["l1"], numbers["l2"], numbers["l3"]),
            formats=tuple(filter(None, words["formats"].split(","))),
            request_seconds=numbers["request_seconds"],
            session_seconds=numbers["session_seconds"],
            session_bytes=numbers["session_bytes"],
            sessions=numbers["sessions"],
        )

    def target(self) -> str:
        """The text of the target of code for this machine, as ``weft.Target`` reads it."""
        triple = host_triple(self.architecture, self.system)
        told = self.features or frozenset(_PLAIN_FEATURES.get(self.architecture, "").split())
        features = frozenset(f for f in usable(told) if f in CODE_FEATURES)
        l1, l2, l3 = (told or usual for told, usual in zip(self.caches, _DEFAULT_CACHES, strict=True))
        mcpu = nearest_cpu(features, triple, self.maker)
        cpu = Cpu.of(mcpu, triple, features, self.cores, l1, l2, l3)
        words = f"-mtriple={triple} -mcpu={mcpu} -mattr={cpu.feature_string} -num-cores={self.cores}"
        return str(Target(f"llvm {words} -l1={l1} -l2={l2} -l3={l3}"))


_NUMBERS: Final = (
    *("cores", "memory", "l1", "l2", "l3", "abi", "program"),
    *("sessions", "request_seconds", "session_seconds", "session_bytes"),
)
