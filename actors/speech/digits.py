"""Numbers of an answer in digits: `numerals="digits"`, whatever the model, in the languages known here.

Which words are a number is text2num's to say; here an answer's text, its words with their times and its
tokens are changed alike, so that every format has the same words. A text is changed sentence by sentence,
so that the beginning of a growing one that ends with a sentence is changed as the whole will be.

An isolated number up to three stays a word ("one of them"), as does a bare "million".
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from text_to_num import find_numbers

from ...protocols.numerals import DIGIT_LANGUAGES
from ...protocols.transcript import TokenLogProb, Word
from .family import RangeAnswer

_STAYS_UP_TO: Final = 3.0
_PIECE: Final = re.compile(r"\w+|\W")
_SENTENCE: Final = re.compile(r".*?[.!?]\s+|.+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word, or a character between two, as text2num wants to read it."""

    written: str

    def text(self) -> str:
        return self.written

    def nt_separated(self, _previous: object) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Change:
    """Bytes of a text, from `start` to before `end`, and what is written instead."""

    start: int
    end: int
    written: bytes


def in_digits(text: str, language: str | None) -> str:
    """The text with its numbers in digits; as it is in a language that is not known."""
    data = text.encode()
    return _changed(data, 0, len(data), list(_changes(text, language))).decode()


def settled(text: str) -> str:
    """The beginning of a growing text that is changed as it will be in the end."""
    return "".join(_SENTENCE.findall(text)[:-1])


def answer_in_digits(
    answer: RangeAnswer, words: Sequence[Word], language: str | None
) -> tuple[RangeAnswer, tuple[Word, ...]]:
    """The answer and its words with their numbers in digits.

    Words that are one number become one, as long as all of them; so do tokens, as likely as the unlikeliest
    of them. Where anything changed, `logprobs` are their mean, for they are no longer those of the text.
    """
    changes = list(_changes(answer.text, language))
    if not changes:
        return answer, tuple(words)
    data = answer.text.encode()
    mean = sum(answer.logprobs) / max(1, len(answer.logprobs))
    changed = replace(
        answer,
        text=_changed(data, 0, len(data), changes).decode(),
        tokens=tuple(_tokens(data, answer.tokens, changes)),
        logprobs=(mean,) * len(answer.logprobs),
    )
    return changed, tuple(_words(data, words, changes))


def _changes(text: str, language: str | None) -> Iterator[_Change]:
    if language not in DIGIT_LANGUAGES:
        return
    begin = 0
    for sentence in _SENTENCE.findall(text):
        pieces = [_Piece(each) for each in _PIECE.findall(sentence)]
        ends = list(itertools.accumulate((len(each.written.encode()) for each in pieces), initial=begin))
        for number in find_numbers(pieces, language, _STAYS_UP_TO):
            is_word = number.end - number.start == 1
            is_known = pieces[number.start].written.isdecimal() or _is_magnitude(number.value)
            if not (is_word and is_known):
                written = cast(str, number.text).encode()
                yield _Change(ends[number.start], ends[number.end], written)
        begin = ends[-1]


def _is_magnitude(value: float) -> bool:
    """Whether it is a hundred, a thousand, a million or more of them."""
    return value >= 100 and math.log10(value).is_integer()


def _changed(data: bytes, begin: int, end: int, changes: Sequence[_Change]) -> bytes:
    """Bytes `begin` to before `end` of a text, into which no change reaches from outside."""
    written = b""
    for change in changes:
        if begin <= change.start and change.end <= end:
            written += data[begin : change.start] + change.written
            begin = change.end
    return written + data[begin:end]


def _groups(ends: Sequence[int], changes: Sequence[_Change]) -> Iterator[tuple[int, int]]:
    """First, and last + 1, of the pieces of a text that become one: where a piece ends within a change, the
    next one belongs to it. `ends` ascend."""
    first = at = 0
    for index, end in enumerate(ends):
        while at < len(changes) and changes[at].end <= end:
            at += 1
        if at == len(changes) or end <= changes[at].start:
            yield first, index + 1
            first = index + 1
    if first < len(ends):
        yield first, len(ends)


def _words(data: bytes, words: Sequence[Word], changes: Sequence[_Change]) -> Iterator[Word]:
    starts, ends = [], [0]
    for word in words:
        said = word.word.encode()
        starts.append(max(ends[-1], data.find(said, ends[-1])))
        ends.append(min(len(data), starts[-1] + len(said)))
    for first, last in _groups(ends[1:], changes):
        written = _changed(data, starts[first], ends[last], changes).decode(errors="replace")
        yield Word(written, words[first].start, words[last - 1].end)


def _tokens(
    data: bytes, tokens: Sequence[TokenLogProb], changes: Sequence[_Change]
) -> Iterator[TokenLogProb]:
    """Where the tokens are not those of the text, they stay as they are."""
    said = b"".join(token.data for token in tokens)
    lead = said.find(data)
    if lead < 0:
        yield from tokens
        return
    moved = [_Change(lead + each.start, lead + each.end, each.written) for each in changes]
    ends = list(itertools.accumulate((len(token.data) for token in tokens), initial=0))
    for first, last in _groups(ends[1:], moved):
        written = _changed(said, ends[first], ends[last], moved)
        if written == said[ends[first] : ends[last]]:
            yield from tokens[first:last]
        else:
            logprob = min(token.logprob for token in tokens[first:last])
            yield TokenLogProb(written.decode(errors="replace"), written, logprob)
