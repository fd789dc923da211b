"""Numbers of programs as products of powers of decisions: an extent is that of an axis divided by a factor, rounded up.

The powers are found from a few programs whose decisions are known. They are whole numbers where that explains the
programs about as well, because rounding hides them a little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from weft.tune.draft.nests import Nests

Array = NDArray[np.float64]

ROUNDING: Final = 0.1
"""How far the numbers of probes may lie off in proportion, on average, because they were rounded up."""


@dataclass(frozen=True)
class Powers:
    """A number of a program: ``base`` times ``powers`` of the decisions, rounded up if it is ``whole``."""

    base: float
    powers: Array
    whole: bool

    @classmethod
    def of(cls, rows: Array, powers: Array, numbers: Array, whole: bool) -> Powers:
        """What explains ``numbers`` with given powers, for ``rows`` of decisions (logarithms). The base of whole
        numbers is the largest one for which none of them is rounded down."""
        bases = np.log(numbers) - rows @ powers
        return cls(float(np.exp(bases.min() if whole else bases.mean())), powers, whole)

    def error(self, rows: Array, numbers: Array) -> float:
        """How far it is from given numbers, in proportion."""
        found = self.base * np.exp(rows @ self.powers)
        return float(np.abs(np.log((rounded_up(found) if self.whole else found) / numbers)).mean())


def powers_of(rows: Array, found: Sequence[Nests], known: Mapping[str, Powers]) -> dict[str, Powers]:
    """For each label the powers of the decisions that explain its numbers best, in the probes that have it. They are
    whole, unless others explain the numbers better: rounding hides the powers a little. Of labels that are ``known``
    from another structure the powers are taken over, if they explain the numbers."""
    places = [{label: i for i, label in enumerate(n.labels)} for n in found]
    made = {}
    for label in dict.fromkeys(label for n in found for label in n.labels):
        at = [i for i, p in enumerate(places) if label in p]
        numbers = np.array([found[i].numbers[places[i][label]] for i in at])
        whole = bool((numbers == np.round(numbers)).all())
        made[label] = Powers(float(numbers[0]), np.zeros(rows.shape[1]), whole)
        if label in known and (numbers > 0).all():
            again = Powers.of(rows[at], known[label].powers, numbers, whole)
            if again.error(rows[at], numbers) < ROUNDING:
                made[label] = again
                continue
        if rows.shape[1] and len(at) > 1 and (numbers > 0).all() and (numbers != numbers[0]).any():
            x, y = rows[at] - rows[at].mean(axis=0), np.log(numbers)
            powers: Array = np.linalg.lstsq(x, y - y.mean(), rcond=None)[0]
            simple = Powers.of(rows[at], np.asarray(np.round(powers)), numbers, whole)
            exact = Powers.of(rows[at], powers, numbers, whole)
            better = exact.error(rows[at], numbers) + ROUNDING < simple.error(rows[at], numbers)
            made[label] = exact if better else simple
    return made


def rounded_up(numbers: Array) -> Array:
    """Numbers rounded up, but for what arithmetic adds to whole ones."""
    return np.ceil(numbers * (1 - 1e-9) - 1e-9)
