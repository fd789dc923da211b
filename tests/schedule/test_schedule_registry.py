"""The table of primitives, the methods of a schedule and the table of rules agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import weft.schedule
from weft.schedule import Schedule
from weft.schedule.errors import RULES
from weft.schedule.primitives.registry import PRIMITIVES

SOURCES = [p.read_text() for p in Path(weft.schedule.__file__).parent.rglob("*.py") if "rules" not in p.parts]


def test_every_primitive_is_a_method_with_the_same_arguments() -> None:
    for name, primitive in PRIMITIVES.items():
        wanted = list(inspect.signature(primitive.run).parameters)[1:]
        given = list(inspect.signature(getattr(Schedule, name)).parameters)[1:]
        assert given[: len(wanted)] == wanted, name
        assert primitive.run.__doc__, name


def test_every_refusal_has_a_rule_and_every_rule_a_refusal() -> None:
    used = {code for text in SOURCES for code in re.findall(r'"(S\d{3})"(?!:)', text)}
    assert used <= set(RULES)
    assert set(RULES) <= used
