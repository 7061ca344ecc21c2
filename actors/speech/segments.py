"""One segment of speech for Qwen3-ASR: which language it is in, and what was said.

A segment is an utterance to the model: several encoder windows in one prompt. The unit that files
(`actors/speech/asr.py`) and live turns (`actors/speech/live_asr.py`) share, so that both give the same answer
for the same samples. It asks the engine (`actors/engine/engine.py`) and the text side
(`engine/models/qwen3_asr/text.py`); it knows neither sockets nor how a segment came to be cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

from ...engine.models.qwen3_asr.text import (
    AnswerReader,
    Qwen3AsrPrompt,
    Qwen3AsrText,
    language_code,
    parse_answer,
)
from ...engine.models.qwen3_asr.windows import num_audio_tokens
from ...engine.planning.parked import shared_length
from ...engine.text.token_text import TokenText
from ...media.features import FeatureConfig
from ...media.windows import WindowedLogMel
from ...protocols.errors import BadRequestError, InternalError
from ...protocols.messages import (
    EncoderItem,
    Generate,
    Lane,
    RequestId,
    SamplingParams,
    SessionKey,
    TextGenerated,
)
from ...protocols.transcript import TokenLogProb, TranscriptionOptions
from ..engine.engine import Engine
from .answer_guard import LoopGuard, cut_loops, token_budget
from .model import Samples
from .recording import CutRule, check_answered

SEGMENT_S: Final = 64
"""Longest segment. The models take more at once, but an update of a live turn costs what its segment does."""
_ROOM_FOR_CONTEXT: Final = 256
"""Tokens of a small context that are left for the prompt's text; a segment is shorter if need be."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The language of a segment, as code, and how sure the model was."""

    language: str
    probability: float


@dataclass(frozen=True, slots=True)
class SegmentAnswer:
    """What the model said about one segment. Silence has no tokens."""

    text: str = ""
    """Without header, white space around it and loops."""
    choice: Choice | None = None
    """What the answer says of its language, unless that was forced."""
    token_ids: tuple[int, ...] = ()
    """Whole, with the header even where that was forced: a draft for the next request."""
    num_header: int = 0
    """Tokens before the text."""
    logprobs: tuple[float, ...] = ()
    """Of the tokens behind the header."""
    num_generated: int = 0
    num_prompt: int = 0

    @property
    def text_ids(self) -> tuple[int, ...]:
        """The tokens behind the header."""
        return self.token_ids[self.num_header :]


SILENCE: Final = SegmentAnswer()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWish:
    """How a segment is to be answered."""

    options: TranscriptionOptions
    language: str | None
    """A code to force."""
    draft: tuple[int, ...] = ()
    """A whole answer, as a guess that makes this one cheaper and changes nothing."""
    session: SessionKey | None = None
    lane: Lane


