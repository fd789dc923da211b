"""HTML of tables and texts: for notebooks, which call ``_repr_html_`` of a value, and for the index page of a dump."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Final

MAX_LINES: Final = 400
"""Longer texts are shown as a line that opens them, so that a notebook stays readable."""
_RIGHT: Final = ' style="text-align:right"'
_LEFT: Final = ' style="text-align:left"'
_TEXT: Final = "text-align:left;line-height:1.35;white-space:pre;overflow-x:auto"


def escape(value: object) -> str:
    """The text of ``value`` for HTML."""
    return html.escape(str(value))


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table. The cells are HTML; columns numbered in ``numbers`` are right-aligned."""

    def row(cells: Sequence[str], tag: str) -> str:
        made = (f"<{tag}{_RIGHT if i in numbers else _LEFT}>{c}</{tag}>" for i, c in enumerate(cells))
        return f"<tr>{''.join(made)}</tr>"

    head = row(columns, "th") if any(columns) else ""
    return "<table>" + head + "\n".join(row(r, "td") for r in rows) + "</table>"


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """What is known of one value, named ``title``: a row for each fact."""
    return html_table([escape(title), ""], [[escape(name), escape(value)] for name, value in facts.items()])


def preformatted(text: str) -> str:
    """A text in its lines and columns; one of more than :data:`MAX_LINES` lines is folded."""
    block = f'<pre style="{_TEXT}">{escape(text)}</pre>'
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= MAX_LINES:
        return block
    return f"<details><summary><code>{escape(lines[0])}</code> … {len(lines)} lines</summary>{block}</details>"


class TextInNotebooks:
    """A value that notebooks show as the text that ``str`` gives."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return preformatted(str(self))
