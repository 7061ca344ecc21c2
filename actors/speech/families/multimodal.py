"""Audio language models as speech families: a prompt with the range asks for its transcript.

The model's family has the prompt and the languages
(`engine/models/multimodal/family.py: TranscriptionRule`). Answers have no header, no language and no times:
the audio has those. Read `actors/speech/families/qwen3_asr.py` for how answers grow, which is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import numpy as np

from ....engine.models.info import ModelInfo
from ....engine.models.multimodal.side import TranscriptionPrompts
from ....engine.models.prompts import Prompt
from ....engine.text.token_text import TokenText
from ....media.speech.word_times import time_words
from ....media.transcript.answer_guard import (
    TOKENS_UNREAD,
    LoopGuard,
    cut_loops,
    speaking_time_s,
    spoken_part,
    token_budget,
)
from ....media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from ....media.transcript.segments import spoken_tokens
from ....protocols.engine.messages import (
    EncoderItem,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TextGenerated,
)
from ....protocols.errors import BadRequestError, ModelLoadError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.transcript import SpokenText, TokenLogProb, TranscriptionOptions, Word
from ...inference.client import EngineClient
from ...media_decoding.audio_items import AudioItems
from ...runtime.compute_pool import compute
from .family import CutRule, FamilyFacts, RangeRequest, collect, token_logprobs, with_options

RANGE_S: Final = 30
"""Longest range: a whole window of the extractor that all of these have."""
_SEARCH_S: Final = 10
_LEAST_S: Final = 4
"""A model whose context has no room for so much does not transcribe."""


def open_family(engine: EngineClient, info: ModelInfo, prompts: TranscriptionPrompts) -> AudioLm:
    """The speech side of a checkpoint. Raises ModelLoadError naming the file at fault, or the context."""
    audio = prompts.media.audio
    assert audio is not None, "it transcribes"
    return AudioLm(engine, info, prompts, AudioItems(audio, info))


class AudioLm:
    """One checkpoint (a `SpeechFamily`)."""

    def __init__(
        self, engine: EngineClient, info: ModelInfo, prompts: TranscriptionPrompts, audio: AudioItems
    ) -> None:
        self.engine = engine
        self._prompts = prompts
        self._audio = audio
        self._max_context = info.max_context
        self._folder = info.folder
        size = self._longest_s() * INTERNAL_RATE
        self.facts = FamilyFacts(
            languages=prompts.rule.languages,
            tasks=("transcribe",),
            language_from="answer",
            cut_rule=CutRule(size, min(size // 2, _SEARCH_S * INTERNAL_RATE)),
            bytes_of=TokenText(prompts.text).bytes_of,
        )

    def _longest_s(self) -> int:
        """Seconds of a range that leave room for their transcript."""
        seconds = int(min(RANGE_S, self._audio.max_seconds))
        while seconds >= _LEAST_S:
            items = self._audio.items(np.zeros(seconds * INTERNAL_RATE, np.float32))
            num_prompt = len(self._prompts.prompt(items, None).token_ids)
            if num_prompt + token_budget(seconds) <= self._max_context:
                return seconds
            seconds //= 2
        raise ModelLoadError(
            f"{self._folder}: a context of {self._max_context} tokens has no room for {_LEAST_S} s of audio "
            "and their transcript; raise --max-context"
        )

    def features(self) -> _Clip:
        """The features of a range, of which nothing is known yet."""
        return _Clip(self._audio)

    def silence(self, num_samples: int) -> RangeAnswer:
        """No text."""
        return RangeAnswer()

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        """Raises BadRequestError: the model is not made to name languages."""
        raise BadRequestError(
            "this model does not detect languages: give one as `language`, or none",
            param="languages",
            code="unsupported_parameter",
        )

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        """What was said in the range."""
        options = request.options
        _check_hints(options)
        prompt = await compute(self._prompts.prompt, items, request.language)
        duration_s = request.num_samples / INTERNAL_RATE
        sampling = SamplingParams(
            max_tokens=min(token_budget(duration_s), self._max_context - len(prompt.token_ids)),
            temperature=options.temperature,
            seed=options.seed,
            stop_token_ids=self._prompts.stop_token_ids,
            logprobs=0,
        )
        sampling = with_options(sampling, options, num_prompt=len(prompt.token_ids))
        draft = () if request.previous is None else request.previous.token_ids[: sampling.max_tokens]
        stride = TOKENS_UNREAD if on_text is None else 1
        generate = Request(
            RequestId(f"decode-{uuid4().hex}"),
            prompt.token_ids,
            Sample(sampling, draft_token_ids=draft, tokens_a_message=stride),
            media=prompt.spans,
            session=request.session,
            lane=request.lane,
        )
        growing = _Growing(self, request.most_s, on_text, has_tokens=options.logprobs)
        async with self.engine.placed(
            prompt.items, request.session, prompt.token_ids, lane=request.lane
        ) as place:
            await collect(place, generate, sampling.num_beams, growing.add)
        return self._answer(growing, prompt, options)

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        """By the audio alone."""
        return await compute(time_words, answer.text, samples, speech)

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        """All of them, unless a loop was cut."""

        def encode(text: str) -> tuple[int, ...]:
            return self._prompts.text.encode(text, allow_special=False)

        return spoken_tokens(answer, answer.token_ids, decode=self._prompts.text.decode, encode=encode)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer's tokens."""
        return self._prompts.text.decode(token_ids)

    def token_logprobs(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> tuple[TokenLogProb, ...]:
        """Tokens of a text with their logarithms of probability."""
        return tuple(token_logprobs(self.facts.bytes_of, token_ids, logprobs))

    def _answer(self, growing: _Growing, prompt: Prompt, options: TranscriptionOptions) -> RangeAnswer:
        said = growing.raw.strip()
        text = spoken_part(cut_loops(said), growing.most_s)
        token_ids, logprobs = tuple(growing.token_ids), tuple(growing.logprobs)
        return RangeAnswer(
            text=text,
            token_ids=token_ids,
            logprobs=logprobs if text else (),
            tokens=self.token_logprobs(token_ids, logprobs) if options.needs_tokens and text else (),
            no_speech_prob=0.0 if text else 1.0,
            temperature=options.temperature,
            num_input_tokens=len(prompt.token_ids),
            num_audio_tokens=sum(span.num_tokens for span in prompt.spans),
            num_output_tokens=len(token_ids),
            is_cut=bool(text) and (growing.is_over or text != said),
        )


def _check_hints(options: TranscriptionOptions) -> None:
    """Raise BadRequestError naming the field for hints, for which these models' prompts have no place."""
    for name in ("prompt", "keywords"):
        if getattr(options, name):
            raise BadRequestError(
                f"this model transcribes by a fixed prompt: leave out `{name}`, or use a chat with an "
                "`input_audio` part",
                param=name,
                code="unsupported_parameter",
            )


@dataclass(slots=True)
class _Clip:
    """The samples of a range (a `GrowingFeatures`); items are made of all of them, and those that stay the
    same are found again by their hash."""

    audio: AudioItems
    _samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))

    @property
    def num_samples(self) -> int:
        return len(self._samples)

    @property
    def num_rewind_samples(self) -> int:
        return 0

    def append(self, samples: Samples, /) -> None:
        self._samples = np.concatenate((self._samples, samples))

    def rewind(self, num_samples: int, last: Samples, /) -> None:
        self._samples = self._samples[:num_samples]

    def items(self) -> tuple[EncoderItem, ...]:
        return self.audio.items(self._samples)


