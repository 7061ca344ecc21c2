"""What transcribing whole recordings and live turns have in common, whatever the model.

Audio is cut into ranges at quiet places (`media/segments.py`), the ranges are answered side by side, and
their texts are joined in order. Files and live turns cut by the same rule, so a turn's ranges are those of
the file that holds the same samples. Read `actors/speech/transcriber.py` and `actors/speech/asr.py` next.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import trio

from ...media.segments import find_cut, split
from ...media.speech_gate import SpeechGate, speaks_for
from ...media.voice_activity import VoiceActivityModel
from ...protocols.errors import InternalError, OverloadedError
from ...protocols.messages import TextGenerated
from ...protocols.transcript import Segment, TokenLogProb, Transcript, Word
from ..kernel.nursery import open_work
from .answer_guard import LoopCutter, echoes_context, may_echo, speaking_time_s
from .model import ReadAudio, Samples

_T = TypeVar("_T")
_Choice = TypeVar("_Choice")
_Answer = TypeVar("_Answer")

Range = tuple[int, int]
"""Start and end in samples of what is answered at once."""

SILENT_PEAK: Final = 1e-4
"""A range that never exceeds this (three steps of 16-bit audio) is digital silence: nothing was said."""
UNSPACED_LANGUAGES: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})
"""Written without spaces between words: the texts of ranges are joined as they are."""
_INLINE_SAMPLES: Final = 16_000
"""As much audio is looked at on the spot (1 to 6 ms), more of it in a thread."""
RANGES_AT_ONCE: Final = 8
"""Ranges of one recording in hand at once: enough to fill the engine's batches, few enough to share it."""
PIN_PROBABILITY: Final = 0.8
PIN_AFTER_S: Final = 1.5
"""Partials stop asking for the language once it was this clear on this much audio; finals always ask."""


def separator(language: str | None) -> str:
    """What stands between the texts of two ranges."""
    return "" if language in UNSPACED_LANGUAGES else " "


@dataclass(frozen=True, slots=True)
class CutRule:
    """Ranges are at most `size` samples long, and cut at the quietest place of their last `search`."""

    size: int
    search: int

    def split(self, samples: Samples) -> list[Range]:
        """The ranges of a whole recording. Milliseconds a minute: for a thread."""
        return split(samples, window_samples=self.size, search_samples=self.search)


class Ear:
    """Whether a range that grows holds any speech. Each sample is heard once."""

    def __init__(self, activity: VoiceActivityModel | None) -> None:
        """Without `activity` whatever is not digital silence is taken for speech."""
        self.num_samples = 0
        self._gate = None if activity is None else SpeechGate(activity)
        self._first_sound: int | None = None

    def push(self, samples: Samples) -> None:
        """The next samples [n]. Blocks for up to 6 ms a second of audio."""
        if self._first_sound is None:
            is_sound = np.abs(samples) > SILENT_PEAK
            if is_sound.any():
                self._first_sound = self.num_samples + int(np.argmax(is_sound))
        if self._gate is not None:
            self._gate.push(samples)
        self.num_samples += len(samples)

    def is_silent(self, num_samples: int) -> bool:
        """Whether nobody speaks in the first `num_samples`, at most those pushed."""
        if self._first_sound is None or self._first_sound >= num_samples:
            return True
        return self._gate is not None and not self._gate.has_speech(num_samples)


class Recording:
    """Audio that ranges are taken of, as far as it is there."""

    def __init__(self, read: ReadAudio, activity: VoiceActivityModel | None = None) -> None:
        self.read = read
        """Samples of a range."""
        self._activity = activity
        self._ears: dict[int, Ear] = {}
        """By the start of a range."""
        self._lock = trio.Lock()

    async def is_silent(self, part: Range) -> bool:
        """Whether nobody speaks in a range. Of one that has grown only new samples are looked at."""
        start, end = part
        async with self._lock:
            if start not in self._ears:
                self._ears[start] = Ear(self._activity)
            ear = self._ears[start]
            if ear.num_samples < end - start:
                fresh = self.read(start + ear.num_samples, end)
                await run(partial(ear.push, fresh), len(fresh))
        return ear.is_silent(end - start)

    async def is_echo(self, text: str, context: str, part: Range) -> bool:
        """Whether a range's text is but the context it was asked with, and more than was said."""
        if self._activity is None or not echoes_context(text, context):
            return False
        is_said = partial(speaks_for, self._activity, self.read(*part), speaking_time_s(text))
        return not await run(is_said, part[1] - part[0])


class LiveRecording(Recording):
    """A recording that still grows from sample `start` on, in the ranges that `CutRule.split` would give."""

    def __init__(
        self, rule: CutRule, read: ReadAudio, activity: VoiceActivityModel | None = None, *, start: int
    ) -> None:
        super().__init__(read, activity)
        self._rule = rule
        self._start = start
        self._cuts: list[int] = []

    def ranges(self, end: int) -> list[Range]:
        """The ranges of `[start, end)`; `end` may be smaller than before."""
        size = self._rule.size
        while self._cuts and end - (self._cuts[-2] if len(self._cuts) > 1 else self._start) <= size:
            self._cuts.pop()
        start = self.open_start
        while end - start > size:
            start += find_cut(self.read(start, start + size), search_samples=self._rule.search)
            self._cuts.append(start)
        bounds = [self._start, *self._cuts, end]
        self._ears = {start: ear for start, ear in self._ears.items() if start in bounds}
        return [(first, last) for first, last in itertools.pairwise(bounds) if first < last]

    @property
    def open_start(self) -> int:
        """Where the last range, which still grows, begins."""
        return self._cuts[-1] if self._cuts else self._start


