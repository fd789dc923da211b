"""``weft targets``."""

from __future__ import annotations

import click

from weft.cli.common import console, table


@click.command("targets")
@click.argument("target", required=False)
def command(target: str | None) -> None:
    """List the named machines, or show TARGET in full.

    \b
    weft targets
    weft targets cpu
    weft targets "llvm -mcpu=x86-64-v3 -num-cores=8"
    """
    from weft.target import MACHINES, Target

    screen = console()
    if target is not None:
        found = Target(target)
        c = found.cpu
        screen.print(f"{found.kind.name}: {found.kind.doc}")
        rows = [
            ["cpu", found.cpu.mcpu],
            ["triple", found.cpu.triple],
            ["cores", str(c.cores)],
            ["vectors", f"{c.vector_bits} bits, {c.vector_registers} registers{', multiply-add' if c.fma else ''}"],
            ["caches", f"L1 {c.l1 >> 10} KiB, L2 {c.l2 >> 10} KiB, L3 {c.l3 >> 10} KiB"],
            ["features", " ".join(sorted(found.cpu.features))],
        ]
        screen.print(table(None, ["", ""], rows))
        return
    rows = []
    for name in ("cpu", *MACHINES):
        t = Target(name)
        doc = MACHINES[name].doc if name in MACHINES else f"the machine at hand ({t.cpu.mcpu})"
        rows.append([name, doc, str(t.cpu.cores), str(t.cpu.vector_bits), t.cpu.mcpu])
    screen.print(table(None, ["name", "machine", "cores", "vector bits", "cpu"], rows, right=(2, 3)))
    screen.print("or in full: llvm -mcpu=NAME -mattr=+feature,-feature -num-cores=N -l1=BYTES -l2=BYTES -l3=BYTES")
