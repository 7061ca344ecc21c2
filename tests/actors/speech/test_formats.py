"""Every format of the same audio has the same words, whatever the model says of it.

Models say here what a test makes up, token by token: also what they ought not to (loops, echoes of the
prompt, times in mid-sentence, an end that comes early). Their words are timed as always.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.inference.client import OutcomeRun, Place, Run
from sensorium.protocols.engine.messages import SampleRequest, TextGenerated
from sensorium.protocols.transcription.numerals import Numerals
from sensorium.protocols.transcription.transcript import TimedSegment, TranscriptionOptions
from support.asr_folder import make_audio
from support.patched_runs import patch_runs
from support.rendered_text import assert_same_words, letters
from support.running_speech import RunningSpeech, random_asr_folder, running_speech, sound
from support.speech_conformance import assert_streamed

pytestmark = pytest.mark.slow

PROMPT = "Turn on the lights in the kitchen"
PLAIN = TranscriptionOptions(language="en", prompt=PROMPT)
PHRASES = st.sampled_from(
    ["Turn on", "the well-known lights.", "It's 3.5 %,", "yes - no", "Grüße, 今天。", "a"]
)
NUMBERS = st.sampled_from(["twenty", "five", "thousand and", "one.", "Two-", "three,", "hundred", "first"])
UNITS = st.sampled_from(["no", "1 %,", "I am."])
LOOPS = st.builds(lambda unit, number: " ".join([unit] * number), UNITS, st.integers(2, 40))
SAID = st.lists(st.one_of(PHRASES, NUMBERS, NUMBERS, LOOPS, st.just(PROMPT)), max_size=8)
NUMERALS: tuple[Numerals | None, ...] = (None, "digits")
ANSWERS = st.lists(SAID, min_size=3, max_size=3)


@dataclass
class Script:
    """What an engine answers about each window it is asked about, instead of what its model would."""

    running: RunningSpeech
    answers: list[list[str]]
    by_window: dict[object, TextGenerated] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rest = cycle(self.answers)

    def answer(self, request: SampleRequest) -> TextGenerated:
        window = request.encoder_hash or tuple(span.content_hash for span in request.media)
        if window not in self.by_window:
            token_ids = self.tokens(next(self.rest))[: request.task.sampling.max_tokens]
            self.by_window[window] = TextGenerated(
                request_id=request.request_id,
                text=self.text.decode(token_ids),
                token_ids=token_ids,
                logprobs=(-0.1,) * len(token_ids),
                finish_reason="stop",
                probe_probability=0.0,
            )
        return self.by_window[window]

    @property
    def text(self) -> Any:  # noqa: ANN401
        family: Any = self.running.speech.family
        return family.text if hasattr(family.text, "no_timestamps_id") else family.text.tokenizer

    def tokens(self, said: Sequence[str]) -> tuple[int, ...]:
        """Of phrases, with a time behind each where the model knows any."""
        no_timestamps_id, tokens = getattr(self.text, "no_timestamps_id", None), list[int]()
        for number, phrase in enumerate(said):
            if no_timestamps_id is None:
                tokens += self.text.encode(f" {phrase}", allow_special=False)
            else:
                tokens += [*self.text.encode(f" {phrase}"), no_timestamps_id + 1 + 3 * number]
        return tuple(tokens)

    @asynccontextmanager
    async def run(self, _: Place, request: SampleRequest) -> AsyncIterator[Run[TextGenerated]]:
        async def answer() -> TextGenerated:
            await trio.lowlevel.checkpoint()
            return self.answer(request)

        yield OutcomeRun(answer)


@pytest.mark.parametrize("name", ["whisper", "qwen3_asr"])
@settings(max_examples=3, deadline=None)
@given(scripts=st.lists(ANSWERS, min_size=3, max_size=3))
def test_every_format_has_the_words_of_the_text(name: str, scripts: list[list[list[str]]]) -> None:
    async def check() -> None:
        is_whisper = name == "whisper"
        audio = sound(16_000 * 5, seed=2) if is_whisper else make_audio(3, 12.0)
        async with running_speech(None if is_whisper else random_asr_folder()) as running:
            for answers in scripts:
                patch_runs(running.engine, Script(running, answers).run)
                for numerals in NUMERALS:
                    wish = msgspec.structs.replace(PLAIN, numerals=numerals)
                    deltas: list[str] = []
                    plain = await running.speech.transcribe(audio, wish, on_delta=deltas.append)
                    assert "".join(deltas) == plain.text
                    for words, segments in ((True, False), (False, True), (True, True)):
                        options = msgspec.structs.replace(
                            wish, word_timestamps=words, segment_timestamps=segments
                        )
                        told: list[TimedSegment] = []
                        timed = await running.speech.transcribe(audio, options, on_segment=told.append)
                        assert timed.text == plain.text
                        assert_same_words(timed, has_words=words)
                        assert_streamed(told, timed)

    trio.run(check)


@pytest.mark.parametrize("name", ["whisper", "qwen3_asr"])
async def test_a_loop_is_cut_everywhere(name: str) -> None:
    is_whisper = name == "whisper"
    audio = sound(16_000 * 2, seed=2) if is_whisper else make_audio(3, 4.0)
    options = msgspec.structs.replace(PLAIN, word_timestamps=True, segment_timestamps=True)
    async with running_speech(None if is_whisper else random_asr_folder()) as running:
        script = Script(running, [["So,", " ".join(["a"] * 22), "on."]])
        patch_runs(running.engine, script.run)
        found = await running.speech.transcribe(audio, options)
    assert found.text.startswith("So, a a on.")
    assert_same_words(found, has_words=True)
    assert sum(len(segment.tokens) for segment in found.segments) < 20 * len(found.segments)
    assert letters(b"".join(token.data for token in found.tokens).decode()) == letters(found.text)
