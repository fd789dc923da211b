"""``python -m benchmarks [--quick] [--markdown] [NAME…]``: every benchmark, or those named.

Run nothing else on the machine: other work makes the numbers wrong. ``--markdown`` prints the tables of ``README.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from importlib import import_module

BENCHMARKS = (
    "imports",
    "peaks",
    "overhead",
    "products",
    "attention",
    "movement",
    "schedules",
    "compile",
    "dynamic",
    "models",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer models and repetitions")
    parser.add_argument("--markdown", action="store_true", help="tables for README.md")
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark '{unknown[0]}': {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        with contextlib.redirect_stdout(sys.stderr):  # progress messages must not mix with the tables
            tables = import_module(f"benchmarks.{name}").run(options.quick)
        for table in tables:
            print(table.markdown() if options.markdown else table.plain(), flush=True)


if __name__ == "__main__":
    main()
