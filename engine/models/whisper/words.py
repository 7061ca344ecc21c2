"""Groups tokens into words: at spaces, or by character where a language has none.

Punctuation joins the word it belongs to. Knows bytes of tokens and their text, no times; see
`WhisperText.words` for those. Rules: openai/whisper `tokenizer.py` and `timing.py`, but that "well-known" and
"3.5" are one word, which are three and two there.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

SPACELESS_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
_PREPENDED = "\"'“¿([{-"
_APPENDED = "\"'.。,，!！?？:：”)]}、"


@dataclass(slots=True)
class TokenGroup:
    """Tokens `start` to `end` (exclusive) of a sequence, and their text."""

    text: str
    start: int
    end: int


def split_words(token_bytes: Sequence[bytes], language: str) -> list[TokenGroup]:
    """Words of a token sequence, in order; every token is in exactly one group."""
    groups = _split_characters(token_bytes)
    if language not in SPACELESS_LANGUAGES:
        groups = _join_at_spaces(groups)
    return _attach_punctuation(groups)


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


def _join_at_spaces(groups: list[TokenGroup]) -> list[TokenGroup]:
    words: list[TokenGroup] = []
    for group in groups:
        if not words or group.text[:1].isspace():
            words.append(group)
        else:
            words[-1].text += group.text
            words[-1].end = group.end
    return words


def _attach_punctuation(groups: list[TokenGroup]) -> list[TokenGroup]:
    following: list[TokenGroup] = []  # in reverse
    for group in reversed(groups):
        if following and group.text.startswith(" ") and group.text.strip() in _PREPENDED:
            following[-1].text = group.text + following[-1].text
            following[-1].start = group.start
        else:
            following.append(group)
    words: list[TokenGroup] = []
    for group in reversed(following):
        if words and not words[-1].text.endswith(" ") and group.text in _APPENDED:
            words[-1].text += group.text
            words[-1].end = group.end
        else:
            words.append(group)
    return words
