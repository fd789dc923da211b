"""Every word of encoded programs and every leaf of their JSON, changed to every kind of value: what is accepted.

Accepted words are listed in golden files, so that each bound that the decoder checks is known exactly. Programs are
decoded only: changed ones run in ``test_artifact_hostile.py``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_artifacts import artifact
from test_devices import made as made_for_devices
from test_devices import program as device_program
from test_executor import CONSTANT
from toy_device import toys

from weft.runtime import Executable, executable
from weft.runtime.encode import encode
from weft.runtime.program import (
    Allocate,
    Box,
    BufferSpec,
    CallHost,
    CallKernel,
    Check,
    CheckRange,
    Construct,
    Copy,
    ExecutableProgram,
    Extent,
    Field,
    Free,
    FunctionSpec,
    Give,
    HostOperator,
    Instruction,
    Invoke,
    Jump,
    KernelRef,
    NewTensor,
    NewView,
    Reserve,
    Return,
    SetSize,
    Share,
    Tag,
    Take,
    TensorSpec,
)  # fmt: skip
from weft.runtime.serialize import program_from_json, program_to_json
from weft.support.errors import ArtifactError

Golden = Callable[[str, str], None]
N = ("n",)


def everything() -> ExecutableProgram:
    """Each instruction of the CPU once, in two functions."""
    main = (
        CallKernel(0, (0, 3), (N,), label="first"),
        Copy(0, 1, ("n", 8, "mul")),
        Copy(0, 3, (8,), (8,), (0,)),
        SetSize("k", ("n", 2, "mul")),
        SetSize("k", buffer=0, element=1),
        Allocate(4, ("k", 8, "mul")),
        Reserve(4, ("k",)),
        Free(4),
        Check(("n", 0, "ge"), "no size is negative"),
        CheckRange(0, N, ((0,), (1,)), ((9,), (10,)), "the numbers"),
        Jump(11),
        Jump(12, ("n", 3, "lt", "not")),
        Take(5, 1),
        NewTensor(6, (64,), ((8,), N)),
        NewView(6, 2, (64,), ((16,),)),
        Box(6, ("k",)),
        Construct(7, 3, (5, 6)),
        Field(6, 7, 1),
        Tag("t", 7),
        Extent("t", 6, 1),
        Share(6, 7),
        Invoke(0, None, (5,), (7,), False, "second"),
        Invoke(None, 6, (5,), (7,)),
        CallHost(0, (5, 6), (7,)),
        Give(7, 1),
        Return(()),
    )
    called = (Invoke(0, None, (8,), (9,), True), SetSize("own", (3,)), Return((9,)))
    return ExecutableProgram(
        symbols=("n", "k", "t", "own"),
        inputs=(TensorSpec("x", "int64", (N,)), TensorSpec("v", "string", ((2,),))),
        outputs=(TensorSpec("y", "int64", (N,)), TensorSpec("w", "string", ((2,),))),
        buffers=(
            BufferSpec("input", 0, dtype="int64", nbytes=("n", 8, "mul")),
            BufferSpec("output", 0, dtype="int64"),
            BufferSpec("constant", 0, nbytes=(8,), dtype="float32"),
            BufferSpec("arena", offset=(64,), nbytes=("n", 8, "mul"), dtype="uint16"),
            BufferSpec("dynamic", dtype="int8"),
            *(BufferSpec("object") for _ in range(5)),
        ),
        kernels=(KernelRef("double_plus_one", 0), KernelRef("parallel_exp", 0)),
        instructions=(*main, *called),
        arena_bytes=("n", 8, "mul", 64, "add"),
        functions=(FunctionSpec("f", len(main), len(main) + len(called), (8, 10), (8,), (9,), 1),),
        hosts=(HostOperator("text_concat", {"axis": 1}, ("string", "string"), ("string",)),),
        types={"tree": {"leaf": []}},
        metadata={"model": "everything"},
    )


VALUES = (-(1 << 63), -(1 << 32), -2, *range(-1, 40), 63, 64, 65, 4095, 4096, (1 << 24) - 1, 1 << 24, (1 << 31) - 2,
          (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 63) - 1)  # fmt: skip


def decoded(made: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Sequence[int], Callable[[Sequence[int]], bool]]:
    """The words of an artifact's program, and whether the runtime accepts others in their place."""
    given: list[Any] = []
    native = executable._native.Executable
    with monkeypatch.context() as patch:
        patch.setattr(executable._native, "Executable", lambda *args: given.extend(args) or native(*args))
        Executable(made, threads=1)

    def accepts(words: Sequence[int]) -> bool:
        try:
            native(np.array(words, np.int64), *given[1:])
        except ValueError as error:
            assert "malformed program" in str(error) or "do not fit the program" in str(error)
            return False
        return True

    return [int(w) for w in given[0]], accepts


