"""Weft compared with other engines on architectures that are in no table. Each engine runs in a separate process, in
turns.

python -m benchmarks.zoo [--models NAME,…] [--families decoders,…] [--threads 1,2] [--peers onnxruntime,openvino]
                         [--every N] [--runs N] [--above RATIO] [--kernels N] [--json FILE] [--markdown]
python -m benchmarks.zoo --build      only make the files
python -m benchmarks.zoo --check      only compare results with onnxruntime
python -m benchmarks.zoo --list       names and families

A name matches every model that contains it; ``=NAME`` only the model of that name. Rows are sorted: the slowest beside
the best peer first. Of models above ``--above``, the kernels that take most time are shown. Models are built once, into
a folder outside of the repository; those that cannot be built here are named with the reason.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo import cache
from benchmarks.zoo.agreement import gaps
from benchmarks.zoo.entry import Entry, only
from benchmarks.zoo.lists import ENTRIES, FAMILIES
from benchmarks.zoo.rows import Row, table, to_json
from weft.bench.turns import measure
from weft.support.errors import UserError

PEERS = ("onnxruntime", "openvino")
CHECK_SECONDS = 600
"""A comparison of results that takes longer is stopped."""


def measured(
    entry: Entry, path: Path, threads: int, peers: Sequence[str], runs: int, above: float, kernels: int
) -> Row:
    """The model in all engines; the slowest kernels too if it is slower than ``above`` times the best."""
    try:
        records, problems = measure(str(path), list(peers), threads, runs=runs, inputs=entry.feed(0))
    except UserError as error:
        return Row(entry.name, entry.family, threads, (), {"weft": str(error)})
    row = Row(entry.name, entry.family, threads, tuple(records), problems)
    if kernels and row.ratio is not None and row.ratio > above:
        import weft

        profile = weft.compile(path, threads=threads).profile(entry.feed(0))
        return Row(row.model, row.family, threads, row.records, problems, profile.table(kernels))
    return row


def say(row: Row) -> None:
    times = "  ".join(f"{r.engine} {r.min_ms:.3f}" for r in row.records)
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else "–"
    print(f"{row.model:24} {ratio:>6}  {times}", flush=True)
    for engine, reason in row.problems.items():
        print(f"  {engine}: {' '.join(reason.split())[:300]}")
    if row.kernels:
        print("  " + row.kernels.replace("\n", "\n  "), flush=True)


def check(entry: Entry, path: Path) -> str:
    """What is wrong with the results, compiled and run in a process of its own; empty if they agree."""
    command = [sys.executable, "-m", "benchmarks.zoo", "--check-here", entry.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no result within {CHECK_SECONDS} s"
    if done.returncode == 0:
        return done.stdout.strip()
    tail = (done.stderr.strip().splitlines() or ["no message"])[-3:]
    return f"the process ended with status {done.returncode}: " + " ".join(tail)


def check_here(name: str) -> None:
    """Print the outputs of one model that differ from onnxruntime's."""
    (entry,) = only(ENTRIES, [f"={name}"])
    wrong = [g for g in gaps(cache.model(entry), entry) if not g.agrees]
    print("\n".join(f"{g.output}: {g.wrong}" for g in wrong))


def available(entries: Sequence[Entry]) -> list[tuple[Entry, Path]]:
    """Entries with their files, built now where they are missing; the others are named on standard error."""
    found = []
    for entry in entries:
        try:
            found.append((entry, cache.model(entry)))
        except (cache.Unavailable, cache.ExportError) as why:
            print(f"{entry.name} is left out: {' '.join(str(why).split())[:300]}", file=sys.stderr, flush=True)
    return found


def checked(entries: Sequence[Entry]) -> int:
    """Compare all with onnxruntime; returns how many differ or fail."""
    wrong = 0
    models = available(entries)
    for entry, path in models:
        problem = check(entry, path)
        wrong += bool(problem)
        print(f"{entry.name:24} {problem or 'agrees'}", flush=True)
    print(f"{len(models) - wrong} of {len(models)} agree with onnxruntime")
    return wrong


def words(text: str) -> tuple[str, ...]:
    return tuple(w for w in text.split(",") if w)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=words, default=(), help="parts of names; =NAME for one model")
    parser.add_argument("--families", type=words, default=(), help=", ".join(FAMILIES))
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="of the chosen models, every Nth")
    parser.add_argument("--threads", type=words, default=("1", "2"))
    parser.add_argument("--peers", type=words, default=PEERS)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--above", type=float, default=1.05, help="show the kernels of models above this ratio")
    parser.add_argument("--kernels", type=int, default=5, metavar="N", help="how many of them")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, default=None, help="write the records to this file")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--check-here", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check_here:
        check_here(options.check_here)
        return
    entries = only(ENTRIES, options.models, options.families)[:: options.every]
    if not entries:
        parser.error("no model has this name and family; --list shows all")
    if options.list:
        print("\n".join(f"{e.name:28} {e.family:20} {e.package}" for e in entries))
    elif options.build:
        print(f"{len(available(entries))} of {len(entries)} models in {cache.folder()}")
    elif options.check:
        sys.exit(bool(checked(entries)))
    else:
        compare(available(entries), options)


def compare(models: Sequence[tuple[Entry, Path]], options: argparse.Namespace) -> None:
    """Measure, print and write tables for each number of threads."""
    every: list[Row] = []
    for threads in map(int, options.threads):
        rows = []
        for entry, path in models:
            rows.append(measured(entry, path, threads, options.peers, options.runs, options.above, options.kernels))
            say(rows[-1])
            if options.json:
                options.json.write_text(to_json([*every, *rows]))
        made = table(rows, options.peers)
        print("\n" + (made.markdown() if options.markdown else made.plain()))
        every += rows


if __name__ == "__main__":
    main()
