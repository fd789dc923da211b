"""What the operators of random graphs ask of their operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from fuzz_graphs import FLOATS, INTEGERS, Graph, Tensor

NUMBERS = FLOATS + INTEGERS
Maker = Callable[[Graph], None]


def within(low: float, high: float) -> Callable[[Tensor], bool]:
    def fits(t: Tensor) -> bool:
        wide = t.value.astype(np.float64)
        return bool(np.isfinite(wide).all() and (wide >= low).all() and (wide <= high).all())

    return fits


def partner(g: Graph, x: Tensor, *, exact: bool = False, finite: bool = False) -> Tensor:
    """A second operand of the same dtype whose shape broadcasts with that of ``x``."""

    def fits(t: Tensor) -> bool:
        try:
            return int(np.prod(np.broadcast_shapes(t.shape, x.shape))) <= 4096
        except ValueError:
            return False

    if g.chance(0.5):
        return g.operand((x.dtype,), exact=exact, fits=fits, finite=finite)
    shape = [1 if g.chance(0.3) else d for d in x.shape]
    return g.like(x, shape[g.pick.randint(0, len(shape)) :], finite=finite)
