"""The tests' CTC family as a speech family: a range is one window, in one language; characters have times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from uuid import uuid4

from sensorium.actors.inference.client import EngineClient, outcome_of, whole_answer
from sensorium.actors.speech.families.family import CutRule, FamilyFacts, RangeRequest, check_answered
from sensorium.engine.models.info import ModelInfo
from sensorium.media.audio.features import FeatureConfig, IncrementalLogMel
from sensorium.media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer, Samples
from sensorium.protocols.engine.messages import (
    Align,
    EncoderItem,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TokensAligned,
)
from sensorium.protocols.transcription.transcript import Word
from support.ctc.text import BLANK, END, CtcText


def open_family(engine: EngineClient, info: ModelInfo, text: CtcText) -> CtcSpeech:
    """The speech side of a checkpoint."""
    return CtcSpeech(engine, info, text)


class CtcSpeech:
    """See `SpeechFamily`."""

    def __init__(self, engine: EngineClient, info: ModelInfo, text: CtcText) -> None:
        self.engine = engine
        self._info, self._text = info, text
        self._features = FeatureConfig.from_folder(info.folder, info.extractors)
        size = self._features.window_samples
        self.facts = FamilyFacts(
            languages=("en",),
            tasks=("transcribe",),
            language_from="model",
            cut_rule=CutRule(size, size // 4),
            bytes_of=lambda token_id: text.decode((token_id,)).encode(),
        )

    def features(self) -> IncrementalLogMel:
        """See `SpeechFamily`."""
        return IncrementalLogMel(self._features)

    def silence(self, num_samples: int) -> RangeAnswer:
        """See `SpeechFamily`."""
        return RangeAnswer()

    async def language(
        self, items: Sequence[EncoderItem], allowed: Sequence[str], request: RangeRequest
    ) -> DetectedLanguage:
        """Never asked: the model knows one."""
        raise AssertionError("this model knows one language")

    async def answer(
        self,
        items: Sequence[EncoderItem],
        request: RangeRequest,
        on_text: Callable[[str], None] | None = None,
    ) -> RangeAnswer:
        """Labels as far as the range's audio goes, read out one by one."""
        generate = Request(
            RequestId(f"ctc-{uuid4().hex}"),
            (BLANK,),
            Sample(SamplingParams(max_tokens=self._info.max_context - 1, stop_token_ids=(END,), logprobs=0)),
            encoder_hash=items[0].content_hash,
            lane=request.lane,
        )
        async with self.engine.placed(items) as place:
            answer = await whole_answer(place, generate)
        check_answered(answer)
        if on_text is not None:
            on_text(answer.text)
        return RangeAnswer(
            text=answer.text.strip(),
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            no_speech_prob=0.0,
            num_input_tokens=self._info.attended_tokens,
            num_audio_tokens=self._info.attended_tokens,
            num_output_tokens=len(answer.token_ids),
        )

    async def times(
        self,
        items: Sequence[EncoderItem],
        answer: RangeAnswer,
        request: RangeRequest,
        samples: Samples,
        speech: Sequence[Range],
    ) -> tuple[Word, ...]:
        """Words lie between spaces, and the frames of their characters are known."""
        num_labels = self._info.attended_tokens
        num_frames = round(num_labels * len(samples) / self._features.window_samples)
        num_tokens = len(answer.token_ids)
        command = Request(
            RequestId(f"align-{uuid4().hex}"),
            (BLANK, *answer.token_ids, END),
            Align(1, 1 + num_tokens, num_frames),
            encoder_hash=items[0].content_hash,
        )
        async with self.engine.placed(items) as place:
            aligned = await outcome_of(place, command, TokensAligned)
        frame_s = self._features.window_s / num_labels
        characters = [self._text.decode((token_id,)) for token_id in answer.token_ids]
        words = []
        for is_space, group in groupby(range(num_tokens), lambda place: characters[place] == " "):
            places = list(group)
            if not is_space:
                start, end = aligned.boundaries[places[0]], aligned.boundaries[places[-1] + 1]
                text = "".join(characters[place] for place in places)
                words.append(Word(text, round(start * frame_s, 3), round(end * frame_s, 3)))
        return tuple(words)

    def text_tokens(self, answer: RangeAnswer) -> tuple[int, ...]:
        """All of them."""
        return answer.token_ids
