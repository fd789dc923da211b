"""Files that users name: what is wrong with a name is said before anything is opened or written."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from weft.support.errors import InputError
from weft.support.words import closest

STALE_SECONDS = 3600
"""Age from which an unfinished file belongs to a program that was ended."""
_PART = re.compile(r"[0-9a-f]{16}\.part")
MAX_NAME_CHARACTERS = 100
"""Most characters of a name that an error message repeats."""


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str], *, durable: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """A file for the new content of ``path``, which has it completely or not at all, also after a crash of the system.

    The content is written beside the file, flushed to the disk and renamed into its place. The file keeps its
    permissions; a new one gets those of the umask. A symbolic link stays, and its target is replaced. What is no
    regular file (a device, a pipe) is written to directly. ``durable=False`` flushes nothing: only after a crash of the
    system may the content be incomplete. A program that is killed leaves an unfinished file beside the target; later
    durable writes to the same target remove those of more than an hour ago. ``private`` makes a new file for this user
    alone, and in place of a link or of a file with other permissions. Raises OSError.
    """
    target = Path(path if private else os.path.realpath(path))
    try:
        mode = None if private else target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:
            yield file
        return
    beside = target.parent / f".{target.name[:64]}.{secrets.token_hex(8)}.part"
    try:
        handle = os.open(
            beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600 if private else 0o666
        )
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            yield file
            if durable:
                file.flush()
                os.fsync(handle)
        os.replace(beside, target)
    except BaseException as problem:  # an interrupt, too, leaves nothing behind
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(problem, OSError) and problem.filename in (None, str(beside)):
            problem.filename = str(path)
        raise
    if durable:
        _remove_unfinished(target)
        _sync_folder(target.parent)


def _remove_unfinished(target: Path) -> None:
    """Remove what programs left behind that were ended while they wrote ``target``."""
    with contextlib.suppress(OSError), os.scandir(target.parent) as found:
        old = time.time() - STALE_SECONDS
        for entry in found:
            name = entry.name.removeprefix(f".{target.name[:64]}.")
            if name != entry.name and _PART.fullmatch(name) and entry.stat(follow_symlinks=False).st_mtime < old:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def replace_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Make ``text``, in UTF-8, the content of ``path``, as :func:`replaced_file` does. Raises OSError."""
    with replaced_file(path, durable=durable) as file:
        file.write(text.encode())


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` permanent, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def existing_file(path: str | os.PathLike[str], what: str = "file", code: str = "I021") -> Path:
    """``path``, which is a file. Raises InputError with ``code`` where it is none, and says which name may be meant.

    ``what`` is the kind of file for the message: ``input file``.
    """
    found = Path(path)
    if not str(path):
        raise InputError(f"the name of the {what} is empty", code=code)
    if "://" in str(path):
        raise InputError(
            f"'{path}' is a URL, not {_with_article(what)}", code=code, hint=f"download it: curl -LO {path}"
        )
    try:
        is_folder, exists, is_pipe = found.is_dir(), found.exists(), found.is_fifo() or found.is_socket()
    except OSError as error:  # the name is too long
        raise InputError(f"there is no {what} '{_short(path)}': {error.strerror}", code=code) from None
    if is_folder:
        raise InputError(f"'{found}' is a directory, not {_with_article(what)}", code=code)
    if is_pipe:  # files are opened several times, and read out of order
        raise InputError(
            f"'{found}' is a pipe, not {_with_article(what)}", code=code, hint="write its content to a file first"
        )
    if not exists:
        raise InputError(f"there is no {what} '{found}'", code=code, hint=_meant(found))
    return found


def _short(path: str | os.PathLike[str]) -> str:
    text = str(path)
    return text if len(text) <= MAX_NAME_CHARACTERS else f"{text[:MAX_NAME_CHARACTERS]}…"


def _with_article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _meant(path: Path) -> str | None:
    """A file beside it with a name much like it, or the first folder on the way that is missing."""
    folder = path.parent
    if folder.is_dir():
        try:
            names = [name for name in os.listdir(folder) if (folder / name).is_file()]
            close = closest(path.name, names)
            return f"did you mean '{folder / close}'?" if close else f"it was looked for in '{folder.resolve()}'"
        except OSError:  # the working directory was removed, for example
            return None
    while not folder.parent.is_dir():
        folder = folder.parent
    return f"there is no directory '{folder}'"


def check_writable(path: str | Path) -> None:
    """Check, before the work begins, that ``path`` can be written. Raises InputError if it cannot."""
    folder = Path(path).parent
    reason = None
    try:
        if Path(path).is_dir():
            reason = "it is a directory"
        elif not folder.is_dir():
            reason = f"there is no directory '{folder}'"
        elif not os.access(path if Path(path).exists() else folder, os.W_OK):
            reason = "permission denied"
    except OSError as problem:  # the name is too long
        reason = problem.strerror
    if reason:
        raise InputError(f"'{path}' cannot be written: {reason}", code="I030")


def write_file(path: str | Path, write: Callable[[], Any]) -> None:
    """Call ``write``, which writes ``path``; raises InputError if the file cannot be written."""
    try:
        write()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(f"'{path}' cannot be written: {reason}", code="I030") from problem
