"""Keys of the classic notation: what stages and axes are looked up by, and where the schedule finds their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft.expr.iter_var import IterVar
from weft.expr.nodes import Binary, Const, Var


class BlockOrigin(Protocol):
    """Maps keys to blocks and buffers. ``key`` is the index of a schedule: a tensor or an operation."""

    def block_name(self, key: Any) -> str:
        """The block that computes ``key``; raises KeyError if no block computes it."""
        ...

    def axes(self, key: Any) -> Sequence[Any]:
        """The axes of ``key``, spatial and then reduce, in the order of the block's iteration variables."""
        ...

    def buffer_name(self, key: Any) -> str:
        """The buffer of ``key``, an input or a computed tensor; raises KeyError if ``key`` is not a tensor."""
        ...


class KeyOwner(Protocol):
    """The schedule that a key belongs to."""

    def iters_of(self, key: StageKey) -> Sequence[IterVar]:
        """The iteration variables of the block that computes ``key``."""
        ...


class StageKey:
    """A stage that a primitive made. It is a key of the schedule, as the tensor that the classic ``cache_read``
    returns. ``whole`` is the key that stands for all the results of its block, by default itself."""

    def __init__(self, owner: KeyOwner, name: str, output: int = 0, whole: StageKey | None = None) -> None:
        self._owner, self.name, self.output = owner, name, output
        self.whole = whole if whole is not None else self

    @property
    def op(self) -> StageKey:
        """Itself, so that ``key.op.axis`` reads as for a tensor."""
        return self

    @property
    def axis(self) -> list[IterVar]:
        """The spatial axes of the stage."""
        return [it for it in self._owner.iters_of(self) if it.kind != IterVar.REDUCE]

    @property
    def reduce_axis(self) -> list[IterVar]:
        """The axes that the stage reduces over."""
        return [it for it in self._owner.iters_of(self) if it.kind == IterVar.REDUCE]

    def __repr__(self) -> str:
        return f"StageKey({self.name})"


def keys_of(owner: KeyOwner, block: str, outputs: Sequence[int]) -> list[StageKey]:
    """A key for each of these results of one block."""
    whole = StageKey(owner, block, outputs[0])
    return [whole, *(StageKey(owner, block, n, whole) for n in outputs[1:])]


def listed(keys: Any) -> list[Any]:
    """One key or several, as a list."""
    return list(keys) if isinstance(keys, (list, tuple)) else [keys]


def axis_name(axis: Any) -> str:
    """What messages call an axis or a loop."""
    return str(getattr(getattr(axis, "var", axis), "name", axis))


def loop_and_value(condition: Any) -> tuple[Var, int] | None:
    """The loop variable and the constant of a condition ``variable == constant``."""
    if isinstance(condition, Binary) and condition.op == "eq":
        for a, b in ((condition.a, condition.b), (condition.b, condition.a)):
            if isinstance(a, Var) and isinstance(b, Const):
                return a, int(b.value)
    return None
