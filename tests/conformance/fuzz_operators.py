"""The operators that random graphs are made of: each entry puts one node into a graph, or raises Unfit."""

from __future__ import annotations

from fuzz_elementwise import ELEMENTWISE, REDUCING
from fuzz_layers import LAYERS
from fuzz_movement import MOVEMENT
from fuzz_operands import Maker
from fuzz_structures import STRUCTURES

MAKERS: dict[str, Maker] = {**ELEMENTWISE, **REDUCING, **MOVEMENT, **LAYERS, **STRUCTURES}
