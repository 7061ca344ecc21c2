"""Whether a model stopped before everything was said, and what it says when it goes on. Pure.

Behind a sentence that ends well Whisper sometimes stops though somebody says another one: of windows of two
to eight people's prompts one or two in a hundred. It is in two minds then, and where all was said it is not:
there no word is likely instead of the end, whatever silence, noise or music follows. Sometimes it is sure of
the end and of no one word instead, and still leaves out ten seconds of speech: that is seen by how little it
said for so much (`says_little`). Figures are in docs/performance/speech.md, by
`examples/benchmarks/early_ends.py`; `actors/speech/whisper.py` asks.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Final

import msgspec

from ...protocols.messages import TextGenerated
from .answer_guard import speaking_time_s
from .plausibility import MIN_LOGPROB

SURE_END: Final = math.log(0.6)
"""A stop that is likelier is one. Of two ends that were too early one had 0.41, the other 0.37."""
LEAST_WORD: Final = 0.1
"""How likely what is said instead must be."""
MOST_RESTS: Final = 3
"""Times that an answer is asked about."""

UNSAID_S: Final = 4.0
"""So much speech for which an answer has no words is too much."""
SLOW_LETTERS_PER_S: Final = 6.0
"""Of 365 prompts of 4 s and more, pauses included, in five languages, none has fewer."""
LETTERS_OF_DIGIT, LETTERS_OF_IDEOGRAPH = 4, 3
SURE_REST: Final = -0.7
"""Mean log-probability of what is said where an answer said too little."""


def says_little(text: str, speech_s: float) -> bool:
    """Whether even who speaks slowly needs seconds less for it than somebody speaks. Of no text that is for
    others to judge."""
    return bool(text) and speech_s - _num_letters(text) / SLOW_LETTERS_PER_S >= UNSAID_S


def may_end_early(answer: TextGenerated, speech_s: float = 0.0) -> bool:
    """Whether the model was so unsure of the answer's end that it is worth asking what else there is, or said
    little for `speech_s` of speech (0 if that is not known).

    Not where a full stop is missing, for that might have come instead: behind short turns it often might.
    """
    if answer.finish_reason != "stop":
        return False
    if says_little(answer.text, speech_s):
        return True
    if (answer.stop_logprob or 0.0) >= SURE_END:
        return False
    last = answer.text.rstrip()[-1:]
    return bool(last) and unicodedata.category(last).startswith("P")


def goes_on(answer: TextGenerated, rest: TextGenerated, speech_s: float = 0.0) -> bool:
    """Whether `rest`, asked for behind `answer` with stopping forbidden at first, was said, too."""
    if rest.finish_reason != "stop" or not any(map(str.isalnum, rest.text)) or not rest.logprobs:
        return False
    if says_little(answer.text, speech_s):
        can_be_said = speaking_time_s(rest.text) <= speech_s - speaking_time_s(answer.text)
        return can_be_said and sum(rest.logprobs) >= SURE_REST * len(rest.logprobs)
    is_likely = sum(rest.logprobs) >= MIN_LOGPROB * len(rest.logprobs)
    share = 1.0 - math.exp(answer.stop_logprob or 0.0)
    return is_likely and share * math.exp(rest.logprobs[0]) >= LEAST_WORD


def joined(answer: TextGenerated, rest: TextGenerated) -> TextGenerated:
    """Both as one answer."""
    return msgspec.structs.replace(
        rest,
        text=answer.text + rest.text,
        token_ids=answer.token_ids + rest.token_ids,
        logprobs=answer.logprobs + rest.logprobs,
        top_logprobs=answer.top_logprobs + rest.top_logprobs,
        probe_probability=answer.probe_probability,
    )


def _num_letters(text: str) -> int:
    """As many letters as take as long to say."""
    num_digits = sum(map(str.isdigit, text))
    num_ideographs = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    num_letters = sum(map(str.isalnum, text))
    return num_letters + (LETTERS_OF_DIGIT - 1) * num_digits + (LETTERS_OF_IDEOGRAPH - 1) * num_ideographs
