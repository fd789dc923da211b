"""``weft rpc-register``."""

from __future__ import annotations

import time

import click


@click.command("rpc-register")
@click.option("--tracker", required=True, metavar="HOST:PORT", help="The tracker.")
@click.option("--key", default="", metavar="NAME", help="What clients ask for, such as pi4. [default: --name]")
@click.option(
    "--machine",
    default="127.0.0.1:9190",
    show_default=True,
    metavar="HOST:PORT",
    help="The machine's weft rpc-server, as reached from here.",
)
@click.option("--address", default="", help="The machine, as reached by clients. [default: as the tracker sees it]")
@click.option("--public-port", type=click.IntRange(1, 65535), help="Its port for clients. [default: as --machine]")
@click.option("--name", default="", help="The name of this one board. [default: what the machine says]")
@click.option("--description", default="", help="A line for people who look at the status.")
@click.option(
    "--sessions",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Clients at once. More than one disturb each other's measurements.",
)
@click.option("--key-file", metavar="FILE", help="The key that all sides share. [default: WEFT_RPC_KEY]")
def command(
    tracker: str,
    key: str,
    machine: str,
    address: str,
    public_port: int | None,
    name: str,
    description: str,
    sessions: int,
    key_file: str | None,
) -> None:
    """Register a machine at a tracker, for as long as this command runs.

    \b
    weft rpc-server --key-file weft.key &
    weft rpc-register --tracker HOST:9180 --key pi4 --key-file weft.key

    Several boards may have one --key: clients get any of them. The tracker asks now and then whether the machine
    answers at its address; while it does not, it gets no jobs. When the tracker is restarted, this command registers
    the machine again.
    """
    from weft.rpc.auth import find_key
    from weft.rpc.registration import MachineEntry, Registration, RegistrationState, machine_info
    from weft.rpc.tracker.main import is_loopback
    from weft.rpc.tracker_link import tracker_address

    secret = find_key(key_file)
    host, port = tracker_address(machine)
    entry = MachineEntry(
        port=public_port or port,
        address=address or ("" if is_loopback(host) else host),
        name=name,
        key=key,
        description=description,
        sessions=sessions,
    )

    def say(state: RegistrationState) -> None:
        what = f"registered at {tracker}" if state.is_registered else f"not registered: {state.problem}"
        click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {what}", err=True)

    with Registration(tracker, entry, lambda: machine_info((host, port), secret), secret, on_change=say) as kept:
        kept.join()
