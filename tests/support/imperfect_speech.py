"""A recording of known sentences, and a speech family that hears them, with the failings of a real one.

Each sample tells its own place, so that a family knows what part of the recording it is asked about; voice
activity is where a sentence is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import trio
from sensorium.actors.speech.families.family import CutRule, FamilyFacts, LanguageSource, RangeRequest
from sensorium.media.speech.coverage import expected_s
from sensorium.media.speech.spoken_length import spoken_length_s
from sensorium.media.speech.voice_activity import FloatArray, VoiceActivityModel
from sensorium.media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features
from sensorium.protocols.transcription.transcript import Word

from .scripted_speech import ScriptedEngine

RATE = 16_000
_LOUD = 0.5
_STEP = 2.0**-24
_FAINT = 1e-11


class LoudActivity(VoiceActivityModel):
    """What is loud is speech."""

    def __init__(self) -> None:
        pass

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.where(np.abs(frames).max(axis=1) > 0.1, 0.95, 0.05).astype(np.float32), states


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence and the samples in which it is said."""

    text: str
    start: int
    end: int
    language: str = "en"


@dataclass(slots=True)
class Talk:
    """A recording in the making."""

    said: list[Said] = field(default_factory=list)
    num_samples: int = 8_000

    def say(self, text: str, pause_s: float = 0.5, *, language: str = "en", tempo: float = 1.0) -> Talk:
        """A sentence, and a pause; at 0.5 of the tempo it takes twice as long."""
        length = round(expected_s(text) / tempo * RATE)
        self.said.append(Said(text, self.num_samples, self.num_samples + length, language))
        self.num_samples += length + round(pause_s * RATE)
        return self

    def wait(self, seconds: float) -> Talk:
        """Nobody speaks."""
        self.num_samples += round(seconds * RATE)
        return self

    @property
    def samples(self) -> Samples:
        """The recording; each sample tells its place."""
        places = np.arange(self.num_samples)
        audio = (places + 1) * _FAINT
        for said in self.said:
            audio[said.start : said.end] = _LOUD + places[said.start : said.end] * _STEP
        return audio.astype(np.float32)


class _Features:
    """Where the range begins and how long it is."""

    num_rewind_samples = 1

    def __init__(self) -> None:
        self.num_samples = 0
        self._start = 0

    def append(self, samples: Samples) -> None:
        if self.num_samples == 0:
            first = float(samples[0])
            self._start = round((first - _LOUD) / _STEP) if first > 0.1 else round(first / _FAINT) - 1
        self.num_samples += len(samples)

    def rewind(self, num_samples: int, last: Samples) -> None:
        self.num_samples = num_samples

    def items(self) -> tuple[EncoderItem, ...]:
        name = f"{self._start} {self._start + self.num_samples}"
        return (EncoderItem(ContentHash(name), Features(shape=(1,), data=b"")),)


Hear = Callable[[list[Said], RangeRequest], RangeAnswer]


def exactly(said: list[Said], request: RangeRequest) -> RangeAnswer:
    """All that is said."""
    return answer(" ".join(each.text for each in said))


def answer(text: str, logprob: float = -0.2, *, is_cut: bool = False, no_speech: float = 0.0) -> RangeAnswer:
    """An answer, of which a model is as sure all through."""
    tokens = tuple(text.encode())
    return RangeAnswer(
        text=text,
        token_ids=tokens,
        logprobs=(logprob,) * len(tokens),
        no_speech_prob=no_speech,
        is_cut=is_cut,
    )


def collapsing(most: int = 99) -> Hear:
    """Says once what is said several times in a row, and goes on without end where it is more often."""

    def hear(said: list[Said], request: RangeRequest) -> RangeAnswer:
        runs = [list(group) for _, group in groupby(said, key=lambda each: each.text)]
        if any(len(run) > most for run in runs):
            return answer(f"{runs[0][0].text} {runs[0][0].text}", is_cut=True)
        kept = [run if len(run) <= 1 or most < 99 else run[:1] for run in runs]
        return answer(" ".join(each.text for run in kept for each in run))

    return hear


class HearingFamily:
    """A `SpeechFamily` that hears a talk."""

    def __init__(
        self,
        talk: Talk,
        hear: Hear = exactly,
        *,
        language_from: LanguageSource = "detection",
        window_s: float = 30.0,
    ) -> None:
        self.talk = talk
        self.hear = hear
        self.engine: Any = ScriptedEngine()
        self.asked: list[tuple[Range, RangeRequest]] = []
        self.detect: Callable[[list[Said]], dict[str, float]] = first_language
        """How likely each language is."""
        self.in_halves = 1.0
        """How sure it is of a language in either half."""
        size = round(window_s * RATE)
        self.facts = FamilyFacts(
            languages=("en", "es", "it", "de"),
            tasks=("transcribe",),
            language_from=language_from,
            cut_rule=CutRule(size, size // 2),
            bytes_of=lambda token_id: bytes([token_id]),
        )

    def features(self) -> _Features:
        return _Features()

    def silence(self, num_samples: int) -> RangeAnswer:
        return RangeAnswer()

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        await trio.lowlevel.checkpoint()
        said = self._said(items)
        shares = self.detect(said)
        whole = 1.0
        if allowed:
            shares = {code: shares.get(code, 0.0) for code in allowed}
            whole = sum(shares.values()) or 1.0
        code = max(shares, key=lambda each: shares[each])
        probability = shares[code] / whole
        return DetectedLanguage(code, probability, in_halves=self.in_halves)

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        await trio.lowlevel.checkpoint()
        self.asked.append((self._range(items), request))
        return self.hear(self._said(items), request)

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        """Each sentence of the answer is found once, the earliest first."""
        await trio.lowlevel.checkpoint()
        start = self._range(items)[0]
        words: list[Word] = []
        rest = answer.text
        for said in self._said(items):
            if not rest.startswith(said.text):
                continue
            rest = rest[len(said.text) :].lstrip()
            place_s = (said.start - start) / RATE
            lengths = [spoken_length_s(word) for word in said.text.split()]
            share = (said.end - said.start) / RATE / sum(lengths)
            for word, length in zip(said.text.split(), lengths, strict=True):
                words.append(Word(word, round(place_s, 3), round(place_s + length * share, 3)))
                place_s += length * share
        return tuple(words)

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        return answer.token_ids

    def _range(self, items: Sequence[EncoderItem]) -> Range:
        start, end = items[0].content_hash.split()
        return int(start), int(end)

    def _said(self, items: Sequence[EncoderItem]) -> list[Said]:
        start, end = self._range(items)
        return [each for each in self.talk.said if start <= (each.start + each.end) // 2 < end]


def first_language(said: list[Said]) -> dict[str, float]:
    """What is said first decides, as it mostly does, surely; what else is said is the next likely."""
    first, *others = [each.language for each in said] or ["en"]
    return {**dict.fromkeys(others, 0.05), first: 0.95}
