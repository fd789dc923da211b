"""Rows of numbers, as a table for people or in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Table:
    """``rows`` hold text and numbers, in the order of ``columns``; ``note`` says what was measured and how."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", *([self.note, ""] if self.note else [])]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "|".join("---:" if self._is_number(i) else "---" for i in range(len(self.columns))) + "|")
        lines += ["| " + " | ".join(map(text, row)) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def plain(self) -> str:
        cells = [self.columns, *(tuple(map(text, row)) for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [self.title, "=" * len(self.title), *([self.note] if self.note else [])]
        for row in cells:
            padded = [
                c.rjust(w) if self._is_number(i) else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines) + "\n"

    def _is_number(self, column: int) -> bool:
        return any(isinstance(row[column], (int, float)) for row in self.rows)


def tables_to_json(tables: Sequence[Table]) -> str:
    """All tables with their numbers in full. Values that are neither numbers nor text are stored as text."""
    return json.dumps([asdict(table) for table in tables], indent=1, default=str) + "\n"


def tables_from_json(stored: str) -> list[Table]:
    """The tables that :func:`tables_to_json` wrote."""
    return [
        Table(made["title"], tuple(made["columns"]), tuple(tuple(row) for row in made["rows"]), made["note"])
        for made in json.loads(stored)
    ]


def text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 0.005 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def geometric_mean(values: Sequence[float]) -> float:
    """Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    product = 1.0
    for v in values:
        product *= v ** (1 / len(values))
    return product
