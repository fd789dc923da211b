"""The page ``docs/primitives.md``: every schedule primitive with its rewrite, in both notations, and every rule.

python -m weft.schedule.documentation > docs/primitives.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from weft.schedule.errors import RULES
from weft.schedule.primitives.registry import PRIMITIVES
from weft.schedule.schedule import Schedule
from weft.schedule.stage_notation import ClassicSchedule, Stage

_HEAD: Final = """# Schedule primitives

This page is generated: `python -m weft.schedule.documentation > docs/primitives.md`.

A primitive proves that it changes only when and where values are computed, not the values. Then it rewrites the program
and keeps references valid. Otherwise it refuses with one of the rules below, and nothing is changed. `s` is a
`weft.schedule.Schedule` of blocks. If the classic notation of `te.create_schedule` has a call for the primitive, the
page gives it too.
"""

_CLASSIC: Final = {
    "store_at": "s[T].rolling_buffer()",
    "fold_storage": "s[T].rolling_buffer()",
    "annotate": "s[T].pragma(axis, key, value)",
    "virtual_thread": 's[T].bind(axis, te.thread_axis("vthread"))',
    "run_once": "s[T].set_store_predicate(axis.var == 0)",
}
"""Calls of the classic notation that have other names."""


def primitives_page() -> str:
    """The text of the page."""
    parts = [_HEAD, "## Primitives", *map(_composed, ("tile", "read_at", "write_at"))]
    for name, primitive in PRIMITIVES.items():
        lines = [f"### {name}", f"`s.{name}{_signature(name)}`" + _classic(name)]
        parts += ["\n\n".join(lines), "\n".join(_markdown(inspect.getdoc(primitive.run) or ""))]
    rows = "\n".join(f"| {code} | {rule} |" for code, rule in RULES.items())
    parts += ["## Rules", f"| code | rule |\n|---|---|\n{rows}"]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(p.strip("\n") for p in parts)) + "\n"


def _composed(name: str) -> str:
    """A method that is made of several primitives."""
    text = "\n".join(_markdown(inspect.getdoc(getattr(Schedule, name)) or ""))
    return f"### {name}\n\n`s.{name}{_signature(name)}`{_classic(name)}\n\n{text}"


def _signature(name: str) -> str:
    found = inspect.signature(getattr(Schedule, name))
    plain = [p.replace(annotation=inspect.Parameter.empty) for n, p in found.parameters.items() if n != "self"]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _classic(name: str) -> str:
    call = _CLASSIC.get(name)
    if call is None and hasattr(Stage, name):
        call = f"s[T].{name}(…)"
    if call is None and name in vars(ClassicSchedule):
        call = f"s.{name}(…)"
    return "" if call is None else f" — classic: `{call}`"


def _markdown(text: str) -> Iterator[str]:
    """A docstring as Markdown: indented literal blocks become fenced, double backquotes become single ones."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line[4:])
            continue
        yield from _fenced(block)
        block = []
        if line.strip() != "::":
            yield re.sub(r"``(.+?)``", r"`\1`", line.removesuffix("::"))
    yield from _fenced(block)


def _fenced(block: list[str]) -> Iterator[str]:
    while block and not block[-1].strip():
        block.pop()
    if block:
        yield from ("```text", *block, "```", "")


if __name__ == "__main__":
    print(primitives_page(), end="")
