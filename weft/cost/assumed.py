"""What sizes that are not known at compile time count as, in estimates. They do not agree: each was chosen with the
decision that it serves."""

from __future__ import annotations

from typing import Final

GRAPH_SIZE: Final = 8
"""A symbolic dimension, where layouts are chosen."""
