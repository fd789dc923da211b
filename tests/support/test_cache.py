"""The disk cache: round trips, damage, eviction, several processes at once."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest

import weft.support.cache as cache_module
from weft.support.cache import DiskCache
from weft.support.errors import InternalError


def key(i: int) -> str:
    return hashlib.blake2b(str(i).encode(), digest_size=16).hexdigest()


def entry(cache: DiskCache, k: str) -> Path:
    return next(cache.directory.glob(f"*/{k}.entry"))


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 1 << 20)


def test_round_trip(cache: DiskCache) -> None:
    assert cache.get(key(1)) is None
    cache.put(key(1), b"one")
    cache.put(key(2), b"")
    assert (cache.get(key(1)), cache.get(key(2))) == (b"one", b"")
    cache.put(key(1), b"other")
    assert cache.get(key(1)) == b"other"
    assert cache.keys() == sorted([key(1), key(2)])
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses) == (2, 3, 1)
    assert cache.clear() == 2
    assert cache.get(key(1)) is None


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "magic", "grow"])
def test_damage_is_a_miss_and_the_entry_goes(cache: DiskCache, damage: str) -> None:
    cache.put(key(1), b"precious content")
    path = entry(cache, key(1))
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[-1] ^= 1
    elif damage == "magic":
        raw[0] ^= 1
    path.write_bytes({"cut": raw[:-3], "empty": b"", "grow": raw + b"x"}.get(damage, bytes(raw)))
    assert cache.get(key(1)) is None
    assert not path.exists()
    cache.put(key(1), b"again")
    assert cache.get(key(1)) == b"again"


def test_the_least_recently_used_entry_is_removed_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    for i in range(8):
        cache.put(key(i), bytes(90))
        os.utime(entry(cache, key(i)), (i, i))
    assert cache.get(key(0)) is not None  # used just now
    cache.put(key(8), bytes(90))
    kept = {i for i in range(9) if key(i) in cache}
    assert 0 in kept and 8 in kept and 1 not in kept
    assert cache.stats().bytes <= 1000


def test_a_limit_of_zero_keeps_nothing(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "none", 0)
    cache.put(key(1), b"x")
    assert cache.get(key(1)) is None
    assert not (tmp_path / "none").exists()


def test_disk_trouble_never_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = DiskCache(tmp_path / "file" / "cache", 1000)
    cache.put(key(1), b"x")
    assert cache.get(key(1)) is None
    assert cache.clear() == 0


def test_keys_cannot_leave_the_directory(cache: DiskCache) -> None:
    with pytest.raises(InternalError):
        cache.get("../../etc/passwd")


def _hammer(directory: str, seed: int) -> None:
    cache = DiskCache(Path(directory), 20_000)
    for step in range(150):
        i = (step * 7 + seed) % 40
        content = key(i).encode() * (10 + i)
        found = cache.get(key(i))
        if found is not None and found != content:
            os._exit(1)
        cache.put(key(i), content)
    os._exit(0)


def test_processes_may_share_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_hammer, args=(str(tmp_path), seed)) for seed in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    assert not list(tmp_path.glob("*/*.part"))


def test_the_size_of_many_entries_is_estimated_from_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_MAX_COUNTED_ENTRIES", 500)
    filling = DiskCache(tmp_path, 10**9)
    for i in range(1000):
        filling.put(key(i), b"x" * 100)
    exact = filling.stats().bytes
    looked_at: list[Path] = []
    entries_of = cache_module._entries_of

    def counted(folder: Path) -> list[tuple[Path, int, float]]:
        looked_at.append(folder)
        return entries_of(folder)

    monkeypatch.setattr(cache_module, "_entries_of", counted)
    monkeypatch.setattr(cache_module, "_SIZES", {})
    later = DiskCache(tmp_path, 10**9)
    later.put("ab" * 16, b"y")
    assert len(looked_at) == 1 and exact / 8 < cache_module._SIZES[tmp_path] < exact * 8
    DiskCache(tmp_path, 10**9).put("ab" * 16, b"y")  # the process knows by now
    assert len(looked_at) == 1

    looked_at.clear()
    cache_module._SIZES.clear()
    full = DiskCache(tmp_path, exact - 1)  # so near the limit every entry counts
    full.put("ab" * 16, b"z")
    assert len(looked_at) > 200 and full.stats().bytes < exact


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_new_cache_belongs_to_the_user_alone(cache: DiskCache) -> None:
    before = os.umask(0)
    try:
        cache.put(key(1), b"code")
    finally:
        os.umask(before)
    for path in (cache.directory, entry(cache, key(1)).parent, entry(cache, key(1))):
        assert not path.stat().st_mode & 0o077


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702, 0o720])
def test_a_cache_that_others_can_write_to_is_not_used(cache: DiskCache, mode: int) -> None:
    cache.put(key(1), b"code")
    cache.directory.chmod(mode)
    cache_module._TRUSTED.clear()
    other = DiskCache(cache.directory, 1 << 20)
    with pytest.warns(UserWarning, match="other users can write"):
        assert other.get(key(1)) is None
    other.put(key(2), b"code")
    assert key(2) not in other
    cache.directory.chmod(0o755)
    cache_module._TRUSTED.clear()
    assert other.get(key(1)) == b"code"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_cache_of_another_user_is_not_used(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(key(1), b"code")
    os.chown(cache.directory, 12345, 12345)
    cache_module._TRUSTED.clear()
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert cache.get(key(1)) is None


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_an_entry_that_others_may_have_written_is_not_read(cache: DiskCache) -> None:
    """A directory may have been emptied badly before its mode was set: the files in it say who wrote them."""
    for i, mode in enumerate((0o600, 0o644, 0o660, 0o606, 0o622)):
        cache.put(key(i), b"code")
        entry(cache, key(i)).chmod(mode)
        assert cache.get(key(i)) == (None if mode & 0o022 else b"code")
        cache.put(key(i), b"new")  # it is replaced, not written into
        assert cache.get(key(i)) == b"new" and entry(cache, key(i)).stat().st_mode & 0o777 == 0o600
    cache.put(key(9), b"code")
    entry(cache, key(9)).parent.chmod(0o770)
    cache_module._TRUSTED.clear()
    with pytest.warns(UserWarning, match="other users can write"):
        assert cache.get(key(9)) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_an_entry_of_another_user_is_not_read(cache: DiskCache) -> None:
    cache.put(key(1), b"code")
    os.chown(entry(cache, key(1)), 12345, 12345)
    assert cache.get(key(1)) is None
    cache.put(key(1), b"own")
    assert cache.get(key(1)) == b"own"


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_an_entry_does_not_follow_links(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(key(1), b"code")
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    path = entry(cache, key(1))
    path.unlink()
    path.symlink_to(other)
    cache.put(key(1), b"code")
    assert other.read_bytes() == b"precious" and cache.get(key(1)) == b"code"


def _use_until_killed(directory: Path, seed: int) -> None:
    shared = DiskCache(directory, 200_000)
    for i in range(seed, 1 << 30):
        k = key(i % 40)
        found = shared.get(k)
        assert found is None or found == k.encode() * 300
        shared.put(k, k.encode() * 300)


def test_eight_processes_that_are_killed_lose_nothing(cache: DiskCache) -> None:
    """Entries are whole or absent, and what is left behind is cleaned up."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_use_until_killed, args=(cache.directory, i * 7)) for i in range(8)]
    for process in processes:
        process.start()
    for turn, process in enumerate(processes):
        process.join(0.05 * (turn % 3 + 1))
        assert process.is_alive()  # an assertion in it would have ended it
        process.kill()
        process.join()
    fresh = DiskCache(cache.directory, 200_000)
    for i in range(40):
        assert fresh.get(key(i)) in (None, key(i).encode() * 300)
        fresh.put(key(i), b"new")
        assert fresh.get(key(i)) == b"new"
    fresh.clear()
    assert not [p for p in cache.directory.rglob("*") if p.is_file()]
