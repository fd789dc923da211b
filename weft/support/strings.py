"""Functions on tensors of strings (NumPy arrays of dtype object), by name: what compiled programs have the host do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Attrs = Mapping[str, Any]

FUNCTIONS: dict[str, Callable[..., Array | tuple[Array, ...]]] = {}
