"""An end of which Whisper is unsure is asked about, and what is behind it is said, too: in files and live."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pytest
from msgspec.structs import replace
from sensorium.actors.speech.families import whisper as whisper_module
from sensorium.media.transcript.range_answer import Samples
from sensorium.media.transcript.truncation import goes_on, joined, may_end_early
from sensorium.protocols.engine.messages import FinishReason, RequestId, TextGenerated
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.running_speech import RunningSpeech, running_speech, sound

OnText: TypeAlias = Callable[[str], None] | None
OPTIONS = TranscriptionOptions(language="en")


def said(
    text: str,
    logprobs: tuple[float, ...],
    end: float | None = None,
    reason: FinishReason = "stop",
) -> TextGenerated:
    """An answer with a token for each log-probability, and how likely its end was."""
    ids = tuple(range(len(logprobs)))
    stop = None if end is None else math.log(end)
    return TextGenerated(RequestId("r"), ids, logprobs, finish_reason=reason, stop_logprob=stop, text=text)


@pytest.mark.parametrize(
    ("end", "reason", "is_asked"),
    [
        (0.41, "stop", True),
        (0.65, "stop", False),
        (0.99, "stop", False),
        (None, "stop", False),
        (0.4, "length", False),
    ],
)
def test_only_an_unlikely_end_is_asked_about(end: float | None, reason: FinishReason, is_asked: bool) -> None:
    assert may_end_early(said("They are busy.", (-0.1,), end, reason)) == is_asked


def test_a_full_stop_that_is_missing_may_be_all_that_is() -> None:
    assert may_end_early(said("忙しいです。", (-0.1,), 0.41))
    assert not may_end_early(said("fifty", (-0.1,), 0.41))
    assert not may_end_early(said(" ", (-0.1,), 0.41))


@pytest.mark.parametrize(
    ("rest", "is_said"),
    [
        # Of a first word that had 0.28 beside an end of 0.41, with ends forbidden, 0.47 is left.
        (said(" Comedian mail.", (-0.75, -0.3, -0.1)), True),
        (said(" You", (-3.3,)), False),
        (said(" Music, music, music", (-0.75, -2.9, -2.0)), False),
        (said(".", (-0.1,)), False),
        (said(" Press one to record", (-0.75, -0.1, -0.1, -0.1), reason="length"), False),
        (said(" Press one to record", (-0.75, -0.1, -0.1, -0.1), reason="error"), False),
        (said("", ()), False),
    ],
    ids=["a sentence", "unlikely", "babble", "a full stop", "a loop", "a fault", "nothing"],
)
def test_what_comes_behind_was_said_if_the_model_is_sure(rest: TextGenerated, is_said: bool) -> None:
    assert goes_on(said("It has been extended.", (-0.1, -0.1), 0.41), rest) == is_said


def test_both_are_one_answer() -> None:
    whole = joined(said("One.", (-0.1,), 0.4), said(" Two.", (-0.2, -0.3), 0.9))
    assert (whole.text, whole.logprobs, whole.finish_reason) == ("One. Two.", (-0.1, -0.2, -0.3), "stop")
    assert not may_end_early(whole)


def between(audio: Samples, start: int, end: int) -> Samples:
    return audio[start:end]


async def with_an_end(whisper: RunningSpeech, asked: list[TextGenerated]) -> tuple[Samples, str]:
    """Audio that the random model answers with an end of its own, which is asked about; and the answer."""
    for seed in range(40):
        audio = sound(30_000, seed=seed)
        text = (await whisper.speech.transcribe(audio, OPTIONS)).text
        if asked:
            return audio, text
    raise AssertionError("no random answer ends by itself")


@pytest.mark.slow
async def test_no_row_that_is_left_out_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind many full stops some more are a loop, which is cut out of the whole, also if it was streamed."""
    monkeypatch.setattr(whisper_module, "goes_on", lambda answer, rest: True)
    async with running_speech() as whisper:
        family = whisper.whisper()
        answers = [("." * 23, 0.4), ("... Thanks.", 0.9)]

        async def complete(
            kind: str, item: object, asked: object, request: object, on_text: OnText = None, **_: object
        ) -> TextGenerated:
            text, end = answers.pop(0)
            ids = tuple(family.text.encode(text))
            if on_text is not None:
                on_text(text)
            return replace(said(text, (-0.1,) * len(ids), end), token_ids=ids, probe_probability=0.01)

        monkeypatch.setattr(family, "_complete", complete)
        deltas: list[str] = []
        found = await whisper.speech.transcribe(sound(30_000, seed=1), OPTIONS, on_delta=deltas.append)
    assert not answers
    assert "".join(deltas) == found.text
    assert "Thanks" not in found.text


@pytest.mark.slow
async def test_files_streams_and_live_turns_go_on_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model is unsure of every end; here it says on until its end is likely, or three times."""

    def may_end_early(answer: TextGenerated) -> bool:
        return answer.finish_reason == "stop"

    monkeypatch.setattr(whisper_module, "may_end_early", may_end_early)
    async with running_speech() as whisper:
        asked: list[TextGenerated] = []

        def stays(answer: TextGenerated, rest: TextGenerated) -> bool:
            asked.append(rest)
            return False

        monkeypatch.setattr(whisper_module, "goes_on", stays)
        audio, before = await with_an_end(whisper, asked)
        left = 3

        def goes_on_thrice(answer: TextGenerated, rest: TextGenerated) -> bool:
            nonlocal left
            assert rest.token_ids, "it may not end at once"
            left -= 1
            return left >= 0

        monkeypatch.setattr(whisper_module, "goes_on", goes_on_thrice)
        deltas: list[str] = []
        file = await whisper.speech.transcribe(audio, OPTIONS, on_delta=deltas.append)
        assert file.text.startswith(before)
        assert len(file.text) > len(before)
        assert "".join(deltas) == file.text
        left = 3
        live = whisper.speech.live(partial(between, audio), OPTIONS, start=0)
        await live.hypothesis(len(audio) - 1600, final=False)
        await live.hypothesis(len(audio), final=False)
        assert left == 3, "what may grow is not asked about"
        final = await live.hypothesis(len(audio), final=True)
        assert final.text == file.text
        live.close()
        left = 3
        timed = await whisper.speech.transcribe(
            audio, TranscriptionOptions(language="en", word_timestamps=True, segment_timestamps=True)
        )
        assert timed.text == file.text
        assert "".join(segment.text for segment in timed.segments).strip() == file.text
