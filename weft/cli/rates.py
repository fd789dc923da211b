"""What ``weft targets`` says of rates: how fast a machine is taken to be."""

from __future__ import annotations

from dataclasses import fields

import click

from weft.cost import REFERENCE, Rates


def measure() -> None:
    """Measure the machine at hand and keep the rates."""
    from weft.measure.rates import measured_rates
    from weft.target.measured import forget_rates, write_rates
    from weft.target.target import host_cpu

    forget_rates()  # what is measured must not depend on what was measured before
    click.echo("measuring for some seconds; nothing else should run meanwhile", err=True)
    rates = measured_rates()
    path = write_rates(host_cpu(), rates)
    click.echo(described(rates))
    click.echo(f"written to {path}: what is compiled for this machine uses it from now on, until --forget")


def forget() -> None:
    """Go back to the reference rates."""
    from weft.target.measured import forget_rates

    click.echo("the measured rates are removed" if forget_rates() else "there were no measured rates")


def described(rates: Rates) -> str:
    """One line for each rate that differs from the reference, with what the reference says."""
    rows = [(f.name, getattr(rates, f.name), getattr(REFERENCE, f.name)) for f in fields(Rates)]
    lines = [f"{name} {value:.3g} (reference {usual:.3g})" for name, value, usual in rows if value != usual]
    return "\n".join(lines) or "those of the reference"
