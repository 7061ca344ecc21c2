"""What every speech model owes those who ask it: Whisper, Qwen3-ASR, and the fake that stands for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
import trio
from sensorium.actors.speech.model import LiveTurn, SpeechModel
from sensorium.media.transcript.answer_guard import cut_loops
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.transcript import (
    Segment,
    TimedSegment,
    Transcript,
    TranscriptionOptions,
)

_LOGPROBS = {"logprob", "avg_logprob", "probability", "language_probability", "no_speech_prob"}
"""They hang, in the last digits, on what else was batched."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model under test."""

    speech: SpeechModel
    audio: Samples
    """Something to transcribe, longer than a range."""
    work: Callable[[], tuple[int, ...]]
    """Counts what was computed."""
    expect_nothing_held: Callable[[], Awaitable[object]]
    """Returns once nothing is kept for anybody; else fails."""
    starts: tuple[int, ...] = (0, 700)
    """Where on its timeline a turn may begin."""
    hears: bool = True
    """Silence is no speech to it."""

    def turn(self, options: TranscriptionOptions | None = None, *, start: int = 0) -> LiveTurn:
        """A turn over the audio."""
        audio = self.audio
        return self.speech.live(lambda a, b: audio[a:b], options or TranscriptionOptions(), start=start)


def assert_same(one: Transcript, other: Transcript) -> None:
    """Equal in everything; probabilities in all but their last digits."""
    _compare(msgspec.to_builtins(one), msgspec.to_builtins(other))


def as_asked(live: Transcript, options: TranscriptionOptions) -> Transcript:
    """A live transcript without what only a session goes by."""
    tokens = [msgspec.structs.replace(token, likeliest=()) for token in live.tokens if options.needs_tokens]
    return msgspec.structs.replace(live, tokens=tuple(tokens))


def _compare(one: Any, other: Any, name: str = "") -> None:  # noqa: ANN401
    if isinstance(one, dict):
        for key in one:
            _compare(one[key], other[key], key)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), name
        for left, right in zip(one, other, strict=True):
            _compare(left, right, name)
    else:
        assert (one == pytest.approx(other, abs=1e-3)) if name in _LOGPROBS else (one == other), name


async def check_every_final_is_the_file(
    subject: Subject,
    updates: Sequence[tuple[int, bool]],
    options: TranscriptionOptions,
    *,
    start: int,
    shrink: int,
) -> None:
    """However the audio came, and also if the turn ends before the newest of it."""
    live, end = subject.turn(options, start=start), start
    for size, final in [*updates, (-shrink, True)]:
        end = min(max(start, end + size), len(subject.audio))
        transcript = await live.hypothesis(end, final=final)
        assert transcript.duration == pytest.approx((end - start) / 16_000)
        if final:
            offline = await subject.speech.transcribe(subject.audio[start:end], options)
            assert_same(as_asked(transcript, options), offline)
    live.close()
    await subject.expect_nothing_held()


def assert_streamed(segments: Sequence[TimedSegment], transcript: Transcript) -> None:
    """Segments that came one by one are those of the transcript, each with its own words."""
    names = [name for name in Segment.__struct_fields__ if name not in ("id", "words")]
    # An id is a text in events.
    assert [int(each.id) for each in segments] == [int(each.id) for each in transcript.segments]
    early, late = (
        [[getattr(each, name) for name in names] for each in told] for told in (segments, transcript.segments)
    )
    assert early == late
    assert [word for each in segments for word in each.words] == list(transcript.words)
    for each in segments if transcript.words else ():
        said = "".join(word.word for word in each.words)
        assert "".join(said.split()) == "".join(each.text.split())


async def check_deltas_are_the_transcript(subject: Subject, options: TranscriptionOptions) -> None:
    """In every format, and streaming changes nothing; segments that come early are those of the end."""
    deltas: list[str] = []
    segments: list[TimedSegment] = []
    streamed = await subject.speech.transcribe(
        subject.audio, options, on_delta=deltas.append, on_segment=segments.append
    )
    assert "".join(deltas) == streamed.text
    assert all(deltas)
    assert_streamed(segments, streamed)
    assert_same(streamed, await subject.speech.transcribe(subject.audio, options))


