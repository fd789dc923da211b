"""``weft targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli import rates
from weft.cli.common import console, table

if TYPE_CHECKING:
    from weft.plugins import Registry
    from weft.target import Target


@click.command("targets")
@click.argument("target", required=False)
@click.option("--measure", is_flag=True, help="Measure how fast this machine is; later compilations for it use that.")
@click.option("--forget", is_flag=True, help="Remove what was measured.")
def command(target: str | None, measure: bool, forget: bool) -> None:
    """List the back ends and the named machines, or show TARGET in full.

    \b
    weft targets
    weft targets cpu
    weft targets --measure
    weft targets "llvm -mcpu=x86-64-v3 -num-cores=8"
    """
    from weft.plugins import registry_of

    registry = registry_of()
    if measure or forget:
        _rates(target, measure, forget)
    elif target is None:
        _list(registry)
    else:
        _show(registry.target(target))


def _show(target: Target) -> None:
    """Everything that the compiler knows of one target."""
    from weft.target import Cpu

    rows = [["back end", f"{target.kind.name}: {target.kind.doc}"], ["device", target.kind.device]]
    if isinstance(target.arch, Cpu):
        c = target.arch
        multiply_add = ", multiply-add" if c.fma else ""
        rows += [
            ["cpu", c.mcpu],
            ["triple", c.triple],
            ["cores", str(c.cores)],
            ["vectors", f"{c.vector_bits} bits, {c.vector_registers} registers{multiply_add}"],
            ["caches", f"L1 {c.l1 >> 10} KiB, L2 {c.l2 >> 10} KiB, L3 {c.l3 >> 10} KiB"],
            ["features", " ".join(sorted(c.features))],
            ["rates", rates.described(c.rates)],
        ]
    units = [f"{u.name} ({u.left} × {u.right} → {u.accumulator})" for u in target.units]
    rows += [["units", "\n".join(units) or "none besides vector arithmetic"]]
    rows += [["memory", ", ".join(m.name for m in target.memory)]]
    rows += [[f"-{name}", f"{target.option(name)}: {doc}"] for name, (_, doc) in target.kind.options.items()]
    if target.host is not None:
        rows.append(["host", str(target.host)])
    console().print(table(None, ["", ""], rows))


def _list(registry: Registry) -> None:
    """The back ends and named machines, those of plugins too, and how a target is written in full."""
    from weft.target import MACHINES, Target

    screen = console()
    kinds = [[k.name, k.doc, k.device, " ".join(f"-{o}" for o in k.options)] for k in registry.kinds.values()]
    screen.print(table("back ends", ["name", "what it makes", "device", "options"], kinds))
    rows = []
    for name in ("cpu", *MACHINES):
        c = Target(name).cpu
        doc = MACHINES[name].doc if name in MACHINES else f"the machine at hand ({c.mcpu})"
        rows.append([name, doc, str(c.cores), str(c.vector_bits), c.mcpu])
    for plugin in registry.plugins:
        for machine in plugin.machines:
            c = registry.target(machine.name).cpu
            rows.append([machine.name, machine.doc, str(c.cores), str(c.vector_bits), c.mcpu])
    screen.print(table("machines", ["name", "machine", "cores", "vector bits", "cpu"], rows, right=(2, 3)))
    screen.print("or in full: llvm -mcpu=NAME -mattr=+feature,-feature -num-cores=N -l1=BYTES -l2=BYTES -l3=BYTES")


def _rates(target: str | None, measure: bool, forget: bool) -> None:
    if target is not None or (measure and forget):
        raise click.UsageError("--measure and --forget are about this machine and stand alone")
    if measure:
        rates.measure()
    else:
        rates.forget()
