"""The catalogue: every operator there is, by name."""

from __future__ import annotations

from weft.ops.binary import BINARY
from weft.ops.definition import OpDef
from weft.ops.unary import UNARY
from weft.support.errors import UserError

OPERATORS: dict[str, OpDef] = {
    entry.name: entry
    for entry in (
        *UNARY,
        *BINARY,
    )
}


def op(name: str) -> OpDef:
    """The operator called ``name``; UserError T001 if there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise UserError(f"there is no operator '{name}'", code="T001", hint="see weft.ops.catalogue.OPERATORS") from None
