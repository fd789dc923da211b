"""Every operator × attributes × ranks × dtypes × sizes × neighbours, compared with onnxruntime and PyTorch (eager).

python -m benchmarks.operators [--only WORD,…] [--quick] [--sample N | --each N] [--seed S] [--repeat 1.5]
    [--record FILE.json] [--limit SECONDS] [--compile-only] [--read FILE.json …]

Rows are measured on one thread, in turns, the best of several calls counts. The table is sorted, the worst row first.
A row has a name like ``Softmax · axis -1 · rank 2 · float32 · L2 · known · alone``; ``--only`` takes parts of it, all
of which must be there. ``--repeat R`` measures rows above R three times and takes the median of each engine's times:
other work on the machine makes single rows wrong.

A long sweep is measured in parts: ``--limit`` ends a run after so many seconds, and the next one with the same
``--record`` goes on with the rows that the file lacks. ``--compile-only`` fills the cache of kernels beforehand, which
may happen while the machine does other work. ``--read`` prints the table of records and measures nothing; a row in
several of them counts as in the last one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.models import words
from benchmarks.operators.cases import Case, cases, chosen, drawn_of_each, quick
from benchmarks.operators.measure import SHORT_MS, Row, compiled, measured, median
from benchmarks.report import Table, geometric_mean

USUAL_RATIO, WORST_RATIO, USUAL_SHARE = 1.2, 1.5, 0.95
"""Ratios to the best peer: of so large a share of the rows, and of all rows."""
ROW_SECONDS = 0.05
REPEATS = 3


def run(rows: Sequence[Case], seconds: float, peers: Sequence[str], repeat: float, limit: float) -> list[Row]:
    """Measures rows in order, and no further one after ``limit`` seconds. Cases without a form give empty rows."""
    found = []
    end = time.monotonic() + limit
    for number, case in enumerate(rows):
        if time.monotonic() > end:
            print(f"ended after {limit:g} seconds: {len(rows) - number} rows are left")
            break
        row = measured(case, seconds, peers)
        if row is not None and row.counts and (row.ratio or 0.0) > repeat:
            again = (measured(case, seconds, peers) for _ in range(REPEATS - 1))
            row = median([row, *(r for r in again if r is not None)])
        found.append(row or Row(case.name))
        if row is None:
            continue
        times = "  ".join(f"{k} {1e3 * v:.1f}" for k, v in row.milliseconds.items())
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{number + 1}/{len(rows)}  {ratio:>6}  {row.name}  {times} µs  {row.problem}", flush=True)
    return found


def table(rows: Sequence[Row]) -> Table:
    """The rows with a peer, the slowest first, and a summary of their ratios. Rows that fail or differ are outside of
    every limit, whatever time they took."""
    told = sorted((r for r in rows if r.ratio is not None), key=lambda r: -(r.ratio or 0.0))
    failed = [r.name for r in rows if r.problem]
    counted = [r.ratio or 0.0 for r in told if r.counts and not r.problem]
    names = list(dict.fromkeys(k for r in told for k in r.milliseconds))
    lines = tuple((r.name, *(r.milliseconds.get(k, "–") for k in names), r.ratio, r.problem) for r in told)
    note = f"Best milliseconds of several in turns, one thread. {len(rows)} rows, {len(told)} with a peer."
    if counted:
        within = sum(v <= USUAL_RATIO for v in counted) / (len(counted) + len(failed))
        note += (
            f" Of {len(counted)} whose peer takes more than {1e3 * SHORT_MS:.0f} µs: geometric mean "
            f"{geometric_mean(counted):.2f}, at most {USUAL_RATIO:g}: {100 * within:.1f} % (asked: "
            f"{100 * USUAL_SHARE:.0f}; rows that fail or differ count as above), above {WORST_RATIO:g}: "
            f"{sum(v > WORST_RATIO for v in counted)} (asked: 0)."
        )
    note += f" {len(failed)} rows fail or differ" + (f": {'; '.join(failed)}." if failed else ".")
    for peer in dict.fromkeys(k for r in rows for k in r.left_out):
        note += f" {sum(peer in r.left_out for r in rows)} rows without {peer}."
    return Table("Operators beside the best peer", ("case", *names, "ratio", "problem"), lines, note)


def read(paths: Sequence[Path]) -> dict[str, Row]:
    """The rows of records by name, those of later records in place of earlier ones."""
    names = {f.name for f in fields(Row)}
    lines = [line for p in paths if p.exists() for line in json.loads(p.read_text())]
    return {line["name"]: Row(**{k: v for k, v in line.items() if k in names}) for line in lines}


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text(json.dumps([asdict(r) | {"ratio": r.ratio} for r in rows], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=words, default=(), help="rows whose name contains all of these words")
    parser.add_argument("--quick", action="store_true", help="one row for each operator and choice of attributes")
    parser.add_argument("--sample", type=int, help="number of rows, drawn at random")
    parser.add_argument("--each", type=int, help="rows of each operator, choice of attributes and dtype, drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=ROW_SECONDS, help="seconds of computing for each row")
    parser.add_argument("--repeat", type=float, default=float("inf"), help="measure rows above this ratio again")
    parser.add_argument("--peers", type=words, default=("onnxruntime", "torch"))
    parser.add_argument("--worst", type=int, default=60, help="length of the printed table")
    parser.add_argument(
        "--record", type=Path, help="write all rows as JSON; those that it holds are not measured again"
    )
    parser.add_argument("--limit", type=float, default=float("inf"), help="measure for so many seconds at most")
    parser.add_argument("--compile-only", action="store_true", help="compile the rows and measure nothing")
    parser.add_argument("--read", type=Path, nargs="+", help="print the table of these records")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    options = parser.parse_args()
    if options.read:
        show(list(read(options.read).values()), options.worst)
        return
    if options.each is not None:
        rows = chosen(drawn_of_each(list(cases()), options.each, options.seed), options.only, None, 0)
    else:
        rows = chosen(quick() if options.quick else list(cases()), options.only, options.sample, options.seed)
    if options.list:
        print("\n".join(c.name for c in rows))
        return
    if options.compile_only:
        for case in rows:
            compiled(case)
        return
    known = read([options.record]) if options.record else {}
    rows = [c for c in rows if c.name not in known]
    found = [*known.values(), *run(rows, options.seconds, options.peers, options.repeat, options.limit)]
    if options.record:
        write(options.record, found)
    show(found, options.worst)


def show(found: Sequence[Row], worst: int) -> None:
    found = [r for r in found if r.milliseconds or r.problem]
    made = table(found)
    print("\n" + Table(made.title, made.columns, made.rows[:worst], made.note).plain())
    for row in found:
        if row.problem:
            print(f"{row.name}: {row.problem}")
        for peer, why in row.left_out.items():
            print(f"{row.name}: without {peer}: {why}")


if __name__ == "__main__":
    main()
