"""Numbers of programs as products of powers of decisions: an extent is that of an axis divided by a factor, rounded up.

The powers are found from a few programs whose decisions are known. They are whole numbers where that explains the
programs about as well, because rounding hides them a little. Some extents grow up to that of an axis only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.nests import Nests

Array = NDArray[np.float64]

ROUNDING: Final = 0.1
"""How far the numbers of probes may lie off in proportion, on average, because they were rounded up."""
MAX_POWER: Final = 3.0
"""No number grows faster; where a few probes say so, they do not tell the decisions apart."""
EXPLAINED: Final = 1e-3
"""A smaller error is none."""
LEAST_KNOWN: Final = 1e-3
"""What was rounded up to 1 is taken to be at least so much."""


@dataclass(frozen=True)
class Powers:
    """A number of a program: ``base`` times ``powers`` of the decisions, but ``most`` at most; rounded up if it is
    ``whole``."""

    base: float
    powers: Array
    whole: bool
    most: float = np.inf

    @classmethod
    def of(cls, rows: Array, powers: Array, numbers: Array, whole: bool) -> Powers:
        """What explains ``numbers`` with given powers, for ``rows`` of decisions (logarithms). The base of whole
        numbers is the largest one for which none of them is rounded down, unless the median explains more."""
        bases, _ = _bases(rows, powers[None], numbers, whole)
        return cls(float(np.exp(bases[0])), powers, whole)

    def numbers(self, rows: Array) -> Array:
        """The numbers for rows of decisions."""
        found = np.minimum(self.base * np.exp(rows @ self.powers), self.most)
        return rounded_up(found) if self.whole else found

    def error(self, rows: Array, numbers: Array) -> float:
        """How far it is from given numbers, in proportion."""
        return float(np.abs(np.log(np.maximum(self.numbers(rows), LEAST_KNOWN) / numbers)).mean())


def powers_of(rows: Array, found: Sequence[Nests], known: Mapping[str, Powers]) -> tuple[dict[str, Powers], set[str]]:
    """For each label the powers of the decisions that explain its numbers best, in the probes that have it. They are
    whole, unless others explain the numbers better: rounding hides the powers a little. Powers that are ``known`` from
    another structure are taken over where they explain the numbers: those of the same label, or else of any. Also the
    labels for which none does."""
    places = [{label: i for i, label in enumerate(n.labels)} for n in found]
    made: dict[str, Powers] = {}
    same: dict[tuple[float, ...], Powers] = {}  # many things of a program are equally large
    new = set()
    for label in dict.fromkeys(label for n in found for label in n.labels):
        at = [i for i, p in enumerate(places) if label in p]
        numbers = np.array([found[i].numbers[places[i][label]] for i in at])
        whole = bool((numbers == np.round(numbers)).all())
        made[label] = Powers(float(numbers[0]), np.zeros(rows.shape[1]), whole)
        if label in known and (numbers > 0).all():
            before = known[label]
            again = replace(Powers.of(rows[at], before.powers, numbers, whole), most=before.most)
            if again.error(rows[at], numbers) < ROUNDING:
                made[label] = again
                continue
        if rows.shape[1] and len(at) > 1 and (numbers > 0).all() and (numbers != numbers[0]).any():
            key = (*map(float, at), *numbers.tolist())
            if key not in same:
                taken = _known_elsewhere(rows[at], numbers, whole, known)
                if taken is None:
                    new.add(label)
                same[key] = taken or _explained(rows[at], numbers, whole)
            made[label] = same[key]
    return made, new


def _known_elsewhere(rows: Array, numbers: Array, whole: bool, known: Mapping[str, Powers]) -> Powers | None:
    """Powers of another label that explain these numbers: of several, those of fewest decisions."""
    if not known:
        return None
    several = np.unique(np.stack([p.powers for p in known.values()]), axis=0)
    several = several[np.argsort(np.abs(several).sum(axis=1), kind="stable")]
    errors = _bases(rows, several, numbers, whole)[1]
    at = int(np.argmin(errors))
    return Powers.of(rows, several[at], numbers, whole) if errors[at] < EXPLAINED else None


def _explained(rows: Array, numbers: Array, whole: bool) -> Powers:
    """The powers that explain numbers best, with a limit if that explains more."""
    best = _unlimited(rows, numbers, whole)
    below = numbers < numbers.max()
    if best.error(rows, numbers) > EXPLAINED and 1 < below.sum() < len(numbers) - 1:
        limited = replace(_unlimited(rows[below], numbers[below], whole), most=float(numbers.max()))
        if limited.error(rows, numbers) + EXPLAINED < best.error(rows, numbers):
            return limited
    return best


def _unlimited(rows: Array, numbers: Array, whole: bool) -> Powers:
    """The powers that explain numbers best: whole ones, unless others are much better."""
    # A number n is anything above n - 1 that was rounded up: small ones say little, and 1 hardly anything.
    before = np.maximum(numbers - 1, numbers * LEAST_KNOWN)
    weights: Array = 1 / np.log(numbers / before) if whole else np.ones(len(numbers))
    weights = weights / weights.sum()
    x, y, scale = rows - weights @ rows, np.log(numbers), np.sqrt(weights)[:, None]
    found = np.linalg.lstsq(x * scale, (y - weights @ y) * scale[:, 0], rcond=None)[0]
    powers = np.clip(np.asarray(found, np.float64), -MAX_POWER, MAX_POWER)
    simple = _nearest(rows, np.round(powers), numbers, whole)
    exact = Powers.of(rows, powers, numbers, whole)
    return exact if exact.error(rows, numbers) + ROUNDING < simple.error(rows, numbers) else simple


def _nearest(rows: Array, powers: Array, numbers: Array, whole: bool) -> Powers:
    """Whole powers near given ones that explain numbers best: one or two of them are changed by one as long as that
    helps."""
    count = len(powers)
    single = np.concatenate([np.eye(count), -np.eye(count)])
    pairs = (single[:, None] + single[None]).reshape(-1, count)
    steps = np.concatenate([np.zeros((1, count)), single, pairs])
    error = np.inf
    while True:
        tried = powers + steps
        _, errors = _bases(rows, tried, numbers, whole)
        at = int(np.argmin(errors))
        if errors[at] > error - EXPLAINED:
            return Powers.of(rows, powers, numbers, whole)
        powers, error = tried[at], float(errors[at])
        if error < EXPLAINED:
            return Powers.of(rows, powers, numbers, whole)


def _bases(rows: Array, powers: Array, numbers: Array, whole: bool) -> tuple[Array, Array]:
    """For each of several rows of powers, the logarithm of the base that explains ``numbers`` best, and the error."""
    growth, known = powers @ rows.T, np.log(numbers)
    bases = known - growth
    if not whole:
        base: Array = bases.mean(axis=1)
        return base, np.abs(bases - base[:, None]).mean(axis=1)
    both = np.stack([bases.min(axis=1), np.median(bases, axis=1)])
    errors = np.abs(np.log(np.maximum(rounded_up(np.exp(both[:, :, None] + growth[None])), 1.0)) - known).mean(axis=2)
    chosen = errors.argmin(axis=0)
    every = np.arange(len(powers))
    return both[chosen, every], errors[chosen, every]


def rounded_up(numbers: Array) -> Array:
    """Numbers rounded up, but for what arithmetic adds to whole ones."""
    return np.ceil(numbers * (1 - 1e-9) - 1e-9)
