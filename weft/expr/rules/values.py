"""Arithmetic of integers of any width and of floats. Floats are never re-associated; signs of zeros are kept."""

from __future__ import annotations

from typing import Any, Final

from weft.expr.match import Ask, binary, converted, is_integer, literal, maximum, minimum, not_float, rule, wild
from weft.expr.nodes import Binary, Const, cast, make
from weft.support.dtypes import DType

_x, _y, _c, _d = wild("x"), wild("y"), literal("c"), literal("d")


_EXACT_FLOATS: Final = {
    "float64": (), "float32": ("float64",), "float16": ("float32", "float64"), "bfloat16": ("float32", "float64"),
}  # fmt: skip
"""Floats that hold all integers of half as many bits → those that hold all of their values."""


def _value_kept(m: Any, ask: Ask) -> bool:
    """Whether every value of ``x`` is exact in ``inner``, so that ``x`` may be converted to ``outer`` directly."""
    first: DType = m.x.dtype
    middle: DType = m.inner
    if first.kind == "bool":
        return True
    if first.is_float:
        return middle in _EXACT_FLOATS.get(first, ())
    if middle.is_float:
        return middle in _EXACT_FLOATS and 2 * first.bits <= middle.bits
    small, large = first.limits(), middle.limits()
    return small[0] >= large[0] and small[1] <= large[1]


def _fits(m: Any, ask: Ask) -> bool:
    """``x`` is known to lie in the range of ``inner``."""
    if m.outer != m.x.dtype or not m.inner.is_integer or not m.x.dtype.is_integer:
        return False
    (lo, hi), (least, most) = m.inner.limits(), m.x.dtype.limits()
    return (lo <= least or ask(m.x >= int(lo))) and (hi >= most or ask(m.x <= int(hi)))


def _both_scalar(m: Any, ask: Ask) -> bool:
    return isinstance(m.c, Const) and isinstance(m.d, Const) and is_integer("x")(m, ask)


VALUE_RULES: Final = (
    rule("add-zero", _x + 0, _x, when=is_integer("x")),
    rule("sub-zero", _x - 0, _x, when=is_integer("x")),
    rule("sub-zero-float", _x - 0.0, _x),
    rule("add-negative-zero", _x + -0.0, _x),
    rule("sub-same", _x - _x, 0, when=is_integer("x")),
    rule("mul-zero", _x * 0, 0, when=is_integer("x")),
    rule("mul-one", _x * 1, _x, when=is_integer("x")),
    rule("mul-one-float", _x * 1.0, _x),
    rule("div-one-float", _x / 1.0, _x),
    rule("floordiv-one", _x // 1, _x, when=is_integer("x")),
    rule("floormod-one", _x % 1, 0, when=is_integer("x")),
    rule("truncdiv-one", binary("truncdiv", _x, 1), _x, when=is_integer("x")),
    rule("truncmod-one", binary("truncmod", _x, 1), 0, when=is_integer("x")),
    rule("add-constants", (_x + _c) + _d, lambda m: Binary("add", m.x, make("add", m.c, m.d)), when=_both_scalar),
    rule("mul-constants", (_x * _c) * _d, lambda m: Binary("mul", m.x, make("mul", m.c, m.d)), when=_both_scalar),
    rule("min-same", minimum(_x, _x), _x),
    rule("max-same", maximum(_x, _x), _x),
    rule("min-again", minimum(minimum(_x, _y), _x), minimum(_x, _y), when=not_float("x")),
    rule("max-again", maximum(maximum(_x, _y), _x), maximum(_x, _y), when=not_float("x")),
    rule("min-max-absorbs", minimum(maximum(_x, _y), _x), _x, when=not_float("x")),
    rule("max-min-absorbs", maximum(minimum(_x, _y), _x), _x, when=not_float("x")),
    rule("lt-same", binary("lt", _x, _x), False),  # also for NaN
    rule("gt-same", binary("gt", _x, _x), False),
    rule("le-same", binary("le", _x, _x), True, when=not_float("x")),
    rule("ge-same", binary("ge", _x, _x), True, when=not_float("x")),
    rule("eq-same", binary("eq", _x, _x), True, when=not_float("x")),
    rule("ne-same", binary("ne", _x, _x), False, when=not_float("x")),
    rule("cast-same", converted(_x, "to"), _x, when=lambda m, ask: m.x.dtype == m.to),
    rule("cast-constant", converted(_c, "to"), lambda m: cast(m.c, m.to)),  # NaN as an integer stays as it is
    rule("cast-cast", converted(converted(_x, "inner"), "outer"), lambda m: cast(m.x, m.outer), when=_value_kept),
    rule("cast-there-and-back", converted(converted(_x, "inner"), "outer"), _x, when=_fits),
)
