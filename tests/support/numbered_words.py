"""A streaming model whose words are numbers that the sound itself says, on a real engine with a fake runner.

A row is 80 ms. Its two halves begin with the two digits, to the base 1000, of the number that is said there;
0 is silence. So a test knows every word of hours of sound, and where it was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from sensorium.actors.inference.engine import Engine
from sensorium.actors.speech.streaming.family import Frames, StreamingFamily
from sensorium.actors.speech.streaming.transcriber import StreamingTranscriber
from sensorium.engine.planning.plan import ChunkOutcome, TransduceStep
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import Transduce, Transduced
from sensorium.protocols.transcription.streaming import ChunkDelay
from support.fake_engine import FED_CONFIG, make_fed_engine
from support.fake_runner import FakeRunner
from support.fake_transducer import FRAMES_PER_ROW, FakeState, frames_of

ROW: Final = 1_280
"""Samples of a row."""
_FRAME: Final = ROW // FRAMES_PER_ROW
_BASE: Final = 1_000
DELAYS: Final = tuple(ChunkDelay(80 * rows, ROW * rows, ROW * rows) for rows in (7, 14, 1))
TAG: Final = 999_999
"""The number that is no word, but says that German is spoken."""


def sound_of(numbers: Sequence[int]) -> npt.NDArray[np.int16]:
    """PCM16 of rows, each with a number from 0 to 999,999."""
    rows: npt.NDArray[np.int16] = np.zeros((len(numbers), ROW), np.int16)
    rows[:, :_FRAME] = np.array([number // _BASE for number in numbers])[:, None]
    rows[:, _FRAME:] = np.array([number % _BASE for number in numbers])[:, None]
    return rows.reshape(-1)


class _NumberText:
    """See `TokenText`."""

    tags: Final = {TAG: "de-DE"}

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(str(each) for each in token_ids if each not in self.tags)

    def bytes_of(self, token_id: int) -> bytes:
        return str(token_id).encode()

    def begins_word(self, token_id: int) -> bool:
        return token_id not in self.tags


class _FirstSamples:
    """See `ChunkedFeatures`: of each frame its first sample."""

    def __init__(self, delay: ChunkDelay) -> None:
        self._size = delay.size
        self._held: Samples = np.zeros(0, np.float32)

    def append(self, samples: Samples) -> Sequence[Frames]:
        held = np.concatenate((self._held, samples))
        num_full = len(held) // self._size
        self._held = held[num_full * self._size :]
        return [_frames(each) for each in held[: num_full * self._size].reshape(num_full, self._size)]

    def rest(self) -> Frames:
        return _frames(self._held)

    def copy(self) -> Self:
        made = type(self)(ChunkDelay(0, self._size, self._size))
        made._held = self._held
        return made


def _frames(samples: Samples) -> Frames:
    return np.round(samples[None, ::_FRAME] * 32_768)


class NumberRunner(FakeRunner):
    """Gives the token of each row that is not silent."""

    num_rows = 0
    """That were computed, those of forks and of what was fed again, too."""

    def _run_chunk(self, step: TransduceStep) -> ChunkOutcome:
        state = FakeState(owner=step.sequence_id) if step.is_first else self._fed_states[step.slot]
        assert state is not None
        frames = state.tail + frames_of(step.chunk)
        num_whole = len(frames) if step.chunk.is_last else len(frames) // FRAMES_PER_ROW * FRAMES_PER_ROW
        digits = [*frames[:num_whole], *(0.0,) * (num_whole % FRAMES_PER_ROW)]
        numbers = [
            round(high) * _BASE + round(low) for high, low in zip(digits[::2], digits[1::2], strict=True)
        ]
        said = [(number, state.num_rows + row) for row, number in enumerate(numbers) if number]
        self.num_rows += len(numbers)
        num_rows = state.num_rows + len(numbers)
        self._fed_states[step.slot] = replace(
            state, tail=frames[num_whole:], num_rows=num_rows, owner=step.sequence_id
        )
        return Transduced(
            step.request_id,
            tuple(number for number, _ in said),
            tuple(row for _, row in said),
            tuple(-0.5 for _ in said) if step.task.logprobs else (),
            num_rows,
            "stop" if step.chunk.is_last else None,
        )


class NumberSpeech:
    """The engine, its runner, and the model as sessions have it."""

    def __init__(self, num_slots: int = 2) -> None:
        config = replace(FED_CONFIG, num_state_slots=num_slots)
        self.runner = NumberRunner(
            num_blocks=config.num_blocks, block_size=config.block_size, num_state_slots=num_slots
        )
        self.engine: Engine = make_fed_engine(lambda: self.runner, config=config)
        family = StreamingFamily(
            engine=self.engine,
            text=_NumberText(),
            languages=("en", "de"),
            delays=DELAYS,
            row_samples=ROW,
            task=lambda delay, _: Transduce(lookahead=delay.size // ROW - 1, logprobs=True),
            features=_FirstSamples,
        )
        self.speech = StreamingTranscriber(family)
