"""``python -m benchmarks [--quick] [--markdown | --json] [NAME…]``: every benchmark, or those named.

Run nothing else on the machine: other work makes the numbers wrong. ``--markdown`` prints the tables of ``README.md``,
``--json`` their numbers in full.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from importlib import import_module

from benchmarks.report import Table, tables_to_json

BENCHMARKS = (
    "imports",
    "peaks",
    "overhead",
    "products",
    "attention",
    "movement",
    "schedules",
    "instructions",
    "compile",
    "dynamic",
    "models",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer models and repetitions")
    parser.add_argument("--markdown", action="store_true", help="tables for README.md")
    parser.add_argument("--json", action="store_true", help="records with all digits; all tables as one list")
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark '{unknown[0]}': {', '.join(BENCHMARKS)}")
    made: list[Table] = []
    for name in options.names or BENCHMARKS:
        with contextlib.redirect_stdout(sys.stderr):  # progress messages must not mix with the tables
            tables = import_module(f"benchmarks.{name}").run(options.quick)
        made += tables
        if not options.json:
            for table in tables:
                print(table.markdown() if options.markdown else table.plain(), flush=True)
    if options.json:
        print(tables_to_json(made), end="")


if __name__ == "__main__":
    main()
