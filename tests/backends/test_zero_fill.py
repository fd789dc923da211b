"""Detection of loops that fill a whole buffer with zeros."""

from __future__ import annotations

import pytest

from weft.backends.llvm.zero_fill import zero_filled
from weft.tir.text import parse

HEAD = 'program "p"() -> (c: f32[96]):\n'
FILLS = {
    "one loop": "  for i in serial(0, 96):\n    c[i] = 0.0\n",
    "vectors": "  for i in serial(0, 6):\n    c[ramp(i * 16, 1, 16)] = broadcast(0.0, 16)\n",
    "two loops": "  for i in serial(0, 2):\n    for j in serial(0, 48):\n      c[i * 48 + j] = 0.0\n",
    "the other order": "  for i in serial(0, 2):\n    for j in serial(0, 48):\n      c[j * 2 + i] = 0.0\n",
    "a loop of one": "  for i in serial(0, 1):\n    for j in serial(0, 96):\n      c[i + j] = 0.0\n",
}
OTHERS = {
    "a part": "  for i in serial(0, 95):\n    c[i] = 0.0\n",
    "holes": "  for i in serial(0, 48):\n    c[i * 2] = 0.0\n",
    "twice the same": "  for i in serial(0, 2):\n    for j in serial(0, 48):\n      c[i + j] = 0.0\n",
    "not from the start": "  for i in serial(1, 95):\n    c[i] = 0.0\n",
    "moved": "  for i in serial(0, 95):\n    c[i + 1] = 0.0\n",
    "ones": "  for i in serial(0, 96):\n    c[i] = 1.0\n",
    "negative zeros": "  for i in serial(0, 96):\n    c[i] = -0.0\n",
    "lanes apart": "  for i in serial(0, 6):\n    c[ramp(i, 6, 16)] = broadcast(0.0, 16)\n",
}


@pytest.mark.parametrize("name", FILLS)
def test_fills(name: str) -> None:
    program = parse(HEAD + FILLS[name])
    assert zero_filled(program.body) is program.params[0]


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    assert zero_filled(parse(HEAD + OTHERS[name]).body) is None
