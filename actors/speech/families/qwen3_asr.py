"""Qwen3-ASR as a speech family: a range is an utterance of several encoder windows, and names its language.

An answer begins with a header that names the language, unless that is forced. Of a range that grows, keys
and values of all in front of the open window stay with the engine (`Request.session`). The model gives no
times: the audio does. Read `engine/models/qwen3_asr/text.py` for prompts and tokens,
`actors/speech/recipe.py` for who asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import uuid4

from ....engine.models.info import ModelInfo
from ....engine.models.prompts import Prompt
from ....engine.models.qwen3_asr.text import AnswerReader, Qwen3AsrText, language_code, parse_answer
from ....engine.planning.kv.parked import shared_length
from ....engine.text.token_text import TokenText
from ....media.audio.encoder_windows import WindowedLogMel
from ....media.audio.features import FeatureConfig
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
    SampleRequest,
    SamplingParams,
    TextGenerated,
)
from ....protocols.errors import BadRequestError, InternalError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.transcript import SpokenText, TokenLogProb, TranscriptionOptions, Word
from ...inference.client import EngineClient, Place, whole_answer
from ...runtime.compute_pool import compute
from ...runtime.off_loop import off_loop
from .family import (
    CutRule,
    FamilyFacts,
    RangeRequest,
    check_answered,
    collect,
    likelier_words,
    size_of_hints,
    token_logprobs,
    with_options,
)

RANGE_S: Final = 64
"""Longest range. The models take more at once, but an update of a live turn costs what its range does."""
_ROOM_FOR_CONTEXT: Final = 256
"""Tokens of a small context that are left for the prompt's text; a range is shorter if need be."""


def open_family(engine: EngineClient, info: ModelInfo, text: Qwen3AsrText) -> Qwen3Asr:
    """The speech side of a checkpoint. Raises ModelLoadError naming the file at fault.

    `info.max_context` is what is served of the model's.
    """
    num_mel_bins = text.info.num_mel_bins
    features = FeatureConfig.from_folder(info.folder, info.extractors, num_mel_bins=num_mel_bins)
    return Qwen3Asr(engine, text, features, max_context=info.max_context)


