"""When each word of a known text was spoken, found in the audio's loudness and spectrum.

Words tile the time in which somebody is heard (`media/speech/frames.py`), which is loud and, where voice
activity is known, speech: neither noise nor music. Their boundaries are those that
fit best, by dynamic programming, to the words' expected lengths (`media/speech/spoken_length.py`), to pauses,
which words do not straddle and punctuation asks for, and to changes of the spectrum. `time_words` is all
there is for models without cross-attention (Qwen3-ASR); `refine_words` has a model's own times to go by
(Whisper). `media/speech/sentences.py` makes segments of the words. Measured by
`examples/benchmarks/word_times.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import Word
from .frames import FRAME_S, Samples, SpeechFrames, speech_frames
from .spoken_length import phrase_end, spoken_length_s, spoken_words

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SPREAD_S: Final = 0.11
"""Standard deviation of the length of a word expected to last 1 s; it grows with the length's root."""
HINTED_SPREAD_S: Final = 0.2
"""The same beside exact hints, which say more than lengths do: those of people vary by half as much again as
those of synthesisers."""
DRAWN_OUT_S: Final = 0.15
"""How much longer a word is in front of a pause, where its punctuation does not say so already. It takes
exact hints to tell it from the next word."""
PAUSE_COST: Final = 15.0
"""Of a word that goes on behind a silence of half a second or more; in proportion for shorter ones."""
LONG_PAUSE_S: Final = 0.5
UNEXPECTED_PAUSE_COST: Final = 1.0
"""Of a pause behind a word without punctuation."""
MISSING_PAUSE_COSTS: Final = {"": 0.0, ",": 3.0, ".": 6.0}
"""Of a clause or a sentence that ends without one."""
RATE_COST: Final = 2.0
"""Of speaking one step faster or slower than before, or than the whole recording at its start."""
CHANGE_COST: Final = 1.0
"""Of a boundary where the sound does not change at all."""
HINT_SCALE_S: Final = 0.1
"""A boundary this far from where the model has it costs 1."""
MAX_HINT_COST: Final = 2.0
"""A model that is entirely wrong about one boundary must not drag others along."""
EARLY_SCALE_S: Final = 0.05
MAX_EARLY_COST: Final = 3.0
"""The same of a boundary in front of an exact hint, which is hardly ever late."""
HINT_LEAD_S: Final = 0.06
"""Exact hints are early by this: a model looks at a word when the one before fades."""
GAP_COST: Final = 8.0
GAP_COST_PER_FRAME: Final = 0.02
"""Of sound that belongs to no word, such as music in front of speech: 2 by the second besides. Rather than
leave a part of somebody's sentence to no word, words are longer or shorter than expected."""
MAX_SLOWNESS: Final = 1.5
"""Nobody is taken to speak slower than this many times the expected lengths; more sound is no speech."""
_RATE_STEPS: Final = np.arange(-2, 3)
_RATES: Final = tuple(float(factor) for factor in 1.2**_RATE_STEPS)
"""Factors on the expected lengths: speakers change, and nobody keeps one rate for a minute."""
_CLEARLY_FASTER: Final = 0.8
_MIN_RATE: Final = 0.5
"""Hints that make words faster than twice the expected lengths are wrong."""
_MAX_STRETCH: Final = 3.0
_MAX_EXTRA_FRAMES: Final = 30
"""A word lasts at most `_MAX_STRETCH` times its expected length and these."""
_MAX_DRIFT_FRAMES: Final = 500
"""How far, in heard frames, a boundary may lie from its place by length alone: 5 s."""


_FAR_S: Final = 3.0
"""Who begins a sentence shortly behind another one does not wait so long behind its first word."""
_MAX_LENGTHS: Final = 2.0
_MAX_EXTRA_S: Final = 0.3
"""A model has a word begin too early that lasts longer than so many times its expected length, and this."""


def time_words(
    text: str, samples: Samples, speech: Sequence[tuple[int, int]] | None = None
) -> tuple[Word, ...]:
    """The words of `text` with times in seconds from the start of `samples` (mono at 16 kHz, shape [n]).

    `speech`: between which samples somebody speaks, where that is known; other sounds have no words then.

    Words keep their punctuation and join to `text` but for white space; Chinese, Japanese, Thai and the like
    are timed by character. Times never decrease, do not overlap and lie inside the audio; a word lasts at
    least 10 ms where the audio has room. No audio: no words. About 3 ms a second of audio: call it in a
    thread for more than a few seconds.
    """
    words = spoken_words(text)
    return _timed(words, _spoken(speech_frames(samples), words, speech), None)