async def run(work: Callable[[], _T], num_samples: int) -> _T:
    """Do what blocks for a few milliseconds a second of audio: in a thread, unless there is little."""
    return work() if num_samples <= _INLINE_SAMPLES else await trio.to_thread.run_sync(work)


async def answer_side_by_side(
    ranges: Sequence[Range], answer: Callable[[int, Range], Awaitable[None]]
) -> None:
    """Await `answer(index, range)` of every range, `RANGES_AT_ONCE` at a time, from the front."""
    limit = trio.CapacityLimiter(RANGES_AT_ONCE)

    async def one(index: int, part: Range) -> None:
        try:
            await answer(index, part)
        finally:
            limit.release_on_behalf_of(index)

    # From the front, so that text to stream comes soon; trio begins those of one moment in any order.
    async with open_work() as nursery:
        for index, part in enumerate(ranges):
            await limit.acquire_on_behalf_of(index)
            nursery.start_soon(one, index, part)


class DeltaJoiner:
    """Puts the growing texts of ranges into one stream, in order, equal to the joined transcript.

    A range's text is released when every range before it has finished; the white space around each
    range's text is dropped, and `separator` put between texts that are not empty. What may be an echo of
    the `context` waits for the end of its range; loops are left out (`actors/speech/answer_guard.py`).
    """

    def __init__(
        self, num_ranges: int, separator: str, emit: Callable[[str], None], *, context: str = ""
    ) -> None:
        self.separator = separator
        """May be changed until the second text begins."""
        self._texts = [""] * num_ranges
        self._finished = [False] * num_ranges
        self._emit = emit
        self._context = context
        self._head = 0
        self._num_released = 0  # characters of the head range's stripped text
        self._any_released = False

    def feeder(self, index: int) -> Callable[[str], None]:
        """Takes pieces of the range's text."""

        cutter = LoopCutter()

        def feed(text: str) -> None:
            self._texts[index] += cutter.feed(text)
            self._flush()

        return feed

    def finish(self, index: int, text: str) -> None:
        """The range's whole text, without loops, is `text`; what was fed is its beginning."""
        self._texts[index] = text
        self._finished[index] = True
        self._flush()

    def _flush(self) -> None:
        while self._head < len(self._texts):
            text = self._texts[self._head].strip()
            is_new = not self._finished[self._head] and not self._num_released
            if is_new and self._context and may_echo(text, self._context):
                return
            fresh = text[self._num_released :]
            if fresh:
                prefix = self.separator if self._any_released and not self._num_released else ""
                self._emit(prefix + fresh)
                self._any_released = True
                self._num_released = len(text)
            if not self._finished[self._head]:
                return
            self._head += 1
            self._num_released = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What was found in one range. Times count from the start of the recording."""

    text: str
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
    logprobs: tuple[float, ...] = ()
    num_input_tokens: int = 0
    num_output_tokens: int = 0
    no_speech_prob: float = 1.0
    tokens: tuple[TokenLogProb, ...] = ()


@dataclass(slots=True)
class RangeMemory(Generic[_Choice, _Answer]):
    """What is already known about ranges by where they lie; anything forgotten is computed again."""

    choices: dict[Range, _Choice] = field(default_factory=dict)
    """Languages."""
    answers: dict[tuple[Range, str | None], _Answer] = field(default_factory=dict)
    """By range and the language that was forced."""
    words: dict[tuple[Range, str | None], tuple[Word, ...]] = field(default_factory=dict)
    parts: dict[tuple[Range, str | None, bool], Part] = field(default_factory=dict)
    """By range, forced language, and whether it is timed."""
    drafts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Last answer for the range that starts at a sample: the guess to verify when it has grown."""

    def keep_only(self, ranges: Sequence[Range]) -> None:
        """Forget every range that is not in `ranges`, and drafts that start nowhere."""
        kept, starts = set(ranges), {start for start, _ in ranges}
        self.choices = {key: value for key, value in self.choices.items() if key in kept}
        self.answers = {key: value for key, value in self.answers.items() if key[0] in kept}
        self.words = {key: value for key, value in self.words.items() if key[0] in kept}
        self.parts = {key: value for key, value in self.parts.items() if key[0] in kept}
        self.drafts = {key: value for key, value in self.drafts.items() if key in starts}


def check_answered(answer: TextGenerated) -> None:
    """Raise what became of a request that did not end by itself."""
    if answer.finish_reason == "error" or answer.error is not None:
        raise InternalError("the model failed on this audio")
    if answer.finish_reason == "abort":
        raise OverloadedError("the request was aborted; try again")


def joined(
    parts: Sequence[Part], *, language: str, duration_s: float, language_probability: float = 1.0
) -> Transcript:
    """The transcript of a recording whose ranges were found to hold `parts`."""
    logprobs = [logprob for part in parts for logprob in part.logprobs]
    segments = [segment for part in parts for segment in part.segments]
    return Transcript(
        text=separator(language).join(part.text for part in parts if part.text),
        language=language,
        duration=duration_s,
        language_probability=language_probability,
        segments=tuple(
            msgspec.structs.replace(segment, id=number) for number, segment in enumerate(segments)
        ),
        words=tuple(word for part in parts for word in part.words),
        num_input_tokens=sum(part.num_input_tokens for part in parts),
        num_output_tokens=sum(part.num_output_tokens for part in parts),
        avg_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        no_speech_prob=min((part.no_speech_prob for part in parts), default=1.0),
        tokens=tuple(token for part in parts for token in part.tokens),
    )
