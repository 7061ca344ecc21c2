"""Turns of a model that streams, on a real engine: evicted, or given up and asked again, text is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.model_loading import load_model
from sensorium.actors.speech.model import ReadAudio
from sensorium.actors.speech.streaming.transcriber import StreamingTranscriber
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.nemotron_folder import make_nemotron_folder
from support.transducing import FloatArray, noise

pytestmark = pytest.mark.slow

PLAIN = TranscriptionOptions(word_timestamps=True)
FEW_SLOTS = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_running=2)
NUM_TURNS = 7
"""More than there are slots of states."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_nemotron_folder(tmp_path_factory.mktemp("nemotron") / "model")


class Running:
    """A model, and a nursery for its turns."""

    def __init__(self, folder: Path) -> None:
        self.loaded = load_model("nemotron", str(folder), FEW_SLOTS, None)
        assert isinstance(self.loaded.speech, StreamingTranscriber)
        self.speech = self.loaded.speech

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.loaded.engine.run)
            yield nursery
            nursery.cancel_scope.cancel()


async def test_more_turns_than_slots(folder: Path) -> None:
    """All speak in turn, so each loses its states again and again, and is fed again from its audio."""
    running = Running(folder)
    sounds = [noise(3.0, seed) for seed in range(NUM_TURNS)]

    def reader(samples: FloatArray) -> ReadAudio:
        return lambda start, end: samples[start:end]

    async with running.serving() as nursery:
        alone = [await running.speech.transcribe(samples, PLAIN) for samples in sounds]
        turns = [
            running.speech.live(reader(samples), PLAIN, start=0, nursery=nursery, delay_ms=1120)
            for samples in sounds
        ]
        shown = [""] * NUM_TURNS
        for end in range(8_000, 48_000, 8_000):
            for index, turn in enumerate(turns):
                partial = await turn.hypothesis(end, final=False)
                assert partial.text.startswith(shown[index])
                shown[index] = partial.text[: partial.num_settled]
                assert shown[index] == partial.text
        for turn, expected in zip(turns, alone, strict=True):
            final = await turn.hypothesis(48_000, final=True)
            assert (final.text, final.words) == (expected.text, expected.words)
            turn.close()
        assert running.loaded.engine.statistics().num_state_evictions > 0


async def test_a_question_that_is_given_up_changes_nothing(folder: Path) -> None:
    running, samples = Running(folder), noise(3.0, 1)
    async with running.serving() as nursery:
        expected = await running.speech.transcribe(samples, PLAIN)
        turn = running.speech.live(
            lambda start, end: samples[start:end], PLAIN, start=0, nursery=nursery, delay_ms=1120
        )
        for end in range(4_000, 48_001, 4_000):
            with trio.CancelScope() as scope:
                scope.cancel()
                await turn.hypothesis(end, final=end % 8_000 == 0)
        assert (await turn.hypothesis(48_000, final=True)).text == expected.text
        earlier = await turn.hypothesis(30_000, final=True)
        assert earlier.text == (await running.speech.transcribe(samples[:30_000], PLAIN)).text
        turn.close()


def test_what_it_cannot_do_is_refused(folder: Path) -> None:
    speech = Running(folder).speech
    for options, param in (
        (TranscriptionOptions(prompt="names"), "prompt"),
        (TranscriptionOptions(keywords=("Anna",)), "keywords"),
        (TranscriptionOptions(beam_size=3), "beam_size"),
        (TranscriptionOptions(language="de"), "language"),
        (TranscriptionOptions(task="translate"), "task"),
    ):
        with pytest.raises(BadRequestError) as caught:
            speech.check(options)
        assert caught.value.param == param
