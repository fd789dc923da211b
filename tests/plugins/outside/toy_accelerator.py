"""An accelerator of somebody else, in one file: memory of its own, one matrix instruction, a device in Python.

Its back end takes convolutions whose loops the instruction tiles; the CPU does the rest. A program of the device is
text: loops around one instruction, with the boxes of its three operands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import weft
from weft import te
from weft.backends.protocol import Backend, Code, Offload, StageText
from weft.lowering.te_to_tir import te_to_tir
from weft.plugins import PluginDevice
from weft.schedule import Schedule, TensorIntrinsic
from weft.support.errors import ScheduleError, TargetError
from weft.target import MemorySpace, Target, TargetKind
from weft.tir.nodes import Block, For

ROWS, COLUMNS, DEPTH = 16, 7, 16

# -- the instruction ---------------------------------------------------------------------------------------------------


def matrix() -> TensorIntrinsic:
    """16 × 7 sums of 16 products: channels of the result by pixels of a line, over channels of the picture."""
    pixels = te.placeholder((1, DEPTH, 1, COLUMNS), name="pixels")
    weights = te.placeholder((ROWS, DEPTH, 1, 1), name="weights")
    k = te.reduce_axis((0, DEPTH), name="k")
    sums = te.compute(
        (1, ROWS, 1, COLUMNS), lambda n, i, y, j: te.sum(pixels[n, k, y, j] * weights[i, k, 0, 0], axis=k), name="sums"
    )
    description = te_to_tir("toy_matrix", [pixels, weights], [sums])
    return TensorIntrinsic("toy_matrix", description, description)


MATRIX = matrix()

# -- the back end ------------------------------------------------------------------------------------------------------


def schedule(program, target, rules=(), intrinsics=()):
    """Tiles of the instruction. Raises ScheduleError where they do not fit."""
    made = Schedule(program, intrinsics=(MATRIX,))
    blocks = made.get_blocks()
    loops = made.get_loops(blocks[0])
    if len(blocks) != 1 or len(loops) != 7:
        raise ScheduleError("not one convolution")
    sizes = (1, ROWS, 1, COLUMNS, DEPTH)  # of image, channel, line, pixel, depth; behind them is the window
    outer, inner = zip(*(made.split(x, factors=(None, n)) for x, n in zip(loops[:5], sizes, strict=True)), strict=True)
    made.reorder(*outer, *loops[5:], *inner)
    made.tensorize(inner[0], "toy_matrix")
    return made


def can_run(program, target) -> bool:
    if program.sizes or len(program.params) != 3 or any(b.dtype != "float32" for b in program.params):
        return False
    try:
        schedule(program, target)
    except ScheduleError:
        return False
    return True


def nest(program):
    """The loops of a scheduled program, and the block of the instruction in them."""
    loops, here = [], program.body
    while isinstance(here, For):
        loops.append(here)
        here = here.body
    assert isinstance(here, Block) and here.annotations.get("tensorized") == "toy_matrix"
    return loops, here


def lower(program, target, name=None):
    return program if name is None else replace(program, name=name)


def text(program) -> str:
    """The program of the device."""
    loops, block = nest(program)
    names = {x.var: f"l{i}" for i, x in enumerate(loops)} | {it.var: f"v{i}" for i, it in enumerate(block.iters)}

    def written(e) -> str:
        if e in names:
            return names[e]
        if hasattr(e, "value"):
            return str(int(e.value))
        sign = {"add": "+", "mul": "*"}.get(getattr(e, "op", ""))
        if sign is None:
            raise TargetError(f"the device does not compute {e}", code="G020")
        return f"({written(e.a)} {sign} {written(e.b)})"

    def box(region) -> str:
        place = list(program.params).index(region.buffer)
        starts = ((written(start), written(extent)) for start, extent in region.ranges)
        return f"p{place}[{', '.join(f'{a} : {a} + {n}' for a, n in starts)}]"

    lines = [f"{' ' * i}for {names[x.var]} in range({written(x.extent)}):" for i, x in enumerate(loops)]
    indent = " " * len(loops)
    lines += [
        f"{indent}{names[it.var]} = {written(value)}" for it, value in zip(block.iters, block.values, strict=True)
    ]
    by_buffer = {region.buffer: region for region in (*block.reads, *block.writes)}
    lines.append(f"{indent}matrix({', '.join(box(by_buffer[b]) for b in program.params)})")
    shapes = [[int(d.value) for d in b.shape] for b in program.params]
    return f"shapes = {shapes}\ncode = '''\n" + "\n".join(lines) + "\n'''\n"


KIND = TargetKind(
    name="toy",
    device="toy",
    doc="one matrix instruction, in Python",
    parse=lambda kind, words: Target.of(kind, None, (MemorySpace("toy"),), host=Target(" ".join(words) or "cpu")),
    words=lambda target: [str(target.host)],
)
BACKEND = Backend(
    kind=KIND,
    schedule=schedule,
    lower=lower,
    emit=lambda program, target: Code("toy", text(program).encode(), program.name),
    texts=lambda program, target: iter([StageText("toy", ".toy", text(program))]),
    version=lambda target: "toy 1",
    stages=("toy",),
    offload=Offload(can_run),
)

# -- the device --------------------------------------------------------------------------------------------------------


class Device:
    """Addresses are numbers that mean nothing to the CPU."""

    opened: list[Device] = []  # noqa: RUF012 (for tests: what the devices did)

    def __init__(self, index: int) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.next, self.launches, self.instructions = 1 << 60, 0, 0
        Device.opened.append(self)

    def info(self):
        return "toy", ("toy",), 0

    def allocate(self, nbytes):
        at, self.next = self.next, self.next + nbytes + 4096
        self.memory[at] = np.zeros(nbytes, np.uint8)
        return at

    def free(self, address):
        del self.memory[address]

    def at(self, address):
        start = max(a for a in self.memory if a <= address)
        return self.memory[start][address - start :]

    def copy_in(self, to, source):
        self.at(to)[: len(source)] = np.frombuffer(source, np.uint8)

    def copy_out(self, source, to):
        np.frombuffer(to, np.uint8)[:] = self.at(source)[: len(to)]

    def copy_across(self, to, source, nbytes):
        self.at(to)[:nbytes] = self.at(source)[:nbytes].copy()

    def load(self, format, code, entry):
        found: dict = {}
        exec(code.decode(), found)
        return found["shapes"], compile(found["code"], entry, "exec")

    def unload(self, kernel): ...

    def launch(self, kernel, buffers, sizes, grid, block, shared_bytes):
        shapes, code = kernel
        count = [int(np.prod(s)) for s in shapes]
        views = [
            self.at(b)[: 4 * n].view(np.float32).reshape(s) for b, n, s in zip(buffers, count, shapes, strict=True)
        ]
        views[-1][...] = 0
        exec(code, {"matrix": self.matrix, "range": range, **{f"p{i}": v for i, v in enumerate(views)}})
        self.launches += 1

    def matrix(self, pixels, weights, sums):
        sums[0, :, 0] += weights[:, :, 0, 0] @ pixels[0, :, 0]
        self.instructions += 1

    def synchronize(self): ...

    def close(self): ...


PLUGIN = weft.Plugin(
    "toy-accelerator", "1.0", backends=(BACKEND,), intrinsics=(MATRIX,), devices=(PluginDevice("toy", Device),)
)
