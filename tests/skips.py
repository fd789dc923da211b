"""Why tests may be skipped, and how many: a skipped test sees nothing, so each reason is listed and bounded.

Tests that take minutes are not skipped but deselected without ``--slow``. A reason that is not listed, or more tests
with one than it has, make a run fail. What a machine lacks (programs, packages, files) has no bound, as it may lack all
of them; with ``--all-tools`` (for machines that should have everything) such a test makes the run fail, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

LACKING: tuple[str, ...] = (
    r"no C compiler|there is no C compiler",
    r".* is not installed",
    r"gcc .* has no __builtin_shufflevector",
    r"could not import '(torch|onnx|onnxruntime|onnxscript|openvino|timm|transformers|diffusers|tvm|unicorn|ray)'.*",
    r"could not import '(re2|PIL(\.Image)?)'.*",
    r".* needs .*: pip install .*",
    r"no models at .*",
    r".* is absent \(the folder is named by WEFT_MODELS\)",
    r"the compiler has no \w+ sanitizer",
    r"the thread sanitizer does not run on this kernel",
    r"the emulator fails: .*",
    r"the machine has no AVX2",
    r"the machine is 32-bit Arm",
    r"this CPU has no products of \w+",
    r"this CPU lacks [\w.-]+",
    r"processes cannot be pinned on this system",
    r"the C library does not tell how much memory is in use",
    r"the long double of this machine is no longer than a double",
    r"needs /proc",
    r"only root can give files away",
    r"only Linux lets threads choose their processor",
    r"(permissions|links|signals) of POSIX|processes have groups on POSIX systems",
    r"flags of x86-64",
    r"this Pillow writes no \w+",
    r"LLVM without .*",
    r".* is not emulated here: no .*",
    r"matrix tiles are imitated on x86-64 Linux only",
)
"""Patterns of what a machine may lack."""

BOUNDED: Mapping[str, int] = {
    r".* is not exported: .*|PyTorch's classic exporter has no .*": 6,  # listed by name where models are built
}
"""Patterns of other reasons, and how many tests of a run may have one."""


def reason_of(report: Any) -> str:
    """The text of a skip, without the word that pytest puts before it."""
    told = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    return str(told).removeprefix("Skipped: ")


def excess(counts: Counter[str], all_tools: bool = False) -> list[str]:
    """What is wrong with the reasons of a run's skipped tests."""
    wrong, bounded = [], Counter[str]()
    for reason, count in counts.items():
        pattern = next((p for p in BOUNDED if re.fullmatch(p, reason, re.S)), None)
        if pattern is not None:
            bounded[pattern] += count
        elif not any(re.fullmatch(p, reason, re.S) for p in LACKING):
            wrong.append(f"{count} tests are skipped for a reason that tests/skips.py does not list: {reason}")
        elif all_tools:
            wrong.append(f"{count} tests are skipped on a machine that should have everything: {reason}")
    wrong += [f"{n} tests are skipped, at most {BOUNDED[p]} may be: {p}" for p, n in bounded.items() if n > BOUNDED[p]]
    return wrong
