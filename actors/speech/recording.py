"""Audio, and what is known of the ranges it is cut into: whether anybody speaks in them, and their features.

A file's ranges are all there at once, a live turn's are cut by the same rule while it grows, so a turn's
ranges are those of the file that holds the same samples. What is asked about them:
`actors/speech/range_decoder.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

import numpy as np
import trio

from ...media.speech.cut_points import find_cut
from ...media.speech.gate import SpeechGate, speaks_for
from ...media.speech.regions import LIKELY_SPEECH, Score, scored_regions, speech_scores
from ...media.speech.repetition import count_copies
from ...media.speech.voice_activity import VoiceActivityModel
from ...media.transcript.answer_guard import echoes_context, speaking_time_s
from ...media.transcript.language_detection import MIN_PAUSE
from ...media.transcript.plausibility import clear_speech_s
from ...media.transcript.range_answer import Range, Samples
from ...protocols.engine.messages import EncoderItem, SessionKey
from ...protocols.shared.audio_format import INTERNAL_RATE
from ..runtime.compute_pool import compute, give_way
from .families.family import GrowingFeatures, SpeechFamily
from .model import ReadAudio

SILENT_PEAK: Final = 1e-4
"""A range that never exceeds this (three steps of 16-bit audio) is digital silence: nothing was said."""

_PIECE: Final = 10 * INTERNAL_RATE
"""Samples that are listened to before others may go first: 30 ms of work, 60 at most."""


class SilenceDetector:
    """Whether a range that grows holds any speech. Each sample is scored once."""

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


@dataclass(slots=True)
class _KnownRange:
    """What is known of the range that begins at some sample. It may grow, and shrink."""

    detector: SilenceDetector
    num_samples: int = 0
    """How long it was when it was last asked about."""
    features: GrowingFeatures | None = None
    items: tuple[EncoderItem, ...] = ()
    behind: tuple[EncoderItem, ...] = ()
    """Behind what was in front of it, if it was asked for like that and has not grown since."""
    session: SessionKey | None = None
    scores: tuple[int, list[Score]] | None = None
    """Of its voice activity, and how long it was."""
    lock: trio.Lock = field(default_factory=trio.Lock)


class Recording:
    """Audio whose ranges are all there."""

    def __init__(
        self,
        family: SpeechFamily,
        read: ReadAudio,
        activity: VoiceActivityModel | None = None,
        *,
        before: Sequence[int] = (),
    ) -> None:
        """Without `activity` whatever is no digital silence is speech. `before`: where ranges may begin to be
        heard, in front of them, ascending; there is audio from the first on."""
        self._family = family
        self._before = before if family.facts.behind is not None else ()
        self._read = read
        self._activity = activity
        self._known: dict[int, _KnownRange] = {}
        """By the start of a range."""

    async def samples(self, part: Range) -> Samples:
        """The audio of a range, if nobody has cancelled the question: then it may be forgotten."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return self._read(*part)

    def num_before(self, part: Range) -> int:
        """Samples in front of a range that it can be heard behind: as many as there is room for, from the
        beginning of an earlier turn on."""
        size = self._family.facts.cut_rule.size
        room = (place for place in self._before if part[1] - place <= size)
        return part[0] - next(room, part[0])

    async def items(self, part: Range, *, follows_context: bool = False) -> tuple[EncoderItem, ...]:
        """The range as the encoder takes it, alone or behind what is in front of it; () if nobody speaks in
        it.

        Of a range that has grown only new samples are looked at, in a thread; nothing is looked at twice
        until the range is released.
        """
        start, end = part
        known = self._at(start)
        async with known.lock:
            if known.num_samples != end - start:
                first = start + _first_needed(known, end - start)
                fresh = await self.samples((first, end))
                look = partial(_look, known, self._family, fresh, first - start, end - start)
                known.items = await compute(look)
                known.num_samples, known.behind = end - start, ()
            if not known.items or not follows_context:
                return known.items
            if not known.behind:
                num_before = self.num_before(part)
                samples = await self.samples((start - num_before, end))
                assert self._family.facts.behind is not None
                behind = partial(self._family.facts.behind, samples, num_before)
                known.behind = await compute(behind)
            return known.behind

    async def speech(
        self,
        part: Range,
        *,
        min_silence: int = MIN_PAUSE,
        threshold: float = LIKELY_SPEECH,
        padding: int = 0,
    ) -> list[Range]:
        """Where somebody speaks in a range, parted by pauses; all of it if that cannot be told."""
        if self._activity is None:
            return [part]
        num_samples = part[1] - part[0]
        known = self._at(part[0])
        if known.scores is None or known.scores[0] != num_samples:
            look = partial(speech_scores, self._activity, await self.samples(part), check=give_way)
            known.scores = num_samples, await compute(look)
        regions = scored_regions(
            known.scores[1], num_samples, threshold=threshold, min_silence=min_silence, padding=padding
        )
        return [(part[0] + start, part[0] + end) for start, end in regions]

    @property
    def detects_speech(self) -> bool:
        """Whether it can be told where somebody speaks."""
        return self._activity is not None

    async def cut(self, part: Range) -> int:
        """The best place in the middle quarter of a range to part it in two."""
        eighth = (part[1] - part[0]) // 8
        samples = await self.samples((part[0], part[1] - 3 * eighth))
        look = partial(find_cut, samples, search_samples=2 * eighth, activity=self._activity)
        return part[0] + await compute(look)

    async def count_copies(
        self, part: Range, most: int, span_s: tuple[float, float] | None = None
    ) -> int | None:
        """How often one utterance is repeated in a range, or between the seconds `span_s` of it, `most` times
        at the most; None: it is not clear."""
        if self._activity is None:
            return None
        first, last = part
        if span_s is not None:
            first, last = (part[0] + round(second * INTERNAL_RATE) for second in span_s)
        speech = await self.speech(part, min_silence=0)
        within = [(max(start, first) - first, min(end, last) - first) for start, end in speech]
        within = [(start, end) for start, end in within if start < end]
        return await compute(partial(count_copies, await self.samples((first, last)), within, most))

    async def is_echo(self, text: str, context: str, part: Range) -> bool:
        """Whether a range's text is but the context it was asked with, and more than was said."""
        if self._activity is None or not echoes_context(text, context):
            return False
        samples = await self.samples(part)
        is_spoken = partial(speaks_for, self._activity, samples, speaking_time_s(text))
        return not await compute(is_spoken)

    async def is_clear(self, part: Range) -> bool:
        """Whether somebody speaks in the range for long enough that no answer about it is judged."""
        if self._activity is None:
            return True
        samples = await self.samples(part)
        speaks = partial(speaks_for, self._activity, samples, clear_speech_s(len(samples) / INTERNAL_RATE))
        return await compute(speaks)

    def session(self, part: Range) -> SessionKey | None:
        """What the engine shall keep a range's state under: nothing, a file's are asked about once."""

    def release(self, part: Range) -> None:
        """A range is answered: its features are not kept. That it is silent is."""
        known = self._known.get(part[0])
        if known is None:
            return
        if known.session is not None:
            self._family.engine.close_session(known.session)
            known.session = None
        known.features = known.scores = None
        if known.items:
            known.items, known.behind, known.num_samples = (), (), 0

    def _at(self, start: int) -> _KnownRange:
        if start not in self._known:
            self._known[start] = _KnownRange(SilenceDetector(self._activity))
        return self._known[start]


