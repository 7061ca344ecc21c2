"""Sentences that were said while nobody is heard: what models put into long silences. Pure.

faster-whisper's `hallucination_silence_threshold` judges the words' probabilities and lengths; here it is
voice activity that tells. Used by `actors/speech/range_decoder.py`; where somebody speaks is found by
`media/speech/regions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import Segment, Word
from .range_answer import Range, RangeAnswer

MARGIN_S: Final = 0.2
"""Times of words are so much off."""


def silences(speech: Sequence[Range], part: Range, least_s: float) -> list[tuple[float, float]]:
    """Where nobody speaks for `least_s` in a range: seconds from its start, a margin away from speech.

    `speech` are the regions in it, in order.
    """
    found = []
    for index in range(len(speech) + 1):
        start = speech[index - 1][1] if index else part[0]
        end = speech[index][0] if index < len(speech) else part[1]
        start_s, end_s = (start - part[0]) / INTERNAL_RATE, (end - part[0]) / INTERNAL_RATE
        if end_s - start_s >= least_s:
            found.append((start_s + MARGIN_S * (index > 0), end_s - MARGIN_S * (index < len(speech))))
    return found


def without_silent_sentences(
    answer: RangeAnswer,
    words: Sequence[Word],
    sentences: Sequence[Segment],
    quiet: Sequence[tuple[float, float]],
) -> tuple[RangeAnswer, tuple[Word, ...]]:
    """The answer and its words without the sentences that lie in a silence.

    `words`, `sentences` (all of the answer, in order) and `quiet` count in seconds from the range's start.
    """
    text, num_words, num_tokens = "", 0, answer.num_header
    kept_words: list[Word] = []
    kept_tokens = list(range(answer.num_header))
    for sentence in sentences:
        first_word, first_token = num_words, num_tokens
        num_tokens += len(sentence.tokens)
        while num_words < len(words) and words[num_words].end <= sentence.end:
            num_words += 1
        if not _lies_in(sentence, quiet):
            text += sentence.text
            kept_words += words[first_word:num_words]
            kept_tokens += range(first_token, num_tokens)
    if num_tokens != len(answer.token_ids):  # a loop was cut: they are not the sentences'
        return replace(answer, text=text.strip()), tuple(kept_words)
    spoken = [index - answer.num_header for index in kept_tokens[answer.num_header :]]
    kept = replace(
        answer,
        text=text.strip(),
        token_ids=tuple(answer.token_ids[index] for index in kept_tokens),
        logprobs=tuple(answer.logprobs[index] for index in spoken if index < len(answer.logprobs)),
        tokens=tuple(answer.tokens[index] for index in spoken if index < len(answer.tokens)),
    )
    return kept, tuple(kept_words)


def _lies_in(sentence: Segment, quiet: Sequence[tuple[float, float]]) -> bool:
    return any(start <= sentence.start and sentence.end <= end for start, end in quiet)
