"""Measured models of the zoo, and the tables of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import Table, geometric_mean
from weft.bench.turns import Record

MAX_RELATIVE_DIFFERENCE = 1e-2
"""Peers whose results differ by more, relative to how far the numbers of an output lie apart, are not compared."""

SLOW = 0.95
"""Models above this ratio are named in the summary."""


@dataclass(frozen=True)
class Row:
    """One model on a number of threads: Weft's record and the peers' (none if Weft failed), and the problems that
    occurred."""

    model: str
    family: str
    threads: int
    records: tuple[Record, ...]
    problems: dict[str, str]
    kernels: str = ""

    @property
    def ratio(self) -> float | None:
        """Weft's least time over that of the fastest peer that agrees. Least times, as others may use the machine."""
        peers = [r.min_ms for r in self.records[1:] if r.max_rel_diff <= MAX_RELATIVE_DIFFERENCE]
        return self.records[0].min_ms / min(peers) if peers else None


def table(rows: Sequence[Row], peers: Sequence[str]) -> Table:
    """The slowest first; the last row has the geometric mean."""
    ranked = sorted((r for r in rows if r.ratio is not None), key=lambda r: -(r.ratio or 0))
    cells: list[tuple[object, ...]] = [
        (r.model, r.family, r.records[0].min_ms, *(_time(r, p) for p in peers), f"{r.ratio:.2f}") for r in ranked
    ]
    if ranked:
        mean = geometric_mean([r.ratio or 0 for r in ranked])
        cells.append(("geometric mean", "", "", *[""] * len(peers), f"{mean:.3f}"))
    threads = rows[0].threads if rows else 0
    note = f"Least of the measured times, in turns. {len(ranked)} models." + left_out(rows)
    columns = ("model", "family", "weft ms", *(f"{p} ms" for p in peers), "weft / best")
    return Table(f"Zoo, {threads} thread{'s' if threads != 1 else ''}", columns, tuple(cells), note)


def left_out(rows: Sequence[Row]) -> str:
    """The rows that the mean does not count, by name."""
    failed = [r.model for r in rows if not r.records]
    alone = [r.model for r in rows if r.records and r.ratio is None and len(r.records) == 1]
    differ = [r.model for r in rows if r.records and r.ratio is None and len(r.records) > 1]
    groups = (("Weft fails", failed), ("No peer runs", alone), ("No peer agrees", differ))
    return "".join(f" {what}: {len(names)} ({', '.join(names)})." for what, names in groups if names)


def _time(row: Row, peer: str) -> str:
    for r in row.records[1:]:
        if r.engine == peer:
            return f"{r.min_ms:.3f}" + ("" if r.max_rel_diff <= MAX_RELATIVE_DIFFERENCE else " ≠")
    return "–"


def to_json(rows: Sequence[Row]) -> str:
    """The records, a model a line."""
    return "[\n" + ",\n".join(json.dumps(asdict(r)) for r in rows) + "\n]\n"


def from_json(path: Path) -> list[Row]:
    """What :func:`to_json` wrote, without the tables of kernels."""
    return [
        Row(r["model"], r["family"], r["threads"], tuple(Record(**x) for x in r["records"]), r["problems"])
        for r in json.loads(path.read_text())
    ]


def summary(rows: Sequence[Row], peers: Sequence[str]) -> tuple[Table, Table]:
    """The families, those in which Weft does worst first, and the models above :data:`SLOW`."""
    ratios = {r.model: r.ratio for r in rows if r.ratio is not None}
    families: dict[str, list[str]] = {}
    for r in rows:
        if r.model in ratios:
            families.setdefault(r.family, []).append(r.model)
    cells = [_cell(name, {m: ratios[m] for m in models}) for name, models in families.items()]
    cells.sort(key=lambda cell: -cell[2])
    cells.append(_cell("all", ratios))
    note = f"Weft's least time over that of the fastest peer ({', '.join(peers)}), all in turns." + left_out(rows)
    columns = ("family", "models", "geometric mean", "within 1.05×", "worst")
    shown = tuple((name, count, f"{mean:.3f}", near, worst) for name, count, mean, near, worst in cells)
    slow = [r for r in rows if r.ratio is not None and r.ratio > SLOW]
    worst = table(slow, peers)
    return (
        Table(f"{table(rows, peers).title}, by family", columns, shown, note),
        Table(f"Models above {SLOW}×", worst.columns, worst.rows[:-1]),
    )


def _cell(name: str, ratios: dict[str, float]) -> tuple[str, int, float, str, str]:
    worst = max(ratios, key=lambda m: ratios[m])
    near = f"{100 * sum(r <= 1.05 for r in ratios.values()) / len(ratios):.0f}%"
    return name, len(ratios), geometric_mean(list(ratios.values())), near, f"{worst} {ratios[worst]:.2f}"