class LiveRecording(Recording):
    """Audio that still grows from sample `start` on, in the ranges that `CutRule.split` would give."""

    def __init__(
        self,
        family: SpeechFamily,
        read: ReadAudio,
        activity: VoiceActivityModel | None = None,
        *,
        start: int,
        before: Sequence[int] = (),
    ) -> None:
        super().__init__(family, read, activity, before=before)
        self._rule = family.facts.cut_rule
        self._start = start
        self._cuts: list[int] = []

    async def ranges(self, end: int) -> list[Range]:
        """The ranges of `[start, end)`; `end` may be smaller than before."""
        size = self._rule.size
        while self._cuts and end - (self._cuts[-2] if len(self._cuts) > 1 else self._start) <= size:
            self._cuts.pop()
        while end - self.open_start > size:
            start = self.open_start
            samples = await self.samples((start, start + size))
            cut = await compute(self._rule.cut, samples, self._activity)
            self._cuts.append(start + cut)
        bounds = [self._start, *self._cuts, end]
        for start in self._known.keys() - set(bounds):
            self._forget(start)
        return [(first, last) for first, last in itertools.pairwise(bounds) if first < last]

    @property
    def open_start(self) -> int:
        """Where the last range, which still grows, begins."""
        return self._cuts[-1] if self._cuts else self._start

    def session(self, part: Range) -> SessionKey | None:
        """What the engine shall keep a range's state under, until it is released."""
        known = self._at(part[0])
        if known.session is None:
            known.session = SessionKey(f"turn-{uuid4().hex}")
        return known.session

    def release(self, part: Range) -> None:
        """A range is answered: unless it may still grow, its features and state are not kept."""
        if part[0] != self.open_start:
            super().release(part)

    def close(self) -> None:
        """Let go of everything."""
        for start in tuple(self._known):
            self._forget(start)

    def _forget(self, start: int) -> None:
        super().release((start, start))
        del self._known[start]


def _first_needed(known: _KnownRange, num_samples: int) -> int:
    """From where on a range's samples must be seen to know it when it is `num_samples` long."""
    num_scored = min(known.detector.num_samples, num_samples)
    if known.features is None:
        return 0
    num_encoded = known.features.num_samples
    return min(
        num_scored,
        num_encoded
        if num_encoded <= num_samples
        else max(0, num_samples - known.features.num_rewind_samples),
    )


def _look(
    known: _KnownRange, family: SpeechFamily, samples: Samples, first: int, num_samples: int
) -> tuple[EncoderItem, ...]:
    """Hear and extract what is new in `samples`, which begin at `first` of the range."""
    fresh = samples[known.detector.num_samples - first :]
    for start in range(0, len(fresh), _PIECE):
        known.detector.push(fresh[start : start + _PIECE])
        give_way()
    if known.detector.is_silent(num_samples):
        return ()
    if known.features is None:
        known.features = family.features()
    features = known.features
    if features.num_samples > num_samples:
        features.rewind(num_samples, samples[-features.num_rewind_samples :])
    else:
        features.append(samples[features.num_samples - first :])
    return features.items()