class Qwen3Asr:
    """One checkpoint (a `SpeechFamily`)."""

    def __init__(
        self, engine: EngineClient, text: Qwen3AsrText, features: FeatureConfig, *, max_context: int
    ) -> None:
        """`max_context` is what is served of the model's."""
        self.engine = engine
        self.text = text
        self._features = features
        self._window_samples = text.info.window_frames * features.hop_length
        self._window_tokens = text.info.num_tokens(text.info.window_frames)
        self._max_context = max_context
        self.facts = FamilyFacts(
            languages=text.info.languages,
            tasks=("transcribe",),
            language_from="answer",
            cut_rule=self._cut_rule(),
            bytes_of=TokenText(text.tokenizer).bytes_of,
            searches=True,
        )

    def _cut_rule(self) -> CutRule:
        """As many whole windows as the context has room for."""
        window_s = self._window_samples / INTERNAL_RATE
        num_windows = max(1, int(RANGE_S / window_s))
        while num_windows > 1 and (
            num_windows * self._window_tokens + token_budget(num_windows * window_s) + _ROOM_FOR_CONTEXT
            > self._max_context
        ):
            num_windows -= 1
        return CutRule(num_windows * self._window_samples, self._window_samples // (1 + (num_windows == 1)))

    def features(self) -> WindowedLogMel:
        """The features of an utterance, of which nothing is known yet."""
        info = self.text.info
        return WindowedLogMel(self._features, window_frames=info.window_frames, num_tokens=info.num_tokens)

    def silence(self, num_samples: int) -> RangeAnswer:
        """No text."""
        return RangeAnswer()

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        """Which of `allowed` the range is in (all known ones if none are named), by the likeliest of their
        names' tokens."""
        build = partial(self.text.question, items, context=_context(request.options))
        question = await off_loop(build, size=size_of_hints(request.options))
        self._check_length(question, request.options)
        starts = {code: self.text.answer_start(code) for code in allowed or self.facts.languages}
        probability = 1.0
        while len(starts) > 1:
            first, *others = starts.values()
            length = min(shared_length(first, other) for other in others)
            if any(len(ids) == length for ids in starts.values()):
                break  # one name begins another: not so in any published vocabulary
            sampling = SamplingParams(
                max_tokens=1,
                allowed_token_ids=tuple(sorted({ids[length] for ids in starts.values()})),
                logprobs=0,
            )
            generate = _generate("choose", question + first[:length], sampling, request)
            async with self._placed(question, request) as place:
                answer = await whole_answer(place, generate)
            check_answered(answer)
            if not answer.token_ids:
                raise InternalError("the language of the audio could not be detected")
            probability *= math.exp(answer.logprobs[0])
            starts = {code: ids for code, ids in starts.items() if ids[length] == answer.token_ids[0]}
        return DetectedLanguage(next(iter(starts)), probability)

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        """What was said in the range, with the header in `token_ids` even where it was forced."""
        language, options = request.language, request.options
        context = _context(options) if request.has_context else ""
        build = partial(self.text.prompt, items, context=context, language=language)
        prompt = await off_loop(build, size=size_of_hints(options))
        expect = partial(self.text.phrases, *likelier_words(options))
        self._check_length(prompt, options)
        draft = () if request.previous is None else request.previous.token_ids
        if language is not None:
            draft = draft[self.text.num_header(draft) :]
        duration_s = request.num_samples / INTERNAL_RATE
        sampling = SamplingParams(
            max_tokens=min(token_budget(duration_s), self._max_context - len(prompt.token_ids)),
            temperature=options.temperature,
            seed=options.seed,
            stop_token_ids=self.text.info.stop_token_ids,
            phrases=await off_loop(expect, size=size_of_hints(options)),
            logprobs=0,
        )
        sampling = with_options(sampling, options, num_prompt=len(prompt.token_ids))
        draft = draft[: sampling.max_tokens]
        stride = TOKENS_UNREAD if on_text is None else 1
        generate = _generate("decode", prompt, sampling, request, draft=draft, stride=stride)
        growing = _Growing(
            self.text,
            request.most_s,
            has_header=language is None,
            on_text=on_text,
            tokens_of=self._token_logprobs if options.logprobs else None,
        )
        async with self._placed(prompt, request) as place:
            await collect(place, generate, sampling.num_beams, growing.add)
        header = () if language is None else self.text.header(language)
        answer = self._answer(growing, header, prompt, has_tokens=options.needs_tokens)
        return replace(answer, temperature=options.temperature)

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
        """Those behind the header, unless a loop was cut."""
        return spoken_tokens(
            answer,
            answer.token_ids[answer.num_header :],
            decode=self.text.tokenizer.decode,
            encode=partial(self.text.tokenizer.encode, allow_special=False),
        )

    def _placed(self, prompt: Prompt, request: RangeRequest) -> AbstractAsyncContextManager[Place]:
        return self.engine.placed(prompt.items, request.session, prompt.token_ids, lane=request.lane)

    def _answer(
        self, growing: _Growing, header: tuple[int, ...], prompt: Prompt, *, has_tokens: bool
    ) -> RangeAnswer:
        parsed = parse_answer(growing.raw, has_header=growing.has_header)
        num_header = self.text.num_header(growing.token_ids) if growing.has_header else 0
        code = language_code(parsed.language)
        probability = math.exp(sum(growing.logprobs[: max(0, num_header - 1)]))
        text = spoken_part(cut_loops(parsed.text), growing.most_s)
        token_ids, logprobs = (*header, *growing.token_ids), tuple(growing.logprobs[num_header:])
        text_ids = token_ids[len(header) + num_header :]
        return RangeAnswer(
            text=text,
            language=None if code is None else DetectedLanguage(code, probability),
            token_ids=token_ids,
            num_header=len(header) + num_header,
            logprobs=logprobs if text else (),
            tokens=tuple(self._token_logprobs(text_ids, logprobs)) if has_tokens and text else (),
            no_speech_prob=0.0 if text else 1.0,
            num_input_tokens=len(prompt.token_ids),
            num_audio_tokens=sum(span.num_tokens for span in prompt.spans),
            num_output_tokens=len(growing.token_ids),
            is_cut=bool(text) and (growing.is_over or text != parsed.text),
        )

    def _token_logprobs(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> Iterator[TokenLogProb]:
        return token_logprobs(self.facts.bytes_of, token_ids, logprobs)

    def _check_length(self, prompt: Prompt, options: TranscriptionOptions) -> None:
        """Refuse hints which, with the rest of the prompt beside the audio, take too many tokens.

        For the longest range, whatever this one's length: a live turn must not fail because it grows.
        """
        num_tokens = len(prompt.token_ids) - sum(span.num_tokens for span in prompt.spans)
        longest = self.facts.cut_rule.size
        num_audio = round(longest / self._window_samples) * self._window_tokens
        room = self._max_context - num_audio - token_budget(longest / INTERNAL_RATE) // 2
        if num_tokens > room:
            raise BadRequestError(
                f"prompt and keywords are too long: {num_tokens:,} tokens, where audio and answer leave "
                f"{max(0, room):,} of {self._max_context:,}",
                param="prompt" if options.prompt else "keywords",
                code="context_length_exceeded",
            )


@dataclass(slots=True)
class _Growing:
    """An answer while it comes. It ends where it becomes a loop, whatever comes at once."""

    text: Qwen3AsrText
    most_s: float
    """What takes longer to say is left out."""
    has_header: bool
    on_text: Callable[[str], None] | None
    tokens_of: Callable[[Sequence[int], Sequence[float]], Iterator[TokenLogProb]] | None = None
    """Where each piece of text comes with its tokens."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    raw: str = ""
    is_over: bool = False
    """Whether it was left where it became a loop, or longer than can be said."""
    _spoken_s: float = 0.0
    _num_passed: int = 0
    """Tokens that were passed to `on_text`, and those of the header."""
    _guard: LoopGuard = field(default_factory=LoopGuard)
    _reader: AnswerReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = AnswerReader(has_header=self.has_header)

    def add(self, part: TextGenerated) -> bool:
        """More of it; whether it is over."""
        self.token_ids += part.token_ids
        self.logprobs += part.logprobs
        fresh = part.text
        end = self._guard.feed(part.token_ids)
        if end is not None:
            del self.token_ids[end:], self.logprobs[end:]
            fresh = self.text.tokenizer.decode(self.token_ids)[len(self.raw) :]
        self.raw += fresh
        shown = self._reader.feed(fresh)
        self._spoken_s += speaking_time_s(shown)
        is_too_long = self._spoken_s > self.most_s
        if self.on_text is not None and not is_too_long:
            self.on_text(SpokenText(shown, self._fresh_tokens()))
        self.is_over = end is not None or is_too_long
        return self.is_over

    def _fresh_tokens(self) -> Iterator[TokenLogProb]:
        """Those of the text that were not passed on yet."""
        num_header = self.text.num_header(self.token_ids) if self.has_header else 0
        if self.tokens_of is None or (self.has_header and not num_header):
            return
        start, self._num_passed = max(self._num_passed, num_header), len(self.token_ids)
        yield from self.tokens_of(self.token_ids[start:], self.logprobs[start:])


def _generate(
    kind: str,
    prompt: Prompt,
    sampling: SamplingParams,
    request: RangeRequest,
    *,
    draft: tuple[int, ...] = (),
    stride: int = 1,
) -> SampleRequest:
    return Request(
        RequestId(f"{kind}-{uuid4().hex}"),
        prompt.token_ids,
        Sample(sampling, draft_token_ids=draft, tokens_a_message=stride),
        media=prompt.spans,
        session=request.session,
        lane=request.lane,
    )


def _context(options: TranscriptionOptions) -> str:
    """What the model is told of the audio: the words to expect, then the prompt."""
    return "\n".join(part for part in (", ".join(options.keywords), options.prompt) if part.strip())
