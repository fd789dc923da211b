"""Names of trackers, as the server in C resolves them: by a file of hosts, and by name servers that say anything."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.rpc.server_build import SOURCES

MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "address.h"
#include "listen.h"
#include "weft_runtime.h"
void rpc_log(const char *format, ...) { (void)format; }
int main(int count, char **words) {
    rpc_address a;
    char text[128];
    for (int i = 2; i < count; i++) {
        socklen_t bytes = rpc_resolve(words[i], 80, &a, weft_nanoseconds() + atoll(words[1]) * 1000000);
        if (bytes) rpc_address_text(&a, text, sizeof text);
        puts(bytes ? text : "unknown");
    }
    return 0;
}
"""
HOSTS = """# addresses and names
127.0.0.1 localhost
192.168.1.5\ttracker Tracker.Example  # the tracker
broken other
fe80::5 six
"""
Answer = Callable[[bytes], list[bytes]]
Resolve = Callable[..., list[str]]


class NameServer:
    """Answers each question with what ``answer`` makes of it."""

    def __init__(self) -> None:
        self.answer: Answer = lambda question: []
        self.asked: list[tuple[str, int]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                question, peer = self._socket.recvfrom(4096)
            except OSError:
                return
            self.asked.append(asked(question))
            for answer in self.answer(question):
                self._socket.sendto(answer, peer)

    def close(self) -> None:
        self._socket.close()


def asked(question: bytes) -> tuple[str, int]:
    """Name and type of a question."""
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode())
        at += 1 + question[at]
    return ".".join(labels), int.from_bytes(question[at + 1 : at + 3], "big")


def answered(question: bytes, *records: tuple[int, bytes], code: int = 0) -> bytes:
    """An answer with records of a type and content."""
    head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0)
    made = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", t, 1, 60, len(d)) + d for t, d in records)
    return head + question[12:] + made


@pytest.fixture
def names() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


@pytest.fixture
def resolve(names: NameServer, compiler: list[str], tmp_path: Path) -> Resolve:
    (tmp_path / "main.c").write_text(MAIN)
    (tmp_path / "hosts").write_text(HOSTS)
    (tmp_path / "resolv").write_text(
        "; servers\nsearch farm.test other.test\nnameserver 127.0.0.1\nnameserver nobody\n"
    )
    files = [f'-DRPC_HOSTS_FILE="{tmp_path / "hosts"}"', f'-DRPC_RESOLV_FILE="{tmp_path / "resolv"}"']
    parts = [
        SOURCES / "rpc" / f"{n}.c" for n in ("resolve", "address", "frames", "handshake", "sha256", "tls", "payload")
    ]
    parts += [SOURCES / "src" / f"{n}.c" for n in ("platform", "blocks")]
    flags = ["-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-pthread"]
    include = [f"-I{SOURCES / n}" for n in ("include", "src", "rpc")]
    command = [
        *compiler,
        *flags,
        *include,
        *files,
        f"-DRPC_DNS_PORT={names.port}",
        "main.c",
        *map(str, parts),
        "-o",
        "main",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "sanitize" in done.stderr:
        pytest.skip("the compiler has no address sanitizer")
    assert done.returncode == 0, done.stderr

    def run(*words: str, milliseconds: int = 20_000) -> list[str]:
        command = [str(tmp_path / "main"), str(milliseconds), *words]
        made = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert made.returncode == 0, made.stderr
        return made.stdout.splitlines()

    return run


def test_names_are_resolved(names: NameServer, resolve: Resolve) -> None:
    """One build for all of it: hosts, addresses of both kinds, aliases, ends of names, and what is no answer."""
    # The file of hosts, and what needs no file.
    assert resolve("tracker", "TRACKER.example", "six", "localhost") == [
        "192.168.1.5, port 80",
        "192.168.1.5, port 80",
        "fe80::5, port 80",
        "127.0.0.1, port 80",
    ]
    assert resolve("", ".", "a..b", "-a", "10.0.0", "a b", "a" * 64, ".".join(["a" * 60] * 5)) == ["unknown"] * 8
    assert not names.asked

    # An address behind an alias; the long form of addresses; a name with an end.
    known = {"alias.test": (1, b"\x0a\x00\x00\x07"), "six.test": (28, bytes(15) + b"\x09")}

    def tell(question: bytes) -> list[bytes]:
        name, kind = asked(question)
        if name == "board.farm.test" and kind == 1:
            return [answered(question, (1, b"\x0a\x00\x00\x08"))]
        if name not in known:
            return [answered(question, code=3)]
        found = known[name]
        return [answered(question, (5, b"\x01x\xc0\x0c"), found) if kind == found[0] else answered(question)]

    names.answer = tell
    wanted = ["10.0.0.7, port 80", "::9, port 80", "10.0.0.8, port 80", "unknown"]
    assert resolve("alias.test", "six.test", "board", "absent.test.") == wanted
    assert ("absent.test", 28) in names.asked and ("board.other.test", 1) not in names.asked

    # Answers to other questions are passed over.
    def forged(question: bytes) -> list[bytes]:
        right = answered(question, (1, b"\x0a\x00\x00\x01"))
        other = bytes([right[0] ^ 1]) + answered(question, (1, b"\x0a\x00\x00\x02"))[1:]
        return [other, question, b"", right]

    names.answer = forged
    assert resolve("name.test") == ["10.0.0.1, port 80"]

    # Any bytes: nothing breaks (the program has sanitizers), and it ends in time.
    chance = random.Random(5)

    def noise(question: bytes) -> list[bytes]:
        made = bytearray(answered(question, (5, b"\xc0\xff"), (1, b"\x0a\x00\x00\x03")))
        for _ in range(chance.randrange(1, 6)):
            made[chance.randrange(len(question), len(made))] = chance.randrange(256)
        return [bytes(made[: chance.randrange(len(made) + 1)]), answered(question, code=3)]

    names.answer = noise
    found = resolve(*(f"n{i}.test." for i in range(200)))
    assert len(found) == 200 and "unknown" in found

    # Silence.
    names.answer = lambda question: []
    assert resolve("late.test", milliseconds=300) == ["unknown"]
