"""What static checkers see of ``weft.te``; a stub, because the room is imported when it is first used."""

from collections.abc import Callable, Sequence
from typing import Any

from weft.classic.schedule import TensorSchedule
from weft.schedule import TensorIntrinsic
from weft.te import *  # noqa: F403 (a stub: everything of weft.te, and one more)

def create_schedule(outputs: Any) -> TensorSchedule: ...
def decl_tensor_intrin(
    output: Any, lowering: Callable[[Sequence[Any], Any], Any], name: str = "", inputs: Sequence[Any] | None = None
) -> TensorIntrinsic: ...
