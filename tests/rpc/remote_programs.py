"""Programs that remote machines run, and what they take."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from weft.kernels.one_program import one_program
from weft.kernels.task import KernelTask
from weft.rpc.frames import MessageType
from weft.runtime import Artifact
from weft.runtime.encode import encode
from weft.runtime.program import BufferSpec, Copy, ExecutableProgram, TensorSpec
from weft.target import Target
from weft.tir.text import parse

ROWS, INNER, COLUMNS = 24, 40, 56
MATMUL = f"""program "matmul"[n](a: f32[n, {INNER}], b: f32[{INNER}, {COLUMNS}]) -> (c: f32[n, {COLUMNS}]):
  for i in serial(0, n):
    for j in serial(0, {COLUMNS}):
      for k in serial(0, {INNER}):
        block "c"(y: spatial n = i, x: spatial {COLUMNS} = j, r: reduce {INNER} = k):
          reads a[y, r], b[r, x]
          writes c[y, x]
          init:
            c[y, x] = 0.0
          body:
            c[y, x] = c[y, x] + a[y, r] * b[r, x]
"""


def matmul_task(target: str) -> KernelTask:
    """The product of two matrices, by the default schedule of a target; its size is the number of rows."""
    return KernelTask(parse(MATMUL), Target(target))


def matmul_model(target: str) -> Artifact:
    """The same product as a model of one kernel."""
    return one_program(parse(MATMUL), Target(target))


def matrices(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two matrices, and their product."""
    source = np.random.default_rng(rows)
    a = source.standard_normal((rows, INNER)).astype(np.float32)
    b = source.standard_normal((INNER, COLUMNS)).astype(np.float32)
    return a, b, a @ b


COPYING = ExecutableProgram(
    symbols=("n",),
    inputs=(TensorSpec("x", "float32", (("n",), (2,))),),
    outputs=(TensorSpec("y", "float32", (("n",), (2,))),),
    buffers=(
        BufferSpec("input", 0, nbytes=("n", 8, "mul")),
        BufferSpec("output", 0, nbytes=("n", 8, "mul")),
        BufferSpec("constant", 0, nbytes=(64,)),
    ),
    kernels=(),
    instructions=(Copy(0, 1, ("n", 8, "mul")),),
)
"""``y = x``"""


class Copier:
    """That program as an executable of a session, made by requests; ``ask`` gives the payload of an answer."""

    def __init__(self, ask: Callable[[MessageType, bytes], bytes]) -> None:
        self.ask = ask
        self.words = encode(COPYING).tobytes()
        self.program, self.data = self.allocate(len(self.words)), self.allocate(4096)
        ask(MessageType.COPY_IN, struct.pack("<Q", self.program) + self.words)
        ask(MessageType.COPY_IN, struct.pack("<Q", self.data) + bytes(4096))
        self.make = struct.pack("<QQIQIIQQ", self.program, len(self.words), 1, 0, 0, 1, self.data, 64)
        (self.number,) = struct.unpack_from("<I", ask(MessageType.EXECUTABLE, self.make))

    def allocate(self, nbytes: int) -> int:
        """The address of new memory."""
        return int(struct.unpack("<Q", self.ask(MessageType.ALLOCATE, struct.pack("<Q", nbytes)))[0])

    def run(self, address: int, *shape: int) -> bytes:
        """A run on the elements at an address."""
        return struct.pack(f"<IIQI{len(shape)}q", self.number, 1, address, len(shape), *shape)
