"""What can go wrong between two machines."""

from __future__ import annotations

from weft.support.errors import UserError


class RemoteError(UserError):
    """A remote machine refuses a request, or what it sends cannot be understood."""

    default_code = "N001"


class LinkError(RemoteError):
    """The link to a remote machine cannot be made, or is lost: nothing is known of what was asked for last."""

    default_code = "N006"


class FrameError(LinkError):
    """Bytes from another machine break the rules of the protocol; the connection cannot go on."""

    default_code = "N001"
