"""Building the server, a C program, for this machine or another one."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from weft.rpc.errors import RemoteError
from weft.support import settings
from weft.support.cache import why_untrusted
from weft.support.files import replaced_file
from weft.target import Target

SOURCES: Final = Path(__file__).resolve().parents[2] / "csrc"
"""The C sources; they stand beside the package in a checkout and in a source distribution."""
FLAGS: Final = (
    *("-std=c11", "-O2", "-pthread"),
    *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong"),
)
_SECONDS: Final = 300
_LOCAL: Final = ("cc", "gcc", "clang")
_PREFIXES: Final = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "arm64": "aarch64-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "armv7": "arm-linux-gnueabihf",
    "arm": "arm-linux-gnueabihf",
}
"""How GCC's cross compilers are called, by the architecture of a target."""


def local_compiler(asked: str = "") -> list[str]:
    """The command of the C compiler for this machine: ``asked``, else that of the variable CC, else the first that is
    installed. Raises RemoteError N019 if there is none."""
    named = asked or os.environ.get("CC", "")
    try:
        words = shlex.split(named) if named else [next((c for c in _LOCAL if shutil.which(c)), "")]
    except ValueError as error:
        raise RemoteError(f"the name of the C compiler {named!r} is not understood: {error}", code="N019") from None
    return _there(words, "install gcc or clang, or name another compiler with --cc")


def cross_compiler(target: str, asked: str = "") -> list[str]:
    """The command of the C compiler for a target, ``asked`` or GCC's. Raises RemoteError N019 if there is none,
    TargetError for a target that is none."""
    if asked:
        return local_compiler(asked)
    architecture = Target(target).cpu.triple.split("-")[0]
    prefix = _PREFIXES.get(architecture)
    if prefix is None:
        raise RemoteError(
            f"no C compiler for '{architecture}' is known", code="N019", hint="name one: --cc 'clang --target=…'"
        )
    return _there([f"{prefix}-gcc"], f"apt install gcc-{prefix.replace('_', '-')}, or name another one with --cc")


def _there(words: list[str], hint: str) -> list[str]:
    if not words or not words[0] or shutil.which(words[0]) is None:
        what = f"the C compiler '{words[0]}' is not installed" if words and words[0] else "there is no C compiler"
        raise RemoteError(what, code="N019", hint=hint)
    return words


def build_server(compiler: Sequence[str], output: Path, flags: Sequence[str] = FLAGS, static: bool = True) -> None:
    """Compile the server to ``output``, which it replaces. Raises RemoteError N019 where the compiler fails."""
    sources = [str(path) for path in _sources() if path.suffix == ".c"]
    includes = [f"-I{SOURCES / 'include'}", f"-I{SOURCES / 'src'}"]
    made = output.with_name(f".{output.name}.{os.getpid()}.o")
    command = [*compiler, *flags, *includes, *sources, *(("-static",) if static else ()), "-lm", "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
        if done.returncode:
            raise RemoteError(
                f"the C compiler '{shlex.join(compiler)}' does not build the server: {_reason(done.stderr)}",
                code="N019",
                hint="a static C library is needed (apt install libc6-dev)" if static else None,
            )
        with replaced_file(output, durable=False) as file:
            file.write(made.read_bytes())
        output.chmod(output.stat().st_mode | 0o111)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RemoteError(f"the server cannot be built: {error}", code="N019") from error
    finally:
        made.unlink(missing_ok=True)


def _reason(said: str) -> str:
    """The line of a compiler that says what is wrong, or the last ones."""
    lines = [line for line in said.splitlines() if not line.startswith("collect2:")]  # it only says that ld has failed
    found = next((line for line in lines if "error" in line), "\n".join(lines).strip()[-300:])
    return found or "it does not say why"


def local_server(compiler: str = "") -> Path:
    """The server for this machine, built now or found in the cache directory. Raises RemoteError N019."""
    words = local_compiler(compiler)
    folder = settings.cache_directory() / "rpc-server"
    digest = hashlib.blake2b(digest_size=16)
    for part in (*words, str(os.path.realpath(str(shutil.which(words[0])))), *FLAGS):
        digest.update(part.encode() + b"\0")
    for path in _sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    made = folder / f"weft-rpc-server-{digest.hexdigest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        reason = why_untrusted(folder) or (why_untrusted(made) if made.exists() else None)
    except OSError as error:
        raise RemoteError(f"'{folder}' cannot be used: {error.strerror or error}", code="N019") from None
    if reason is not None:
        raise RemoteError(f"programs in '{folder}' are not run: {reason}", code="N019")
    if not made.exists():
        try:
            build_server(words, made)
        except RemoteError:  # many systems have no static C library
            build_server(words, made, static=False)
    return made


def _sources() -> list[Path]:
    """All files of the server, in an order of their own. Raises RemoteError N019 if they are not there."""
    found = sorted(p for folder in ("rpc", "src", "include") for p in (SOURCES / folder).glob("*.[ch]"))
    if not any(path.name == "listen.c" for path in found):
        raise RemoteError(
            f"the sources of the server are not at '{SOURCES}'",
            code="N019",
            hint="they are in a checkout of Weft and in its source distribution",
        )
    return found
