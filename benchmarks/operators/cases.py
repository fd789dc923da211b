"""All rows of the sweep: recipes × ranks × dtypes × sizes × known or open × surroundings."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.operators import elementwise, layers, moving
from benchmarks.operators.notation import SIZES, Made, Maker, Recipe, Size
from benchmarks.operators.surroundings import PLACES

_SEQUENCES = (
    "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SequenceMap", "SplitToSequence",
)  # fmt: skip
_STRINGS = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer")
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_OLD = (
    "Affine", "Crop", "ImageScaler", "ParametricSoftplus", "ScaledTanh", "Scatter", "SimplifiedLayerNormalization",
    "Upsample",
)  # fmt: skip
WITHOUT_RECIPE = {
    **dict.fromkeys(("If", "Loop", "Scan"), "surroundings of other operators; benchmarks.dynamic measures loops"),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), "resolved when a model is compiled"),
    **dict.fromkeys(_SEQUENCES, "sequences hold tensors and compute nothing"),
    **dict.fromkeys(_STRINGS, "strings are computed by the host"),
    **dict.fromkeys(_RANDOM, "no two engines draw the same numbers: results cannot be compared"),
    "ImageDecoder": "pictures are decoded by the host",
    **dict.fromkeys(_OLD, "not in the newest operator set"),
    **dict.fromkeys(("Constant", "MelWeightMatrix"), "constant when compiled"),
    "MaxRoiPool": "onnxruntime and PyTorch have RoiAlign in its place",
}
"""Operators of the standard domain that are imported and have no recipe, and why."""


@dataclass(frozen=True)
class Case:
    """One row."""

    recipe: Recipe
    rank: int
    dtype: str
    size: Size
    opened: bool
    place: str

    @property
    def name(self) -> str:
        words = [self.recipe.op, self.recipe.variant, f"rank {self.rank}", self.dtype, self.size.name]
        words += ["open" if self.opened else "known", self.place]
        return " · ".join(w for w in words if w)

    def made(self) -> Made | None:
        return self.recipe.make(Maker(self.size, self.rank, self.dtype))


def recipes() -> list[Recipe]:
    return [*elementwise.recipes(), *moving.recipes(), *layers.recipes()]


def cases() -> Iterator[Case]:
    """Every row. Some have no form: their recipe makes nothing at this size, or nothing in this place."""
    for recipe in recipes():
        for rank in recipe.ranks:
            for dtype in recipe.dtypes:
                for size in SIZES:
                    for opened in (False, True):
                        for place in PLACES:
                            yield Case(recipe, rank, dtype, size, opened, place)


def quick() -> list[Case]:
    """One row for each recipe: its first rank and dtype, in the second-level cache, alone."""
    return [Case(r, r.ranks[0], r.dtypes[0], SIZES[3], False, "alone") for r in recipes()]


TINY = ("one", "registers")
"""Sizes at which every engine takes less than the rows that count for the limits."""


def drawn_of_each(rows: Sequence[Case], count: int, seed: int) -> list[Case]:
    """``count`` rows of each operator, choice of attributes and dtype that may count for the limits: of a sample of all
    rows half were casts and reductions, which have many dtypes and axes. Rows of tiny sizes, and rows of other dtypes
    between neighbours that work on float32, are left out. The order is random: any part of it is a fair sample too."""
    rng = random.Random(seed)
    kinds: dict[tuple[str, str, str], list[Case]] = {}
    for case in rows:
        if case.size.name not in TINY and (case.place == "alone" or case.dtype == "float32"):
            kinds.setdefault((case.recipe.op, case.recipe.variant, case.dtype), []).append(case)
    found = [c for kind in kinds.values() for c in rng.sample(kind, min(count, len(kind)))]
    rng.shuffle(found)
    return found


def chosen(rows: Sequence[Case], only: Sequence[str], sample: int | None, seed: int) -> list[Case]:
    """The rows whose names contain all words of ``only``, or ``sample`` of them drawn by ``seed``. A word that is the
    name of an operator, a size or a place means just that: ``L1`` does not mean ``odd L1``, nor ``Tan`` ``Tanh``."""
    whole = {r.op for r in recipes()} | {s.name for s in SIZES} | set(PLACES)
    found = [c for c in rows if all(w in (c.name.split(" · ") if w in whole else c.name) for w in only)]
    if sample is not None and sample < len(found):
        found = random.Random(seed).sample(found, sample)
    return found
