"""Groups tokens into words: at spaces, and between the characters of scripts without any.

Punctuation joins the word it belongs to. Knows bytes of tokens and their text, no times and no language, for
a translation from Japanese is in English and a Chinese sentence may have an English name; see
`WhisperText.words` for times. Rules: openai/whisper `tokenizer.py` and `timing.py`, but that "well-known" and
"3.5" are one word, which are three and two there, and so are pieces of words among Chinese.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....protocols.shared.scripts import parts_words

_PREPENDED: Final = "\"'“¿([{-"


@dataclass(slots=True)
class TokenGroup:
    """Tokens `start` to `end` (exclusive) of a sequence, and their text."""

    text: str
    start: int
    end: int


def split_words(token_bytes: Sequence[bytes]) -> list[TokenGroup]:
    """Words of a token sequence, in order; every token is in exactly one group."""
    return _attach_signs(_join_within_words(_split_characters(token_bytes)))


def _split_characters(token_bytes: Sequence[bytes]) -> list[TokenGroup]:
    """Smallest groups of tokens that end at a character's end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    groups: list[TokenGroup] = []
    start, text = 0, ""
    for index, data in enumerate(token_bytes):
        text += decoder.decode(data, final=index + 1 == len(token_bytes))
        if not decoder.getstate()[0]:
            groups.append(TokenGroup(text, start, index + 1))
            start, text = index + 1, ""
    return groups


def _join_within_words(groups: list[TokenGroup]) -> list[TokenGroup]:
    words: list[TokenGroup] = []
    for group in groups:
        if words and not _begins_word(words[-1].text, group.text):
            words[-1].text += group.text
            words[-1].end = group.end
        else:
            words.append(group)
    return words


def _begins_word(before: str, text: str) -> bool:
    return text[:1].isspace() or bool(before and text and parts_words(before[-1], text[0]))


def _attach_signs(groups: list[TokenGroup]) -> list[TokenGroup]:
    """A quote, bracket or dash by itself is with what follows."""
    following: list[TokenGroup] = []  # in reverse
    for group in reversed(groups):
        if following and group.text.startswith(" ") and group.text.strip() in _PREPENDED:
            following[-1].text = group.text + following[-1].text
            following[-1].start = group.start
        else:
            following.append(group)
    return following[::-1]
