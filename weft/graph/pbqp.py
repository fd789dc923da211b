"""Partitioned Boolean quadratic problems: select one alternative at each node to minimize the costs of nodes and edges.

Nodes of degree up to two are reduced exactly, others by the locally best choice; both in time linear in the graph for a
bounded number of alternatives. Networks of layers are nearly series-parallel, for which the result is optimal.
Source: Hames and Scholz, "Nearly Optimal Register Allocation with PBQP", JMLC 2006.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)
Array = np.ndarray[Any, Any]


class Pbqp(Generic[K]):
    """Add nodes and edges, then :meth:`solve`."""

    def __init__(self) -> None:
        self.costs: dict[K, Array] = {}
        self._edges: dict[K, dict[K, Array]] = {}

    def node(self, key: K, costs: Any) -> None:
        """A node with the cost of each alternative."""
        self.costs[key] = np.asarray(costs, float)
        self._edges[key] = {}

    def edge(self, a: K, b: K, costs: Any) -> None:
        """Add ``costs[i, j]`` for the alternatives i of ``a`` and j of ``b``; several edges of a pair add up."""
        matrix = np.asarray(costs, float)
        known = self._edges[a].get(b)
        matrix = matrix if known is None else known + matrix
        self._edges[a][b], self._edges[b][a] = matrix, matrix.T

    def solve(self) -> dict[K, int]:
        """The chosen alternative of each node."""
        order: list[tuple[K, dict[K, Array], Array]] = []
        single = [k for k, c in self.costs.items() if len(c) == 1]
        queue = single + [k for k in self.costs if len(self._edges[k]) <= 2]
        hard = sorted(self.costs, key=lambda k: -len(self._edges[k]))
        done: set[K] = set()
        at = 0
        while len(done) < len(self.costs):
            if queue:
                key = queue.pop()
                if key in done or (len(self._edges[key]) > 2 and len(self.costs[key]) > 1):
                    continue
            else:
                key = hard[at]
                at += 1
                if key in done:
                    continue
            done.add(key)
            order.append(self._reduce(key, queue))
        return _choose(order)

    def _reduce(self, key: K, queue: list[K]) -> tuple[K, dict[K, Array], Array]:
        """Remove a node from the problem; its costs are added to its neighbours."""
        edges = self._edges.pop(key)
        costs = self.costs[key]
        if len(edges) > 2 and len(costs) > 1:  # no exact reduction: select the locally best alternative
            total = costs + sum((m + self.costs[n]).min(axis=1) for n, m in edges.items())
            best = int(np.argmin(total))
            costs = np.where(np.arange(len(costs)) == best, costs, np.inf)
        near = list(edges)
        for n in near:
            del self._edges[n][key]
        if len(costs) == 1 or not np.isfinite(costs).all() or len(near) == 1:
            for n in near:
                if len(near) == 1:
                    self.costs[n] = self.costs[n] + (costs[:, None] + edges[n]).min(axis=0)
                else:
                    self.costs[n] = self.costs[n] + edges[n][int(np.argmin(costs))]
        elif len(near) == 2:
            a, b = near
            self.edge(a, b, (costs[:, None, None] + edges[a][:, :, None] + edges[b][:, None, :]).min(axis=0))
        queue.extend(n for n in near if len(self._edges[n]) <= 2)
        return key, edges, costs


def _choose(order: list[tuple[K, dict[K, Array], Array]]) -> dict[K, int]:
    chosen: dict[K, int] = {}
    for key, edges, costs in reversed(order):
        total = costs.copy()
        for n, matrix in edges.items():
            total = total + matrix[:, chosen[n]]
        chosen[key] = int(np.argmin(total))
    return chosen