async def check_times_change_no_word(subject: Subject) -> None:
    """Words and segments come beside the same text, which is no loop."""
    plain = TranscriptionOptions(language=subject.speech.languages[0])
    timed = msgspec.structs.replace(plain, word_timestamps=True)
    text = (await subject.speech.transcribe(subject.audio[:20_000], plain)).text
    transcript = await subject.speech.transcribe(subject.audio[:20_000], timed)
    assert transcript.text == text == cut_loops(text)
    told = [word.probability for word in transcript.words if isinstance(word.probability, float)]
    assert all(0.0 < each <= 1.0 for each in told)


async def check_asking_again_costs_nothing(subject: Subject) -> None:
    """What is known of a turn is not computed again."""
    live, end = subject.turn(), len(subject.audio)
    await live.hypothesis(end - 4_000, final=False)
    first = await live.hypothesis(end, final=True)
    before = subject.work()
    assert await live.hypothesis(end, final=True) == first
    assert not subject.hears or subject.work() == before
    live.close()


async def check_cancelling_loses_nothing(subject: Subject) -> None:
    """At any of its awaits; afterwards the turn goes on as if nobody had asked."""
    live, end = subject.turn(), len(subject.audio)
    for number in range(24):

        async def ask(upto: int) -> None:
            await live.hypothesis(upto, final=False)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, end * (number + 1) // 24)
            for _ in range(2 * number):
                await trio.lowlevel.checkpoint()
            if number % 3 == 2:
                await trio.sleep(0.002 * number)
            nursery.cancel_scope.cancel()
    options = TranscriptionOptions()
    offline = await subject.speech.transcribe(subject.audio, options)
    assert_same(as_asked(await live.hypothesis(end, final=True), options), offline)
    live.close()
    await subject.expect_nothing_held()


async def check_closing_gives_back(subject: Subject) -> None:
    """Before anything was asked, twice, and while something is being asked."""
    subject.turn().close()
    live = subject.turn()
    await live.hypothesis(len(subject.audio), final=False)
    live.close()
    live.close()
    await subject.expect_nothing_held()
    for number in range(0, 24, 3):
        live = subject.turn()
        async with trio.open_nursery() as nursery:

            async def ask(turn: LiveTurn = live) -> None:
                await turn.hypothesis(len(subject.audio), final=False)

            nursery.start_soon(ask)
            for _ in range(number):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
            live.close()
        await subject.expect_nothing_held()


async def check_silence_asks_nothing(subject: Subject) -> None:
    """Digital silence and no audio at all have no text, however they come."""
    silence, before = np.zeros(200_000, np.float32), subject.work()
    live = subject.speech.live(lambda a, b: silence[a:b], TranscriptionOptions(), start=0)
    for end in (0, 1, 50_000, 200_000, 60_000):
        for transcript in (
            await live.hypothesis(end, final=end % 2 == 0),
            await subject.speech.transcribe(silence[:end], TranscriptionOptions()),
        ):
            assert (transcript.text, transcript.language) == ("", "")
            assert transcript.duration == end / 16_000
    live.close()
    assert subject.work() == before


async def check_options_are_refused(subject: Subject) -> None:
    """What the model does not know is refused by the name of its field, before any work."""
    before = subject.work()
    refused = {
        "language": TranscriptionOptions(language="xx"),
        "languages": TranscriptionOptions(languages=(subject.speech.languages[0], "xx")),
    }
    if "translate" not in subject.speech.tasks:
        refused["task"] = TranscriptionOptions(task="translate")
    for param, options in refused.items():
        with pytest.raises(BadRequestError) as checked:
            subject.speech.check(options)
        with pytest.raises(BadRequestError) as caught:
            await subject.speech.transcribe(subject.audio, options)
        assert checked.value.param == caught.value.param == param
    assert subject.work() == before
    for language in subject.speech.languages:
        subject.speech.check(TranscriptionOptions(language=language, languages=subject.speech.languages))
