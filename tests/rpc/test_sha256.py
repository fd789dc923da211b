"""SHA-256 and HMAC in C, on published vectors and against Python's own."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
from pathlib import Path

import numpy as np
import pytest

from weft.rpc.server_build import SOURCES

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "sha256.h"

static size_t take(unsigned char *to) {
    static char text[1 << 20];
    if (scanf("%1048575s", text) != 1) exit(1);
    size_t n = 0;
    for (unsigned byte; sscanf(text + 1 + 2 * n, "%2x", &byte) == 1; n++) to[n] = (unsigned char)byte;
    return n;
}

static void show(const unsigned char *digest) {
    for (int i = 0; i < RPC_DIGEST; i++) printf("%02x", digest[i]);
    puts("");
}

/* Lines: length of a piece, key, data, in hexadecimal digits behind an x. */
int main(void) {
    static unsigned char key[1 << 19], data[1 << 19], digest[RPC_DIGEST];
    for (unsigned long piece; scanf("%lu", &piece) == 1;) {
        size_t key_bytes = take(key), bytes = take(data);
        rpc_sha256 s;
        rpc_hmac h;
        rpc_sha256_begin(&s);
        rpc_hmac_begin(&h, key, key_bytes);
        for (size_t at = 0; at < bytes; at += piece) {
            size_t part = bytes - at < piece ? bytes - at : piece;
            rpc_sha256_add(&s, data + at, part);
            rpc_hmac_add(&h, data + at, part);
        }
        rpc_sha256_end(&s, digest);
        show(digest);
        rpc_hmac_end(&h, digest);
        show(digest);
    }
    if (!rpc_equal("abc", "abc", 3) || rpc_equal("abc", "abd", 3) || rpc_equal("xbc", "abc", 3)) return 2;
    rpc_wipe(data, sizeof data);
    for (size_t i = 0; i < sizeof data; i++)
        if (data[i]) return 3;
    return 0;
}
"""

DIGESTS = {
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
}
"""FIPS 180-4, examples of SHA-256."""
MACS = {
    (b"\x0b" * 20, b"Hi There"): "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    (b"Jefe", b"what do ya want for nothing?"): "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    (b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First"): (
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
    ),
}
"""RFC 4231, test cases 1, 2 and 6."""


@pytest.fixture(scope="module")
def hashing(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sha256")
    (folder / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES / 'rpc'}"]
    command = [*compiler, *flags, "main.c", str(SOURCES / "rpc" / "sha256.c"), "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "main"


def hashed(program: Path, cases: list[tuple[int, bytes, bytes]]) -> list[str]:
    lines = "".join(f"{piece} x{key.hex()} x{data.hex()}\n" for piece, key, data in cases)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    return done.stdout.split()


def test_published_vectors(hashing: Path) -> None:
    assert hashed(hashing, [(1000, b"", data) for data in DIGESTS])[::2] == list(DIGESTS.values())
    assert hashed(hashing, [(1000, *case) for case in MACS])[1::2] == list(MACS.values())


def test_all_lengths_in_any_pieces(hashing: Path) -> None:
    source = np.random.default_rng(0)
    cases = [(int(source.integers(1, 150)), source.bytes(n), source.bytes(n)) for n in range(200)]
    expected = [f(*case) for case in cases for f in (sha256, hmac_sha256)]
    assert hashed(hashing, cases) == expected


def sha256(_: int, __: bytes, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hmac_sha256(_: int, key: bytes, data: bytes) -> str:
    return hmac.digest(key, data, "sha256").hex()
