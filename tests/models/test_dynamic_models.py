"""Models with state, control flow and open sizes: one executable each, against onnxruntime."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import models_zoo as zoo
import numpy as np
import onnxruntime as ort
import pytest

import weft
from weft.runtime.program import Allocate
from weft.support.errors import InputError


def session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def silero() -> tuple[Path, weft.Executable]:
    path = zoo.or_skip(zoo.shared, "silero_vad")
    return path, weft.compile(path, shapes={"input": (1, 576)}, threads=1)


@pytest.fixture(scope="module")
def voice() -> tuple[Any, weft.Executable]:
    """With an open length."""
    path = zoo.or_skip(zoo.shared, "silero_vad")
    options = ort.SessionOptions()
    options.log_severity_level = 4  # it prints why it refuses a length
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]), weft.compile(path, threads=1)


def test_voice_activity_over_a_minute_of_speech(silero: tuple[Path, weft.Executable]) -> None:
    path, exe = silero
    other = session(path)
    with wave.open(str(path.parent / "data" / "silero_test.wav")) as sound:
        rate = sound.getframerate()
        samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768
    rate_input = np.array(rate)
    state = wanted_state = np.zeros((2, 1, 128), np.float32)
    context = np.zeros(64, np.float32)
    for frame in samples[: len(samples) // 512 * 512].reshape(-1, 512):
        x = np.concatenate([context, frame])[None]
        context = frame[-64:]
        got = exe.run(input=x, state=state, sr=rate_input)
        state = got["stateN"]
        wanted, wanted_state = other.run(None, {"input": x, "state": wanted_state, "sr": rate_input})
        np.testing.assert_allclose(got["output"], wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(state, wanted_state, rtol=1e-3, atol=1e-4)


def test_voice_activity_of_open_length_and_batch() -> None:
    path = zoo.or_skip(zoo.shared, "silero_vad")
    exe, other = weft.compile(path, threads=1), session(path)
    rng = np.random.default_rng(3)
    for batch, length, rate in ((1, 512, 16000), (1, 576, 16000), (2, 576, 16000), (1, 288, 8000)):
        x = rng.standard_normal((batch, length)).astype(np.float32)
        feed = {"input": x, "state": np.zeros((2, batch, 128), np.float32), "sr": np.array(rate)}
        for got, wanted in zip(exe.run(feed).values(), other.run(None, feed), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
    feed["input"] = np.zeros((1, 1024), np.float32)
    with pytest.raises(InputError, match="removes"):
        exe.run(feed)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_too_few_samples_are_refused(rate: int, voice: tuple[Any, weft.Executable]) -> None:
    """With an error about the input, for all lengths that onnxruntime does not take; it takes all that Weft takes."""
    other, exe = voice
    taken = 0
    for length in (0, 1, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 99, 128, 129, 255, 256, 257, 512, 1000):
        x = np.random.default_rng(length).standard_normal((1, length)).astype(np.float32)
        feed = {"input": x, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(rate)}
        try:
            wanted = other.run(None, feed)
        except Exception:  # onnxruntime has a class for each of its reasons
            with pytest.raises(InputError) as refusal:
                exe.run(feed)
            assert refusal.value.code == "I004"
            continue
        for got, want in zip(exe.run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        taken += 1
    assert taken >= 2


def test_a_branch_for_other_shapes_is_an_error_only_when_taken(silero: tuple[Path, weft.Executable]) -> None:
    _, exe = silero
    with pytest.raises(InputError, match="other branch"):
        exe.run(input=np.zeros((1, 576), np.float32), state=np.zeros((2, 1, 128), np.float32), sr=np.array(8000))


def test_byte_lstm_at_several_lengths() -> None:
    path = zoo.or_skip(zoo.shared, "tract_byte_sb_bidi_lstm")
    exe, other = weft.compile(path, threads=1), session(path)
    assert not any(isinstance(i, Allocate) for i in exe.artifact.program.instructions)
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (1, 5), (3, 17), (2, 100)):
        x = rng.integers(0, 255, (batch, length)).astype(np.uint8)
        np.testing.assert_allclose(exe(x), other.run(None, {"input": x})[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["dtln_model_1", "dtln_model_2"])
def test_noise_suppression_over_a_hundred_frames(name: str) -> None:
    path = zoo.or_skip(zoo.shared, name)
    exe, other = weft.compile(path, threads=1), session(path)
    frame, carried = other.get_inputs()
    rng = np.random.default_rng(1)
    state = wanted_state = np.zeros([d if isinstance(d, int) else 1 for d in carried.shape], np.float32)
    for _ in range(100):
        x = np.abs(rng.standard_normal([d if isinstance(d, int) else 1 for d in frame.shape])).astype(np.float32)
        got, state = exe(x, state)
        wanted, wanted_state = other.run(None, {frame.name: x, carried.name: wanted_state})
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(state, wanted_state, rtol=1e-3, atol=2e-4)


def test_face_landmarks_at_any_batch() -> None:
    path = zoo.or_skip(zoo.shared, "osf_lm_model0_opt")
    exe, other = weft.compile(path, threads=1), session(path)
    rng = np.random.default_rng(2)
    for batch in (1, 3):
        x = rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)
        wanted = other.run(None, {other.get_inputs()[0].name: x})
        np.testing.assert_allclose(exe(x), wanted[0], rtol=1e-3, atol=1e-4)
