"""The cores of named machines, as data: what the rates of :mod:`weft.cost` are computed from.

Sources, by column:

* Clock: the vendor's data sheet. For Intel servers it is an estimate of the clock that all cores keep with 512-bit
  multiply-adds, which is below the nominal turbo clock.
* Vectors, latency, loads, second-level cache: Intel 64 and IA-32 Architectures Optimization Reference Manual; Software
  Optimization Guide for AMD Family 19h Processors; Arm's Software Optimization Guides for Cortex-A7 (Technical
  Reference Manual), Cortex-A72, Neoverse N1 and Neoverse V1; the tables of uops.info and of A. Fog, "Instruction
  tables". Apple publishes nothing of the kind: the numbers are those that D. Johnson measured for the M1 (Firestorm).
* Last cache, memory, transfer of a line: estimates in round numbers, of the size that public measurements of one core
  alone give (STREAM and pointer chasing by several authors). They vary by a third with the model and its memory.

RISC-V with vectors is not one machine: its row is an estimate for small cores with vectors of 128 bits and in-order
execution, such as SpacemiT X60. AMD Zen 4 has no row, because the reference rates were measured on it. The levels of
x86-64 are no machines either, and have the reference rates too.
"""

from __future__ import annotations

from typing import Final

from weft.cost.core import Core

_GB: Final = 1e9

# Columns: clock, bytes of a vector, multiply-adds of vectors a cycle, their latency, loads a cycle, bytes a cycle from
# the second-level cache, bytes a second from the last cache and from memory, nanoseconds for a cache line to move.
CORES: Final[dict[str, Core]] = {
    "skylake-x": Core(2.6e9, 64, 2, 4, 2, 64, 18 * _GB, 12 * _GB, 45),
    "ice-lake": Core(2.9e9, 64, 2, 4, 2, 64, 20 * _GB, 13 * _GB, 50),
    "sapphire-rapids": Core(3.0e9, 64, 2, 4, 2, 64, 20 * _GB, 13 * _GB, 60, pairs_per_cycle=32, tiles_per_cycle=512),
    "zen3": Core(4.4e9, 32, 2, 4, 2, 32, 90 * _GB, 30 * _GB, 20),
    "raspberry-pi-2": Core(0.9e9, 16, 0.5, 8, 0.5, 8, 2 * _GB, 1.5 * _GB, 70),
    "raspberry-pi-4": Core(1.5e9, 16, 1, 7, 1, 16, 9 * _GB, 4.5 * _GB, 50),
    "graviton2": Core(2.5e9, 16, 2, 4, 2, 32, 22 * _GB, 18 * _GB, 50),
    "graviton3": Core(2.6e9, 16, 4, 4, 3, 32, 28 * _GB, 24 * _GB, 50),
    "apple-m1": Core(3.2e9, 16, 4, 4, 3, 32, 70 * _GB, 58 * _GB, 40),
    "riscv64": Core(1.6e9, 16, 1, 6, 1, 16, 6 * _GB, 3 * _GB, 60),
}
