"""A speech family without a model: it says what a script has for the audio, and remembers what it was asked.

The value of a range's first sample, counted from 1, is its place in the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import trio
from sensorium.actors.speech.families.family import CutRule, FamilyFacts, LanguageSource, RangeRequest
from sensorium.media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features, Lane, SessionKey
from sensorium.protocols.transcription.transcript import Word

RANGE_SAMPLES = 16_000


def scripted_audio(*places: int) -> Samples:
    """A second each of what the script has there; 0 is silence."""
    return np.repeat(np.asarray(places, np.float32), RANGE_SAMPLES)


class ScriptedFeatures:
    """Keeps the first sample, which is all that counts."""

    num_rewind_samples = 1

    def __init__(self, family: ScriptedFamily) -> None:
        self.num_samples = 0
        self._family = family
        self._first = 0

    def append(self, samples: Samples) -> None:
        self._family.while_looking()
        self._family.num_looked_at += len(samples)
        if self.num_samples == 0:
            self._first = int(samples[0])
        self.num_samples += len(samples)

    def rewind(self, num_samples: int, last: Samples) -> None:
        self.num_samples = num_samples

    def items(self) -> tuple[EncoderItem, ...]:
        return (EncoderItem(ContentHash(str(self._first)), Features(shape=(1,), data=b"")),)


class ScriptedEngine:
    """Sessions that were closed."""

    def __init__(self) -> None:
        self.closed: list[SessionKey] = []

    def close_session(self, session: SessionKey) -> None:
        self.closed.append(session)


class ScriptedFamily:
    """Says `(language, text)` of each range; its language is as clear as `probability` says of its length."""

    def __init__(
        self,
        *said: tuple[str | None, str],
        language_from: LanguageSource = "answer",
        probability: Callable[[float], float] = lambda _: 0.9,
    ) -> None:
        self.said = said
        self.probability = probability
        self.in_halves: Callable[[float], float] = lambda _: 1.0
        """Of so many seconds, how sure it is of their language in the less sure half."""
        self.while_looking: Callable[[], object] = lambda: None
        """Called in the thread that looks at audio."""
        self.engine: Any = ScriptedEngine()
        self.facts = FamilyFacts(
            languages=("en", "de", "fr", "pl", "zh"),
            tasks=("transcribe",),
            language_from=language_from,
            cut_rule=CutRule(RANGE_SAMPLES, 0),
            bytes_of=lambda token_id: b"x",
            takes_previous_text=True,
        )
        self.asked: list[tuple[int, str | None]] = []
        """Place in the script and language of every answer."""
        self.previous_transcript: dict[int, list[str]] = {}
        """By place in the script, what it was asked with."""
        self.misled: dict[int, str] = {}
        """What is said instead, with something before."""
        self.detected: list[int] = []
        self.timed: list[int] = []
        self.previous: list[tuple[int, ...]] = []
        self.lanes: list[Lane] = []
        self.sessions: set[SessionKey] = set()
        self.num_looked_at = 0

    def features(self) -> ScriptedFeatures:
        return ScriptedFeatures(self)

    def silence(self, num_samples: int) -> RangeAnswer:
        return RangeAnswer()

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        await trio.lowlevel.checkpoint()
        place = self._place(items)
        self.detected.append(place)
        code = self.said[place][0] or "en"
        if allowed and code not in allowed:
            code = allowed[0]
        return DetectedLanguage(
            code,
            self._clear(request),
            is_speech=bool(self.said[place][1]),
            in_halves=self.in_halves(request.num_samples / RANGE_SAMPLES),
        )

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        await trio.lowlevel.checkpoint()
        place = self._place(items)
        self.asked.append((place, request.language))
        self.previous.append(request.previous.token_ids if request.previous else ())
        self.lanes.append(request.lane)
        self.sessions.update([request.session] if request.session else [])
        language, text = self.said[place]
        self.previous_transcript.setdefault(place, []).append(request.previous_transcript)
        if request.previous_transcript or (request.has_context and request.options.prompt):
            text = self.misled.get(place, text)
        for letter in text if on_text is not None else ():
            await trio.lowlevel.checkpoint()
            assert on_text is not None
            on_text(letter)
        is_told = self.facts.language_from == "answer" and request.language is None and language is not None
        return RangeAnswer(
            text=text,
            language=DetectedLanguage(language, self._clear(request)) if is_told and language else None,
            token_ids=(place, request.num_samples),
        )

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        self.timed.append(len(samples))
        return (Word(answer.text, 0.0, len(samples) / 16_000),)

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        return answer.token_ids

    def _place(self, items: Sequence[EncoderItem]) -> int:
        return int(items[0].content_hash) - 1

    def _clear(self, request: RangeRequest) -> float:
        return self.probability(request.num_samples / 16_000)
