"""The machine's C compiler: its command, its options, and its messages when it fails."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from weft.backends.c_like.names import words
from weft.support.errors import InternalError, TargetError
from weft.target.triples import is_arm_32, other_machine

CANDIDATES: Final = ("cc", "gcc", "clang")
_SECONDS: Final = 600
"""A compiler that runs longer is assumed to hang."""
# The runtime's loader needs objects without unwind tables and stack protection. Float arithmetic must be compiled as
# written, fused multiply-adds excepted, and no calls of the C library may be added.
_OPTIONS: Final = words(
    "-std=gnu11 -c -O2 -fPIC -ffp-contract=fast -fno-math-errno -fno-trapping-math -fno-strict-aliasing "
    "-fno-asynchronous-unwind-tables -fno-stack-protector -fno-exceptions -fno-builtin-sin -fno-builtin-cos "
    "-fno-builtin-sinf -fno-builtin-cosf -Wno-psabi -w"
)
_SIMPLEST: Final = "int weft_simplest(int x) { return x; }\n"
_X86_FEATURES: Final = words(
    "sse3 ssse3 sse4.1 sse4.2 avx avx2 fma f16c bmi bmi2 lzcnt popcnt avx512f avx512cd avx512bw avx512dq avx512vl "
    "avx512vnni"
)
"""Features, by LLVM's names, that compilers accept as -mNAME."""


def compiler(asked: str = "") -> list[str]:
    """The command of the C compiler: the target's, else that of the variable CC, else the first that is installed.

    Raises TargetError G030 if there is none.
    """
    named = asked or os.environ.get("CC", "")
    try:
        words = shlex.split(named)
    except ValueError as error:  # quotes that do not end
        raise TargetError(f"the name of the C compiler {named} is not understood: {error}", code="G030") from error
    if not words:
        words = [next((c for c in CANDIDATES if shutil.which(c)), "")]
    if not words[0] or shutil.which(words[0]) is None:
        what = f"the C compiler '{words[0]}' is not there" if words[0] else "there is no C compiler"
        raise TargetError(
            what,
            code="G030",
            hint="install gcc or clang (Debian: apt-get install gcc), or name one: -cc=PATH, or the variable CC",
        )
    return words


@cache
def version(words: tuple[str, ...]) -> str:
    """The version text of the compiler: part of the key of the kernels that it compiles."""
    try:
        made = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"the C compiler '{words[0]}' does not start: {error}", code="G030") from error
    return made.stdout.partition("\n")[0].strip()


def machine_options(triple: str, features: frozenset[str], vector_bits: int, clang: bool) -> list[str]:
    """The options that select the machine."""
    arch = triple.split("-", 1)[0]
    if arch in ("x86_64", "amd64"):
        wanted = [f"-m{x}" for x in _X86_FEATURES if x in features]
        wide = f"-mprefer-vector-width={vector_bits}" if vector_bits >= 128 else ""
        return ["-march=x86-64", *wanted, *([wide] if wide else [])]
    if arch.startswith(("riscv64", "aarch64")):
        return [f"--target={triple}"] if clang else []
    if is_arm_32(triple):
        vfp = "neon-vfpv4" if {"neon", "vfp4"} <= features else "neon" if "neon" in features else "vfpv3-d16"
        return [*([f"--target={triple}"] if clang else []), "-march=armv7-a", f"-mfpu={vfp}", "-mfloat-abi=hard"]
    return []


def require_machine(image: bytes, command: list[str], triple: str) -> None:
    """Raise TargetError G030 if the object was made for another machine than ``triple``: the compiler takes no option
    that chooses it."""
    other = other_machine(image, triple)
    if other is not None:
        arch = triple.partition("-")[0]
        raise TargetError(
            f"the C compiler '{shlex.join(command)}' makes code for {other}, not for {arch}",
            code="G030",
            hint=f"name a compiler for {arch}, as in -cc={arch}-linux-gnu-gcc, or clang: -cc=clang",
        )


def simplest(command: list[str], options: list[str]) -> bytes:
    """The object of a C file that every compiler takes: what is made for another machine shows there."""
    return compile_source(_SIMPLEST, command, options)


def compile_source(source: str, command: list[str], options: list[str], assembly: bool = False) -> bytes:
    """The object (or assembly) of a C file.

    Raises TargetError G030 if the program is no C compiler, or does not know the options of the machine: it refuses the
    simplest source, too. Raises InternalError, with the source as reproducer, if it refuses only this one.
    """
    made, said = _compiled(source, command, options, assembly)
    if made is not None:
        return made
    if _compiled(_SIMPLEST, command, options, assembly)[0] is None:
        raise TargetError(
            f"the C compiler '{shlex.join(command)}' makes no code: {said or 'it says nothing'}",
            code="G030",
            hint=f"name another one (-cc=PATH, or the variable CC), or another target; options: {' '.join(options)}",
        )
    raise InternalError(f"the C compiler refuses the generated code: {said}", reproducer=source)


def _compiled(source: str, command: list[str], options: list[str], assembly: bool) -> tuple[bytes | None, str]:
    """What the compiler makes, or None, and what it says."""
    with tempfile.TemporaryDirectory(prefix="weft-cc-") as folder:
        given, made = Path(folder, "kernel.c"), Path(folder, "kernel.s" if assembly else "kernel.o")
        given.write_text(source)
        words = [*command, *_OPTIONS, *options, *(["-S"] if assembly else []), "-o", str(made), str(given)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TargetError(f"the C compiler '{command[0]}' does not start: {error}", code="G030") from error
        done_well = done.returncode == 0 and made.is_file()
        return (made.read_bytes() if done_well else None), done.stderr.strip()[-2000:]
