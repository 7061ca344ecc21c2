"""What the one recipe asks of a speech model, and the data that crosses between them.

A family is one object per served model: a few facts and five questions. `actors/speech/range_decoder.py` asks
them, `actors/speech/families/whisper.py` and `actors/speech/families/qwen3_asr.py` answer. Nothing here
presumes how an answer comes about, token by token or all at once. Torch-free, and so is every family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from ....media.speech.cut_points import find_cut, split
from ....media.speech.voice_activity import VoiceActivityModel
from ....media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from ....protocols.engine.messages import (
    EncoderItem,
    Lane,
    SampleRequest,
    SamplingParams,
    SessionKey,
    TextGenerated,
)
from ....protocols.errors import InternalError, OverloadedError
from ....protocols.transcription.transcript import Task, TokenLogProb, TranscriptionOptions, Word
from ...inference.client import EngineClient, Place, failed_alone, whole_answer

LanguageSource = Literal["detection", "answer", "model"]
"""Where a language comes from that no client named: it is asked for before the answer, or, where one is
expected, beside it (so not in the answer's `session`); the answer names it (only where the client allows a
few it is asked for before); or the model knows one only."""


@dataclass(frozen=True, slots=True)
class CutRule:
    """Ranges are at most `size` samples long, and cut at the best place of their last `search`."""

    size: int
    search: int

    def split(
        self,
        samples: Samples,
        activity: VoiceActivityModel | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> list[Range]:
        """The ranges of a whole recording. 0.1 s a minute: for a thread, which what `check` raises ends."""
        size, search = self.size, self.search
        return split(samples, window_samples=size, search_samples=search, activity=activity, check=check)

    def cut(self, samples: Samples, activity: VoiceActivityModel | None = None) -> int:
        """Where a range ends that begins with `samples`, which are `size`, and goes on behind them."""
        return find_cut(samples, search_samples=self.search, activity=activity)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFacts:
    """What never changes about a model."""

    languages: tuple[str, ...]
    """ISO codes that may be asked for, at least one."""
    tasks: tuple[Task, ...]
    language_from: LanguageSource
    cut_rule: CutRule
    bytes_of: Callable[[int], bytes]
    """Of a token of a text."""
    takes_previous_text: bool = False
    """Whether `RangeRequest.previous_transcript` means anything to it."""
    spells_numbers: bool = False
    """Whether it can be told to write numbers as words: `TranscriptionOptions.numerals`."""
    searches: bool = False
    """Whether several answers can grow side by side: `TranscriptionOptions.beam_size`."""
    odd_languages: frozenset[str] = frozenset()
    """Codes that it detects where nobody speaks."""
    behind: Callable[[Samples, int], tuple[EncoderItem, ...]] | None = None
    """The items of samples whose first ones, so many, are only heard: what was said there is not answered.
    Blocks for milliseconds: for a thread. None: a range is heard alone, whatever was in front of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """How a range is to be answered."""

    options: TranscriptionOptions
    num_samples: int
    lane: Lane
    language: str | None = None
    """Code of the language to answer in; None where the answer names it."""
    previous: RangeAnswer | None = None
    """The last answer about the range, which was shorter or longer then. It may make this one cheaper and
    changes nothing."""
    has_context: bool = True
    """Whether the model is told the prompt and the words to expect; likelier these are in any case."""
    previous_transcript: str = ""
    """What was said just before the range, as far as it can be relied on."""
    may_grow: bool = False
    """More of the range will be asked about soon: a cheaper answer will do until then."""
    session: SessionKey | None = None
    """What the engine may keep state of the range under, until it is closed."""
    most_s: float = math.inf
    """What takes longer to say was not said: the answer is cut there."""


class GrowingFeatures(Protocol):
    """The encoder's view of one range while its audio arrives. Blocks for milliseconds: for a thread."""

    @property
    def num_samples(self) -> int:
        """Samples appended."""
        ...

    @property
    def num_rewind_samples(self) -> int:
        """How many samples `rewind` needs to see."""
        ...

    def append(self, samples: Samples, /) -> None:
        """The next samples [n]."""
        ...

    def rewind(self, num_samples: int, last: Samples, /) -> None:
        """Go back to the first `num_samples`, of which `last` are the last (all, or `num_rewind_samples`)."""
        ...

    def items(self) -> tuple[EncoderItem, ...]:
        """Everything appended, as the encoder takes it; the same however it was cut into appends."""
        ...


