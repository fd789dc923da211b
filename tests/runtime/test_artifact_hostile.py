"""Artifacts whose header was changed, with a right checksum: they load, or are refused by an ArtifactError."""

from __future__ import annotations

import copy
import json
import os
import random
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from seeds import seeds
from small_artifacts import artifact
from test_executor import CONSTANT, chain, chain_result

from weft.runtime import Executable
from weft.runtime.artifact import _DIGEST, _PREFIX, FORMAT_VERSION, MAGIC, Artifact
from weft.support.errors import ArtifactError, UserError

VALUES = [
    *(None, True, False, 0, 1, -1, 2, 7, 64, 10**10, 2**31, 2**63, 2**64, -(2**63), 10**400, 1.5),
    *(float("inf"), float("nan"), "", "n", "add", "x" * 1000, "\0", "float32", "bfloat16", "data", "string"),
    *([], [0], [[]], ["n", "n"], [10**10], {}, {"a": 1}),
]


def rewritten(raw: bytes, header: bytes) -> bytes:
    """The file with another header and a correct checksum."""
    _, _, length, total = _PREFIX.unpack(raw[: _PREFIX.size])
    old, new = _PREFIX.size + _DIGEST + length, _PREFIX.size + _DIGEST + len(header)
    start, moved = -(-old // 64) * 64, -(-new // 64) * 64
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header), moved + total - start)
    check = blake2b(prefix + header, digest_size=_DIGEST).digest()
    return prefix + check + header + bytes(moved - new) + raw[start:]


def header_of(raw: bytes) -> dict:
    length = _PREFIX.unpack(raw[: _PREFIX.size])[2]
    return json.loads(raw[_PREFIX.size + _DIGEST :][:length])


def places(value, found: list) -> list:
    """All (container, key) pairs in a JSON value."""
    for k in list(value) if isinstance(value, dict) else range(len(value)):
        found.append((value, k))
        if isinstance(value[k], (dict, list)):
            places(value[k], found)
    return found


@pytest.fixture(scope="module")
def saved(kernels, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "m.weft"
    artifact(chain("n"), kernels, (CONSTANT,)).save(path)
    return path.read_bytes()


def load(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    Executable(Artifact.load(path))


def test_the_unchanged_header_loads(saved, tmp_path):
    load(tmp_path / "m.weft", rewritten(saved, json.dumps(header_of(saved)).encode()))


NASTY = (float("inf"), float("nan"), 10**400, -(2**70), None, True, "x", [[]], {"a": 1})


@pytest.mark.parametrize("number", range(len(NASTY)), ids=lambda n: str(NASTY[n])[:12])
def test_one_value_at_every_place_of_the_header(saved, tmp_path, number):
    refused = 0
    count = len(places(header_of(saved), []))
    for i in range(count):
        header = header_of(saved)
        container, k = places(header, [])[i]
        container[k] = NASTY[number]
        try:
            load(tmp_path / "m.weft", rewritten(saved, json.dumps(header).encode()))
        except ArtifactError:
            refused += 1
    assert count // 2 < refused < count


@pytest.mark.parametrize("seed", seeds(3))
def test_random_changes_of_the_header(saved, tmp_path, seed):
    choose = random.Random(seed)
    refused = 0
    for _ in range(700):
        header = copy.deepcopy(header_of(saved))
        for _ in range(choose.choice((1, 1, 2))):
            container, k = choose.choice(places(header, []))
            change = choose.randrange(4)
            if change == 0:
                del container[k]
            elif change == 1 and isinstance(container, list):
                container.insert(k, choose.choice(VALUES))
            else:
                container[k] = choose.choice(VALUES)
        try:
            load(tmp_path / "m.weft", rewritten(saved, json.dumps(header).encode()))
        except ArtifactError:
            refused += 1
    assert 300 < refused < 700


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"nul",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 5000,
        b"Infinity",
        b'{"codes": NaN}',
    ],
)
def test_headers_that_are_no_header(saved, tmp_path, header):
    with pytest.raises(ArtifactError):
        load(tmp_path / "m.weft", rewritten(saved, header))


def test_paths_that_cannot_be(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        Artifact.load(str(tmp_path / "a\0b"))
    with pytest.raises(ArtifactError, match="cannot read"):
        Artifact.load(tmp_path / ("x" * 5000))


def test_a_file_that_changes_while_it_is_read(saved, tmp_path, monkeypatch):
    from weft.runtime import artifact as module

    path = tmp_path / "m.weft"
    path.write_bytes(saved)

    def changed(*arguments):
        os.utime(path, ns=(1, 1))
        return original(*arguments)

    original = module.program_from_json
    monkeypatch.setattr(module, "program_from_json", changed)
    with pytest.raises(ArtifactError, match="changed while it was read"):
        Artifact.load(path)


def test_a_file_that_was_read_may_change(saved, tmp_path):
    """With mapped=False nothing of the file is needed any more."""
    path = tmp_path / "m.weft"
    path.write_bytes(saved)
    made = Artifact.load(path, mapped=False)
    path.write_bytes(b"")
    np.testing.assert_array_equal(made.constants[0], CONSTANT)
    np.testing.assert_allclose(Executable(made)(np.ones(3, np.float32)), chain_result(np.ones(3)), rtol=1e-6)
