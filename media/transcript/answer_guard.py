"""What an answer of a speech model may be: not longer than speech is, not a loop, not its own prompt.

Pure and torch-free; the same answer is cut in the same way in a live turn and in a file. Families use it, and
`actors/speech/recording.py` and `media/transcript/joining.py`.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Final

TOKENS_PER_S: Final = 36
"""More than anyone says: 6 words of 6 bytes at a token a byte, or 9 Han characters at 3 tokens each (27)."""
TOKENS_BEFORE: Final = 32
"""Of a header with the language's name, timestamps, and a word in a fraction of a second."""

KEPT_COPIES: Final = 2
"""Of a loop; what follows shows it a loop, so these may have been released before."""
MAX_UNIT: Final = 256
"""Characters of the longest unit looked for, more than 20 words."""
_COPIES: Final = ((20, 20), (60, 12), (MAX_UNIT, 8))
"""Up to so many characters, so many copies in a row are a loop. 20 of a word or a digit is what Qwen3-ASR's
own tools take for one; 8 of a long phrase are half a minute of it."""

MAX_TOKEN_UNIT: Final = 32
TOKEN_COPIES: Final = 24
"""More than the text rule needs, because what comes after a loop of tokens is lost."""

TOKENS_UNREAD: Final = 16
"""Tokens in one message of an answer that nobody reads as it grows: it is only looked at for loops."""

LETTERS_PER_S: Final = 30
IDEOGRAPHS_PER_S: Final = 9
"""The fastest speech, as in `TOKENS_PER_S`."""
ECHOED_SHARE: Final = 0.5
"""Of the context's letters that an echo has at least."""
PIECE_LETTERS: Final = 12
"""Of a piece of the context: shorter ones are in any text."""
ALIKE: Final = 0.6
"""Of two answers' letters, the share in common that makes them say the same (`difflib`)."""
ALIKE_INLINE: Final = 600
"""Letters of both together that are compared in 2 ms."""


def token_budget(duration_s: float) -> int:
    """Tokens that an honest transcript of so much audio does not exceed, header and end included."""
    return TOKENS_BEFORE + math.ceil(max(0.0, duration_s) * TOKENS_PER_S)


def cut_loops(text: str) -> str:
    """`text` with every loop cut to `KEPT_COPIES` of its unit; what follows a loop stays.

    A loop is a unit of up to `MAX_UNIT` characters that stands in a row more often than a person says it:
    20 times if short, 8 times if long. Idempotent. Text without a loop costs far less than its length.
    """
    if not _has_loop(text):
        return text
    cutter = LoopCutter()
    return cutter.feed(text) + cutter.finish()


class LoopCutter:
    """`cut_loops` of text that is still growing.

    `feed` gives what no later text can change, `finish` the rest; both join to `cut_loops` of the whole,
    however it is cut. Withheld is what stands in a row for the third time or more, until the row breaks.
    Every prefix of what is kept is without a loop, hence idempotent. Costs a few microseconds a character.
    """

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._rows: list[dict[int, int]] = [{}]
        """For each length of `_kept`: by period, how many of its last characters repeat the period before."""
        self._settled: list[int] = [0]
        """For each length of `_kept`: characters of it that can no longer be cut."""
        self._unit = ""
        """The loop being left out, if any: it goes on with this."""
        self._num_matched = 0
        """Characters of the unit's next copy seen so far."""
        self._num_released = 0

    def feed(self, text: str) -> str:
        """More text → more of what is kept."""
        for character in text:
            self._take(character)
        return self._release(self._settled[-1])

    def finish(self) -> str:
        """The text has ended: the rest of what is kept."""
        while self._unit:
            self._leave_loop()
        return self._release(len(self._kept))

    def _release(self, end: int) -> str:
        released = "".join(self._kept[self._num_released : end])
        self._num_released = max(self._num_released, end)
        return released

    def _take(self, character: str) -> None:
        if self._unit:
            if character == self._unit[self._num_matched]:
                self._num_matched = (self._num_matched + 1) % len(self._unit)
                return
            self._leave_loop()
        if self._unit:  # the beginning of a copy completed another loop
            self._take(character)
        else:
            self._push(character)

    def _leave_loop(self) -> None:
        """What was seen of an unfinished copy is text."""
        rest, self._unit, self._num_matched = self._unit[: self._num_matched], "", 0
        for character in rest:
            self._take(character)

    def _push(self, character: str) -> None:
        kept, before = self._kept, self._rows[-1]
        num_kept = len(kept)
        row = {period: before.get(period, 0) + 1 for period in _places(kept[-MAX_UNIT:], character)}
        kept.append(character)
        self._rows.append(row)
        settled = num_kept + 1
        for period, length in row.items():
            if length <= (KEPT_COPIES - 1) * period:
                continue  # no copy more than is kept
            end = num_kept + 1 - length + (KEPT_COPIES - 1) * period  # of the copies to keep
            if length >= _loop_row(period):
                self._cut(end, period)
                return
            settled = min(settled, self._settled[end])
        self._settled.append(settled)

    def _cut(self, length: int, period: int) -> None:
        """Keep `length` characters, which end with the loop's first copies."""
        del self._kept[length:], self._rows[length + 1 :], self._settled[length + 1 :]
        self._unit, self._num_matched = "".join(self._kept[length - period :]), 0


