"""How many threads to use, and what the CPU can do."""

from __future__ import annotations

from functools import cache

from weft.runtime import _native
from weft.support.arguments import WHOLE, shown
from weft.support.cores import default_threads
from weft.support.errors import UserError

MAX_THREADS = 1024

_SYSTEM = """clflushopt cldemote clwb clzero enqcmd fsgsbase hreset invlpgb invpcid kl lwp movdir64b movdiri mwaitx
pconfig pku prefetchi prfchw ptwrite rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr waitpkg
wbnoinvd widekl xsave xsavec xsaveopt xsaves"""
SYSTEM_FEATURES: frozenset[str] = frozenset(_SYSTEM.split())
"""Features that only operating systems use: compilers report them for their machine, but no kernel uses them."""


@cache
def cpu_features() -> frozenset[str]:
    """Features of this CPU that the operating system supports, under LLVM's names (``avx512f``, ``neon``)."""
    return frozenset(_native.cpu_features().split(","))


def checked_threads(threads: int | None) -> int:
    """``threads``, or the default for None. Raises UserError if out of range."""
    if threads is None:
        threads = default_threads()
    if not WHOLE.accepts(threads):
        raise UserError(
            f"threads must be {WHOLE.says}, not {shown(threads)}", code="I010", hint=f"1 to {MAX_THREADS}, or None"
        )
    if not 1 <= threads <= MAX_THREADS:
        raise UserError(f"{shown(threads)} threads are not possible", code="I010", hint=f"between 1 and {MAX_THREADS}")
    return threads
