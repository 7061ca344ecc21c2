"""A recording without the parts in which nobody speaks, and the times of its transcript in the whole.

What is left out costs nothing and cannot be answered with invented words. Where people speak is found by
`media/speech/regions.py`; what a client may say of it is `SpeechFilter`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import (
    CueLayout,
    Retranscription,
    Segment,
    SpeechFilter,
    Transcript,
    Word,
)
from ..speech.regions import Region, speech_regions
from ..speech.sentences import TimedText, segments_of
from ..speech.voice_activity import VoiceActivityModel
from ..speech.word_times import rejoined
from .joining import Passage
from .plausibility import compression_ratio
from .range_answer import Samples
from .segments import tokens_of


@dataclass(frozen=True, slots=True)
class Splice:
    """The regions of a recording that are kept, one after the other."""

    samples: Samples
    regions: tuple[Region, ...]
    """In samples of the recording, ascending, apart."""
    num_samples: int
    """Of the recording."""


class Restorer:
    """Gives the passages of a transcript of `Splice.samples`, in order, the times of the recording.

    A word lies in the region that its middle is in; a segment begins and ends with its words, and is several
    where these lie apart in the recording.
    """

    def __init__(self, kept: Splice, bytes_of: Callable[[int], bytes], layout: CueLayout) -> None:
        """`bytes_of` are those of tokens; `layout` is that of the segments."""
        self._kept = kept
        self._places = _Places(kept.regions, layout)
        self._bytes_of = bytes_of
        self._passages: list[Passage] = []
        self._num_segments = 0

    def push(self, passage: Passage) -> Passage:
        """The next passage."""
        before = self._passages[-1].words[-1:] if self._passages else ()
        placed = map(self._places.word, passage.words)
        words = rejoined((*before, *placed))[len(before) :]
        segments, index = list[Segment](), 0
        for segment in passage.segments:
            first = index
            while index < len(words) and _middle(passage.words[index]) <= segment.end:
                index += 1
            segments += self._places.segments(segment, words[first:index], self._bytes_of)
        numbered = tuple(
            msgspec.structs.replace(each, id=number)
            for number, each in enumerate(segments, self._num_segments)
        )
        self._num_segments += len(segments)
        self._passages.append(Passage(numbered, words))
        return self._passages[-1]

    def whole(self, transcript: Transcript) -> Transcript:
        """The transcript of `Splice.samples`, all of whose passages were pushed, as one of the recording."""
        return msgspec.structs.replace(
            transcript,
            duration=self._kept.num_samples / INTERNAL_RATE,
            segments=tuple(segment for passage in self._passages for segment in passage.segments),
            words=tuple(word for passage in self._passages for word in passage.words),
            retranscribed=tuple(map(self._places.retranscription, transcript.retranscribed)),
        )


def splice(
    samples: Samples,
    activity: VoiceActivityModel,
    speech_filter: SpeechFilter,
    *,
    check: Callable[[], object] = lambda: None,
) -> Splice:
    """What `speech_filter` keeps of `samples` [n]. 3 ms a second: for a thread; `check` is
    `speech_regions`'."""
    per_ms = INTERNAL_RATE // 1000
    regions = speech_regions(
        activity,
        samples,
        threshold=speech_filter.threshold,
        min_speech=speech_filter.min_speech_ms * per_ms,
        min_silence=speech_filter.min_silence_ms * per_ms,
        padding=speech_filter.padding_ms * per_ms,
        check=check,
    )
    kept = [samples[start:end] for start, end in regions]
    return Splice(np.concatenate(kept) if kept else samples[:0], tuple(regions), len(samples))


class _Places:
    """From seconds of what is kept to seconds of the recording."""

    def __init__(self, regions: Sequence[Region], layout: CueLayout) -> None:
        self._layout = layout
        self._starts = [start / INTERNAL_RATE for start, _ in regions]
        lengths = ((end - start) / INTERNAL_RATE for start, end in regions)
        self._bounds = list(itertools.accumulate(lengths, initial=0.0))
        """Where each region begins in what is kept, and the end of the last."""

    def word(self, word: Word) -> Word:
        index = self._region(bisect_right(self._bounds, _middle(word)))
        return msgspec.structs.replace(word, start=self._in(index, word.start), end=self._in(index, word.end))

    def retranscription(self, again: Retranscription) -> Retranscription:
        first = self._region(bisect_right(self._bounds, again.start))
        last = self._region(bisect_left(self._bounds, again.end))
        return msgspec.structs.replace(
            again, start=self._in(first, again.start), end=self._in(last, again.end)
        )

    def segments(
        self, segment: Segment, words: Sequence[Word], bytes_of: Callable[[int], bytes]
    ) -> list[Segment]:
        """The segment of these words, whose times are the recording's, in as many as a subtitle needs."""
        first = self._region(bisect_right(self._bounds, segment.start))
        last = self._region(bisect_left(self._bounds, segment.end))
        start, end = self._in(first, segment.start), self._in(last, segment.end)
        texts = segments_of(segment.text, words, self._layout) or (TimedText(segment.text, start, end),)
        seek = self._in(self._region(bisect_right(self._bounds, segment.seek / 100)), segment.seek / 100)
        return [
            msgspec.structs.replace(
                segment,
                seek=round(seek * 100),
                start=text.start,
                end=max(text.start, text.end),
                text=text.text,
                tokens=segment.tokens[begin:stop],
                compression_ratio=compression_ratio(text.text),
            )
            for text, (begin, stop) in zip(texts, tokens_of(texts, segment.tokens, bytes_of), strict=True)
        ]

    def _region(self, next_region: int) -> int:
        return min(max(next_region - 1, 0), len(self._starts) - 1)

    def _in(self, region: int, seconds: float) -> float:
        within = min(max(seconds, self._bounds[region]), self._bounds[region + 1]) - self._bounds[region]
        return round(self._starts[region] + within, 3)


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2
