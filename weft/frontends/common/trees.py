"""Decision trees as tables, the form in which model formats store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.frontends.common.problems import Malformed

Array: TypeAlias = "np.ndarray[Any, Any]"

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
LEAF = len(MODES)
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MAX_DEPTH = 512
"""Most levels of a tree."""


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Decision trees whose nodes have a common numbering. Leaves are nodes too; their successors are themselves.

    ``value`` (nodes × targets) is the number that a leaf adds, NaN for targets that it does not change. ``sets`` (nodes
    × longest) contains the members of BRANCH_MEMBER nodes, padded with NaN.
    """

    roots: Array
    feature: Array
    mode: Array
    split: Array
    then: Array
    otherwise: Array
    missing_then: Array
    value: Array
    sets: Array

    def depth(self) -> int:
        """The length of the longest path from a root to a leaf. Raises Malformed if the nodes do not form trees."""
        level, found = np.unique(self.roots), 0
        while True:
            inner = level[self.mode[level] != LEAF]
            if not inner.size:
                return found
            found += 1
            if found > MAX_DEPTH:
                raise Malformed(f"its trees are deeper than {MAX_DEPTH} levels or contain cycles")
            level = np.unique(np.concatenate([self.then[inner], self.otherwise[inner]]))
