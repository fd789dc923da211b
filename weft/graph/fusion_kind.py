"""The fusion kinds, by the name under which this room knows them."""

from weft.ir.fusion_kind import FusionKind

__all__ = ["FusionKind"]
