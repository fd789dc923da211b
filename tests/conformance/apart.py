"""onnxruntime in a process of its own: some models of control flow end it, or make it run forever."""

from __future__ import annotations

import pickle
import select
import struct
import subprocess
import sys
from typing import Any

SECONDS = 20


class Failed(Exception):
    """onnxruntime refused the model, ended its process, or took too long."""


class Apart:
    """Runs models one after the other; the process begins again where one has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, model: bytes, feeds: dict[str, Any]) -> list[Any]:
        """The outputs of a serialized model. Raises Failed."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert process.stdin is not None and process.stdout is not None
        request = pickle.dumps((model, feeds))
        try:
            process.stdin.write(struct.pack("<q", len(request)) + request)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], SECONDS)[0]:
                raise Failed("it takes too long")
            found = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, Failed, pickle.UnpicklingError) as why:
            self.close()
            raise Failed(str(why)) from why
        if isinstance(found, str):
            raise Failed(found)
        return list(found)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _serve() -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    while head := sys.stdin.buffer.read(8):
        model, feeds = pickle.loads(sys.stdin.buffer.read(struct.unpack("<q", head)[0]))
        made: Any
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            made = session.run(None, feeds)
        except Exception as why:  # onnxruntime's errors have no common class but this one
            made = str(why)
        sys.stdout.buffer.write(pickle.dumps(made))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
