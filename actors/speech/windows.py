"""One encoder window of speech: which language it is in, what was said, and when each word was.

The unit that files (`actors/speech/transcriber.py`) and live turns (`actors/speech/live_transcriber.py`)
share, so that both give the same answer for the same samples. It asks the engine (`actors/engine/engine.py`)
and the text side (`engine/models/whisper/text.py`); it knows neither sockets nor how a window came to be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import numpy as np
import trio

from ...engine.models.whisper.text import WhisperText
from ...media.features import FeatureConfig, LogMel
from ...media.hashing import encoder_item
from ...media.speech_frames import log_mel_frames
from ...media.word_times import refine_words
from ...protocols.errors import InternalError
from ...protocols.messages import Align, EncoderItem, Generate, Lane, RequestId, TextGenerated
from ...protocols.transcript import TranscriptionOptions, Word
from ..engine.engine import Engine
from .answer_guard import LoopGuard, cut_loops
from .model import Samples
from .recording import CutRule, check_answered

NO_SPEECH_PROBABILITY: Final = 0.6
NO_SPEECH_LOGPROB: Final = -1.0
"""Whisper's rule: silence if the no-speech probability is above the one and the mean below the other."""
SEARCH_S: Final = 3.0
"""A window is cut at the quietest place of its last seconds: these, or a quarter of a shorter window."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The language of a window. `probability` is among all languages the model knows."""

    language: str
    probability: float
    no_speech_prob: float

    @property
    def is_speech(self) -> bool:
        """Whether someone speaks in the window."""
        return self.no_speech_prob <= NO_SPEECH_PROBABILITY


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """What the model said about one window. Silence has no tokens."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    no_speech_prob: float = 0.0
    num_prompt: int = 0

    def without_loop(self) -> WindowAnswer:
        """The answer up to where it became a loop of tokens."""
        end = LoopGuard().feed(self.token_ids)
        return replace(self, token_ids=self.token_ids[:end], logprobs=self.logprobs[:end])

    @property
    def avg_logprob(self) -> float:
        """Mean log-probability of the tokens; 0 if there are none."""
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else 0.0


SILENCE: Final = WindowAnswer(no_speech_prob=1.0)


class WindowDecoder:
    """Answers questions about encoded windows of one model.

    Every method takes the window's `EncoderItem` and holds one reference on its encoding while it works;
    cancelling gives the reference and the decoder blocks back. Errors are the engine's (`OverloadedError`,
    `UnavailableError`) and `InternalError` if the model failed on this window alone.
    """

    def __init__(self, engine: Engine, text: WhisperText, features: FeatureConfig) -> None:
        self.engine = engine
        self.text = text
        self.features = features
        self.log_mel = LogMel(features)

    @property
    def window_samples(self) -> int:
        """Samples of one full window."""
        return self.features.window_samples

    @property
    def cut_rule(self) -> CutRule:
        """How recordings are cut into windows."""
        search = min(int(SEARCH_S * self.features.sampling_rate), self.window_samples // 4)
        return CutRule(self.window_samples, search)

    def item(self, samples: Samples) -> EncoderItem:
        """Features and hash of a window's samples: milliseconds of computing, meant for a thread."""
        return encoder_item(self.log_mel.extract(samples))

    def num_positions(self, num_samples: int) -> int:
        """Encoder positions that hold audio, of a window with `num_samples`."""
        share = num_samples / self.window_samples
        return min(self.text.info.num_positions, max(1, round(share * self.text.info.num_positions)))

    async def detect(self, item: EncoderItem, *, languages: Sequence[str] = (), lane: Lane) -> Detection:
        """The window's language (one of `languages`, if any are given), by one constrained decoder step."""
        wish = self.text.detection(languages)
        request = Generate(
            request_id=_request_id("detect"),
            prompt_token_ids=wish.prompt_token_ids,
            sampling=wish.sampling,
            encoder_hash=item.content_hash,
            probe=wish.probe,
            lane=lane,
        )
        async with self.engine.encoded(item, lane=lane):
            answer = await self.engine.complete(request)
        check_answered(answer)
        if not answer.token_ids:
            raise InternalError("the language of the audio could not be detected")
        return Detection(
            language=self.text.language_of(answer.token_ids[0]),
            probability=float(np.exp(answer.logprobs[0])) if answer.logprobs else 0.0,
            no_speech_prob=answer.probe_probability or 0.0,
        )

    async def decode(
        self,
        item: EncoderItem,
        options: TranscriptionOptions,
        *,
        language: str | None,
        draft: tuple[int, ...],
        lane: Lane,
        on_text: Callable[[str], None] | None = None,
    ) -> WindowAnswer:
        """What was said in the window. `draft` is a guess that makes it cheaper and changes nothing.

        `on_text` gets the text as it grows, but nothing that the no-speech rule may still take back.
        """
        wish = self.text.request(
            language=language,
            task=options.task,
            timestamps=options.segment_timestamps,
            previous_text=previous_text(options),
            temperature=options.temperature,
            seed=options.seed,
            logprobs=True,
        )
        request = Generate(
            request_id=_request_id("decode"),
            prompt_token_ids=wish.prompt_token_ids,
            sampling=wish.sampling,
            encoder_hash=item.content_hash,
            draft_token_ids=draft[: wish.sampling.max_tokens],
            probe=wish.probe,
            lane=lane,
        )
        async with self.engine.encoded(item, lane=lane):
            if on_text is None:
                answer = await self.engine.complete(request)
            else:
                answer = await self._stream(request, on_text)
        check_answered(answer)
        result = WindowAnswer(
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            no_speech_prob=answer.probe_probability or 0.0,
            num_prompt=len(wish.prompt_token_ids),
        ).without_loop()
        if result.no_speech_prob > NO_SPEECH_PROBABILITY and result.avg_logprob < NO_SPEECH_LOGPROB:
            return WindowAnswer(no_speech_prob=result.no_speech_prob, num_prompt=result.num_prompt)
        return result

    def text_of(self, answer: WindowAnswer) -> str:
        """The text of an answer, without loops and white space around it."""
        return cut_loops(self.text.decode(answer.token_ids)).strip()

    async def _stream(self, request: Generate, on_text: Callable[[str], None]) -> TextGenerated:
        parts: list[TextGenerated] = []
        released = 0
        probability: float | None = None
        guard = LoopGuard()
        async with self.engine.generate(request) as texts:
            async for part in texts:
                parts.append(part)
                if part.probe_probability is not None:
                    probability = part.probe_probability
                if guard.feed(part.token_ids) is not None:
                    break  # the rest is left out
                if part.error is None and probability is not None and probability <= NO_SPEECH_PROBABILITY:
                    on_text("".join(waiting.text for waiting in parts[released:]))
                    released = len(parts)
        return TextGenerated(
            request_id=request.request_id,
            text="".join(part.text for part in parts),
            token_ids=tuple(token for part in parts for token in part.token_ids),
            logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
            finish_reason=parts[-1].finish_reason if parts else "error",
            probe_probability=probability,
            error=next((part.error for part in parts if part.error), None),
        )

    async def words(
        self,
        item: EncoderItem,
        answer: WindowAnswer,
        *,
        language: str | None,
        num_samples: int,
        lane: Lane,
    ) -> tuple[Word, ...]:
        """When each word of the answer was spoken, from the window's start.

        The decoder's cross-attention says roughly when, the features say where words begin and end.
        """
        wish = self.text.alignment(answer.token_ids, language=language)
        if not wish.text_token_ids:
            return ()
        command = Align(
            request_id=_request_id("align"),
            encoder_hash=item.content_hash,
            token_ids=wish.token_ids,
            text_start=wish.text_start,
            text_end=wish.text_end,
            num_frames=self.num_positions(num_samples),
            lane=lane,
        )
        async with self.engine.encoded(item, lane=lane):
            aligned = await self.engine.align(command)
        words = self.text.words(wish.text_token_ids, aligned.boundaries, language=language)
        return await trio.to_thread.run_sync(_refined, words, item, num_samples)


def _refined(words: tuple[Word, ...], item: EncoderItem, num_samples: int) -> tuple[Word, ...]:
    """Milliseconds of computing: see `media/word_times.py`."""
    features = np.frombuffer(item.features.data, np.float32).reshape(item.features.shape)
    return refine_words(words, log_mel_frames(features, num_samples))


def previous_text(options: TranscriptionOptions) -> str:
    """What Whisper takes as said before: the words to expect, then the prompt."""
    keywords = ", ".join(options.keywords)
    return f"{keywords}. {options.prompt}" if keywords else options.prompt


def _request_id(kind: str) -> RequestId:
    return RequestId(f"{kind}-{uuid4().hex}")