def refine_words(
    words: Sequence[Word],
    frames: SpeechFrames,
    speech: Sequence[tuple[int, int]] | None = None,
    *,
    is_rough: bool = False,
) -> tuple[Word, ...]:
    """The same words, their times moved to where the audio agrees with them.

    `words` are in order; their times count from the frames' start. The starts are exact but for a lead, as
    those of Whisper's published checkpoints, or as often late as early, `is_rough`. `speech` as in
    `time_words`; what of it the model hears no word in is something else that resembles speech.
    """
    names = [word.word for word in words]
    if speech is not None:
        speech = [region for region in speech if any(_may_lie_in(word, region) for word in words)]
    frames = _spoken(frames, names, speech)
    starts_s = np.array([word.start for word in words], np.float64)
    return _timed(names, frames, _Hints(starts_s, is_rough))


def rejoined(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words, where one that begins a sentence is with the next one of it.

    Behind music a model looks for the first word where the music begins, right behind the sentence before it.
    """
    found = list(words)
    for index in range(1, len(found) - 1):
        before, word, after = found[index - 1 : index + 2]
        begins = phrase_end(before.word) == "." and not phrase_end(word.word)
        if begins and after.start - word.end >= max(_FAR_S, 4 * (word.start - before.end)):
            lengths_s = spoken_length_s(word.word), spoken_length_s(after.word)
            lasts_s = (after.end - after.start) * lengths_s[0] / sum(lengths_s)
            middle_s = round(after.start + lasts_s, 3)
            found[index] = replace(word, start=after.start, end=middle_s)
            found[index + 1] = replace(after, start=middle_s)
    return tuple(found)


def _may_lie_in(word: Word, region: tuple[int, int]) -> bool:
    """Whether a word, by its rough times, is said in a region.

    What lies in front of a word is taken for it, hardly what lies behind: a long one begins late.
    """
    longest_s = _MAX_LENGTHS * spoken_length_s(word.word) + _MAX_EXTRA_S
    start_s, end_s = region[0] / INTERNAL_RATE, region[1] / INTERNAL_RATE
    return max(word.start, word.end - longest_s) < end_s and word.end > start_s


def _spoken(
    frames: SpeechFrames, words: Sequence[str], speech: Sequence[tuple[int, int]] | None
) -> SpeechFrames:
    """Frames that are heard only where somebody speaks, unless these words take more time than that."""
    if speech is None:
        return frames
    return frames.within(speech, math.ceil(_MIN_RATE / FRAME_S * sum(map(spoken_length_s, words))))


@dataclass(frozen=True, slots=True)
class _Hints:
    """Where a model has the starts of words [words], in seconds, and what it is known for."""

    starts_s: FloatArray
    is_rough: bool
    """If not, what it says may be too early, as in a drawn-out word in front, but hardly too late."""

    def costs(self, index: int, axis: _Axis) -> FloatArray:
        """What it costs [n] that a word begins at each position; 0 in the pause in front of it."""
        start_s = float(self.starts_s[index])
        late = axis.active * FRAME_S - axis.pause_s - start_s
        early = start_s - axis.active * FRAME_S
        limit = np.full(len(early), MAX_HINT_COST)
        if not self.is_rough:
            late, early = late - HINT_LEAD_S, early * (HINT_SCALE_S / EARLY_SCALE_S)
            limit[early > 0] = MAX_EARLY_COST
        costs: FloatArray = np.minimum(np.maximum(np.maximum(late, early), 0.0) / HINT_SCALE_S, limit)
        return costs


def _timed(words: Sequence[str], frames: SpeechFrames, hints: _Hints | None) -> tuple[Word, ...]:
    if not words or not frames.num_frames:
        return ()
    if frames.num_frames < len(words):
        edges_s = np.linspace(0.0, frames.duration_s, len(words) + 1).astype(np.float64)
        starts_s, ends_s = edges_s[:-1], edges_s[1:]
    else:
        axis = _Axis.of(frames, len(words))
        spans = _best_spans(words, axis, hints)
        starts_s = axis.active[spans[:, 0]].astype(np.float64) * FRAME_S
        ends = axis.active[spans[:, 1] - 1] + 1
        # The last frame has what is left over of the audio.
        ends_s = np.where(ends < frames.num_frames, ends * FRAME_S, frames.duration_s)
    return rejoined(
        [
            Word(word, round(float(start), 3), round(float(end), 3))
            for word, start, end in zip(words, starts_s, ends_s, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Heard frames one after the other; a boundary at position p lies in front of the p-th of them.

    `active` are their indices [n]; `pause_s` [n] the silence that was cut out in front of each, 0 at the
    first; `change` [n] as `SpeechFrames` has it, and 1 at a pause.
    """

    active: IntArray
    pause_s: FloatArray
    change: FloatArray

    @classmethod
    def of(cls, frames: SpeechFrames, num_words: int) -> _Axis:
        """All frames count as heard if fewer are heard than there are words."""
        active = frames.active if len(frames.active) >= num_words else np.arange(frames.num_frames)
        pause_s = (np.diff(active, prepend=active[0] - 1) - 1) * FRAME_S
        return cls(active, pause_s, np.where(pause_s > 0, 1.0, frames.change[active]))

    def boundary_costs(self, mark: str) -> FloatArray:
        """What it costs [n] that a word ends here, with this punctuation behind it: see `phrase_end`."""
        costs: FloatArray = CHANGE_COST * (1.0 - self.change)
        costs += np.where(
            self.pause_s > 0, UNEXPECTED_PAUSE_COST if mark == "" else 0.0, MISSING_PAUSE_COSTS[mark]
        )
        return costs


def _best_spans(words: Sequence[str], axis: _Axis, hints: _Hints | None) -> IntArray:
    """Position of each word's start and end [words, 2]: the cheapest way to lay the words onto the axis.

    In each of a few rates, end_k(p) = boundary_k(p) + min over q < p of start_k(q) + length_k(p - q) +
    straddled(q, p), and start_k+1(p) = hint_k+1(p) + min(end_k(p), min over q < p of end_k(q) + gap(p - q)).
    The pauses inside (q, p) are a difference of running sums and the gap is linear, so that only the lengths
    need a search. Between words the rate may change, at a cost.
    """
    num_frames, num_words = len(axis.active), len(words)
    lengths_s = np.array([spoken_length_s(word) for word in words])
    rate = _frames_per_second(lengths_s, axis, None if hints is None else hints.starts_s)
    expected = lengths_s * rate
    lows, highs = _bands(expected, num_frames)
    pauses = np.cumsum(PAUSE_COST * np.minimum(axis.pause_s / LONG_PAUSE_S, 1.0))
    costs = {mark: axis.boundary_costs(mark) for mark in ("", ",", ".")}
    start = _Frontier(RATE_COST * np.abs(_RATE_STEPS)[:, None], 0).with_gaps(0, int(highs[0]))
    starts, ends, changes = [start], list[_Frontier](), list[_Frontier]()
    is_hinted = hints is not None and not hints.is_rough
    for index, word in enumerate(words):
        if hints is not None:
            start.costs += hints.costs(index, axis)[start.positions]
        spread = (HINTED_SPREAD_S if is_hinted else SPREAD_S) * math.sqrt(lengths_s[index]) * rate
        drawn_out = DRAWN_OUT_S * rate if is_hinted and not phrase_end(word) else 0.0
        length = _Length(float(expected[index]), spread, drawn_out)
        end = start.extended(int(lows[index + 1]), int(highs[index + 1]), length, pauses)
        if index + 1 < num_words:
            end.costs += costs[phrase_end(word)][end.positions]
        change = end.with_changes()
        start = change.with_gaps(end.low, int(highs[index + 1]))
        ends.append(end)
        changes.append(change)
        starts.append(start)
    spans = np.empty((num_words, 2), np.int64)
    position, state = num_frames, int(np.argmin(start.costs[:, -1]))
    for index in range(num_words - 1, -1, -1):
        position = spans[index, 1] = starts[index + 1].source(state, position)
        state = changes[index].source(state, position)
        position = spans[index, 0] = ends[index].source(state, position)
    return spans


def _bands(expected: FloatArray, num_frames: int) -> tuple[IntArray, IntArray]:
    """First and last position [words + 1] that each boundary may have; every word needs a frame."""
    num_words = len(expected)
    slack = round(num_frames - float(expected.sum()))
    middles = np.rint(np.concatenate(([0.0], np.cumsum(expected)))).astype(np.int64)
    least = np.arange(num_words + 1)
    most = num_frames - num_words + least
    lows = np.clip(middles - _MAX_DRIFT_FRAMES, least, most)
    highs = np.clip(middles + slack + _MAX_DRIFT_FRAMES, least, most)
    return lows, highs


def _frames_per_second(lengths_s: FloatArray, axis: _Axis, hints_s: FloatArray | None) -> float:
    """Heard frames for each second that words are expected to last.

    All that is heard is taken to be words, unless the hints say that words are clearly faster than that: the
    rest is then something else. They say so by the median over words half the text apart (Theil and Sen).
    """
    rate = min(len(axis.active) / float(lengths_s.sum()), MAX_SLOWNESS / FRAME_S)
    if hints_s is None or len(hints_s) < 2:
        return rate
    half = len(hints_s) // 2
    begun_s = np.concatenate(([0.0], np.cumsum(lengths_s)[:-1]))
    places = np.searchsorted(axis.active * FRAME_S, hints_s)
    hinted = float(np.median((places[half:] - places[:-half]) / (begun_s[half:] - begun_s[:-half])))
    return hinted if _MIN_RATE / FRAME_S < hinted < _CLEARLY_FASTER * rate else rate


@dataclass(frozen=True, slots=True)
class _Length:
    """Frames that a word is expected to last, their standard deviation, and how many more before a pause."""

    expected: float
    spread: float
    drawn_out: float

    def costs(self, lasting: FloatArray, before_pause: npt.NDArray[np.bool_]) -> FloatArray:
        """What it costs [ends, lengths] to last so long [lengths] and end there [ends]; or [lengths]."""
        usual: FloatArray = np.square((lasting - self.expected) / self.spread) / 2
        if not self.drawn_out:
            return usual
        drawn = np.square((lasting - self.expected - self.drawn_out) / self.spread) / 2
        chosen: FloatArray = np.where(before_pause[:, None], drawn, usual)
        return chosen


@dataclass(slots=True)
class _Frontier:
    """Cheapest cost [rates, positions] of reaching each position from `low` on, and what it was reached from.

    `sources` are positions, for `with_changes` rates.
    """

    costs: FloatArray
    low: int
    sources: IntArray | None = None

    @property
    def positions(self) -> slice:
        """The positions as a slice of the axis."""
        return slice(self.low, self.low + self.costs.shape[1])

    def source(self, state: int, position: int) -> int:
        """Where the cheapest way to `position` at a rate came from."""
        assert self.sources is not None
        return int(self.sources[state, position - self.low])

    def stretch(self, first: int, stop: int) -> FloatArray:
        """Costs of positions `first` to `stop`; infinite where there are none."""
        costs = np.full((len(self.costs), stop - first), np.inf)
        begin, end = max(first, self.low), min(stop, self.positions.stop)
        if begin < end:
            costs[:, begin - first : end - first] = self.costs[:, begin - self.low : end - self.low]
        return costs

    def extended(self, low: int, high: int, length: _Length, pauses: FloatArray) -> _Frontier:
        """The ends, at positions `low` to `high` (included), of a word that starts here."""
        costs = np.empty((len(self.costs), high - low + 1))
        sources = np.empty(costs.shape, np.int64)
        places = np.arange(high - low + 1)
        cumulated = pauses[np.clip(np.arange(low - 1, high + 1), 0, len(pauses) - 1)]
        before_pause = cumulated[1:] > cumulated[:-1]
        for state, factor in enumerate(_RATES):
            longest = int(_MAX_STRETCH * factor * length.expected) + _MAX_EXTRA_FRAMES
            # A word that starts at q begins behind the pause in front of q, and ends before the one at p.
            before = pauses[np.clip(np.arange(low - longest, high), 0, None)]
            begun = (
                _Frontier(self.costs[state : state + 1], self.low).stretch(low - longest, high)[0] - before
            )
            lasting = np.arange(longest, 0, -1) / factor
            begins = np.lib.stride_tricks.sliding_window_view(begun, longest)
            ways = begins + length.costs(lasting, before_pause)
            chosen = ways.argmin(axis=1)
            costs[state] = ways[places, chosen] + pauses[low - 1 : high]
            sources[state] = low + places - longest + chosen
        return _Frontier(costs, low, sources)

    def with_changes(self) -> _Frontier:
        """The same when the rate may change, by `RATE_COST` a step."""
        switching = RATE_COST * np.abs(_RATE_STEPS[:, None] - _RATE_STEPS[None, :])
        ways = self.costs[None, :, :] + switching[:, :, None]
        sources = ways.argmin(axis=1)
        return _Frontier(np.take_along_axis(ways, sources[:, None, :], axis=1)[:, 0], self.low, sources)

    def with_gaps(self, low: int, high: int) -> _Frontier:
        """The same for positions `low` to `high` (included) when frames may be left out at a cost."""
        positions = np.arange(low, high + 1)
        direct = self.stretch(low, high + 1)
        linear = direct - GAP_COST_PER_FRAME * positions
        cheapest = np.minimum.accumulate(linear, axis=1)
        origin = np.maximum.accumulate(np.where(linear == cheapest, positions, 0), axis=1)
        skipped = cheapest + GAP_COST_PER_FRAME * positions + GAP_COST
        return _Frontier(np.minimum(direct, skipped), low, np.where(direct <= skipped, positions, origin))