class SegmentDecoder:
    """Answers questions about segments with one model.

    Every question takes the segment's windows and holds references on their encodings while it works;
    cancelling gives those and the blocks back. Errors are the engine's (`OverloadedError`,
    `UnavailableError`), `BadRequestError` for a language that is not known or a context that is too long,
    and `InternalError` if the model failed on this segment alone.
    """

    def __init__(
        self, engine: Engine, text: Qwen3AsrText, features: FeatureConfig, *, max_context: int
    ) -> None:
        """`max_context` is what is served of the model's."""
        self.engine = engine
        self.text = text
        self.features = features
        self.window_samples = text.info.window_frames * features.hop_length
        self._window_tokens = num_audio_tokens(text.info.window_frames, text.info.n_window)
        self._tokens = TokenText(text.tokenizer)
        self._max_context = max_context

    @property
    def cut_rule(self) -> CutRule:
        """How recordings are cut into segments: as many whole windows as the context has room for."""
        window_s = self.window_samples / self.features.sampling_rate
        num_windows = max(1, int(SEGMENT_S / window_s))
        while num_windows > 1 and (
            num_windows * self._window_tokens + token_budget(num_windows * window_s) + _ROOM_FOR_CONTEXT
            > self._max_context
        ):
            num_windows -= 1
        return CutRule(num_windows * self.window_samples, self.window_samples // (1 + (num_windows == 1)))

    def new_features(self) -> WindowedLogMel:
        """What cuts the growing audio of a segment into windows."""
        info = self.text.info
        num_tokens = partial(num_audio_tokens, n_window=info.n_window)
        return WindowedLogMel(self.features, window_frames=info.window_frames, num_tokens=num_tokens)

    def items(self, samples: Samples) -> tuple[EncoderItem, ...]:
        """The windows of a whole segment: about 1 ms a second of audio, meant for a thread."""
        features = self.new_features()
        features.append(samples)
        return tuple(change.item for change in features.changes())

    async def choose(
        self, items: Sequence[EncoderItem], languages: Sequence[str], wish: SegmentWish
    ) -> Choice:
        """Which of `languages` (codes) the segment is in, by the likeliest of their names' tokens."""
        question = self.text.question(items, context=context_of(wish.options))
        self._check_length(question, items, wish.options)
        starts = {code: self.text.answer_start(code) for code in languages}
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
            request = self._request("choose", question + first[:length], sampling, wish)
            async with self.engine.encoded(*_unique(items), lane=wish.lane):
                answer = await self.engine.complete(request)
            check_answered(answer)
            if not answer.token_ids:
                raise InternalError("the language of the audio could not be detected")
            probability *= math.exp(answer.logprobs[0])
            starts = {code: ids for code, ids in starts.items() if ids[length] == answer.token_ids[0]}
        return Choice(next(iter(starts)), probability)

    async def decode(
        self,
        items: Sequence[EncoderItem],
        wish: SegmentWish,
        *,
        duration_s: float,
        on_text: Callable[[str], None] | None = None,
    ) -> SegmentAnswer:
        """What was said in the segment. `on_text` gets the text as it grows, loops and all."""
        prompt = self.text.prompt(items, context=context_of(wish.options), language=wish.language)
        header = () if wish.language is None else self.text.header(wish.language)
        draft = wish.draft if wish.language is None else wish.draft[self.text.num_header(wish.draft) :]
        self._check_length(prompt, items, wish.options)
        room = self._max_context - len(prompt.token_ids)
        sampling = SamplingParams(
            max_tokens=min(token_budget(duration_s), room),
            temperature=wish.options.temperature,
            seed=wish.options.seed,
            stop_token_ids=self.text.info.stop_token_ids,
            logprobs=0,
        )
        request = self._request("decode", prompt, sampling, wish, draft=draft[: sampling.max_tokens])
        growing = _Growing(self.text, has_header=wish.language is None, on_text=on_text)
        async with (
            self.engine.encoded(*_unique(items), lane=wish.lane),
            self.engine.generate(request) as stream,
        ):
            async for part in stream:
                check_answered(part)
                if growing.add(part):
                    break
        return growing.answer(header, num_prompt=len(prompt.token_ids))

    def _check_length(
        self, prompt: Qwen3AsrPrompt, items: Sequence[EncoderItem], options: TranscriptionOptions
    ) -> None:
        """Refuse hints which, with the rest of the prompt beside the audio, take too many tokens.

        For the longest segment, whatever this one's length: a live turn must not fail because it grows.
        """
        num_tokens = len(prompt.token_ids) - sum(item.num_tokens for item in items)
        longest_s = self.cut_rule.size / self.features.sampling_rate
        num_audio = round(self.cut_rule.size / self.window_samples) * self._window_tokens
        room = self._max_context - num_audio - token_budget(longest_s) // 2
        if num_tokens > room:
            raise BadRequestError(
                f"prompt and keywords are too long: {num_tokens:,} tokens, where audio and answer leave "
                f"{max(0, room):,} of {self._max_context:,}",
                param="prompt" if options.prompt else "keywords",
                code="context_length_exceeded",
            )

    def token_logprobs(self, answer: SegmentAnswer) -> Iterator[TokenLogProb]:
        """Each token of the answer's text."""
        for token_id, logprob in zip(answer.text_ids, answer.logprobs, strict=False):
            data = self.bytes_of(token_id)
            yield TokenLogProb(data.decode("utf-8", errors="replace"), data, logprob)

    def bytes_of(self, token_id: int) -> bytes:
        """The text of a token, which need not be whole characters."""
        return self._tokens.bytes_of(token_id)

    def _request(
        self,
        kind: str,
        prompt: Qwen3AsrPrompt,
        sampling: SamplingParams,
        wish: SegmentWish,
        *,
        draft: tuple[int, ...] = (),
    ) -> Generate:
        return Generate(
            request_id=RequestId(f"{kind}-{uuid4().hex}"),
            prompt_token_ids=prompt.token_ids,
            sampling=sampling,
            media=prompt.spans,
            draft_token_ids=draft,
            session=wish.session,
            lane=wish.lane,
        )


@dataclass(slots=True)
class _Growing:
    """An answer while it comes. It ends where it becomes a loop, whatever comes at once."""

    text: Qwen3AsrText
    has_header: bool
    on_text: Callable[[str], None] | None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    raw: str = ""
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
        if self.on_text is not None:
            self.on_text(self._reader.feed(fresh))
        return end is not None

    def answer(self, header: tuple[int, ...], *, num_prompt: int) -> SegmentAnswer:
        """The whole of it, behind a forced `header`."""
        parsed = parse_answer(self.raw, has_header=self.has_header)
        num_header = self.text.num_header(self.token_ids) if self.has_header else 0
        code = language_code(parsed.language)
        probability = math.exp(sum(self.logprobs[: max(0, num_header - 1)]))
        return SegmentAnswer(
            text=cut_loops(parsed.text),
            choice=None if code is None else Choice(code, probability),
            token_ids=(*header, *self.token_ids),
            num_header=len(header) + num_header,
            logprobs=tuple(self.logprobs[num_header:]),
            num_generated=len(self.token_ids),
            num_prompt=num_prompt,
        )


def context_of(options: TranscriptionOptions) -> str:
    """What the model is told of the audio: the words to expect, then the prompt."""
    return "\n".join(part for part in (", ".join(options.keywords), options.prompt) if part.strip())


def _unique(items: Sequence[EncoderItem]) -> tuple[EncoderItem, ...]:
    """Windows of equal content (silence) are one encoding."""
    return tuple({item.content_hash: item for item in items}.values())
