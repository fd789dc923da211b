"""Values that estimates assume for sizes that are not known at compile time. They differ, because each was chosen
together with the decision that uses it."""

from __future__ import annotations

from typing import Final

GRAPH_SIZE: Final = 8
"""A symbolic dimension, when layouts are chosen."""
EXTENT: Final = 64
"""An extent of a loop, when work is counted and when the roles of axes are chosen."""
TILE_ROWS: Final = 128
"""Rows, when a register tile is chosen."""
TILE_COLUMNS: Final = 8
"""Columns in vectors, when a register tile is chosen."""
STRIP_ROWS: Final = 16
"""Rows of a strip of two contractions, if the number of rows is not known."""
ROW_ELEMENTS: Final = 512
"""Elements of a row between two contractions, if its length is not known."""
PICTURES: Final = 4
"""Pictures of a batch, when it is decided whether stages of a convolution exchange their data through the cache."""
