"""Whisper as a speech family: a range is one encoder window, and the decoder is asked for its language first.

The encoder sees a window as a whole, so an update of a live turn encodes the open window again, or rather
the beginning of it that matters (`actors/speech/families/short_context.py`); the previous answer is the
draft. Read `engine/models/whisper/text.py` for prompts and tokens, `actors/speech/recipe.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np

from ....engine.models.info import ModelInfo
from ....engine.models.whisper.text import DecodeRequest, WhisperText
from ....engine.text.detokenizer import Collected
from ....media.audio.features import FeatureConfig, IncrementalLogMel
from ....media.hashing import beginning_of
from ....media.speech.frames import log_mel_frames
from ....media.speech.word_times import refine_words
from ....media.transcript.answer_guard import (
    TOKENS_UNREAD,
    LoopGuard,
    cut_loops,
    speaking_time_s,
    spoken_part,
)
from ....media.transcript.language_detection import MIN_RANGE, ODD_FOR_WHISPER
from ....media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from ....media.transcript.segments import spoken_tokens
from ....media.transcript.truncation import MOST_RESTS, goes_on, joined, may_end_early
from ....protocols.engine.messages import (
    Align,
    EncoderItem,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    TextGenerated,
    TokensAligned,
    TopLogprobs,
)
from ....protocols.errors import InternalError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.transcript import SpokenText, TokenLogProb, TranscriptionOptions, Word
from ...inference.client import EngineClient, Place, outcome_of, whole_answer
from ...runtime.compute_pool import compute
from ...runtime.off_loop import off_loop
from ..languages.consistency import Positions, language_with_halves
from ..model import is_first
from .family import (
    CutRule,
    FamilyFacts,
    RangeRequest,
    check_answered,
    likelier_words,
    size_of_hints,
    with_options,
)
from .short_context import LOOP_TOKENS, context_s, next_effort, repeats_itself, token_limit

NO_SPEECH_PROBABILITY: Final = 0.6
NO_SPEECH_LOGPROB: Final = -1.0
"""Whisper's rule: silence if the no-speech probability is above the one and the mean below the other."""
NUM_LIKELIEST: Final = 8
"""Tokens that are told of where a turn begins: whether its first word has a capital is asked of them."""
LEAST_ROOM_S: Final = 20.0
"""Models of shorter windows hear turns alone: the embedded one, of 8 s, repeats what was said before."""
SEARCH_S: Final = 15.0
"""A window is cut at the best place of its last seconds: these, or a quarter of a window that is no longer
than twice as much. Where nobody pauses, 8 s of people's speech have no gap that is one for certain in 9 of a
hundred windows, 15 s in 3 (`examples/benchmarks/bench_hearing.py`); windows are 1 s shorter then."""


def open_family(engine: EngineClient, info: ModelInfo, text: WhisperText) -> Whisper:
    """The speech side of a checkpoint. Raises ModelLoadError naming the file at fault."""
    num_mel_bins, window_frames = text.info.num_mel_bins, text.info.window_frames
    features = FeatureConfig.from_folder(
        info.folder, info.extractors, num_mel_bins=num_mel_bins, window_frames=window_frames
    )
    return Whisper(engine, text, features)


