"""``weft rpc-tracker``."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from weft.rpc.tracker.limits import TrackerLimits
from weft.rpc.tracker.main import DEFAULT_PAGE_PORT, DEFAULT_PORT, TrackerOptions, run_tracker

_LIMITS = {
    "lease_seconds": "A lease that its client does not renew ends; clients renew three times as often.",
    "hold_seconds": "A lease ends, renewed or not; 0: never.",
    "heartbeat_seconds": "How often machines are heard; after three times as long without a word they get no jobs.",
    "probe_seconds": "How often machines without a job are asked whether they answer; 0: never.",
    "aging_seconds": "Who waits for so long, and got no such board, counts as one of the next priority.",
    "rest_seconds": "Rest of a board that lost two jobs in a row; doubled by each further one.",
    "settle_seconds": "After its start, before it gives boards away: those who held some come back.",
    "boards": "Most machines.",
    "queue": "Most requests that wait.",
    "links": "Most connections.",
}
_DEFAULTS = TrackerLimits()


def _limits(f: Any) -> Any:
    """An option for each limit that users set."""
    for name, doc in reversed(_LIMITS.items()):
        default = getattr(_DEFAULTS, name)
        option = f"--{name.replace('_', '-')}" if name.endswith("seconds") else f"--max-{name}"
        f = click.option(option, name, type=type(default), default=default, show_default=f"{default:g}", help=doc)(f)
    return f


@click.command("rpc-tracker")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0: any free one.")
@click.option("--key-file", metavar="FILE", help="The key that all sides share. [default: WEFT_RPC_KEY]")
@click.option("--tls-cert", metavar="FILE", help="Encrypt: the certificate (PEM) that the others are given to trust.")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@click.option("--insecure-network", is_flag=True, help="Allow addresses that other machines reach, without encryption.")
@click.option("--page-listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where the page is.")
@click.option(
    "--page-port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PAGE_PORT,
    show_default=True,
    help="The port of the status page for browsers; 0: any free one.",
)
@click.option("--no-page", is_flag=True, help="Serve no page.")
@_limits
def command(
    listen: str,
    port: int,
    key_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    insecure_network: bool,
    page_listen: str,
    page_port: int,
    no_page: bool,
    **limits: Any,
) -> None:
    """Hand out remote boards to those who ask for them.

    \b
    (umask 077; openssl rand -hex 32 > weft.key)      the key, once; copy it to all machines
    weft rpc-tracker --key-file weft.key              here
    weft-rpc-server --tracker ADDRESS:9180 …          on each board
    weft rpc-status HOST:9180                         who has which board, who waits, and why

    Programs ask with weft.rpc.request("HOST:9180", key="pi4"). The tracker keeps nothing on disk: boards and clients
    come back to one that was restarted, and sessions go on. It listens on this machine only, where SSH tunnels lead to
    it. --tls-cert and --tls-key encrypt, so that it may be on the network:

    \b
    weft rpc-tracker --listen 0.0.0.0 --tls-cert tracker.pem --tls-key tracker.key --key-file weft.key
    weft rpc-status tracker.example:9180 --tls-ca ca.pem

    --insecure-network allows other addresses without that. docs/tracker.md explains shares, priorities and what
    happens when something dies.
    """
    from weft.rpc.auth import find_key
    from weft.rpc.tls import server_context

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("TLS needs a certificate and its key: --tls-cert FILE --tls-key FILE")
    options = TrackerOptions(
        key=find_key(key_file),
        host=listen,
        port=port,
        page_host=page_listen,
        page_port=None if no_page else page_port,
        may_use_network=insecure_network,
        tls=server_context(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
        limits=dataclasses.replace(_DEFAULTS, **limits),
    )
    run_tracker(options, click.echo)
