"""LLVM in a process of its own, for machines that Weft does not know.

LLVM ends the process for processors and features that do not fit together, and only prints a line for names that it
does not know. For the CPUs of ``weft.target.machines`` and for the CPU at hand that cannot happen. Code for any other
machine is made by a helper process: if it ends, or LLVM has printed that it ignores a name, the user gets an error.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import tempfile
import threading
from typing import IO, Final

from weft.support.errors import InternalError, TargetError
from weft.support.processes import end, receive, send, start_python
from weft.target import Target
from weft.target.cpu import Cpu
from weft.target.machines import CODE_FEATURES, CPU_FEATURES
from weft.target.target import host_cpu

_HINT: Final = "'weft targets' lists the machines that Weft knows; -mattr=+… takes LLVM's names of features"


def is_known(cpu: Cpu) -> bool:
    """Whether LLVM certainly accepts the processor and its features."""
    marks = next((m for k, m in _ARCHITECTURES.items() if cpu.triple.startswith(k)), None)
    if marks is None or not marks <= cpu.features:
        return False  # without the features that LLVM takes for granted it ends the process
    mine = host_cpu()
    if (cpu.mcpu, cpu.triple) == (mine.mcpu, mine.triple) and cpu.features <= mine.features | CODE_FEATURES:
        return True
    own = [features for features in CPU_FEATURES.values() if marks <= features]
    return CPU_FEATURES.get(cpu.mcpu) in own and cpu.features <= frozenset().union(*own)


_ARCHITECTURES: Final[dict[tuple[str, ...], frozenset[str]]] = {
    ("x86_64",): frozenset({"sse2"}),
    ("armv7",): frozenset({"vfp4"}),
    ("aarch64", "arm64"): frozenset({"neon"}),
    ("riscv64",): frozenset({"m"}),
}
"""Beginnings of triples, and a feature that all their CPUs have."""


class _Helper:
    """The helper process, started on first use and again after it has ended."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.printed: IO[bytes] | None = None

    def ask(self, what: str, text: str, target: Target, opt_level: int) -> bytes:
        cpu = target.cpu
        words = [what, cpu.triple, cpu.mcpu, cpu.feature_string, opt_level, text]
        with self.lock:
            process = self._running(target)
            try:
                send(process.stdin, json.dumps(words).encode())
                kind, answer = receive(process.stdout), receive(process.stdout)
            except (EOFError, OSError):
                self.stop()
                raise TargetError(
                    f"LLVM cannot make code for {_name(cpu)}: {self._said() or 'it ended the helper process'}",
                    code="G029",
                    hint=_HINT,
                ) from None
            except BaseException:  # an interruption too: the helper cannot be used again
                self.stop()  # its answer to this request would be taken for that to the next one
                raise
        if kind == b"target":
            raise TargetError(f"LLVM cannot make code for {_name(cpu)}: {answer.decode()}", code="G029", hint=_HINT)
        if kind == b"internal":
            raise InternalError(answer.decode(), reproducer=text)
        return answer

    def _running(self, target: Target) -> subprocess.Popen[bytes]:
        if self.process is None:
            self.printed = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the helper runs)
            self.process = start_python("weft.backends.llvm.helper", self.printed)
            if self.process is None:
                raise TargetError(
                    f"code for {_name(target.cpu)} is made by a helper process, and none can be started",
                    code="G029",
                    hint=_HINT,
                )
            atexit.register(self.stop)
        return self.process

    def _said(self) -> str:
        """The last line that the helper has printed."""
        assert self.printed is not None
        self.printed.seek(0)
        lines = self.printed.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in lines if "LLVM ERROR" in line), "").removeprefix("LLVM ERROR: ")

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            atexit.unregister(self.stop)
            end(process)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                try:
                    pipe.close()  # type: ignore[union-attr]  # both are pipes
                except OSError:  # data that was not written is not needed any more
                    continue


_HELPER: Final = _Helper()
ask = _HELPER.ask
"""``object``, ``assembly`` or ``ir``: made of LLVM IR for a target, at an optimization level.

Raises TargetError G029 if LLVM does not know the machine, InternalError if it refuses the text."""


def _name(cpu: Cpu) -> str:
    return f"'{cpu.mcpu}' ({cpu.triple}, {cpu.feature_string or 'no features'})"