@dataclass(slots=True)
class _Growing:
    """An answer while it comes. It ends where it becomes a loop, or longer than can be said."""

    family: AudioLm
    most_s: float
    on_text: Callable[[str], None] | None
    has_tokens: bool
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    raw: str = ""
    is_over: bool = False
    _num_shown: int = 0
    """Characters of the text that were passed to `on_text`."""
    _num_passed: int = 0
    """Tokens that were."""
    _guard: LoopGuard = field(default_factory=LoopGuard)

    def add(self, part: TextGenerated) -> bool:
        """More of it; whether it is over."""
        self.token_ids += part.token_ids
        self.logprobs += part.logprobs
        end = self._guard.feed(part.token_ids)
        self.raw += part.text
        if end is not None:
            del self.token_ids[end:], self.logprobs[end:]
            self.raw = self.family.decode(self.token_ids)
        text = self.raw.strip()
        is_too_long = speaking_time_s(text) > self.most_s
        if self.on_text is not None and not is_too_long and len(text) > self._num_shown:
            tokens: tuple[TokenLogProb, ...] = ()
            if self.has_tokens:
                first, self._num_passed = self._num_passed, len(self.token_ids)
                tokens = self.family.token_logprobs(self.token_ids[first:], self.logprobs[first:])
            self.on_text(SpokenText(text[self._num_shown :], tokens))
            self._num_shown = len(text)
        self.is_over = end is not None or is_too_long
        return self.is_over
