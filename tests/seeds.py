"""Seeds of random tests: the same in every run, fresh with ``pytest --fresh-seeds``, given with ``--seed N``.

A random test takes its seeds from :func:`seeds` or :func:`named`; tests of hypothesis need nothing, since the seed of
the run is theirs too. ``--seed 0`` is the default. A test that fails with another seed prints how to repeat it.
"""

from __future__ import annotations

import os
import random

VARIABLE = "WEFT_TEST_SEED"
"""The environment variable with the seed of the run. The options set it; the processes of pytest-xdist read it too."""

REPEAT_FILE = "WEFT_TEST_REPEAT_FILE"
"""The environment variable with the file to which failing tests add the command that repeats them."""

RUNNING_FOLDER = "WEFT_TEST_RUNNING_FOLDER"
"""The environment variable with a folder in which each process has a file with the name of the test that it runs."""


def run_seed() -> int:
    """The seed of this run of the tests."""
    return int(os.environ.get(VARIABLE, "0"))


def seeds(count: int, first: int = 0) -> range:
    """``count`` seeds, from ``first`` on in a run whose seed is 0."""
    return range(run_seed() + first, run_seed() + first + count)


def named(name: str) -> random.Random:
    """A generator of its own for each name."""
    return random.Random(name if run_seed() == 0 else f"{name}/{run_seed()}")
