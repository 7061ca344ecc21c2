"""What any model that turns speech into text can be asked: a whole recording, or a turn still being spoken.

Routes and sessions know only this. `actors/speech/transcriber.py` is how every model family does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import trio

from ...media.transcript.range_answer import Samples
from ...protocols.engine.messages import Lane
from ...protocols.engine.statistics import SpeechStatistics
from ...protocols.errors import BadRequestError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.languages import check_language
from ...protocols.transcription.streaming import ChunkDelay, Segmentation, StreamAnswer
from ...protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions

ReadAudio = Callable[[int, int], Samples]
"""Samples `[start, end)` of a session's timeline."""

LIVE_FINAL: Final = Lane("live", -2)
LIVE_FIRST: Final = Lane("live", -1)
LIVE_PARTIAL: Final = Lane("live")
FILE: Final = Lane("interactive")
"""Someone is waiting for the end of a live turn, then for the first words of one; nobody hears a file. Of a
session's ends one goes before others' words: whoever commits ten times a second gets no more of that."""


FIRST_S: Final = 2.5
"""Nobody has read anything of a shorter turn yet, so it goes first."""


def live_lane(num_samples: int, caller: str, *, final: bool, is_pushed: bool, is_queued: bool) -> Lane:
    """Of a question about so much of a turn to a model that is asked again as it grows; see `LiveTurn`."""
    lane = LIVE_PARTIAL
    if is_pushed:
        lane = FILE
    elif final and not is_queued:
        lane = LIVE_FINAL
    elif not final and num_samples < FIRST_S * INTERNAL_RATE:
        lane = LIVE_FIRST
    return msgspec.structs.replace(lane, caller=caller)


def is_first(lane: Lane) -> bool:
    """Whether it is about the first words of a turn, whoever asks."""
    return (lane.service, lane.priority) == (LIVE_FIRST.service, LIVE_FIRST.priority)


def check_task(options: TranscriptionOptions, tasks: Sequence[Task], languages: Sequence[str]) -> None:
    """Raise BadRequestError, naming the field, for a task or a language that is not among those known."""
    if options.task not in tasks:
        raise BadRequestError(f"this model cannot {options.task}", param="task", code="unsupported_task")
    if options.language is not None:
        check_language(options.language, languages)
    for language in options.languages:
        check_language(language, languages, param="languages")


class LiveTurn(Protocol):
    """One turn while it is being spoken. One call at a time."""

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """The transcript of the turn's audio up to sample `end`; times count from the turn's start.

        Where the audio is pushed, and nobody is speaking it now, the question comes behind those who do. A
        final one that `is_queued` behind another of its session has no precedence.

        A final one is exactly what `transcribe` gives for the same samples, where no language was spoken
        before; its tokens are there even if nobody asked for them, for they say how sure the model was. A
        partial one may keep a language that was detected with confidence before, and times no words that may
        still change. Asking again for the same range costs next to nothing. Cancelling is safe: the next call
        computes what is missing.
        """
        ...

    def close(self) -> None:
        """Give back at once what the engine keeps for the turn. May be called more than once."""
        ...


class LiveStream(Protocol):
    """One stream of audio without turns, whose text is cut into segments. One call at a time."""

    async def segments(
        self, start: int, end: int, segmentation: Segmentation, *, is_pushed: bool = False
    ) -> StreamAnswer:
        """What full chunks say up to sample `end`; all words before `start` were taken, or are not wanted.

        `start` never decreases. Cancelling is safe: the next call answers for both.
        """
        ...

    async def conclusion(
        self, start: int, end: int, *, shown_start: int, is_pushed: bool = False
    ) -> StreamAnswer:
        """All words of `[start, end)` as one segment that begins at `shown_start`, whatever full chunks there
        are. The stream goes on behind it."""
        ...

    def skip(self, end: int) -> int:
        """Words before `end` are not wanted. Returns from where on audio is needed."""
        ...

    def release(self) -> None:
        """Give back what the engine keeps; the next call feeds it again."""
        ...


class SpeechModel(Protocol):
    """A served model that transcribes. Shared by all requests and sessions; holds no state of any."""

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for, at least one."""
        ...

    @property
    def spells_numbers(self) -> bool:
        """Whether it can be told to write numbers as words."""
        ...

    @property
    def supports_left_context(self) -> bool:
        """Whether a turn can be heard behind what was before it."""
        ...

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can do with speech."""
        ...

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """Of a model that streams, whose text is final as it comes: those of which a live turn may have one,
        the default first. Empty: hypotheses about a turn may differ."""
        ...

    @property
    def takes_hints(self) -> bool:
        """Whether `prompt` and `keywords` mean anything to it."""
        ...

    def statistics(self) -> SpeechStatistics:
        """What came of all transcripts so far."""
        ...

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know."""
        ...

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """The transcript of `samples`, of any length; [channels, n] where `options` want each for itself.

        `on_delta` gets the text in order while it grows; its pieces join to `Transcript.text`. `on_segment`
        gets the segments of a recording that is not [channels, n], as they are in `Transcript.segments`, as
        soon as each is sure, with the words that `options` want. Raises as `check` does, else the engine's
        errors. Cancelling stops all work on it.
        """
        ...

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> LiveTurn:
        """A turn whose audio begins at sample `start` of what `read` gives; `caller` is that of its lanes.

        Of a model with `delays` it has the one of `delay_ms`, and what it holds in the engine is held by a
        task in `nursery`, until it is closed.

        `before` are beginnings of earlier turns, ascending, from each of which on `read` gives audio: if
        there are any, and the model can, final transcripts are made behind what is heard from the first of
        them that there is room for, and may differ from those of the turn alone. `spoken` is the language
        that was spoken last: as long as little was said hypotheses that are not final are in it, unless
        another one is clear; a final one is in it where the model doubts another, and may mean it as well.
        """
        ...

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> LiveStream:
        """A stream whose audio begins at sample `start` of what `read` gives; see `live`. Raises
        BadRequestError for a model that has no `delays`."""
        ...
