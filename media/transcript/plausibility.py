"""Whether an answer is one to rely on, and whether it is to be believed where hardly anybody speaks. Pure.

A gate that hears people's shortest words (`media/speech/gate.py`) lets some music pass, and models answer
music with words, of which they are often sure. So where little resembles speech an answer must look like one:
the bounds are those of Whisper's own code, and a language that a model takes noise for counts against it.
Answers to clear speech are kept in any case: Whisper is unsure of many a short word that it gets right. But
only what lies within the bounds is told the model with the next range. Used by
`actors/speech/range_decoder.py`; see `answer_guard.py` for what any answer may be.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from .range_answer import RangeAnswer

MIN_SPEECH_S: Final = 0.25
"""A short word: of people's there is little that is shorter, and models guess at it."""
MIN_SPEECH_SHARE: Final = 0.1
"""Of a range: half a minute of music resembles speech for 2 s at most."""
MIN_LOGPROB: Final = -1.0
"""Mean of the answer's tokens."""
MAX_COMPRESSION: Final = 2.4
"""Bytes per compressed byte."""

SPOKEN: Final = 0.15
"""No-speech probability of some 40 ranges of people, in noise, music and crowds: at most 0.144; of crowds
played backwards 0.07 to 0.46, of a word that is said again and again 0.29 to 0.65."""
_LAUGHING: Final = re.compile(
    r"a?(?:ha)+h?|(?:h[eio]){2,}h?|а?(?:ха)+х?|(?:х[еи]){2,}"
    r"|(?:[はハ]+|[ふフ]+|[へヘ]+)[っッー]*|哈+|呵+|ㅋ+|ㅎ+|하+"
)
"""A word of laughter in Latin, Cyrillic, Japanese, Chinese and Korean script."""


def clear_speech_s(duration_s: float) -> float:
    """How long somebody must be heard in so much audio for answers about it not to be judged."""
    return max(MIN_SPEECH_S, MIN_SPEECH_SHARE * duration_s)


def is_trustworthy(answer: RangeAnswer) -> bool:
    """Whether there is text of which the model was sure on the whole, and which does not repeat itself."""
    if not answer.text or answer.is_cut or mean_logprob(answer) < MIN_LOGPROB:
        return False
    return compression_ratio(answer.text) <= MAX_COMPRESSION


def is_implausible(answer: RangeAnswer, *, is_language_odd: bool) -> bool:
    """Whether an answer is not to be believed unless somebody clearly speaks.

    `is_language_odd` says that the model found the language by itself and is hardly ever right about it.
    """
    return bool(answer.text) and (is_language_odd or not is_trustworthy(answer))


def is_laughter(answer: RangeAnswer) -> bool:
    """Whether a model wrote laughter, several syllables and no word, and doubts that somebody speaks."""
    words = re.findall(r"\w+", answer.text.casefold())
    is_laughing = sum(map(len, words)) >= 4 and all(map(_LAUGHING.fullmatch, words))
    return is_laughing and answer.no_speech_prob >= SPOKEN


def mean_logprob(answer: RangeAnswer) -> float:
    """Of the answer's tokens; 0 if none are known."""
    return sum(answer.logprobs) / len(answer.logprobs) if answer.logprobs else 0.0


def compression_ratio(text: str) -> float:
    """UTF-8 bytes per zlib-compressed byte; high for text that repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