class SpeechFamily(Protocol):
    """One served model. Holds no state of any request.

    Questions take the range's items and hold their encodings while they work; cancelling one gives back what
    it held. Errors are the engine's (OverloadedError, UnavailableError), BadRequestError naming the field of
    the options at fault, and InternalError if the model failed on this range alone.
    """

    @property
    def engine(self) -> EngineClient:
        """Where the questions go."""
        ...

    @property
    def facts(self) -> FamilyFacts:
        """What never changes."""
        ...

    def features(self) -> GrowingFeatures:
        """The features of a range, of which nothing is known yet."""
        ...

    def silence(self, num_samples: int) -> RangeAnswer:
        """The answer about a range in which nobody speaks; the model is not asked."""
        ...

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        """The language of a range: one of `allowed`, or any that the model knows if none are named.

        Never asked of a model that knows one only.
        """
        ...

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        """What was said. `on_text` gets text as it comes, if it does, loops and all, never to be taken back
        but for an echo of the prompt."""
        ...

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        """When each word of the answer was said, from the range's start; somebody speaks in `speech`."""
        ...

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        """The tokens of the answer's text, which are not those that were said if a loop was cut."""
        ...


def likelier_words(options: TranscriptionOptions) -> tuple[tuple[str, ...], float]:
    """Keywords, and how much likelier they are in this answer. Of one that is drawn, or has penalties of its
    own, and of several that grow side by side, nothing can be taken back: the model is told of them, no more.
    """
    has_penalties = bool(options.presence_penalty or options.frequency_penalty)
    is_greedy = options.temperature == 0 and options.beam_size == 1 and not has_penalties
    return options.keywords, options.keyword_boost if is_greedy else 0.0


def size_of_hints(options: TranscriptionOptions) -> int:
    """Characters to be read before a model can be asked; keywords in several ways."""
    return len(options.prompt) + 4 * sum(map(len, options.keywords))


def with_options(
    sampling: SamplingParams, options: TranscriptionOptions, *, num_prompt: int = 0
) -> SamplingParams:
    """Repetitions as likely, and as many answers side by side, as are asked for; warmer ones are drawn one by
    one. What was told in the prompt, as names are, may be said."""
    sampling = msgspec.structs.replace(
        sampling,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        repetition_penalty=options.repetition_penalty,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        ngrams_from=num_prompt if options.no_repeat_ngram_size else 0,
    )
    if options.beam_size > 1 and options.temperature == 0:
        return msgspec.structs.replace(
            sampling,
            num_beams=options.beam_size,
            length_penalty=options.length_penalty,
            patience=options.patience,
        )
    return sampling


def check_answered(answer: TextGenerated) -> None:
    """Raise what became of a request that did not end by itself."""
    if answer.finish_reason == "error" or answer.error is not None:
        raise InternalError(f"the model failed on this audio: {failed_alone(answer)}")
    if answer.finish_reason == "abort":
        raise OverloadedError("the request was aborted; try again")


async def collect(
    place: Place, generate: SampleRequest, num_beams: int, add: Callable[[TextGenerated], bool]
) -> None:
    """Give an answer to `add` as it comes, until that says that it is over; of `num_beams` that grow side by
    side the best one, once it is whole. Raises what became of one that did not end by itself."""
    if num_beams > 1:
        whole = await whole_answer(place, msgspec.structs.replace(generate, session=None))
        check_answered(whole)
        add(whole)
        return
    async with place.run(generate) as run:
        async for part in run:
            check_answered(part)
            if add(part):
                break


def token_logprobs(
    bytes_of: Callable[[int], bytes], token_ids: Sequence[int], logprobs: Sequence[float]
) -> Iterator[TokenLogProb]:
    """Tokens of a text with their logarithms of probability."""
    for token_id, logprob in zip(token_ids, logprobs, strict=False):
        data = bytes_of(token_id)
        yield TokenLogProb(data.decode("utf-8", errors="replace"), data, logprob)
