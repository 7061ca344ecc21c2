"""Speech scores high, silence and noise low, and the scores do not depend on the chunking."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.media.speech.voice_activity import (
    CONTEXT_SAMPLES,
    FRAME_SAMPLES,
    VoiceActivityModel,
    VoiceActivityStream,
)
from sensorium.protocols.errors import ModelLoadError

FloatArray = npt.NDArray[np.float32]
DATA = Path(__file__).resolve().parents[3] / "examples" / "data"


@pytest.fixture(scope="module")
def model() -> VoiceActivityModel:
    return VoiceActivityModel()


@pytest.fixture(scope="module")
def speech() -> FloatArray:
    samples, rate = soundfile.read(DATA / "kitchen_lights.wav", dtype="float32")
    assert rate == 16_000
    return np.asarray(samples, dtype=np.float32)


def test_speech_scores_high_and_the_silence_around_it_low(
    model: VoiceActivityModel, speech: FloatArray
) -> None:
    scores = VoiceActivityStream(model).push(speech)
    energies = np.array([np.square(speech[end - FRAME_SAMPLES : end]).mean() for end, _ in scores])
    probabilities = np.array([probability for _, probability in scores])
    loud, silent = energies > 1e-4, energies < 1e-6
    assert loud.sum() > 20
    assert silent.sum() > 10
    assert float((probabilities[loud] > 0.5).mean()) > 0.8
    assert float((probabilities[silent] > 0.5).mean()) < 0.2


def test_silence_and_noise_are_no_speech(model: VoiceActivityModel) -> None:
    noise = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * np.float32(0.05)
    for samples in (np.zeros(48_000, np.float32), noise):
        assert max(probability for _, probability in VoiceActivityStream(model).push(samples)) < 0.5


def test_each_frame_is_seen_with_the_end_of_the_one_before(
    model: VoiceActivityModel, speech: FloatArray
) -> None:
    part = speech[10_000:26_000]
    padded = np.concatenate((np.zeros(CONTEXT_SAMPLES, np.float32), part))
    state = np.zeros((2, 1, 128), np.float32)
    expected = []
    for end in range(FRAME_SAMPLES, len(part) + 1, FRAME_SAMPLES):
        probability, state = model.score(padded[None, end - FRAME_SAMPLES : end + CONTEXT_SAMPLES], state)
        expected.append((end, float(probability[0])))
    assert VoiceActivityStream(model).push(part) == expected


def test_positions_are_the_ends_of_whole_frames(model: VoiceActivityModel) -> None:
    stream = VoiceActivityStream(model)
    assert stream.push(np.zeros(511, np.float32)) == []
    assert [end for end, _ in stream.push(np.zeros(514, np.float32))] == [512, 1024]
    assert [end for end, _ in stream.push(np.zeros(511, np.float32))] == [1536]


@settings(deadline=None, max_examples=15)
@given(sizes=st.lists(st.integers(0, 3000), max_size=8))
def test_any_chunking_gives_the_same_scores(
    model: VoiceActivityModel, speech: FloatArray, sizes: list[int]
) -> None:
    stream = VoiceActivityStream(model)
    start, scores = 10_000, []
    cuts = np.cumsum([start, *sizes])
    for first, last in pairwise(cuts):
        scores += stream.push(speech[first:last])
    assert scores == VoiceActivityStream(model).push(speech[start : cuts[-1]])


def test_one_sample_at_a_time(model: VoiceActivityModel, speech: FloatArray) -> None:
    part = speech[12_000:14_000]
    stream = VoiceActivityStream(model)
    scores = [score for sample in part for score in stream.push(np.array([sample]))]
    assert scores == VoiceActivityStream(model).push(part)


def test_streams_of_one_model_do_not_touch_each_other(model: VoiceActivityModel, speech: FloatArray) -> None:
    alone = VoiceActivityStream(model).push(speech)
    first, second = VoiceActivityStream(model), VoiceActivityStream(model)
    scores = []
    for start in range(0, len(speech), 700):
        scores += first.push(speech[start : start + 700])
        second.push(speech[::-1][start : start + 700])
    assert scores == alone


def test_reset_forgets_the_sound_but_not_the_time(model: VoiceActivityModel, speech: FloatArray) -> None:
    stream = VoiceActivityStream(model)
    stream.push(speech[:20_480])
    stream.reset()
    fresh = VoiceActivityStream(model).push(speech[20_480:30_720])
    assert stream.push(speech[20_480:30_720]) == [(end + 20_480, score) for end, score in fresh]


def test_weights_that_cannot_be_loaded_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a network")
    with pytest.raises(ModelLoadError, match=r"broken\.onnx"):
        VoiceActivityModel(path)


@pytest.mark.slow
def test_neither_torch_nor_the_package_is_imported() -> None:
    code = (
        "import sys; from sensorium.media.speech.voice_activity import VoiceActivityModel as Model; Model();"
        "assert not {'torch', 'silero_vad'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_is_kept_or_sent_of_what_is_heard() -> None:
    """onnxruntime would open a database of its own for that, as soon as it is imported."""
    VoiceActivityModel()
    opened = {path.resolve() for path in Path("/proc/self/fd").iterdir()}
    assert not [path for path in opened if path.name.startswith("onnxruntime.db")]
