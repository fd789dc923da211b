"""What a machine is: targets, their capabilities and named machines."""

from weft.target.machines import CODE_FEATURES, CPU_FEATURES, MACHINES, Machine
from weft.target.target import KINDS, Capabilities, Target, TargetKind, host

__all__ = [
    "CODE_FEATURES",
    "CPU_FEATURES",
    "KINDS",
    "MACHINES",
    "Capabilities",
    "Machine",
    "Target",
    "TargetKind",
    "host",
]
