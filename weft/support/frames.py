"""Bytes with a header in JSON before them: files of the kernel cache, and answers between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from weft.support.errors import MALFORMED

_LENGTH_BYTES: Final = 4


def pack(header: Mapping[str, Any], data: bytes = b"") -> bytes:
    """``header`` (what JSON can hold) and ``data`` as one piece: four bytes of length, the header, the data."""
    text = json.dumps(dict(header)).encode()
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + data


def unpack(packed: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the data of what :func:`pack` made. Raises ValueError for anything else."""
    end = _LENGTH_BYTES + int.from_bytes(packed[:_LENGTH_BYTES], "little")
    if not _LENGTH_BYTES < end <= len(packed):
        raise ValueError(f"{len(packed)} bytes hold no header of {end - _LENGTH_BYTES}")
    try:
        header = json.loads(packed[_LENGTH_BYTES:end])
    except MALFORMED as error:
        raise ValueError(f"the header is malformed: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    return header, packed[end:]
