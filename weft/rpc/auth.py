"""Authentication: both sides prove that they know a shared key, and agree on keys for their frames.

docs/rpc-protocol.md defines the bytes. Nothing here knows of sockets: a side of the handshake takes the payload of a
message and gives that of the next.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final

from weft.rpc.errors import FrameError, LinkError
from weft.rpc.frames import MAX_LIMIT, MIN_LIMIT
from weft.support.errors import UserError

KEY_VARIABLE: Final = "WEFT_RPC_KEY"
"""The environment variable that holds a key. It is not one of :mod:`weft.support.settings`, whose values are shown."""
MIN_KEY_BYTES: Final = 16
MAX_KEY_BYTES: Final = 1024
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_STATED_BYTES: Final = 40
"""What a side states of itself: service or role (1 byte), three zeros, limit (u32), nonce."""
_MAKE_KEY: Final = "make one: (umask 077; openssl rand -hex 32 > weft.key)"


class Service(IntEnum):
    """What an acceptor offers."""

    MACHINE = 1
    TRACKER = 2


class Role(IntEnum):
    """What a connector is. Machines connect to trackers, to register."""

    CLIENT = 1
    MACHINE = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides know after the handshake: the keys of the frames that this side sends and receives, the largest
    payload that the other side takes, and its service (of an acceptor) or role (of a connector)."""

    send_key: bytes = field(repr=False)
    receive_key: bytes = field(repr=False)
    limit: int
    peer: int


def find_key(key: bytes | str | os.PathLike[str] | None) -> bytes:
    """The shared key: ``key`` itself if it is bytes, the content of the file that it names, or for None the value of
    the environment variable ``WEFT_RPC_KEY``. Blanks and line ends behind a key do not belong to it.

    Raises UserError N003 if there is none, if others can read its file, or if it is shorter than 16 bytes.
    """
    if isinstance(key, bytes):
        return _checked_key(key, "the key")
    if key is not None:
        return _checked_key(_read(Path(key)), f"the key in '{os.fspath(key)}'")
    value = os.environ.get(KEY_VARIABLE, "")
    if not value:
        raise UserError(
            "no key for remote machines is given", code="N003", hint=f"name a file, or set {KEY_VARIABLE}; {_MAKE_KEY}"
        )
    return _checked_key(os.fsencode(value), f"the key in {KEY_VARIABLE}")


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UserError(
                    f"other users may read or change the key in '{path}'", code="N003", hint=f"chmod 600 '{path}'"
                )
            return file.read(MAX_KEY_BYTES + 2)
    except OSError as error:
        raise UserError(
            f"the key cannot be read from '{path}': {error.strerror or error}", code="N003", hint=_MAKE_KEY
        ) from None


def _checked_key(key: bytes, what: str) -> bytes:
    key = _trimmed(key)
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise UserError(
            f"{what} has {len(key)} bytes, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}", code="N003", hint=_MAKE_KEY
        )
    return key


def _trimmed(key: bytes) -> bytes:
    """Handshakes trim keys themselves: a random key may end in a blank, and each side may have it from elsewhere."""
    return key.rstrip(b" \t\r\n")


class ConnectorHandshake:
    """The side that opens the connection. ``limit`` is the largest payload that it takes."""

    def __init__(self, key: bytes, role: Role, limit: int) -> None:
        self._key = _trimmed(key)
        self._stated = _state(role, limit)
        self._greeting = b""

    def proof(self, greeting: bytes, service: Service) -> bytes:
        """The payload of PROOF for that of GREETING. Raises FrameError if that is malformed, LinkError (N004) if the
        other side offers another service."""
        offered, _ = _stated(greeting, "GREETING")
        if offered != service:
            names = {s.value: s.name.lower() for s in Service}
            raise LinkError(
                f"the other side is a {names.get(offered, f'service {offered}')}, not a {names[service]}",
                code="N004",
                hint="is it the right port?",
            )
        self._greeting = greeting
        return self._stated + _derived(self._key, "connector proves", greeting + self._stated)

    def finish(self, welcome: bytes) -> Agreement:
        """The agreement, from the payload of WELCOME. Raises LinkError (N004) if the other side does not know the
        key."""
        both = self._greeting + self._stated
        if not hmac.compare_digest(welcome, _derived(self._key, "acceptor proves", both)):
            raise LinkError(
                "the other side does not know the key: it is not the server that you mean, or has another key",
                code="N004",
                hint="is somebody else listening at this address?",
            )
        offered, limit = _stated(self._greeting, "GREETING")
        return Agreement(
            _derived(self._key, "connector sends", both), _derived(self._key, "acceptor sends", both), limit, offered
        )


class AcceptorHandshake:
    """The side that listens. ``limit`` is the largest payload that it takes; ``greeting`` the payload of GREETING."""

    def __init__(self, key: bytes, service: Service, limit: int) -> None:
        self._key = _trimmed(key)
        self.greeting = _state(service, limit)

    def accept(self, proof: bytes) -> tuple[bytes, Agreement]:
        """The payload of WELCOME and the agreement, from the payload of PROOF. Raises FrameError if that is malformed,
        LinkError (N004) if the other side does not know the key: it gets a REFUSAL."""
        stated, given = proof[:_STATED_BYTES], proof[_STATED_BYTES:]
        role, limit = _stated(stated, "PROOF")
        both = self.greeting + stated
        if not hmac.compare_digest(given, _derived(self._key, "connector proves", both)):
            raise LinkError("the other side does not know the key", code="N004", hint="give both sides the same key")
        agreed = Agreement(
            _derived(self._key, "acceptor sends", both), _derived(self._key, "connector sends", both), limit, role
        )
        return _derived(self._key, "acceptor proves", both), agreed


def _state(what: int, limit: int) -> bytes:
    return bytes((what, 0, 0, 0)) + limit.to_bytes(4, "little") + secrets.token_bytes(_NONCE_BYTES)


def _stated(payload: bytes, name: str) -> tuple[int, int]:
    """Service or role, and limit. Raises FrameError."""
    if len(payload) != _STATED_BYTES or any(payload[1:4]):
        raise FrameError(f"a {name} is malformed", hint="use the same version of Weft on both machines")
    limit = int.from_bytes(payload[4:8], "little")
    if not MIN_LIMIT <= limit <= MAX_LIMIT:
        raise FrameError(f"a {name} states a limit of {limit:,} bytes, not {MIN_LIMIT:,} to {MAX_LIMIT:,}")
    return payload[0], limit


def _derived(key: bytes, what: str, both: bytes) -> bytes:
    return hmac.digest(key, f"weft-rpc 1 {what}".encode() + both, "sha256")
