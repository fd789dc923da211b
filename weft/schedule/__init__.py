"""Schedules: when and where a program computes, changed step by step without changing what it computes."""

from weft.schedule.index_map import IndexMap
from weft.schedule.intrinsic import TensorIntrinsic
from weft.schedule.numbers import maximum, minimum
from weft.schedule.refs import BlockRef, LoopRef, Stay
from weft.schedule.schedule import Schedule
from weft.schedule.trace import Decision, Instruction, Trace

__all__ = [
    "BlockRef",
    "Decision",
    "IndexMap",
    "Instruction",
    "LoopRef",
    "Schedule",
    "Stay",
    "TensorIntrinsic",
    "Trace",
    "maximum",
    "minimum",
]
