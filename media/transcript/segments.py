"""When the sentences of an answer were said: every family's segments, made of its timed words.

Words are cut into sentences by `media/speech/sentences.py`; here the answer's tokens and their probabilities
are dealt out to the sentences. So segments, words and subtitles have the words of the text, whatever a
model's own times would have left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...protocols.transcription.transcript import USUAL_LAYOUT, CueLayout, Segment, Word
from ..speech.sentences import TimedText, segments_of
from .plausibility import compression_ratio
from .range_answer import RangeAnswer

CUT_INLINE: Final = 100
"""Characters of an answer: cutting it into sentences takes up to 50 µs for each."""


def spoken_tokens(
    answer: RangeAnswer,
    token_ids: Sequence[int],
    *,
    decode: Callable[[Sequence[int]], str],
    encode: Callable[[str], Sequence[int]],
) -> tuple[int, ...]:
    """The tokens of the answer's text: `token_ids`, which the model said, or others if a loop was cut."""
    if decode(token_ids).strip() == answer.text:
        return tuple(token_ids)
    return tuple(encode(answer.text))


def sentences(
    answer: RangeAnswer,
    words: Sequence[Word],
    *,
    token_ids: Sequence[int],
    bytes_of: Callable[[int], bytes],
    start_s: float,
    duration_s: float,
    layout: CueLayout = USUAL_LAYOUT,
) -> tuple[Segment, ...]:
    """The sentences of an answer about `duration_s` from `start_s` on; `words` count from `start_s`.

    Their texts join to the answer's; `token_ids` are its (see `spoken_tokens`). Without words the whole
    answer is one, as long as the audio; without text there are none.
    """
    if not answer.text:
        return ()
    texts = segments_of(answer.text, words, layout) or (TimedText(answer.text, 0.0, duration_s),)
    logprobs = answer.logprobs
    if len(token_ids) > len(logprobs):  # others than the model said
        mean = sum(logprobs) / max(1, len(logprobs))
        logprobs = (mean,) * len(token_ids)
    return tuple(
        Segment(
            id=number,
            seek=round(start_s * 100),
            start=round(start_s + text.start, 3),
            end=round(start_s + text.end, 3),
            text=text.text,
            tokens=tuple(token_ids[first:last]),
            temperature=answer.temperature,
            avg_logprob=sum(logprobs[first:last]) / max(1, last - first),
            compression_ratio=compression_ratio(text.text),
            no_speech_prob=answer.no_speech_prob,
        )
        for number, (text, (first, last)) in enumerate(
            zip(texts, tokens_of(texts, token_ids, bytes_of), strict=True)
        )
    )


def tokens_of(
    texts: Sequence[TimedText], token_ids: Sequence[int], bytes_of: Callable[[int], bytes]
) -> Iterator[tuple[int, int]]:
    """First token, and last + 1, of each text: those that begin in it, by bytes that are no white space."""
    index = num_taken = num_wanted = 0
    for number, text in enumerate(texts):
        first = index
        num_wanted += len("".join(text.text.split()).encode())
        is_last = number + 1 == len(texts)
        while index < len(token_ids) and (is_last or num_taken < num_wanted):
            num_taken += len(b"".join(bytes_of(token_ids[index]).split()))
            index += 1
        yield first, index
