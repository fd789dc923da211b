"""Files that users name: what is wrong with a name is said before anything is opened or written."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from weft.support.errors import InputError


def existing_file(path: str | os.PathLike[str], what: str = "file", code: str = "I021") -> Path:
    """``path``, which is a file. Raises InputError with ``code`` where it is none, and says which name may be meant.

    ``what`` is the kind of file for the message: ``input file``.
    """
    found = Path(path)
    if found.is_dir():
        raise InputError(f"'{found}' is a directory, not {_with_article(what)}", code=code)
    if not found.exists():
        raise InputError(f"there is no {what} '{found}'", code=code, hint=_meant(found))
    return found


def _with_article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _meant(path: Path) -> str | None:
    """A file beside it with a name much like it, or the first folder on the way that is missing."""
    folder = path.parent
    if folder.is_dir():
        try:
            names = [name for name in os.listdir(folder) if (folder / name).is_file()]
        except OSError:
            return None
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
        return f"did you mean '{folder / close[0]}'?" if close else f"it was looked for in '{folder.resolve()}'"
    while not folder.parent.is_dir():
        folder = folder.parent
    return f"there is no directory '{folder}'"
