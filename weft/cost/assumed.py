"""What sizes that are not known at compile time count as, in estimates. They do not agree: each was chosen with the
decision that it serves."""

from __future__ import annotations

from typing import Final

GRAPH_SIZE: Final = 8
"""A symbolic dimension, where layouts are chosen."""
EXTENT: Final = 64
"""An extent of a loop, where work is counted and roles of axes are found."""
TILE_ROWS: Final = 128
"""Rows, where a register tile is chosen."""
TILE_COLUMNS: Final = 8
"""Columns in vectors, where a register tile is chosen."""
STRIP_ROWS: Final = 16
"""Rows of a strip of two contractions, where it is not known how many rows there are."""
ROW_ELEMENTS: Final = 512
"""Elements of a row between two contractions, where its length is not known."""