def spans(numbers: Sequence[int]) -> Iterator[str]:
    """Numbers as ranges of those that follow one another in ``VALUES``."""
    places = [VALUES.index(n) for n in numbers]
    for n, place in enumerate(places):
        if n and place == places[n - 1] + 1:
            continue
        end = n
        while end + 1 < len(places) and places[end + 1] == places[end] + 1:
            end += 1
        yield str(numbers[n]) if end == n else f"{numbers[n]}…{numbers[end]}"


def accepted(made: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A line for each word: the word, and the other values that are accepted in its place."""
    words, accepts = decoded(made, monkeypatch)
    assert accepts(words)
    assert not any(accepts(words[:n]) for n in range(len(words))), "a part of a program"
    assert not any(accepts([*words, extra]) for extra in VALUES), "words left over"
    lines = []
    for at, word in enumerate(words):
        others = [v for v in VALUES if v != word and accepts([*words[:at], v, *words[at + 1 :]])]
        lines.append(f"{at}: {word}; {' '.join(spans(others))}")
    return "\n".join(lines) + "\n"


def test_words_of_the_cpu(kernels: bytes, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifact(everything(), kernels, (CONSTANT,))
    golden("decoder_words.txt", accepted(made, monkeypatch))


def test_words_of_devices(kernels: bytes, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    with toys():
        golden("decoder_words_of_devices.txt", accepted(made_for_devices(kernels, device_program()), monkeypatch))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything inside of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield (*path, key)
        yield from leaves(part, (*path, key))


@contextmanager
def placed(value: Any, path: tuple[Any, ...], new: Any) -> Iterator[Any]:
    """``value`` with ``new`` at ``path``, for a while."""
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    before, inside[path[-1]] = inside[path[-1]], new
    try:
        yield value
    finally:
        inside[path[-1]] = before


OTHERS: tuple[Any, ...] = (
    None, True, "x", -1, 1.0, 1 << 63, [], ["n"], [1], {}, {"x": 1},
)  # fmt: skip


def test_json_is_read_as_it_is_or_refused() -> None:
    """Nothing is dropped or converted: what is accepted is written again in the same way."""
    plain = json.loads(json.dumps(program_to_json(everything())))
    with toys():
        devices = json.loads(json.dumps(program_to_json(device_program())))
    counts = {True: 0, False: 0}
    for value in (plain, devices):
        assert json.loads(json.dumps(program_to_json(program_from_json(value)))) == value
        for path, other in itertools.product(list(leaves(value)), OTHERS):
            with placed(value, path, other):
                try:
                    read = program_from_json(value)
                except ArtifactError as error:
                    assert error.code == "A011"
                    counts[False] += 1
                    continue
                assert json.dumps(program_to_json(read)) == json.dumps(value), f"{path}: {other!r}"
            counts[True] += 1
    assert min(counts.values()) > 500


def test_encoded_programs_are_the_words_that_are_decoded(golden: Golden) -> None:
    """Programs whose JSON was changed are encoded, or refused with an error of their own."""
    plain = json.loads(json.dumps(program_to_json(everything())))
    lines = []
    words = [int(w) for w in encode(everything())]
    for path in list(leaves(plain)):
        told = []
        for other in (3, -1, ["n"], ["q"], [1, 2], [1, 0, "floordiv"], "own"):
            with placed(plain, path, other):
                try:
                    read = program_from_json(plain)
                except ArtifactError:
                    continue
            try:
                new = [int(w) for w in encode(read)]
            except ArtifactError as error:
                assert error.code == "A010"
                told.append(f"{other!r} refused")
                continue
            if new == words:
                told.append(f"{other!r} same")
            elif len(new) == len(words):
                changes = [f"{n}={b}" for n, (a, b) in enumerate(zip(words, new, strict=True)) if a != b]
                told.append(f"{other!r} {','.join(changes[:4])}")
            else:
                told.append(f"{other!r} {len(new) - len(words):+}")
        if told:
            lines.append(f"{'.'.join(map(str, path))}: {'; '.join(told)}")
    golden("encoded_changes.txt", "\n".join(lines) + "\n")


MAX_RANK, MAX_STACK = 64, 64
"""As in csrc: dimensions of a tensor, and numbers that a size expression holds at once."""


def sum_of(count: int) -> tuple[Any, ...]:
    """A sum that holds ``count`` numbers at once. The symbol keeps it from being folded."""
    return ("n", *range(1, count), *["add"] * (count - 1))


LIMITS: dict[str, tuple[int, Callable[[ExecutableProgram, int], ExecutableProgram]]] = {
    "an input": (
        MAX_RANK,
        lambda p, n: replace(p, inputs=(replace(p.inputs[0], shape=(N, *[(1,)] * (n - 1))), p.inputs[1])),
    ),
    "an output": (
        MAX_RANK,
        lambda p, n: replace(p, outputs=(replace(p.outputs[0], shape=((1,),) * n), p.outputs[1])),
    ),
    "a new tensor": (MAX_RANK, lambda p, n: with_instruction(p, NewTensor(6, (64,), ((1,),) * n))),
    "a view": (MAX_RANK, lambda p, n: with_instruction(p, NewView(6, 2, (8,), ((1,),) * n))),
    "columns of a range": (MAX_RANK, lambda p, n: with_instruction(p, CheckRange(0, N, ((0,),) * n, ((1,),) * n, ""))),
    "an axis": (MAX_RANK - 1, lambda p, n: with_instruction(p, Extent("t", 6, n))),
    "a size": (MAX_STACK, lambda p, n: with_instruction(p, SetSize("k", sum_of(n)))),
}


def with_instruction(p: ExecutableProgram, new: Instruction) -> ExecutableProgram:
    """``p`` with ``new`` in place of the first instruction of its type."""
    at = next(n for n, i in enumerate(p.instructions) if type(i) is type(new))
    return replace(p, instructions=(*p.instructions[:at], new, *p.instructions[at + 1 :]))


@pytest.mark.parametrize("what", LIMITS)
def test_limits_are_reached_and_not_passed(kernels: bytes, what: str) -> None:
    limit, change = LIMITS[what]
    for count in (1, limit - 1, limit):
        Executable(artifact(change(everything(), count), kernels, (CONSTANT,)), threads=1)
    with pytest.raises(ArtifactError, match="malformed program"):
        Executable(artifact(change(everything(), limit + 1), kernels, (CONSTANT,)), threads=1)


def test_the_first_buffer_may_be_a_function_that_is_called(kernels: bytes) -> None:
    program = ExecutableProgram(
        symbols=(),
        inputs=(),
        outputs=(),
        buffers=(BufferSpec("object"), BufferSpec("object")),
        kernels=(),
        instructions=(Construct(0, 3, ()), Invoke(None, 0, (), (1,)), Return(())),
        arena_bytes=(0,),
    )
    Executable(artifact(program, kernels), threads=1)


def test_a_kernel_behind_the_last_is_encoded_and_refused(kernels: bytes) -> None:
    program = with_instruction(everything(), CallKernel(2, (0, 3), (N,), label="none"))
    assert len(program.kernels) == 2
    with pytest.raises(ArtifactError, match="malformed program"):
        Executable(artifact(program, kernels, (CONSTANT,)), threads=1)
