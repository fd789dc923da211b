"""Operators of com.microsoft and ai.onnx.ml against onnxruntime, interpreted and (without --slow: a part) compiled."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from contrib_attention_cases import ATTENTION_CASES
from contrib_experts_cases import EXPERTS_CASES
from contrib_quantized_cases import QUANTIZED_CASES
from contrib_various_cases import VARIOUS_CASES
from learned_cases import LEARNED_CASES
from one_node import OneNode, agree, by_compiler, by_interpreter, by_onnxruntime

CASES = (*ATTENTION_CASES, *EXPERTS_CASES, *QUANTIZED_CASES, *VARIOUS_CASES, *LEARNED_CASES)
SHARE = 4
"""One in this many cases is compiled by default."""


def part(case: OneNode) -> Any:
    return pytest.param(case, marks=() if zlib.crc32(str(case).encode()) % SHARE == 0 else pytest.mark.slow)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted(case: OneNode) -> None:
    agree(case, by_interpreter(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [part(c) for c in CASES], ids=str)
def test_compiled(case: OneNode) -> None:
    agree(case, by_compiler(case), by_onnxruntime(case))
