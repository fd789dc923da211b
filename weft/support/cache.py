"""A content-addressed cache on disk.

Entries are bytes under hexadecimal keys, one file each. A file begins with a magic word and a checksum of the content:
what does not fit its checksum is deleted and counts as absent. Files are written beside their place and renamed
into it, so processes may share a cache without locks; the worst that can happen is that both do the same work. When the
total passes the limit, the entries that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weft.support import settings
from weft.support.errors import InternalError
from weft.support.files import replaced_file

_MAGIC: Final = b"weftcch1"
_DIGEST: Final = 16
_HEADER: Final = len(_MAGIC) + _DIGEST
_KEY: Final = re.compile(r"[0-9a-f]{8,128}")
_SUFFIX: Final = ".entry"
_STALE_SECONDS: Final = 3600
_MAX_COUNTED_ENTRIES: Final = 4096
"""Entries that are counted one by one. Of more, the bytes are estimated from one folder until half of the limit is
reached."""
_SHARE_AFTER_EVICTION: Final = 0.8
"""Part of the limit that is left after entries were removed, so that this happens rarely."""

_SIZES: Final[dict[Path, int]] = {}
"""Bytes in the directories that this process has written to, as far as it knows: others may write there too."""


_TRUSTED: Final[dict[Path, bool]] = {}
"""Directories that were looked at, and whether others cannot write to them."""


def why_untrusted(directory: Path) -> str | None:
    """Why the content of an existing directory may come from other users; None: it cannot."""
    reason = _why_foreign(os.stat(directory))
    return f"{reason} (empty it, then chmod 700 '{directory}')" if reason else None


def _why_foreign(status: os.stat_result) -> str | None:
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it"
    return None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """``entries`` and ``bytes`` on disk now; ``hits`` and ``misses`` of this object since it was made."""

    directory: Path
    entries: int
    bytes: int
    limit: int
    hits: int
    misses: int


class DiskCache:
    """Bytes by key in ``directory``, at most ``limit`` bytes (0: nothing is kept).

    A disk that is full, read-only or missing raises nothing: the entry is then not found, or not kept.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory, self.limit = Path(directory), limit
        self._hits = self._misses = 0

    @classmethod
    def default(cls, kind: str = "kernels") -> DiskCache:
        """The cache in the directory and with the limit that the environment variables set."""
        return cls(settings.cache_directory() / kind, settings.cache_limit())

    def get(self, key: str) -> bytes | None:
        """The content under ``key``, or None. A hit counts as use for eviction."""
        path = self._path(key)
        try:
            raw = _own_content(path) if self._is_trusted() and self._is_trusted(path.parent) else None
        except OSError:
            raw = None
        if raw is None:
            self._misses += 1
            return None
        content = _checked(raw)
        if content is None:
            _remove(path)
            self._misses += 1
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        self._hits += 1
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep ``content`` under ``key``, replacing what is there."""
        raw = _MAGIC + _digest(content) + content
        if len(raw) > self.limit:
            return
        path = self._path(key)
        try:
            self.directory.mkdir(parents=True, mode=0o700, exist_ok=True)
            if not self._is_trusted():
                return
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if self._is_trusted(path.parent):
                with replaced_file(path, durable=False, private=True) as file:  # the checksum tells what is incomplete
                    file.write(raw)
        except OSError:
            return
        known = _SIZES.get(self.directory)
        _SIZES[self.directory] = self._first_size(path.parent) if known is None else known + len(raw)
        if _SIZES[self.directory] > self.limit:
            self._evict()

    def _is_trusted(self, folder: Path | None = None) -> bool:
        """Whether only this user (or the system's administrator) can have put entries into the directory, or a
        ``folder`` in it: they may be machine code, and a checksum does not tell who made it. What others can write to
        is not used, with one warning."""
        looked_at = folder or self.directory
        known = _TRUSTED.get(looked_at)
        if known is None and os.path.isdir(looked_at):
            reason = why_untrusted(looked_at)
            known = _TRUSTED[looked_at] = reason is None
            if not known:
                warnings.warn(f"the cache in '{looked_at}' is not used: {reason}", stacklevel=3)
        return bool(known)

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def keys(self) -> list[str]:
        """The keys of all entries, sorted."""
        return sorted(path.name.removesuffix(_SUFFIX) for path in self._files())

    def stats(self) -> CacheStats:
        sizes = [size for _, size, _ in self._entries()]
        return CacheStats(self.directory, len(sizes), sum(sizes), self.limit, self._hits, self._misses)

    def clear(self) -> int:
        """Delete all entries. Returns how many there were."""
        files = list(self._files())
        for path in files:
            _remove(path)
        self._remove_stale(0.0)
        _SIZES.pop(self.directory, None)
        return len(files)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InternalError(f"'{key}' is not a cache key")
        return self.directory / key[:2] / (key + _SUFFIX)

    def _files(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            for folder in sorted(self.directory.iterdir()):
                if folder.is_dir():
                    yield from sorted(folder.glob("*" + _SUFFIX))

    def _entries(self) -> list[tuple[Path, int, float]]:
        """Path, size and time of last use."""
        with contextlib.suppress(OSError):
            return [entry for folder in self.directory.iterdir() for entry in _entries_of(folder)]
        return []

    def _first_size(self, folder: Path) -> int:
        """Bytes of all entries, estimated where there are many: to look at tens of thousands of files takes seconds.
        Keys are digests, so all folders hold about the same number of bytes."""
        here = _entries_of(folder)
        with contextlib.suppress(OSError):
            folders = len(os.listdir(self.directory))
            guess = folders * sum(size for _, size, _ in here)
            if folders * len(here) > _MAX_COUNTED_ENTRIES and guess < self.limit // 2:
                return guess
        return sum(size for _, size, _ in self._entries())

    def _evict(self) -> None:
        entries = sorted(self._entries(), key=lambda row: row[2])
        total = sum(size for _, size, _ in entries)
        if total > self.limit:
            for path, size, _ in entries[:-1]:
                if total <= self.limit * _SHARE_AFTER_EVICTION:
                    break
                _remove(path)
                total -= size
        self._remove_stale(_STALE_SECONDS)
        _SIZES[self.directory] = total

    def _remove_stale(self, age: float) -> None:
        """Remove incomplete files of processes that were killed."""
        now = time.time()
        with contextlib.suppress(OSError):
            for path in self.directory.glob("*/*.part"):
                with contextlib.suppress(OSError):
                    if now - path.stat().st_mtime >= age:
                        path.unlink()


def _entries_of(folder: Path) -> list[tuple[Path, int, float]]:
    """Path, size and time of last use of the entries in one folder."""
    out = []
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    out.append((Path(entry.path), status.st_size, max(status.st_mtime, status.st_atime)))
    return out


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def _checked(raw: bytes) -> bytes | None:
    content = raw[_HEADER:]
    good = raw[: len(_MAGIC)] == _MAGIC and raw[len(_MAGIC) : _HEADER] == _digest(content)
    return content if good else None


def _own_content(path: Path) -> bytes | None:
    """The content of a file that only this user (or the system's administrator) can have written; else None."""
    with open(path, "rb") as file:
        return None if _why_foreign(os.fstat(file.fileno())) else file.read()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
