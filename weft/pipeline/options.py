"""Options of a compilation."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

from weft.ops.winograd import POINTS as TILES
from weft.support.arguments import FLAG, WHOLE, Form, checked_fields, optional
from weft.support.errors import InputError
from weft.support.html import escape, html_table
from weft.support.words import did_you_mean
from weft.target import Target

PRECISIONS = ("f32", "bf16")
_WINOGRAD = Form(
    f"True, False or the largest tile allowed ({' or '.join(map(str, TILES))})",
    lambda v: isinstance(v, bool) or (WHOLE.accepts(v) and operator.index(v) in TILES),
)
_SEED = Form(
    "a whole number of 64 bits, or 'input'",
    lambda v: v == "input" if isinstance(v, str) else WHOLE.accepts(v) and -(1 << 63) <= operator.index(v) < 1 << 64,
)


@checked_fields("I029", InputError)
@dataclass(frozen=True, slots=True)
class Options:
    """Options of a compilation; the defaults suit most uses.

    ``layouts`` lets the compiler choose blocked layouts. ``winograd`` lets it compute 3×3 convolutions with fewer
    multiplications if that is faster: with tiles of 2×2 results, which round less than the direct form, or of 4×4,
    which round more (see ``weft.ops.winograd``). A number is the largest tile allowed: 2 allows only tiles that are as
    exact as the direct form; 4 allows both, like True; False allows none. ``winograd_tiles`` are pairs of the name of a
    convolution and the tile that it gets, 0 for the direct form; an estimate (``weft.cost.winograd``) decides for all
    others. :attr:`Report.winograd` says what was taken. ``merge`` lets it merge products of one
    tensor with several constant matrices into one product if that is faster, as for queries, keys and values of one
    row.
    ``max_ops`` limits how many operators are fused into one kernel (1 turns fusion off). ``precision`` is ``"f32"``, or
    ``"bf16"``: operands of matrix products and convolutions are stored as bfloat16, sums and everything else stay in
    float32. A target without instructions for such products computes in float32 (:attr:`Report.notes` says so).
    ``seed`` is that of random numbers in models, an integer or ``"input"``: the model then has one more input,
    ``seed``, for the seed of each run (docs/semantics.md).
    ``jobs`` processes build kernels (None: the value of ``WEFT_JOBS``, or of ``WEFT_NUM_THREADS``, or the number of
    cores; 1: only this process); the kernels do not depend on it.
    """

    layouts: bool = True
    winograd: bool | int = True
    winograd_tiles: tuple[tuple[str, int], ...] = ()
    merge: bool = True
    max_ops: int = 64
    precision: str = "f32"
    jobs: int | None = None
    seed: int | str = 0

    def __post_init__(self) -> None:
        forms = {
            "layouts": FLAG,
            "winograd": _WINOGRAD,
            "merge": FLAG,
            "max_ops": WHOLE,
            "jobs": optional(WHOLE),
            "seed": _SEED,
        }
        for name, form in forms.items():
            value = getattr(self, name)
            if not form.accepts(value):
                raise InputError(f"Options: '{name}' must be {form.says}, not {value!r}", code="I029")
        for name in ("max_ops", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"Options: '{name}' must be at least 1, not {value}", code="I029")
        for pair in self.winograd_tiles:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
                raise InputError(
                    f"Options: 'winograd_tiles' must be pairs of a name and a tile, not {pair!r}", code="I029"
                )
            if isinstance(pair[1], bool) or pair[1] not in (0, *self.tiles):
                known = ", ".join(map(str, (0, *self.tiles)))
                raise InputError(
                    f"Options: the tile of '{pair[0]}' must be one of {known}, not {pair[1]!r}", code="I029"
                )
        if self.precision not in PRECISIONS:
            raise InputError(
                f"unknown precision '{self.precision}'",
                code="I022",
                hint=did_you_mean(self.precision, PRECISIONS, f"one of {', '.join(PRECISIONS)}"),
            )

    def _repr_html_(self) -> str:
        rows = []
        for f in fields(self):
            value = getattr(self, f.name)
            rows.append([escape(f.name), escape(repr(value)), "" if value == f.default else "not the default"])
        return html_table(["option", "value", ""], rows)

    @property
    def tiles(self) -> tuple[int, ...]:
        """The tiles that Winograd's algorithm may use."""
        largest = max(TILES) if self.winograd is True else int(self.winograd)
        return tuple(t for t in TILES if t <= largest)

    def precision_on(self, target: Target) -> str:
        """The precision in which ``target`` computes."""
        return self.precision if self.precision == "f32" or target.multiplies("bfloat16") else "f32"
