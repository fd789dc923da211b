"""What notebooks and terminals show of compiled models."""

from __future__ import annotations

import re
from collections.abc import Iterable

from weft.runtime.program import ExecutableProgram, describe
from weft.support.html import escape, html_table


def model_html(name: str, program: ExecutableProgram, facts: Iterable[str]) -> str:
    """The name, the inputs and outputs, and a line of facts."""
    rows = [
        [kind, f"<code>{escape(spec.name)}</code>", f"<code>{escape(describe(spec))}</code>"]
        for kind, specs in (("input", program.inputs), ("output", program.outputs))
        for spec in specs
    ]
    return f"<b>{escape(name)}</b>{html_table((), rows)}<div>{escape(', '.join(filter(None, facts)))}</div>"


def short_target(target: str) -> str:
    """The text of a target without its list of CPU features."""
    return re.sub(r" -mattr=\S*", "", target)
