"""What ``weft.te`` is to users: the room of tensor expressions, and the schedules of what it describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

_room = import_module("weft.te")

if TYPE_CHECKING:
    from weft.classic.schedule import TensorSchedule
    from weft.schedule import TensorIntrinsic


def create_schedule(outputs: Any) -> TensorSchedule:
    """The schedule that computes ``outputs`` (an operation, a tensor, or a sequence of these) by plain loops."""
    from weft.classic.schedule import create_schedule as create

    return create(outputs)


def decl_tensor_intrin(
    output: Any, lowering: Callable[[Sequence[Any], Any], Any], name: str = "", inputs: Sequence[Any] | None = None
) -> TensorIntrinsic:
    """Declare an instruction: ``output`` (a small tensor or its operation) says what it computes, ``lowering`` how."""
    from weft.classic.intrinsic import declare

    return declare(output, lowering, name, inputs)


def __getattr__(name: str) -> Any:
    return getattr(_room, name)


def __dir__() -> list[str]:
    return sorted([*_room.__all__, "create_schedule", "decl_tensor_intrin"])
