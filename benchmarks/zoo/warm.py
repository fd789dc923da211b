"""Imported once by the process that exports are forked from: loads PyTorch's exporter and lets it build its tables.

They take longer than most exports. One thread only, as threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import torch


def export_something() -> None:
    torch.set_num_threads(1)
    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        model = torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.ReLU()).eval()
        torch.onnx.export(model, (torch.zeros(1, 2, 8),), Path(folder) / "m.onnx", dynamo=True, verbose=False)


export_something()
