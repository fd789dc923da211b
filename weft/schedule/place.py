"""The location of a refused statement in the printed program."""

from __future__ import annotations

import re

from weft.support.errors import Location
from weft.tir.nodes import Block, Program, Stmt
from weft.tir.text import to_text
from weft.tir.visit import walk


def place_of(program: Program, stmt: Stmt) -> Location:
    """The line of ``stmt`` (a loop or a block) in the printed program, its name underlined."""
    kind = type(stmt)
    ordinal = next((n for n, s in enumerate(s for s in walk(program.body) if type(s) is kind) if s is stmt), None)
    head = re.compile(r'\s*block "(?=[^"]*")([^"]*)' if kind is Block else r"\s*for (\S+) in ")
    lines = to_text(program).splitlines()
    hits = [(n, line, match) for n, line in enumerate(lines, 1) if (match := head.match(line))]
    if ordinal is None or ordinal >= len(hits):
        return Location(node=program.name)
    number, line, match = hits[ordinal]
    return Location(node=program.name, line=number, text=line, column=match.start(1), length=len(match.group(1)))
