"""Every environment variable that Weft looks at, in one table. Read when asked for, never at import."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from weft.support.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One environment variable: how its text is read, its default, and what it does."""

    variable: str
    read: Callable[[str], T]
    default: Callable[[], T]
    doc: str

    def get(self) -> T:
        """The current value. Raises InputError if the text cannot be read."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default()
        try:
            return self.read(text)
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"{self.variable}='{text}' is not understood: {error}", code="I010", hint=self.doc
            ) from None


_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("say 1 or 0")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("must be a whole number of at least 1")
    return int(text)


def _bytes(text: str) -> int:
    lower = text.lower().removesuffix("b").removesuffix("i")
    unit = lower[-1] if lower[-1:].isalpha() else ""
    if unit not in _UNITS:
        raise ValueError("write a number of bytes, or one with K, M, G or T")
    try:
        value = int(float(lower.removesuffix(unit)) * _UNITS[unit])
    except ValueError:
        raise ValueError("write a number of bytes, or one with K, M, G or T") from None
    if value < 0:
        raise ValueError("must not be negative")
    return value


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # "~" without HOME and an entry of the user, or a user who does not exist
        raise ValueError("the home directory is not known") from None


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    if base:
        return Path(base) / "weft"
    try:
        return Path.home() / ".cache" / "weft"
    except RuntimeError:  # neither HOME nor an entry of the user
        pass
    try:
        return Path(tempfile.gettempdir()) / f"weft-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
    except OSError:  # no directory that can be written to: nothing is kept
        return Path(os.devnull) / "weft"


def _none() -> Any:
    return None


DUMP: Final[Setting[Path | None]] = Setting("WEFT_DUMP", _path, _none, "directory that gets the text of every stage")
CACHE_DIR: Final[Setting[Path]] = Setting("WEFT_CACHE_DIR", _path, _default_cache, "directory of the kernel cache")
CACHE_LIMIT: Final[Setting[int]] = Setting(
    "WEFT_CACHE_LIMIT", _bytes, lambda: 2 << 30, "largest size of the kernel cache (500M, 2G); 0 turns it off"
)
NUM_THREADS: Final[Setting[int | None]] = Setting(
    "WEFT_NUM_THREADS", _count, _none, "threads for compiling and running; default: the cores of this process"
)
JOBS: Final[Setting[int | None]] = Setting(
    "WEFT_JOBS", _count, _none, "processes that build the kernels of a model; default: as many as WEFT_NUM_THREADS"
)
VERIFY: Final[Setting[bool]] = Setting("WEFT_VERIFY", _flag, lambda: False, "verify the program after every pass")
STRICT: Final[Setting[bool]] = Setting(
    "WEFT_STRICT", _flag, lambda: False, "a schedule rule that fails is an error, not only slower code"
)
PROGRESS: Final[Setting[bool]] = Setting("WEFT_PROGRESS", _flag, lambda: True, "show progress on a terminal")
PLUGINS: Final[Setting[bool]] = Setting("WEFT_PLUGINS", _flag, lambda: True, "use plugins of installed packages")
TUNING_DB: Final[Setting[Path | None]] = Setting(
    "WEFT_TUNING_DB", _path, _none, "tuning database whose schedules compilations use (a file that 'weft db' shows)"
)
PACKED: Final[Setting[bool]] = Setting(
    "WEFT_PACKED_SCHEDULES", _flag, lambda: True, "use schedules that come with the package for named machines"
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    DUMP,
    CACHE_DIR,
    CACHE_LIMIT,
    NUM_THREADS,
    JOBS,
    VERIFY,
    STRICT,
    PROGRESS,
    PLUGINS,
    TUNING_DB,
    PACKED,
)


def dump_directory() -> Path | None:
    """Where to write the text of every stage, if anywhere."""
    return DUMP.get()


def cache_directory() -> Path:
    return CACHE_DIR.get()


def cache_limit() -> int:
    """Bytes the kernel cache may take; 0: no cache."""
    return CACHE_LIMIT.get()


def verify_passes() -> bool:
    return VERIFY.get()


def strict_rules() -> bool:
    """Whether a default schedule rule that a primitive refuses raises."""
    return STRICT.get()


def use_installed_plugins() -> bool:
    """Whether entry points of other packages are loaded."""
    return PLUGINS.get()


def tuning_database() -> Path | None:
    """The tuning database whose schedules compilations use, if any."""
    return TUNING_DB.get()


def use_packed_schedules() -> bool:
    """Whether compilations use what comes with the package for a named machine."""
    return PACKED.get()


def show_progress() -> bool:
    return PROGRESS.get()


def table() -> list[tuple[str, str, str]]:
    """Rows (variable, current value, what it does) to be shown to users."""
    return [(s.variable, str(s.get()), s.doc) for s in SETTINGS]