class LoopGuard:
    """Says of a growing answer when it has become a loop of tokens, so that it can be ended early.

    The answer is the tokens up to there, however many came at once; `cut_loops` cuts their text.
    """

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._row = [0] * (MAX_TOKEN_UNIT + 1)
        """By period: how many of the last tokens repeat the period before."""
        self._end: int | None = None

    def feed(self, token_ids: Iterable[int]) -> int | None:
        """More of the answer → how many of its tokens, from its first on, to keep; None: go on."""
        for token_id in token_ids:
            if self._end is not None:
                break
            self._add(token_id)
        return self._end

    def _add(self, token_id: int) -> None:
        token_ids, row = self._token_ids, self._row
        for period in range(1, min(MAX_TOKEN_UNIT, len(token_ids)) + 1):
            row[period] = row[period] + 1 if token_ids[-period] == token_id else 0
            if row[period] >= (TOKEN_COPIES - 1) * period:
                self._end = len(token_ids) + 1
        token_ids.append(token_id)


def echoes_context(text: str, context: str) -> bool:
    """Whether `text` is nothing but a large part of the `context` it was asked with, letter for letter.

    Case, spaces and punctuation do not count. Someone may have said just that: take it for an echo only
    where less speech was heard than `speaking_time_s(text)`.
    """
    answer, given = _letters(text), _letters(context)
    return bool(answer) and answer in given and len(answer) >= ECHOED_SHARE * len(given)


def is_made_of(text: str, context: str) -> bool:
    """Whether `text` is nothing but pieces of the `context` it was asked with, letter for letter, or nothing.

    A model may repeat parts of what it was told instead of what it hears, or, told something in another
    language, hear nothing. Someone may have said just that.
    """
    answer = _letters(text)
    return _num_covered(answer, _letters(context)) == len(answer)


def may_echo(text: str, context: str) -> bool:
    """Whether `text`, which still grows, may become an echo of the `context`, or be made of it."""
    answer, given = _letters(text), _letters(context)
    rest = answer[_num_covered(answer, given) :]
    return len(rest) < PIECE_LETTERS and rest in given


def is_alike(text: str, other: str) -> bool:
    """Whether two answers say much the same. Takes the square of their letters; see `ALIKE_INLINE`."""
    first, second = _letters(text), _letters(other)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return first == second or (matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE)


def speaking_time_s(text: str) -> float:
    """The shortest time in which `text` can be said."""
    letters = _letters(text)
    num_ideographs = sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters)
    return (len(letters) - num_ideographs) / LETTERS_PER_S + num_ideographs / IDEOGRAPHS_PER_S


def spoken_part(text: str, seconds: float) -> str:
    """The beginning of `text` that can be said in so many seconds: mostly all of it."""
    if speaking_time_s(text) <= seconds:
        return text
    total = itertools.accumulate(map(speaking_time_s, text))
    return text[: sum(1 for time_s in total if time_s <= seconds)].rstrip()


def _letters(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).casefold() if letter.isalnum())


def _num_covered(answer: str, given: str) -> int:
    """How many letters, from the first on, lie each in a piece of `PIECE_LETTERS` that `given` has, too."""
    covered = 0
    for start in range(len(answer) - PIECE_LETTERS + 1):
        if start > covered:
            break
        if answer[start : start + PIECE_LETTERS] in given:
            covered = start + PIECE_LETTERS
    return covered


def _places(tail: Sequence[str], character: str) -> Iterator[int]:
    """How far behind the end of `tail` the character stands, nearest first."""
    text = "".join(tail)
    place = text.rfind(character)
    while place >= 0:
        yield len(text) - place
        place = text.rfind(character, 0, place)


@cache
def _loop_row(period: int) -> int:
    """Characters in a row that repeat those a period before, which make a loop."""
    return (_copies(period) - 1) * period


def _copies(period: int) -> int:
    """Of a unit of so many characters, how many in a row are a loop."""
    return next(copies for length, copies in _COPIES if period <= length)


def _has_loop(text: str) -> bool:
    """Whether there is any loop. A loop is so long that a look at few places finds it."""
    for period in range(1, MAX_UNIT + 1):
        copies = _copies(period)
        row = _loop_row(period)
        if copies * period > len(text):
            continue
        for place in range(period + row - 1, len(text), row):
            start = end = place
            while start >= period and text[start] == text[start - period] and end - start < row:
                start -= 1
            if start == end:
                continue
            while end + 1 < len(text) and text[end + 1] == text[end + 1 - period] and end - start < row:
                end += 1
            if end - start >= row:
                return True
    return False
