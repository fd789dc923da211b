"""Peaks of this machine: ``python -m benchmarks.peaks``. The kernels are those of ``weft bench --profile``."""

from __future__ import annotations

from benchmarks.report import Table
from weft.measure.peaks import copy_bandwidth, fma_peak, read_bandwidth
from weft.target import Target

BEYOND_CACHES = 256 << 20


def run(quick: bool) -> list[Table]:
    caches = Target("cpu").cpu
    rows: list[tuple[object, ...]] = [("float32 multiply-add, GFLOP/s", *(fma_peak(t) for t in (1, 2)))]
    sizes = [("L1", caches.l1 // 2), ("L2", caches.l2 // 2), ("L3", caches.l3 // 4)]
    for name, nbytes in sizes if quick else [*sizes, ("memory", BEYOND_CACHES)]:
        amount = f"{nbytes >> 10} KiB" if nbytes < 1 << 20 else f"{nbytes >> 20} MiB"
        for what, bandwidth in (("read", read_bandwidth), ("copy", copy_bandwidth)):
            rows.append((f"{what}, GB/s, {name}, {amount} a thread", *(bandwidth(nbytes, t) for t in (1, 2))))
    note = "Best of eight, our own kernels; a copy counts bytes read and written."
    return [Table("Limits of this machine", ("", "1 thread", "2 threads"), tuple(rows), note)]


if __name__ == "__main__":
    for made in run(False):
        print(made.plain())
