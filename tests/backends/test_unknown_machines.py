"""Names of processors and features that LLVM does not know, or that do not fit together, are errors and end nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import te
from weft.backends.llvm import apart
from weft.support.errors import TargetError
from weft.target import Target
from weft.target.machines import CPU_FEATURES, MACHINES


def _loops(target: str):
    x = te.placeholder((8,), name="X")
    y = te.compute((8,), lambda i: x[i] * 2.0 + 1.0, name="Y")
    return weft.build(te.create_schedule(y.op), [x, y], target)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("llvm -mcpu=foo -mattr=+avx2,+fma", "64-bit code|not a recognized processor"),
        ("llvm -mcpu=skylake -mattr=+foo", r"'\+foo' is not a recognized feature"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=skylake", "not a recognized"),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+sse2", "not a recognized feature"),
        ("llvm -mcpu=pentium4 -mattr=+sse2", "64-bit code"),
        ("llvm -mtriple=nonsense -mcpu=x86-64", "nonsense"),
    ],
)
def test_refused(target: str, said: str) -> None:
    for _ in range(2):  # the helper process starts again
        with pytest.raises(TargetError, match=said):
            _loops(target)


def test_without_a_feature_that_llvm_takes_for_granted() -> None:
    try:
        _loops("llvm -mcpu=x86-64 -mattr=-sse2,-sse")
    except TargetError as error:
        assert error.code == "G029"


def test_a_processor_that_only_llvm_knows() -> None:
    """Its code is made by the helper process, and runs here."""
    target = Target("llvm -mcpu=nocona -mattr=+sse2")
    assert not apart.is_known(target.cpu)
    if Target("cpu").cpu.triple.startswith("x86_64"):
        x = np.arange(8, dtype=np.float32)
        np.testing.assert_array_equal(_loops(str(target))(x), x * 2 + 1)


def test_known_machines_need_no_helper() -> None:
    names = [*MACHINES, "cpu", *(f"llvm -mcpu={n}" for n in CPU_FEATURES), "llvm -mcpu=znver4 -mattr=-avx512f"]
    assert [n for n in names if not apart.is_known(Target(n).cpu)] == []


@pytest.mark.parametrize("step", ["request", "kind", "answer"])
def test_after_an_interrupt_the_next_answer_is_the_right_one(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between a request and the end of its answer: the rest must not be read as the answer to the next one."""
    target = Target("llvm -mcpu=nocona -mattr=+sse2")
    texts = [f"define i32 @f{n}() {{\n  ret i32 {n}\n}}\n" for n in range(2)]
    before = [apart.ask("assembly", text, target, 2) for text in texts]
    assert b"f0" in before[0] and b"f1" in before[1]
    true_send, true_receive, received = apart.send, apart.receive, []

    def send(*args: Any) -> None:
        true_send(*args)
        if step == "request":
            raise KeyboardInterrupt

    def receive(*args: Any) -> bytes:
        if len(received) == ("kind", "answer").index(step):
            raise KeyboardInterrupt
        received.append(true_receive(*args))
        return received[-1]

    with monkeypatch.context() as patched:
        patched.setattr(apart, "send", send)
        patched.setattr(apart, "receive", receive)
        with pytest.raises(KeyboardInterrupt):
            apart.ask("assembly", texts[0], target, 2)
    assert [apart.ask("assembly", text, target, 2) for text in reversed(texts)] == before[::-1]
