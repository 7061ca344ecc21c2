"""An answer about one range that is worth keeping: other temperatures are tried where it is implausible, and
several answers drawn at one temperature.

openai/whisper's and faster-whisper's rule: an answer that repeats itself or is unlikely on the whole is asked
for again, warmer. Used by `actors/speech/range_decoder.py`; the bounds are in
`media/transcript/plausibility.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from ....media.transcript.plausibility import MAX_COMPRESSION, compression_ratio, is_trustworthy, mean_logprob
from ....media.transcript.range_answer import RangeAnswer
from ....protocols.engine.messages import EncoderItem
from ....protocols.shared.sampling import MAX_SEED
from ....protocols.transcription.transcript import TranscriptionOptions
from ...runtime.nursery import all_of
from ..families.family import RangeRequest, SpeechFamily


def may_be_replaced(options: TranscriptionOptions) -> bool:
    """Whether an answer may be asked for that is not the one that counts."""
    return bool(options.fallback_temperatures) or options.best_of > 1


async def best_answer(
    family: SpeechFamily,
    items: Sequence[EncoderItem],
    request: RangeRequest,
    on_text: Callable[[str], None] | None = None,
) -> RangeAnswer:
    """The first answer to rely on by the temperatures of the request's options; where there is none, the
    likeliest of those that do not repeat themselves, if there are any.

    `on_text` goes without what `may_be_replaced`.
    """
    options = request.options
    tried: list[RangeAnswer] = []
    for temperature in (options.temperature, *options.fallback_temperatures):
        answer = await _drawn(family, items, request, temperature, on_text)
        if not answer.text or is_trustworthy(answer):
            return answer
        tried.append(answer)
    plain = [answer for answer in tried if compression_ratio(answer.text) <= MAX_COMPRESSION]
    return max(plain or tried, key=mean_logprob)


async def _drawn(
    family: SpeechFamily,
    items: Sequence[EncoderItem],
    request: RangeRequest,
    temperature: float,
    on_text: Callable[[str], None] | None,
) -> RangeAnswer:
    """The likeliest of the answers at one temperature; at 0 there is but one."""
    options = request.options
    count = options.best_of if temperature > 0 else 1

    async def draw(number: int) -> RangeAnswer:
        seed = None if options.seed is None else (options.seed + number) & MAX_SEED
        own = msgspec.structs.replace(options, temperature=temperature, seed=seed)
        return await family.answer(items, replace(request, options=own), on_text)

    answers = [await draw(0), *await all_of(draw, range(1, count))]
    # Not by which came first: the same request is answered alike.
    return max(answers, key=lambda answer: (bool(answer.text), mean_logprob(answer), answer.text))
