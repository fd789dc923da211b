"""The architectures, by family."""

from __future__ import annotations

from benchmarks.zoo.entry import Entry
from benchmarks.zoo.lists.decoders import DECODERS
from benchmarks.zoo.lists.encoders import ENCODER_DECODERS, ENCODERS
from benchmarks.zoo.lists.pictures import DENSE, DIFFUSION
from benchmarks.zoo.lists.sound import SOUND
from benchmarks.zoo.lists.tables import TABLES
from benchmarks.zoo.lists.vision import CONVOLUTIONAL, VISION_TRANSFORMERS

ENTRIES: tuple[Entry, ...] = (
    *DECODERS, *ENCODERS, *ENCODER_DECODERS, *CONVOLUTIONAL, *VISION_TRANSFORMERS, *DENSE, *DIFFUSION, *SOUND, *TABLES,
)  # fmt: skip
FAMILIES = tuple(dict.fromkeys(e.family for e in ENTRIES))