class Whisper:
    """One checkpoint (a `SpeechFamily`)."""

    def __init__(self, engine: EngineClient, text: WhisperText, features: FeatureConfig) -> None:
        self.engine = engine
        self.text = text
        self._features = features
        search = round(SEARCH_S * INTERNAL_RATE)
        if features.window_samples < 2 * search:
            search = features.window_samples // 4
        self.facts = FamilyFacts(
            languages=text.info.languages or ("en",),
            tasks=text.info.tasks,
            language_from="detection" if text.is_multilingual else "model",
            cut_rule=CutRule(features.window_samples, search),
            bytes_of=text.token_bytes,
            takes_previous_text=True,
            spells_numbers=True,
            searches=True,
            odd_languages=ODD_FOR_WHISPER,
            behind=self._items_after if features.window_s >= LEAST_ROOM_S else None,
        )

    def features(self) -> IncrementalLogMel:
        """The features of a window, of which nothing is known yet."""
        return IncrementalLogMel(self._features)

    def _items_after(self, samples: Samples, num_before: int) -> tuple[EncoderItem, ...]:
        """The window is encoded as a whole, and its positions before `num_before` are not attended to."""
        hop = 2 * self._features.hop_length
        window = IncrementalLogMel(self._features)
        window.append(samples[num_before % hop :])
        return window.items(num_before // hop * 2)

    def silence(self, num_samples: int) -> RangeAnswer:
        """No text; its time counts as input."""
        num_positions = self._num_positions(num_samples)
        return RangeAnswer(num_input_tokens=num_positions, num_audio_tokens=num_positions)

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        """The window's language, by one constrained decoder step. Its probability is among all languages."""
        encoded = self._beginning(items[0], request, _effort(request))
        build = partial(self._language, encoded, allowed, request)
        if encoded is not items[0]:
            return replace(await build(None), is_provisional=True)
        if request.num_samples < 2 * MIN_RANGE:
            return await build(None)
        return await language_with_halves(build, self._num_positions(request.num_samples))

    async def _language(
        self, item: EncoderItem, allowed: Sequence[str], request: RangeRequest, span: Positions | None
    ) -> DetectedLanguage:
        """That of the window, or of some of its positions."""
        answer = await self._complete("detect", item, self.text.detection(allowed), request, span=span)
        if not answer.token_ids:
            raise InternalError("the language of the audio could not be detected")
        return DetectedLanguage(
            self.text.language_of(answer.token_ids[0]),
            float(np.exp(answer.logprobs[0])) if answer.logprobs else 0.0,
            is_speech=(answer.probe_probability or 0.0) <= NO_SPEECH_PROBABILITY,
        )

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        """What was said in the window. `on_text` gets nothing that the no-speech rule may still take back.

        In one that may grow as little is listened to as leads to an answer that ends by itself.
        """
        effort = _effort(request)
        while (encoded := self._beginning(items[0], request, effort)) is not items[0]:
            limit = token_limit(request.num_samples / INTERNAL_RATE)
            answer, talks_on = await self._answer(encoded, request, limit=limit)
            if not talks_on:
                return replace(answer, is_provisional=True, effort=effort)
            effort += 1
        answer, _ = await self._answer(items[0], request, on_text)
        return replace(answer, effort=effort)

    def _beginning(self, item: EncoderItem, request: RangeRequest, effort: int) -> EncoderItem:
        """The window, or the beginning of it that is listened to with this effort while it may grow."""
        if not request.may_grow:
            return item
        seconds = context_s(request.num_samples / INTERNAL_RATE, effort, self._features.window_s)
        return beginning_of(item, round(seconds * INTERNAL_RATE) // self._features.hop_length)

    async def _answer(
        self,
        item: EncoderItem,
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
        *,
        limit: int | None = None,
    ) -> tuple[RangeAnswer, bool]:
        """What is heard in `item`, and whether it talks on: repeats itself, or has `limit` tokens."""
        options = request.options
        build = partial(
            self.text.request,
            language=request.language,
            task=options.task,
            previous_text=_previous_text(options) if request.has_context else "",
            before=request.previous_transcript,
            temperature=options.temperature,
            seed=options.seed,
            spells_numbers=options.numerals == "words",
            likelier=likelier_words(options),
        )
        prompt = await off_loop(build, size=size_of_hints(options) + len(request.previous_transcript))
        sampling = prompt.sampling
        if limit is not None and limit < sampling.max_tokens:
            sampling = msgspec.structs.replace(sampling, max_tokens=limit)
        if options.logprobs and is_first(request.lane):
            sampling = msgspec.structs.replace(sampling, logprobs=NUM_LIKELIEST)
        sampling = with_options(sampling, options, num_prompt=len(prompt.prompt_token_ids))
        prompt = replace(prompt, sampling=sampling)
        answer = await self._complete("decode", item, prompt, request, on_text, is_short=limit is not None)
        is_greedy = sampling.temperature == 0.0
        if not request.may_grow and is_greedy:
            answer = await self._to_its_end(answer, item, prompt, request, on_text)
        talks_on = limit is not None and (
            answer.finish_reason == "length" or repeats_itself(answer.token_ids)
        )
        end = LoopGuard().feed(answer.token_ids)
        token_ids, logprobs = answer.token_ids[:end], answer.logprobs[:end]
        whole = self.text.decode(token_ids)
        text = spoken_part(cut_loops(whole).strip(), request.most_s)
        no_speech_prob = answer.probe_probability or 0.0
        avg_logprob = sum(logprobs) / len(logprobs) if logprobs else 0.0
        if no_speech_prob > NO_SPEECH_PROBABILITY and avg_logprob < NO_SPEECH_LOGPROB:
            token_ids, logprobs, text, whole = (), (), "", ""
        num_positions = self._num_positions(request.num_samples)
        spoken = RangeAnswer(
            text=text,
            token_ids=token_ids,
            logprobs=logprobs,
            tokens=tuple(self._tokens(token_ids, logprobs, answer.top_logprobs))
            if options.needs_tokens
            else (),
            temperature=options.temperature,
            no_speech_prob=no_speech_prob,
            num_input_tokens=num_positions + len(prompt.prompt_token_ids),
            num_audio_tokens=num_positions,
            num_output_tokens=len(token_ids),
            is_cut=bool(text) and (end is not None or text != whole.strip()),
            is_provisional=request.may_grow and is_greedy and may_end_early(answer),
        )
        return spoken, talks_on

    async def _to_its_end(
        self,
        answer: TextGenerated,
        item: EncoderItem,
        prompt: DecodeRequest,
        request: RangeRequest,
        on_text: Callable[[str], None] | None,
    ) -> TextGenerated:
        """The answer and what else was said, where the model stopped too early:
        `media/transcript/truncation.py`."""
        request = replace(request, previous=None)
        for _ in range(MOST_RESTS):
            behind = self.text.continued(prompt, answer.token_ids) if may_end_early(answer) else None
            if behind is None:
                break
            rest = await self._complete("decode", item, behind, request)
            whole = joined(answer, rest)
            if not goes_on(answer, rest) or LoopGuard().feed(whole.token_ids) is not None:
                break
            if on_text is not None and (answer.probe_probability or 0.0) <= NO_SPEECH_PROBABILITY:
                on_text(self._piece((rest,), request))
            answer = whole
        return answer

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        """The decoder's cross-attention says roughly when, the features where words begin and end."""
        token_ids = self.text_tokens(answer)
        prompt = self.text.alignment(token_ids, language=request.language, task=request.options.task)
        if not prompt.text_token_ids:
            return ()
        num_frames = self._num_positions(request.num_samples)
        alignment = Request(
            _request_id("align"),
            prompt.token_ids,
            Align(prompt.text_start, prompt.text_end, num_frames),
            encoder_hash=items[0].content_hash,
            lane=request.lane,
        )
        async with self.engine.placed(items, request.session, prompt.token_ids, lane=request.lane) as place:
            aligned = await outcome_of(place, alignment, TokensAligned)
        # What the decoder has no positions for is said at the end.
        missing = len(token_ids) + 1 - len(aligned.boundaries)
        boundaries = aligned.boundaries + missing * aligned.boundaries[-1:]
        words = self.text.words(token_ids, boundaries)
        is_rough = self.text.info.alignment_is_rough
        return await compute(_refined, words, items[0], len(samples), speech, is_rough)

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        """The tokens of the answer's text, which are not those that were said if a loop was cut."""
        spoken = self.text.text_token_ids(answer.token_ids)
        return spoken_tokens(
            answer, spoken, decode=self.text.decode, encode=lambda text: self.text.encode(f" {text}")
        )

    async def _complete(
        self,
        kind: str,
        item: EncoderItem,
        prompt: DecodeRequest,
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
        *,
        is_short: bool = False,
        span: Positions | None = None,
    ) -> TextGenerated:
        draft = () if kind == "detect" or request.previous is None else request.previous.token_ids
        generate = Request(
            _request_id(kind),
            prompt.prompt_token_ids,
            Sample(
                prompt.sampling,
                draft_token_ids=draft[: prompt.sampling.max_tokens],
                probe=prompt.probe,
                tokens_a_message=TOKENS_UNREAD if on_text is None and not is_short else 1,
            ),
            encoder_hash=item.content_hash,
            encoder_span=span,
            lane=request.lane,
        )
        prompt_ids = generate.prompt_token_ids
        async with self.engine.placed((item,), request.session, prompt_ids, lane=request.lane) as place:
            if kind == "detect" or prompt.sampling.num_beams > 1:
                answer = await whole_answer(place, generate)
            else:
                answer = await self._stream(place, generate, request, on_text, is_short=is_short)
        check_answered(answer)
        return answer

    async def _stream(
        self,
        place: Place,
        generate: SampleRequest,
        request: RangeRequest,
        on_text: Callable[[str], None] | None,
        *,
        is_short: bool,
    ) -> TextGenerated:
        """The answer up to where it became a loop, or longer than the request allows: it may go on
        to the last position. Of a short context it is left sooner."""
        parts: list[TextGenerated] = []
        released, spoken_s = 0, 0.0
        collected, guard = Collected(), LoopGuard()
        async with place.run(generate) as run:
            async for part in run:
                parts.append(part)
                collected.add(part)
                spoken_s += speaking_time_s(part.text)
                if guard.feed(part.token_ids) is not None or spoken_s > request.most_s:
                    break  # the rest is left out
                is_unended = is_short and part.finish_reason is None
                if is_unended and repeats_itself(collected.token_ids, least=LOOP_TOKENS):
                    break  # it will be asked for again
                probability = collected.probe_probability
                is_speech = probability is not None and probability <= NO_SPEECH_PROBABILITY
                if on_text is not None and part.error is None and is_speech:
                    on_text(self._piece(parts[released:], request))
                    released = len(parts)
        last = parts[-1] if parts else TextGenerated(generate.request_id, (), finish_reason="error")
        return msgspec.structs.replace(collected.joined(last), text="".join(part.text for part in parts))

    def _piece(self, parts: Sequence[TextGenerated], request: RangeRequest) -> SpokenText:
        """What came in these parts, with its tokens if log-probabilities are requested."""
        counted = parts if request.options.logprobs else ()
        tokens = (token for part in counted for token in self._tokens(part.token_ids, part.logprobs, ()))
        return SpokenText("".join(part.text for part in parts), tokens)

    def _num_positions(self, num_samples: int) -> int:
        """Encoder positions that hold audio, of a window with `num_samples`."""
        num_positions = self.text.info.num_positions
        return min(num_positions, max(1, round(num_samples / self._features.window_samples * num_positions)))

    def _tokens(
        self, token_ids: Sequence[int], logprobs: Sequence[float], tops: Sequence[TopLogprobs]
    ) -> Iterator[TokenLogProb]:
        bytes_of = self.facts.bytes_of
        for index, (token_id, logprob) in enumerate(zip(token_ids, logprobs, strict=False)):
            if self.text.is_text(token_id):
                data = bytes_of(token_id)
                top = tops[0] if tops and index == 0 else ()
                likeliest = tuple((bytes_of(other), each) for other, each in top if self.text.is_text(other))
                yield TokenLogProb(data.decode("utf-8", errors="replace"), data, logprob, likeliest)


def _refined(
    words: tuple[Word, ...], item: EncoderItem, num_samples: int, speech: Sequence[Range], is_rough: bool
) -> tuple[Word, ...]:
    """Milliseconds of computing: see `media/speech/word_times.py`."""
    window = np.frombuffer(item.features.data, np.float32).reshape(item.features.shape)
    frames = log_mel_frames(window[:, item.features.num_before :], num_samples)
    return refine_words(words, frames, speech, is_rough=is_rough)


def _effort(request: RangeRequest) -> int:
    """What to begin with, by what the last question about the range took."""
    return 0 if request.previous is None else next_effort(request.previous.effort)


def _previous_text(options: TranscriptionOptions) -> str:
    """What Whisper takes as said before: the words to expect, then the prompt."""
    keywords = ", ".join(options.keywords)
    return f"{keywords}. {options.prompt}" if keywords else options.prompt


def _request_id(kind: str) -> RequestId:
    return RequestId(f"{kind}-{uuid4().hex}")
