"""``weft rpc-server``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from weft.support.errors import UserError
from weft.support.files import check_writable


@click.command("rpc-server", context_settings={"ignore_unknown_options": True})
@click.option("-o", "--output", metavar="FILE", help="Write the server to a file to copy to a board; do not start it.")
@click.option("--target", metavar="TARGET", help="The board that the file is for; see 'weft targets'. Needs -o.")
@click.option("--cc", default="", metavar="COMMAND", help="The C compiler. [default: CC, cc, gcc or clang; or GCC's]")
@click.option("--tls-cert", metavar="FILE", help="Encrypt: the certificate (PEM) that clients are given to trust.")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@click.option("--tls-listen", metavar="ADDRESS:PORT", help="Where the encrypted side listens. [default: 0.0.0.0:9191]")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF THE SERVER]")
def command(
    output: str | None,
    target: str | None,
    cc: str,
    tls_cert: str | None,
    tls_key: str | None,
    tls_listen: str | None,
    options: tuple[str, ...],
) -> None:
    """Let other machines run and measure code here, or build the server for a board.

    \b
    weft rpc-server --key-file weft.key                    serve on 127.0.0.1:9190, for SSH tunnels
    weft rpc-server --target raspberry-pi-4 -o server      one static file for a board
    weft rpc-server --tls-cert c.pem --tls-key k.pem …     encrypted, on the network
    weft rpc-server -- --help                              the options of the server itself

    The server is a C program without dependencies. Options that are not listed here are passed on to it.
    """
    if output is not None:
        _write(output, target, cc, options)
    elif target is not None:
        raise UserError("a server for another machine is written to a file", code="I020", hint="add -o FILE")
    elif tls_cert or tls_key or tls_listen:
        _serve_encrypted(cc, tls_cert, tls_key, tls_listen or "0.0.0.0:9191", options)
    else:
        from weft.rpc.server_build import local_server

        made = str(local_server(cc))
        os.execv(made, [made, *options])


def _write(output: str, target: str | None, cc: str, options: Sequence[str]) -> None:
    from weft.rpc.server_build import build_server, cross_compiler, local_compiler

    if options:
        raise UserError(f"{' '.join(options)} has no effect with -o", code="I020", hint="give it where the server runs")
    check_writable(output)
    compiler = local_compiler(cc) if target is None else cross_compiler(target, cc)
    build_server(compiler, Path(output))
    click.echo(f"wrote {output} ({Path(output).stat().st_size / 1e6:.1f} MB)")


def _serve_encrypted(cc: str, cert: str | None, key: str | None, listen: str, options: Sequence[str]) -> None:
    """Start the server for this machine alone, and a front that speaks TLS."""
    from weft.rpc.local import read_address
    from weft.rpc.server_build import local_server
    from weft.rpc.session import split_address
    from weft.rpc.tls import TlsFront, server_context

    if cert is None or key is None:
        raise UserError("TLS needs a certificate and its key", code="N020", hint="--tls-cert FILE --tls-key FILE")
    wrong = next((o for o in options if o.startswith(("--listen", "--port", "--insecure-network"))), None)
    if wrong is not None:
        raise UserError(f"{wrong} has no effect with TLS", code="I020", hint="--tls-listen ADDRESS:PORT")
    host, port = split_address(listen if not listen.endswith(":0") else f"{listen[:-1]}1")
    context = server_context(cert, key)
    address = host, 0 if listen.endswith(":0") else port
    if any(o == "--tracker" or o.startswith("--tracker=") for o in options):  # others reach the front
        options = [*options, "--public-tls"]
        options += [] if "--public-port" in options or not address[1] else ["--public-port", str(port)]
    process = subprocess.Popen(
        [str(local_server(cc)), *options, "--port", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    try:
        front = TlsFront(
            context, address, split_address(read_address(process)), lambda line: click.echo(line, err=True)
        )
        click.echo(f"listening on {front.address[0]}:{front.address[1]} with TLS")
        sys.stdout.flush()
        front.start()
        process.wait()
        front.close()
    finally:
        process.terminate()
        process.wait()
    sys.exit(process.returncode)
