"""What the tracker's messages say, from payloads to values and back. docs/rpc-protocol.md defines the bytes."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from weft.rpc.payload import PayloadReader, text
from weft.rpc.tracker.board import BoardEntry, Grant
from weft.rpc.tracker.scheduler import BAD_VALUE, MAX_PRIORITY, Claim, Refusal

MAX_NAME_CHARACTERS: Final = 64
MAX_DESCRIPTION_CHARACTERS: Final = 200
MAX_CAPACITY: Final = 1024
MAX_INFO_LINES: Final = 64
MAX_INFO_CHARACTERS: Final = 8192
"""Of one value: the features of a CPU take a thousand and more."""
MAX_WAITED_SECONDS: Final = 86400.0
_LEASE: Final = re.compile(r"[0-9a-f]{16}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_OF_REGISTRATION: Final = ("key", "address", "port", "description", "tickets", "tls", "held")
"""Lines of REGISTER that are not lines of INFO."""


def board_entry(lines: Mapping[str, str], peer: str) -> BoardEntry:
    """A machine from the lines of REGISTER; ``peer`` is the address that it connects from. Raises Refusal."""
    name = name_in(lines, "name")
    info = {n: v for n, v in lines.items() if n not in _OF_REGISTRATION}
    if len(info) > MAX_INFO_LINES or any(not _is_line(n, 64) or not _is_line(v) for n, v in info.items()):
        raise Refusal(
            BAD_VALUE,
            f"INFO has at most {MAX_INFO_LINES} lines of {MAX_INFO_CHARACTERS:,} printable characters",
        )
    return BoardEntry(
        name,
        name_in(lines, "key") if lines.get("key") else name,
        _address(lines.get("address") or peer),
        _whole(lines, "port", 1, 65535),
        name_in(lines, "description", MAX_DESCRIPTION_CHARACTERS) if lines.get("description") else "",
        _whole(lines, "sessions", 1, MAX_CAPACITY, 1),
        lines.get("tickets") == "1",
        lines.get("tls") == "1",
        info,
    )


def claim(lines: Mapping[str, str]) -> Claim:
    """A claim from the lines of RESUME. Raises Refusal."""
    (lease,) = leases(lines.get("lease", "")) or (0,)
    if not lease:
        raise Refusal(BAD_VALUE, "'lease' is missing")
    return Claim(
        lease,
        _address(lines.get("address", "")),
        _whole(lines, "port", 1, 65535),
        name_in(lines, "key"),
        name_in(lines, "name"),
        priority_in(lines),
        seconds_in(lines, "held"),
    )


def leases(value: str) -> tuple[int, ...]:
    """The numbers of leases in a list of them. Raises Refusal."""
    words = [w for w in value.split(",") if w]
    if len(words) > MAX_CAPACITY or not all(map(_LEASE.fullmatch, words)):
        raise Refusal(BAD_VALUE, "a list of leases has numbers of 16 hexadecimal digits, separated by commas")
    return tuple(int(w, 16) for w in words)


def lease_list(numbers: Iterable[int]) -> str:
    """The value that :func:`leases` reads."""
    return ",".join(f"{n:016x}" for n in sorted(numbers))


def name_in(lines: Mapping[str, str], line: str, characters: int = MAX_NAME_CHARACTERS) -> str:
    """A name that people read: printable, and not too long. Raises Refusal."""
    value = lines.get(line, "").strip()
    if not value or not _is_line(value, characters):
        raise Refusal(BAD_VALUE, f"'{line}' must have 1 to {characters} printable characters")
    return value


def priority_in(lines: Mapping[str, str]) -> int:
    """The priority of a request; 0 if it states none. Raises Refusal."""
    return _whole(lines, "priority", -MAX_PRIORITY, MAX_PRIORITY, 0)


def seconds_in(lines: Mapping[str, str], line: str) -> float:
    """A time in seconds, of a day at most; 0 if it is not stated. Raises Refusal."""
    try:
        value = float(lines.get(line, "0")[:40])
    except ValueError:
        value = math.nan
    if not value >= 0.0:
        raise Refusal(BAD_VALUE, f"'{line}' must be a number of seconds")
    return min(value, MAX_WAITED_SECONDS)


def granted(grant: Grant, version: int, seconds: float) -> bytes:
    """The answer to AWAIT for a request that has its lease."""
    entry = grant.board.entry
    lines: dict[str, object] = {
        "state": "granted",
        "version": version,
        "lease": f"{grant.number:016x}",
        "machine": entry.name,
        "address": entry.address,
        "port": entry.port,
        "ticket": grant.ticket,
        "tls": int(grant.board.entry.tls),
        "seconds": f"{seconds:.3f}",
    }
    return text(lines | {f"info.{name}": value for name, value in entry.info.items()})


def still_waiting(version: int, position: int, why: str) -> bytes:
    """The answer to AWAIT for a request that is in the queue."""
    return text({"state": "waiting", "version": version, "position": position, "why": why})


def await_operands(payload: bytes) -> tuple[int, int, float]:
    """Request, known version and seconds of AWAIT. Raises RemoteError."""
    read = PayloadReader(payload)
    found = read.u64(), read.u32(), read.u32() / 1000
    read.finish()
    return found


def number_operand(payload: bytes) -> int:
    """The only number of RENEW and CANCEL. Raises RemoteError."""
    read = PayloadReader(payload)
    found = read.u64()
    read.finish()
    return found


def _is_line(value: str, characters: int = MAX_INFO_CHARACTERS) -> bool:
    return len(value) <= characters and (not value or value.isprintable())


def _whole(lines: Mapping[str, str], line: str, low: int, high: int, default: int | None = None) -> int:
    value = lines.get(line, "")
    if not value and default is not None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise Refusal(BAD_VALUE, f"'{line}' must be a whole number from {low} to {high}")
    return int(value)


def _address(value: str) -> str:
    """An IP address or the name of a host."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        if _HOST.fullmatch(value):
            return value
        raise Refusal(BAD_VALUE, "'address' must be an IP address or the name of a host") from None
