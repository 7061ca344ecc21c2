"""The tokens of one stream as text, words with times and a language, as they come.

All of it grows at its end only: what a stream has given is final. A tag that names a language is never in the
text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec
from msgspec import UNSET

from ....engine.text.text_decoder import WindowedDecoder
from ....media.transcript.range_answer import RangeAnswer
from ....media.transcript.segments import sentences
from ....protocols.engine.messages import Transduced
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.shared.scripts import is_unspaced
from ....protocols.transcription.transcript import (
    Segment,
    TokenLogProb,
    Transcript,
    TranscriptionOptions,
    Word,
)
from ...inference.fed_runs import unanswered
from .family import TokenFamily, TokenText


class PlacedToken(NamedTuple):
    """A token, and the frame at which it was given."""

    token_id: int
    frame: int
    end: int
    """Behind the last frame that says it."""
    logprob: float


def placed_tokens(event: Transduced) -> Iterable[PlacedToken]:
    """Those of an answer."""
    logprobs = event.logprobs or (0.0,) * len(event.token_ids)
    ends = event.ends or tuple(frame + 1 for frame in event.frames)
    return map(PlacedToken, event.token_ids, event.frames, ends, logprobs)


@dataclass(slots=True)
class _SpokenWord:
    """One word, and what it is made of."""

    token_ids: list[int]
    start: int
    """The frame of its first token."""
    end: int
    """Behind the last frame of its last token."""
    logprobs: list[float]


@dataclass(slots=True)
class TokenReader:
    """What a stream has given so far (a `StreamReader`)."""

    family: TokenFamily
    options: TranscriptionOptions
    origin: int = 0
    """The sample of the stream at which times are 0."""
    num_rows: int = 0
    """Frames of the encoder that are answered."""
    is_over: bool = False
    """The last chunk was answered."""
    text: str = ""
    """As far as its characters are whole."""
    _decoder: WindowedDecoder = field(init=False)
    _token_ids: list[int] = field(default_factory=list)
    """Those of the text."""
    _logprobs: list[float] = field(default_factory=list)
    _tokens: list[TokenLogProb] = field(default_factory=list)
    """Of the text, if the options need them."""
    _spoken: list[_SpokenWord] = field(default_factory=list)
    _words: list[Word] = field(default_factory=list)
    """All but the last, which may go on."""
    _tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._decoder = WindowedDecoder(self.family.text.decode)

    @property
    def resume_row(self) -> int:
        """Its beginning: who asks has all of the audio."""
        return 0

    def copy(self) -> Self:
        """One that goes on from here by itself."""
        made = copy(self)
        made._decoder = copy(self._decoder)
        made._token_ids, made._logprobs = list(self._token_ids), list(self._logprobs)
        made._spoken, made._words = [copy(each) for each in self._spoken[-1:]], list(self._words)
        if made._spoken:
            made._spoken[0].token_ids = list(made._spoken[0].token_ids)
            made._spoken[0].logprobs = list(made._spoken[0].logprobs)
        made._tokens, made._tags = list(self._tokens), list(self._tags)
        return made

    def push(self, event: Transduced) -> str:
        """Take what a chunk brought, but for what the stream has from before an eviction; the text that it
        adds."""
        event, before = unanswered(event, self.num_rows), len(self.text)
        self.take(placed_tokens(event))
        self.num_rows = max(self.num_rows, event.num_frames)
        if event.finish_reason is not None:
            self.finish()
        return self.text[before:]

    def take(self, tokens: Iterable[PlacedToken]) -> None:
        """More tokens."""
        fresh = list[int]()
        for token_id, frame, end, logprob in tokens:
            if (tag := self.family.text.tags.get(token_id)) is not None:
                self._tags.append(tag.partition("-")[0])
                continue
            if self.options.needs_tokens:
                self._tokens.append(self._token(token_id, logprob))
            self._token_ids.append(token_id)
            self._logprobs.append(logprob)
            self._place(token_id, frame, end, logprob)
            fresh.append(token_id)
        self.text += self._decoder.push(fresh)

    def finish(self) -> None:
        """No token follows."""
        self.is_over = True
        self.text += self._decoder.flush()

    def transcript(self, num_samples: int, *, num_settled: int = 0) -> Transcript:
        """What was said in so many samples; `num_settled` characters of it are final."""
        text = self.text.strip()
        languages = tuple(dict.fromkeys(self._tags))
        language = self.options.language or (
            self.family.languages[0] if self._is_monolingual and text else ""
        )
        if languages:
            language = max(languages, key=self._tags.count)
        elif language and text:
            languages = (language,)
        duration_s = num_samples / INTERNAL_RATE
        words = self.words(duration_s)
        return Transcript(
            text=text,
            language=language,
            duration=duration_s,
            languages=languages,
            language_probability=1.0 if language else 0.0,
            words=words,
            num_input_tokens=self.num_rows,
            num_output_tokens=len(self._token_ids),
            avg_logprob=sum(self._logprobs) / len(self._logprobs) if self._logprobs else None,
            no_speech_prob=0.0 if text else 1.0,
            tokens=tuple(self._tokens),
            num_audio_tokens=self.num_rows,
            num_settled=num_settled,
        )

    def final(self, num_samples: int, *, num_settled: int = 0) -> Transcript:
        """The same if no token follows: with segments where the options want them."""
        transcript = self.transcript(num_samples, num_settled=num_settled)
        if not self.options.segment_timestamps:
            return transcript
        return msgspec.structs.replace(transcript, segments=self.segments(num_samples / INTERNAL_RATE))

    def words(self, duration_s: float) -> tuple[Word, ...]:
        """The words so far, within so many seconds; the last may go on."""
        last = (self._word(self._spoken[-1]),) if self._spoken else ()
        found = (*self._words, *(each for each in last if each.word))
        if found and found[-1].end > duration_s:
            end = max(duration_s, found[-1].start)
            found = (*found[:-1], msgspec.structs.replace(found[-1], end=round(end, 3)))
        return found

    def segments(self, duration_s: float) -> tuple[Segment, ...]:
        """The sentences so far, by their words' times."""
        text = self.text.strip()
        answer = RangeAnswer(text=text, logprobs=tuple(self._logprobs), no_speech_prob=0.0 if text else 1.0)
        found = sentences(
            answer,
            self.words(duration_s),
            token_ids=self._token_ids,
            bytes_of=self.family.text.bytes_of,
            start_s=0.0,
            duration_s=duration_s,
            layout=self.options.cue_layout,
        )
        language = self._tags[-1] if self._tags else self.options.language or UNSET
        return tuple(msgspec.structs.replace(each, language=language) for each in found)

    def tokens_from(self, number: int) -> tuple[TokenLogProb, ...]:
        """Those of the text from a number on, if the options need them; the bytes of all join to the text."""
        return tuple(self._tokens[number:])

    def _token(self, token_id: int, logprob: float) -> TokenLogProb:
        text, data = self.family.text.decode((token_id,)), self.family.text.bytes_of(token_id)
        if self._token_ids and self.family.text.begins_word(token_id):
            text, data = " " + text, b" " + data
        return TokenLogProb(text, data, logprob)

    @property
    def _is_monolingual(self) -> bool:
        return len(self.family.languages) == 1

    def _place(self, token_id: int, frame: int, end: int, logprob: float) -> None:
        text = self.family.text
        if not self._spoken or text.begins_word(token_id) or _is_word(text, token_id):
            if self._spoken:
                word = self._word(self._spoken.pop())
                self._words += [word] if word.word else []
            self._spoken.append(_SpokenWord([token_id], frame, end, [logprob]))
        else:
            self._spoken[-1].token_ids.append(token_id)
            self._spoken[-1].logprobs.append(logprob)
            self._spoken[-1].end = end

    def _word(self, spoken: _SpokenWord) -> Word:
        text = self.family.text.decode(spoken.token_ids).strip()
        probability = sum(map(math.exp, spoken.logprobs)) / len(spoken.logprobs)
        return Word(
            text,
            self._seconds(spoken.start),
            self._seconds(spoken.end),
            round(min(1.0, probability), 4),
        )

    def _seconds(self, frame: int) -> float:
        """Where a frame begins; counted in samples, which after hours are as exact as at first."""
        return round((frame * self.family.row_samples - self.origin) / INTERNAL_RATE, 3)


def _is_word(text: TokenText, token_id: int) -> bool:
    """Whether it begins with a character of a script that has no spaces."""
    first: Sequence[str] = text.decode((token_id,))[:1]
    return bool(first) and is_unspaced(first[0])
