"""What is a PyTorch model, told without importing PyTorch or the converters."""

from __future__ import annotations

from typing import Any, Final

SUFFIX: Final = ".pt2"
"""Of the files of ``torch.export.save``."""


def is_torch_model(model: Any) -> bool:
    """Whether ``model`` is a module or an exported program of PyTorch."""
    return any(
        kind.__module__.partition(".")[0] == "torch" and kind.__name__ in ("Module", "ExportedProgram")
        for kind in type(model).__mro__
    )
