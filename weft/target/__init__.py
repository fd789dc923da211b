"""What a machine is: targets, CPUs, compute units, memory spaces and named machines."""

from weft.target.cpu import Cpu
from weft.target.machines import CODE_FEATURES, CPU_FEATURES, MACHINES, Machine
from weft.target.target import KINDS, MAIN_MEMORY, MemorySpace, Target, TargetKind, host, parse_target, without_rates
from weft.target.units import ComputeUnit

__all__ = [
    "CODE_FEATURES",
    "CPU_FEATURES",
    "KINDS",
    "MACHINES",
    "MAIN_MEMORY",
    "ComputeUnit",
    "Cpu",
    "Machine",
    "MemorySpace",
    "Target",
    "TargetKind",
    "host",
    "parse_target",
    "without_rates",
]
