"""Asks a tracker what it is doing."""

from __future__ import annotations

import ssl

from weft.rpc.auth import Role
from weft.rpc.frames import MessageType
from weft.rpc.tracker.status import TrackerStatus
from weft.rpc.tracker_link import TrackerLink


def read_status(address: tuple[str, int], key: bytes, tls: ssl.SSLContext | None = None) -> TrackerStatus:
    """The status of the tracker at ``address``. Raises LinkError if it cannot be reached, RemoteError N035 if what it
    says is not understood."""
    link = TrackerLink(address, key, Role.CLIENT, tls=tls)
    try:
        return TrackerStatus.from_json(link.ask(MessageType.STATUS).rest())
    finally:
        link.close()
