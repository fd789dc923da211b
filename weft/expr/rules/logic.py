"""Truth values: negation, connectives, selects."""

from __future__ import annotations

from typing import Final

from weft.expr.match import binary, choose, rule, wild
from weft.expr.match import not_float as _not_float
from weft.expr.nodes import Select

NEGATED: Final = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}

_x, _y, _z, _c = wild("x"), wild("y"), wild("z"), wild("c")

LOGIC_RULES: Final = (
    rule("not-not", ~~_x, _x),
    *(
        # A float comparison with NaN is false, and so is its opposite: only == and != may be turned round.
        rule(f"not-{op}", ~binary(op, _x, _y), binary(opposite, _x, _y), when=_not_float("x"))
        for op, opposite in NEGATED.items()
        if op not in ("eq", "ne")
    ),
    rule("not-eq", ~binary("eq", _x, _y), binary("ne", _x, _y)),
    rule("not-ne", ~binary("ne", _x, _y), binary("eq", _x, _y)),
    rule("not-and", ~(_x & _y), ~_x | ~_y),
    rule("not-or", ~(_x | _y), ~_x & ~_y),
    rule("and-same", _x & _x, _x),
    rule("or-same", _x | _x, _x),
    rule("and-contradiction", _x & ~_x, False),
    rule("or-excluded-middle", _x | ~_x, True),
    rule("and-true", _x & True, _x),
    rule("and-false", _x & False, False),
    rule("or-true", _x | True, True),
    rule("or-false", _x | False, _x),
    rule("and-absorbs", _x & (_x | _y), _x),
    rule("or-absorbs", _x | (_x & _y), _x),
    rule("select-true", choose(True, _x, _y), _x),
    rule("select-false", choose(False, _x, _y), _y),
    rule("select-same", choose(_c, _x, _x), _x),
    rule("select-not", choose(~_c, _x, _y), choose(_c, _y, _x)),
    rule("select-of-condition", choose(_c, True, False), _c),
    rule("select-of-negation", choose(_c, False, True), ~_c),
    rule("select-then-again", choose(_c, choose(_c, _x, _y), _z), lambda m: Select(m.c, m.x, m.z)),
    rule("select-else-again", choose(_c, _x, choose(_c, _y, _z)), lambda m: Select(m.c, m.x, m.z)),
)
