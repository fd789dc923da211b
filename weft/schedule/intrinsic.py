"""Tensor intrinsics: hardware instructions, each declared by what it computes and how it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from weft.support.errors import ScheduleError
from weft.tir.nodes import Program
from weft.tir.text import to_text


@dataclass(frozen=True, slots=True, eq=False)
class TensorIntrinsic:
    """An instruction over small buffers.

    ``description`` computes one tile with plain loops (scheduled form, one block, constant shapes). ``implementation``
    has equal parameters and computes the same with any statements (kernel or scheduled form), usually a call. The
    description of a reduction may have an init. The init is not part of the instruction unless ``includes_init`` is
    set.
    """

    name: str
    description: Program
    implementation: Program
    includes_init: bool = False

    def __post_init__(self) -> None:
        wanted = [(b.dtype, b.shape) for b in self.description.params]
        given = [(b.dtype, b.shape) for b in self.implementation.params]
        if wanted != given:
            raise ScheduleError(
                f"intrinsic '{self.name}': description and implementation have different parameters",
                code="S082",
                hint="give both the same shapes and dtypes in the same order",
            )

    def __call__(self, *operands: object) -> NoReturn:
        """Refuse (S084) a call, as in ``te.compute(…, lambda i: instruction(A[i, 0:8]))``."""
        raise ScheduleError(
            f"the instruction '{self.name}' cannot be called in an expression",
            code="S084",
            hint="te.compute says what single elements are; s[C].tensorize(axis, instruction) computes them with it",
        )

    def computes_like(self, other: TensorIntrinsic) -> bool:
        """Whether ``other`` has the same description and the same implementation."""
        return self.includes_init == other.includes_init and all(
            to_text(a) == to_text(b)
            for a, b in ((self.description, other.description), (self.implementation, other.implementation))
        )
