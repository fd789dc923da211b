"""Derivatives of tensor expressions: tensor expressions again, which are scheduled and differentiated like all others.

``scalars`` differentiates bodies, ``inverse`` finds which elements read an element, ``reductions`` has the rules of
reducers, and ``reverse`` traverses the operations backwards once.
"""

from weft.tensor_expr.derivatives.reverse import gradient

__all__ = ["gradient"]
