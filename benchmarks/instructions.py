"""How many instructions kernels for AArch64 execute, by default and after a short search: counted exactly by an
emulator (``pip install unicorn``).

Times in an emulator say little about a processor: QEMU computes every float by a function of its own, so that all
schedules take about the time of their arithmetic. Instructions say how well a kernel uses vectors and registers: two
schedules of one computation can be compared. They say nothing of caches. Functions of the runtime are done here and not
counted; parallel loops run in one thread. The emulator knows NEON and not SVE.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.report import Table
from weft.graph.nodes import Call, Function
from weft.graph.parser import parse
from weft.graph.visit import post_order
from weft.kernels.machine_code import MachineCode, machine_code
from weft.kernels.task import KernelTask
from weft.ops.catalogue import OPERATORS
from weft.pipeline import Options, optimize, unscheduled
from weft.runtime import _native
from weft.runtime.sizes import evaluate
from weft.schedule.trace import Trace
from weft.support.errors import ScheduleError, WeftError
from weft.target import Target
from weft.tune.kernel_tuner import KernelTuner
from weft.tune.measure.bench import differing, first_line
from weft.tune.measure.inputs import inputs_of, shape_of
from weft.tune.measure.runner import Workload
from weft.tune.record import Outcome, TrialRecord
from weft.tune.search import strategy_named
from weft.tune.sketches import space_of

_PAGE: Final = 4096
_BUFFERS: Final = 0x1000_0000
_STACK: Final = 0x0800_0000
_STACK_BYTES: Final = 1 << 20
_SCRATCH: Final = 0x4000_0000
_SCRATCH_BYTES: Final = 64 << 20
_RETURN: Final = 0x0700_0000
"""Where a kernel returns to: its end."""
_APART: Final = 1 << 16
"""Between buffers, so that an access beyond one is noticed."""
_SECONDS: Final = 1e-9
"""That an instruction counts as."""
MAX_INSTRUCTIONS: Final = 500_000_000


@dataclass(frozen=True)
class Executed:
    """Instructions of one call, how often each block of code (by its distance from the kernel's beginning) ran, and
    how often functions of the runtime were called."""

    instructions: int
    blocks: Counter[int]
    calls: Counter[str]


def count(made: MachineCode, buffers: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int] = ()) -> Executed:
    """Execute a kernel for AArch64; results are written into the buffers. Raises RuntimeError where it fails, accesses
    memory beyond its buffers, or calls a function that is not known here."""
    return _Machine(made, buffers, sizes).run()


class InstructionRunner:
    """A runner of searches that counts instead of timing: a thousand million instructions are a second. What a search
    finds with it is the same on every machine."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._inputs: list[np.ndarray[Any, Any]] = []
        self._wanted: list[np.ndarray[Any, Any]] = []

    def open(self, workload: Workload) -> TrialRecord:
        """Begin with a kernel; the default schedule is the reference."""
        self.resume(workload)
        self._wanted, instructions = self._ran(machine_code(workload.task))
        return _record(None, instructions, None, workload.threads)

    def resume(self, workload: Workload) -> None:
        """Go on with a kernel."""
        self._workload = workload
        self._inputs = inputs_of(workload.task.program, {})

    def measure(self, traces: Sequence[Trace], best: TrialRecord) -> Iterator[TrialRecord]:
        """A record for each schedule."""
        assert self._workload is not None and best.seconds is not None, "open comes before measure"
        threads, lowest = self._workload.threads, best.seconds
        for trace in traces:
            try:
                found, instructions = self._ran(machine_code(self._workload.task.with_trace(trace)))
            except (WeftError, RuntimeError) as error:
                outcome = Outcome.REFUSED if isinstance(error, ScheduleError) else Outcome.FAILED
                yield TrialRecord(trace, outcome, threads=threads, message=first_line(error))
                continue
            wrong = differing(found, self._wanted)
            if wrong:
                yield TrialRecord(trace, Outcome.WRONG, threads=threads, message=wrong)
                continue
            yield _record(trace, instructions, lowest, threads)

    def close(self) -> None:
        """Nothing was started."""

    def _ran(self, made: MachineCode) -> tuple[list[np.ndarray[Any, Any]], int]:
        assert self._workload is not None
        program = self._workload.task.program
        outputs = program.params[len(program.params) - program.outputs :]
        results = [np.zeros(shape_of(b, {}), b.dtype.numpy) for b in outputs]
        return results, count(made, [*self._inputs, *results]).instructions


def _record(trace: Trace | None, instructions: int, lowest: float | None, threads: int) -> TrialRecord:
    seconds = instructions * _SECONDS
    relative = None if lowest is None else seconds / lowest
    return TrialRecord(trace, Outcome.OK, seconds, (seconds, seconds), relative, threads)


class _Machine:
    def __init__(self, made: MachineCode, buffers: Sequence[np.ndarray[Any, Any]], sizes: Sequence[int]) -> None:
        import unicorn
        from unicorn import arm64_const as arm

        self._unicorn, self._arm = unicorn, arm
        self._code = _native.Code(made.code.data, foreign=True)
        self._entry = self._code.symbol(made.code.entry)
        self._buffers, self._sizes = buffers, sizes
        self._emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._emulator.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        self._functions = self._known()
        self._pages = _pages_around(self._entry, self._code.nbytes)
        self._instructions, self._blocks, self._calls = 0, Counter[int](), Counter[str]()
        self._scratch = _SCRATCH
        self._missed = 0
        """The address that was missing last: of a function of the runtime, or beyond the buffers."""
        workspace = evaluate(made.workspace, {f"s{i}": n for i, n in enumerate(sizes)}) or 0
        self._workspace = np.zeros(workspace, np.uint8) if made.workspace != (0,) else None

    def run(self) -> Executed:
        u, uc = self._unicorn, self._emulator
        arm = self._arm
        addresses = [self._placed(at, b) for at, b in enumerate(self._all_buffers())]
        uc.mem_map(_STACK, _STACK_BYTES)
        uc.mem_map(_SCRATCH, _SCRATCH_BYTES)
        uc.mem_map(_RETURN, _PAGE)
        table = np.array([*addresses, *self._sizes, 0], np.int64)
        uc.mem_write(_STACK, table.tobytes())
        uc.reg_write(arm.UC_ARM64_REG_X0, _STACK)
        uc.reg_write(arm.UC_ARM64_REG_X1, _STACK + 8 * len(addresses))
        uc.reg_write(arm.UC_ARM64_REG_SP, _STACK + _STACK_BYTES)
        uc.reg_write(arm.UC_ARM64_REG_LR, _RETURN)
        uc.hook_add(u.UC_HOOK_BLOCK, self._block)
        uc.hook_add(u.UC_HOOK_MEM_FETCH_UNMAPPED | u.UC_HOOK_MEM_READ_UNMAPPED, self._missing)
        at = self._entry
        while at != _RETURN:
            try:
                uc.emu_start(at, _RETURN)
            except u.UcError as error:
                name = next((n for n, address in self._functions.items() if address == self._missed), None)
                if name is None:
                    where = f" at {self._missed:#x}" if self._missed else ""
                    raise RuntimeError(f"the kernel cannot go on{where}: {error}") from None
                self._missed = 0
                at = self._called(name)
                continue
            if self._instructions > MAX_INSTRUCTIONS:
                raise RuntimeError(f"the kernel executes more than {MAX_INSTRUCTIONS:,} instructions")
            at = _RETURN
        status = uc.reg_read(arm.UC_ARM64_REG_W0)
        if status:
            raise RuntimeError(f"the kernel returned {status}")
        for address, buffer in zip(addresses, self._buffers, strict=False):
            if buffer.nbytes and buffer.flags.writeable:
                found = np.frombuffer(bytes(uc.mem_read(address, buffer.nbytes)), buffer.dtype)
                buffer[...] = found.reshape(buffer.shape)
        return Executed(self._instructions, self._blocks, self._calls)

    def _all_buffers(self) -> list[np.ndarray[Any, Any]]:
        return [*self._buffers, *(() if self._workspace is None else (self._workspace,))]

    def _placed(self, number: int, buffer: np.ndarray[Any, Any]) -> int:
        """The address of a buffer in the emulator, at the end of its pages as far as its alignment allows."""
        before = sum(-(-b.nbytes // _APART) * _APART + _APART for b in self._all_buffers()[:number])
        start = _BUFFERS + before
        pages = -(-max(1, buffer.nbytes) // _PAGE) * _PAGE
        self._emulator.mem_map(start, pages)
        address = start + (pages - buffer.nbytes) // 64 * 64
        self._emulator.mem_write(address, np.ascontiguousarray(buffer).tobytes())
        return address

    def _block(self, uc: Any, address: int, size: int, _: object) -> None:
        self._instructions += size // 4
        self._blocks[address - self._entry] += 1
        if self._instructions > MAX_INSTRUCTIONS:
            uc.emu_stop()

    def _missing(self, uc: Any, access: int, address: int, size: int, value: int, _: object) -> bool:
        """Pages of the code are copied when they are touched first; its constants are among them."""
        page = address // _PAGE * _PAGE
        if page not in self._pages:
            self._missed = address
            return False
        uc.mem_map(page, _PAGE)
        uc.mem_write(page, ctypes.string_at(page, _PAGE))
        return True

    # ---- functions of the runtime -----------------------------------------------------------------------------------

    def _known(self) -> dict[str, int]:
        """The addresses that the loader has put into the code."""
        runtime, library = ctypes.CDLL(_native.__file__), ctypes.CDLL(None)
        places = dict.fromkeys(("memset", "memcpy", "memmove"), library)
        places |= dict.fromkeys(
            ("weft_parallel_for", "weft_scratch", "weft_scratch_release", "weft_must_stop"), runtime
        )
        return {name: ctypes.cast(getattr(of, name), ctypes.c_void_p).value or 0 for name, of in places.items()}

    def _called(self, name: str) -> int:
        """Do what a function does; the address where the code goes on."""
        self._calls[name] += 1
        uc, arm = self._emulator, self._arm
        x = [
            uc.reg_read(r) for r in (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2, arm.UC_ARM64_REG_X3)
        ]
        if name == "weft_parallel_for":  # the body runs once, over all parts, and returns to the caller
            for register, value in zip(
                (arm.UC_ARM64_REG_X0, arm.UC_ARM64_REG_X1, arm.UC_ARM64_REG_X2), (0, x[1], x[3]), strict=True
            ):
                uc.reg_write(register, value)
            return x[0]
        results: dict[str, Callable[[], int]] = {
            "memset": lambda: self._write(x[0], bytes([x[1] & 0xFF]) * x[2]),
            "memcpy": lambda: self._write(x[0], bytes(uc.mem_read(x[1], x[2]))),
            "memmove": lambda: self._write(x[0], bytes(uc.mem_read(x[1], x[2]))),
            "weft_scratch": lambda: self._take(x[0]),
            "weft_scratch_release": lambda: self._take(-x[0]),
            "weft_must_stop": lambda: 0,
        }
        uc.reg_write(arm.UC_ARM64_REG_X0, results[name]())
        return int(uc.reg_read(arm.UC_ARM64_REG_LR))

    def _write(self, address: int, data: bytes) -> int:
        self._emulator.mem_write(address, data)
        return address

    def _take(self, nbytes: int) -> int:
        before = self._scratch
        rounded = (abs(nbytes) + 63) // 64 * 64
        self._scratch += rounded if nbytes > 0 else -rounded
        if self._scratch > _SCRATCH + _SCRATCH_BYTES:
            raise RuntimeError("the kernel takes too much scratch memory")
        return before


def _pages_around(address: int, nbytes: int) -> set[int]:
    """The addresses of pages at most ``nbytes`` from one that can be read: among them are those of the loaded code."""
    found: set[int] = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, access = line.split()[:2]
        begin, end = (int(n, 16) for n in area.split("-"))
        if access.startswith("r"):
            low, high = max(begin, address - nbytes), min(end, address + nbytes)
            found.update(range(low // _PAGE * _PAGE, high, _PAGE))
    return found


# ---- the benchmark ---------------------------------------------------------------------------------------------------

TARGET: Final = "raspberry-pi-4"
_CONVOLUTIONS: Final = {  # channels in and out, side, kernel, stride, groups
    "3 × 3, 8 → 8 channels, 6 × 6": (8, 8, 6, 3, 1, 1),
    "3 × 3, 16 → 16 channels, 14 × 14": (16, 16, 14, 3, 1, 1),
    "5 × 5 by 2, 3 → 16 channels, 15 × 15": (3, 16, 15, 5, 2, 1),
    "1 × 1, 16 → 32 channels, 7 × 7": (16, 32, 7, 1, 1, 1),
    "3 × 3, 16 channels each on its own, 8 × 8": (16, 16, 8, 3, 1, 16),
}
TRIALS: Final = 24


def convolution(
    channels: int, filters: int, side: int, kernel: int, stride: int, groups: int, target: str
) -> KernelTask:
    """The kernel that computes a convolution, without those that change layouts around it."""
    pad, out = kernel // 2, (side + 2 * (kernel // 2) - kernel) // stride + 1
    x, w, y = (
        f"f32[1, {channels}, {side}, {side}]",
        f"f32[{filters}, {channels // groups}, {kernel}, {kernel}]",
        f"f32[1, {filters}, {out}, {out}]",
    )
    window = f"dilations=(1, 1), strides=({stride}, {stride}), pads=({pad}, {pad}, {pad}, {pad}), groups={groups}"
    text = f"def @main(%x: {x}, %w: {w}) -> {y} {{\n  %y: {y} = conv(%x, %w, {window})\n  return %y\n}}"
    made = Target(target)
    module = optimize(parse(text, OPERATORS), made, Options(winograd=False))
    groups_of = [e.target for e in post_order(module.main, into_functions=False) if isinstance(e, Call)]
    programs = [unscheduled(g)[0] for g in groups_of if isinstance(g, Function)]
    return KernelTask(next(p for p in programs if p.name != "layout_transform"), made)


def run(quick: bool) -> list[Table]:
    rows = []
    for name, (channels, filters, side, kernel, stride, groups) in list(_CONVOLUTIONS.items())[: 2 if quick else None]:
        task = convolution(channels, filters, side, kernel, stride, groups, TARGET)
        tuner = KernelTuner(Workload(task), space_of(task), InstructionRunner(), strategy_named("random"), run="count")
        before = tuner.open()
        while len(tuner.history.trials) < (8 if quick else TRIALS):
            tuner.step(4)
        side_out = (side + 2 * (kernel // 2) - kernel) // stride + 1
        products = filters * side_out**2 * channels // groups * kernel**2 / 4
        default, tuned = ((r.seconds or 0.0) / _SECONDS for r in (before, tuner.best))
        rows.append((name, round(default), default / products, tuned / products, default / tuned))
    note = f"Executed instructions, for {TARGET}; random search, {8 if quick else TRIALS} trials, seed 0."
    columns = ("convolution", "default", "per 4 multiply-adds", "tuned", "fewer by ×")
    return [Table("Instructions on AArch64", columns, tuple(rows), note)]
