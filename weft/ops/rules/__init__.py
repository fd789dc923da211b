"""Rewrites of particular operators, as data for :class:`weft.graph.passes.rewrite.Rewrite`."""

from __future__ import annotations

from weft.graph.pattern import GraphRule
from weft.ops.rules.cleanup import CLEANUP_RULES
from weft.ops.rules.contraction import CONTRACTION_RULES
from weft.ops.rules.fused_forms import FUSED_FORM_RULES
from weft.ops.rules.linear import LINEAR_RULES
from weft.ops.rules.movement import MOVEMENT_RULES
from weft.ops.rules.normalization import NORMALIZATION_RULES

SIMPLIFY_RULES: tuple[GraphRule, ...] = (
    *CLEANUP_RULES,
    *FUSED_FORM_RULES,
    *NORMALIZATION_RULES,
    *CONTRACTION_RULES,
    *LINEAR_RULES,
    *MOVEMENT_RULES,
)
"""All rules of the standard pipeline, in order of preference."""

__all__ = ["SIMPLIFY_RULES"]
