"""Measure tables of ``README.md`` again and write them there: ``python -m benchmarks.update NAME…``.

Each table takes at most a quarter of an hour on two idle cores, the zoo more (``--list`` names all). It is between
``<!-- begin NAME -->`` and ``<!-- end NAME -->``, with the machine, the commit and the day. What was measured is
stored in ``results/NAME.json``; ``summary`` is computed from these files.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.models import BF16_PEERS, PEERS, from_json, measured, select, table, to_json
from benchmarks.report import Table, geometric_mean, tables_from_json
from benchmarks.suite import GROUPS, available
from benchmarks.zoo import rows
from benchmarks.zoo.__main__ import positive

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
RESULTS = HERE / "results"
RUNS = 10
TVM_MODELS = ("MobileNetV2", "SqueezeNet", "ResNet-50", "RFB-320")
"""Models on which Apache TVM without tuning is measured: only a few, because it takes seconds per run."""


@dataclass(frozen=True)
class Section:
    """A part of the page: the function that makes its tables, and about how many minutes that takes."""

    make: Callable[[], str]
    minutes: float


def of_module(section: str, name: str) -> str:
    """The tables of a benchmark, measured in a fresh process: some fix the threads of libraries before they load.
    They are stored as ``section``'s record."""
    command = [sys.executable, "-m", "benchmarks", name, "--json"]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE.parent).stdout
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{section}.json").write_text(found)
    return "\n".join(table.markdown() for table in tables_from_json(found))


def of_models(
    name: str,
    group: str,
    threads: int,
    peers: tuple[str, ...] = PEERS,
    precision: str = "f32",
    names: Sequence[str] = (),
) -> str:
    """A table of models; its records are stored."""
    entries = select((group,) if group else GROUPS, names, precision=precision)
    found = measured(available(False, entries), threads, peers, RUNS, precision)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(to_json(found))
    return table(found, peers).markdown()


def of_zoo(threads: int, every: int) -> str:
    """Every ``every``-th model of the zoo by family, and the slowest; the records are stored."""
    path = RESULTS / f"zoo-{threads}.json"
    command = [sys.executable, "-m", "benchmarks.zoo", "--threads", str(threads), "--every", str(every)]
    command += ["--kernels", "0", "--json", str(path)]
    subprocess.run(command, check=True, stdout=sys.stderr, cwd=HERE.parent)
    return zoo_tables(path)


def zoo_tables(path: Path) -> str:
    """The same from stored records."""
    return "\n".join(made.markdown() for made in rows.summary(rows.from_json(path), ("onnxruntime", "openvino")))


def summary() -> Table:
    """The suite as a whole, from the stored records: fp32 with the usual peers, and bf16."""
    rows: list[tuple[object, ...]] = []
    for title, pattern in (
        ("fp32, 1 thread", "models-*-1.json"),
        ("fp32, 2 threads", "models-*-2.json"),
        ("bf16, 1 thread", "bf16-1.json"),
        ("bf16, 2 threads", "bf16-2.json"),
    ):
        found = [m for path in sorted(RESULTS.glob(pattern)) for m in from_json(path.read_text())]
        if ratios := {m.model: m.ratio for m in found if m.ratio is not None}:
            rows.append(_whole(title, ratios))
    note = "Weft's latency over that of the best peer, for all rows of the tables below."
    columns = ("suite", "models", "geometric mean", "within 1.10×", "above 1.35×", "worst")
    return Table("The suite", columns, tuple(rows), note)


def _whole(title: str, ratios: dict[str, float]) -> tuple[object, ...]:
    near = sum(r <= 1.10 for r in ratios.values())
    far = [f"{name} {r:.2f}" for name, r in ratios.items() if r > 1.35]
    worst = max(ratios, key=lambda name: ratios[name])
    mean = f"{geometric_mean(list(ratios.values())):.3f}"
    share = f"{100 * near / len(ratios):.0f}%"
    return (title, len(ratios), mean, share, ", ".join(far) or "none", f"{worst} {ratios[worst]:.2f}")


def sections(peers: tuple[str, ...] = PEERS, every: int = 1) -> dict[str, Section]:
    """All tables by name; models of float32 are measured beside ``peers``, and every ``every``-th of the zoo."""
    return {
        "limits": Section(partial(of_module, "limits", "peaks"), 1),
        "imports": Section(partial(of_module, "imports", "imports"), 1),
        "overhead": Section(partial(of_module, "overhead", "overhead"), 2),
        "compile": Section(partial(of_module, "compile", "compile"), 8),
        "schedules": Section(partial(of_module, "schedules", "schedules"), 5),
        "instructions": Section(partial(of_module, "instructions", "instructions"), 2),
        "products": Section(partial(of_module, "products", "products"), 2),
        "attention": Section(partial(of_module, "attention", "attention"), 2),
        "dynamic": Section(partial(of_module, "dynamic", "dynamic"), 12),
        "movement": Section(partial(of_module, "movement", "movement"), 6),
        **{
            f"models-{group}-{threads}": Section(
                partial(of_models, f"models-{group}-{threads}", group, threads, peers), 14
            )
            for group in GROUPS
            for threads in (1, 2)
        },
        **{
            f"bf16-{threads}": Section(partial(of_models, f"bf16-{threads}", "", threads, BF16_PEERS, "bf16"), 3)
            for threads in (1, 2)
        },
        **{f"zoo-{threads}": Section(partial(of_zoo, threads, every), 40) for threads in (1, 2)},
        "tvm": Section(partial(of_models, "tvm", "images", 1, ("tvm",), "f32", TVM_MODELS), 5),
        "summary": Section(lambda: summary().markdown(), 0),
    }


SECTIONS = sections()


def write(name: str, made: str, page: Path = README) -> None:
    """Put tables in Markdown between the markers of ``name``. Raises ValueError if the page has no such markers."""
    text = page.read_text()
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page.name} has no place for {name}: one line '{begin}' and one '{end}'")
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n*{machine()}; {commit()}*\n\n{made.strip()}\n{end}{rest.split(end)[1]}")


def commit() -> str:
    """The commit that is checked out, and its day. Results and the page may differ from it, nothing else."""
    asked = ["git", "log", "-1", "--format=commit %h of %cs"]
    said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE).stdout.strip()
    changed = ["git", "diff", "--quiet", "HEAD", "--", "weft", "csrc", "benchmarks/*.py"]
    return said + (", changed" if subprocess.run(changed, cwd=HERE.parent).returncode else "")


def machine() -> str:
    """The processor, in words."""
    path = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", path.read_text()) if path.exists() else None
    from weft.target import Target

    target = Target("cpu")
    name = named[1].strip() if named else target.cpu.mcpu
    return f"{name} ({target.cpu.mcpu}, {target.cpu.vector_bits}-bit vectors, {target.cpu.cores} cores)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.update", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="what there is, with the minutes it takes")
    parser.add_argument("--peers", default=",".join(PEERS), help="engines beside which models are measured")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="measure every Nth model of the zoo")
    options = parser.parse_args()
    chosen = sections(tuple(options.peers.split(",")), options.every)
    if options.list:
        for name, section in SECTIONS.items():
            print(f"{name:22} about {section.minutes:g} minutes")
        return
    unknown = [n for n in options.names if n not in SECTIONS]
    if unknown or not options.names:
        parser.error(f"name tables: {', '.join(SECTIONS)}" + (f" (there is no {unknown[0]})" if unknown else ""))
    for name in options.names:
        with contextlib.redirect_stdout(sys.stderr):
            made = chosen[name].make()
        write(name, made)
        print(f"wrote {name}", flush=True)


if __name__ == "__main__":
    main()
