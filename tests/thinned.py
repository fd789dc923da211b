"""Long lists of cases that are much alike: a share of them runs by default, all with ``--all-cases`` or ``--slow``.

A test (or a file, by ``pytestmark``) with ``@pytest.mark.thinned(n)`` runs one of ``n`` of its cases. Which ones is
drawn from its name and the seed of the run: the same in every usual run, others with ``--fresh-seeds``. The mark is for
tests whose cases share their code and their way to fail, where each takes a noticeable part of a second: seeds, sizes,
dtypes, combinations of them. Lists whose every entry is a thing of its own (an operator, a model, a rule, a back end,
an error) are not thinned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from seeds import named


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases that a run without ``--slow`` does not take. At least one of each test is taken."""
    groups: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("thinned")
        if mark is not None and not item.get_closest_marker("slow"):
            (share,) = mark.args
            groups[item.nodeid.partition("[")[0], share].append(item)
    found: list[pytest.Item] = []
    for (name, share), cases in groups.items():
        kept = set(named(name).sample(range(len(cases)), -(-len(cases) // share)))
        found += [case for at, case in enumerate(cases) if at not in kept]
    return found
