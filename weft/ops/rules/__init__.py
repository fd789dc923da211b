"""Rewrites of particular operators, as data for :class:`weft.graph.passes.rewrite.Rewrite`."""

from __future__ import annotations

from weft.graph.pattern import GraphRule

SIMPLIFY_RULES: tuple[GraphRule, ...] = ()
"""All rules of the standard pipeline, in order of preference."""

__all__ = ["SIMPLIFY_RULES"]
