"""Where the time of a run goes, kernel by kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.runtime.program import CallKernel, ExecutableProgram
from weft.runtime.sizes import evaluate
from weft.support.html import escape, html_table
from weft.support.words import counted

_BAR_CHARACTERS = 24
_BAR_PIXELS = 120
_MAX_ROWS = 20
"""Most kernels that a notebook shows."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One instruction that calls a kernel. Times are for one run, ``share`` is relative to the time in all kernels.

    ``gflops`` (10⁹ floating-point operations per second) and ``gigabytes`` (10⁹ bytes per second) are None if the
    program does not say how much work the kernel does.
    """

    instruction: int
    kernel: str
    label: str
    calls: int
    total_ms: float
    median_ms: float
    share: float
    gflops: float | None
    gigabytes: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Result of :meth:`Executable.profile <weft.runtime.executable.Executable.profile>`: kernels in program order."""

    kernels: tuple[KernelProfile, ...]
    run_ms: float
    runs: int
    threads: int

    @property
    def kernel_ms(self) -> float:
        """Median time in all kernels together."""
        return sum(k.median_ms for k in self.kernels)

    def top(self, count: int = 10) -> tuple[KernelProfile, ...]:
        """The most expensive kernels, the worst first."""
        return tuple(sorted(self.kernels, key=lambda k: -k.median_ms)[:count])

    def table(self, count: int | None = None) -> str:
        """An aligned table, the most expensive kernels first."""
        rows = self.top(count if count is not None else len(self.kernels))
        cells = [("kernel", "calls", "median ms", "share", "GFLOP/s", "GB/s", "")]
        largest = max((k.share for k in rows), default=1.0) or 1.0
        names = distinct([k.label or k.kernel for k in rows], [k.instruction for k in rows])
        for name, k in zip(names, rows, strict=True):
            cells.append(
                (
                    name,
                    str(k.calls),
                    f"{k.median_ms:.4f}",
                    f"{100 * k.share:.1f}%",
                    _number(k.gflops),
                    _number(k.gigabytes),
                    bar(k.share / largest),
                )
            )
        widths = [max(len(row[i]) for row in cells) for i in range(6)]
        lines = []
        for row in cells:
            numbers = "  ".join(c.rjust(w) for c, w in zip(row[1:6], widths[1:], strict=True))
            lines.append(f"{row[0].ljust(widths[0])}  {numbers}  {row[6]}".rstrip())
        rest = len(self.kernels) - len(rows)
        return "\n".join([*lines, f"… and {rest} more"] if rest else lines)

    @property
    def summary(self) -> str:
        """The time of a run and that in kernels, in one line."""
        threads, runs = counted(self.threads, "thread"), counted(self.runs, "run")
        head = f"{self.run_ms:.3f} ms a run, {self.kernel_ms:.3f} ms in {counted(len(self.kernels), 'kernel')}"
        return f"{head} (median of {runs}, {threads})"

    def __str__(self) -> str:
        return f"{self.summary}\n{self.table()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The kernels that take most time, with a bar for the share of each."""
        shown = self.top(_MAX_ROWS)
        largest = max((k.share for k in shown), default=1.0) or 1.0
        columns = ("kernel", "calls", "median ms", "share", "", "GFLOP/s", "GB/s")
        names = distinct([k.label or k.kernel for k in shown], [k.instruction for k in shown])
        rows = [_html_row(name, k, largest) for name, k in zip(names, shown, strict=True)]
        table = html_table(columns, rows, (1, 2, 3, 5, 6))
        rest = len(self.kernels) - len(shown)
        more = f"<div>… and {counted(rest, 'kernel')} more; print() shows all</div>" if rest else ""
        return f"<div>{escape(self.summary)}</div>{table}{more}"


def make_profile(
    program: ExecutableProgram,
    times: NDArray[np.int64],
    totals: Sequence[float],
    symbols: Mapping[str, int],
    threads: int,
) -> Profile:
    """``times``: runs × (nanoseconds, calls) × instructions, from the executor; ``totals``: ms of each run."""
    milliseconds = np.median(times[:, 0], axis=0) / 1e6
    sums = times[:, 0].sum(axis=0) / 1e6
    calls = times[-1, 1]
    numbers = [
        i for i, instruction in enumerate(program.instructions) if isinstance(instruction, CallKernel) and calls[i]
    ]
    whole = float(sum(milliseconds[i] for i in numbers)) or 1.0
    kernels = []
    for i in numbers:
        call: Any = program.instructions[i]
        seconds = float(milliseconds[i]) / 1e3
        kernels.append(
            KernelProfile(
                instruction=i,
                kernel=program.kernels[call.kernel].name,
                label=call.label,
                calls=int(calls[i]),
                total_ms=float(sums[i]),
                median_ms=float(milliseconds[i]),
                share=float(milliseconds[i]) / whole,
                gflops=_rate(evaluate(call.flops, symbols), int(calls[i]), seconds),
                gigabytes=_rate(evaluate(call.bytes, symbols), int(calls[i]), seconds),
            )
        )
    return Profile(tuple(kernels), float(np.median(totals)), len(totals), threads)


def bar(share: float) -> str:
    """A bar for a number between 0 and 1, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * _BAR_CHARACTERS * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def _html_row(shown: str, k: KernelProfile, largest: float) -> Sequence[str]:
    pixels = round(_BAR_PIXELS * k.share / largest)
    filled = f'<div style="background:#5b8def;height:0.8em;width:{pixels}px"></div>'
    name = f'<span title="{escape(k.label)} {escape(k.kernel)}">{escape(shown)}</span>'
    share = f"{100 * k.share:.1f}%"
    return name, str(k.calls), f"{k.median_ms:.4f}", share, filled, _number(k.gflops), _number(k.gigabytes)


def _rate(work: int | None, calls: int, seconds: float) -> float | None:
    return work * calls / seconds / 1e9 if work and seconds > 0 else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def distinct(names: Sequence[str], numbers: Sequence[int], width: int = 60) -> list[str]:
    """``names``, shortened to ``width``. Those that would look alike get their number of ``numbers``: ``conv #7``."""
    short = [shorten(name, width) for name in names]
    alike = {name for name, count in Counter(short).items() if count > 1}
    return [f"{name} #{number}" if name in alike else name for name, number in zip(short, numbers, strict=True)]


def shorten(text: str, width: int = 60) -> str:
    """``text``, or its two ends with an ellipsis between if it is longer than ``width``: long names in models often
    differ in their ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
