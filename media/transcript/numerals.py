"""Numbers of an answer in digits: `numerals="digits"`, whatever the model, in the languages known here.

Which words are a number is text2num's to say; here an answer's text, its words with their times and its
tokens are changed alike, so that every format has the same words. A text is changed sentence by sentence,
so that the beginning of a growing one that ends with a sentence is changed as the whole will be.

What is mostly no number stays a word: an isolated one below three ("one of them"), a bare "million", a
fraction ("two-thirds", "un terzo"), "twenty second pauses", the Italian "sei" where it stands alone, the
German "Gib acht!"; so does the rest of a number that begins with digits ("5 million two hundred thousand").
Two English numbers that are a year are one ("nineteen eighty-four"), if no third stands beside them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from msgspec import UNSET
from text_to_num import find_numbers

from ...protocols.transcription.numerals import DIGIT_LANGUAGES
from ...protocols.transcription.transcript import TokenLogProb, Word
from .range_answer import RangeAnswer
from .word_probabilities import written_bytes

_STAYS_UP_TO: Final = 3.0
_PIECE: Final = re.compile(r"\w+|\W")
_SENTENCE: Final = re.compile(r".*?[.!?]\s+|.+", re.DOTALL)
_HOMOGRAPHS: Final = {
    "de": frozenset({"Acht"}),
    "es": frozenset({"cuarto"}),
    "it": frozenset({"sei", "quarto"}),
    "pt": frozenset({"quarto", "quarta", "quinta", "sexta"}),
}
"""Numbers that mostly mean something else where no other is beside them: care, a room, you are, weekdays."""
_HOMOGRAPHS_AT_THE_END: Final = {"fr": frozenset({"neuf"})}
"""The same, where no word is behind them: what is new."""
_HEEDING: Final = frozenset({"achte", "achten"})
_ARTICLES_OF_EIGHTH: Final = frozenset(
    {"der", "die", "das", "dem", "den", "des", "am", "beim", "im", "vom", "zum"}
)
"""German verbs, but behind these, or behind a day: "am achten Mai", "am zweiten achten"."""
_GIVING: Final = frozenset(
    {"gib", "gibst", "gibt", "gebt", "geben", "gebe", "gab", "gaben", "geef", "geeft", "geven", "gaf"}
)
"""What "acht" is no number behind, where it counts nothing: German and Dutch."""
_BETWEEN_GIVING: Final = frozenset(
    {"sie", "du", "ihr", "wir", "ich", "er", "gut", "bitte", "immer", "doch", "mal", "u", "goed", "altijd"}
)
"""The same, with one of these between: "Geben Sie acht!", and not "Es gibt Kaffee um acht"."""
_NO_NUMBERS: Final = {"es": frozenset({"unos", "unas", "tercer"}), "pt": frozenset({"umas"})}
"""What text2num takes for a one or an ordinal: "unos veinte" are about twenty."""
_DECADES: Final = re.compile(r"(twen|thir|for|fif|six|seven|eigh|nine)ties|hundreds")
_MAGNITUDES: Final = frozenset({"hundred", "thousand", "million", "billion", "trillion"})
_CENTURIES: Final = range(15, 21)
_YEARS: Final = range(10, 100)
_ARTICLES: Final = frozenset({"a", "an"})


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word, or a character between two, as text2num wants to read it."""

    written: str
    is_no_number: bool = False
    begins_anew: bool = False
    """It is no part of a number before it."""

    def text(self) -> str:
        return self.written

    def nt_separated(self, _previous: object) -> bool:
        return self.begins_anew

    def not_a_number_part(self) -> bool:
        return self.is_no_number


@dataclass(frozen=True, slots=True)
class _Number:
    """Pieces from `start` to before `end` that are a number, its digits and its value."""

    start: int
    end: int
    text: str
    value: float


@dataclass(frozen=True, slots=True)
class _Change:
    """Bytes of a text, from `start` to before `end`, and what is written instead."""

    start: int
    end: int
    written: bytes


def in_digits(text: str, language: str | None) -> str:
    """The text with its numbers in digits; as it is in a language that is not known."""
    data = text.encode()
    return _changed(data, 0, len(data), _changes(text, language)).decode()


def in_digits_so_far(text: str, language: str | None) -> str:
    """The beginning of a growing text that is changed as it will be in the end."""
    if language not in DIGIT_LANGUAGES:
        return text
    return in_digits("".join(_SENTENCE.findall(text)[:-1]), language)


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
        pieces = _pieces(_PIECE.findall(sentence), language)
        ends = list(itertools.accumulate((len(each.written.encode()) for each in pieces), initial=begin))
        for first, last, written in _numbers(pieces, language):
            yield _Change(ends[first], ends[last], written.encode())
        begin = ends[-1]


def _pieces(written: Sequence[str], language: str) -> list[_Piece]:
    """Words and what is between them; English fractions and plurals are no numbers ("tens of thousands"), nor
    are seconds and o'clock; a hyphen binds more than a space ("fifty one-dollar bills")."""
    if language != "en":
        others = _NO_NUMBERS.get(language, frozenset[str]())
        return [_Piece(each, each.lower() in others) for each in written]
    pieces, before = list[_Piece](), ""
    for index, each in enumerate(written):
        word = each.lower()
        is_bound = index > 0 and written[index - 1] == "-"
        is_no_number = word.endswith("s") or word == "o"
        is_no_number |= word in {"second", "third"} and not is_bound
        is_no_number |= word.endswith("th") and before in _ARTICLES | {"one"}
        binds_next = written[index + 1 : index + 2] == ["-"] and not word.endswith("ty")
        begins_anew = binds_next and not is_bound and word not in _MAGNITUDES
        pieces.append(_Piece(each, is_no_number, begins_anew))
        before = word if word.isalpha() else before
    return pieces


def _numbers(pieces: Sequence[_Piece], language: str) -> Iterator[tuple[int, int, str]]:
    """First, and last + 1, of the pieces of each number that is written in digits, and these."""
    found = [
        _Number(cast(int, each.start), cast(int, each.end), cast(str, each.text), each.value)
        for each in find_numbers(pieces, language, _STAYS_UP_TO)
    ]
    if language == "en":
        found = list(_with_years(found, pieces))
    for number, before, after in zip(found, [None, *found], [*found[1:], None], strict=False):
        first, last = number.start, number.end
        written = pieces[first].written
        word = written.lower()
        is_alone = not (
            (before is not None and _are_neighbours(pieces, before.end, first))
            or (after is not None and _are_neighbours(pieces, last, after.start))
        )
        if last - first == 1:
            others = _HOMOGRAPHS.get(language, frozenset[str]())
            if not _word_at(pieces, last + 1).isalpha():
                others |= _HOMOGRAPHS_AT_THE_END.get(language, frozenset[str]())
            is_homograph = is_alone and not others.isdisjoint({written, word})
            is_month = before is not None and before.end == first - 1 and not before.text[-1].isdecimal()
            is_eighth = is_month or _word_at(pieces, first - 2) in _ARTICLES_OF_EIGHTH
            is_homograph |= word in _HEEDING and not is_eighth
            if word.isdecimal() or is_homograph or _is_magnitude(number.value):
                continue
            if _is_care(pieces, first) or (language != "en" and _is_share(pieces, number, language)):
                continue
        if _goes_on(pieces, first, language):
            continue  # "5 Millionen zweihunderttausend"
        next_word = _word_at(pieces, last + 1)
        if language == "en" and (next_word in _MAGNITUDES or _DECADES.fullmatch(next_word)):
            continue  # "one hundred and one hundred", "the nineteen eighties"
        if language == "en" and word in _MAGNITUDES:
            if _word_at(pieces, first - 2) not in _ARTICLES:
                continue  # "several hundred thousand"
            first -= 2
        yield first, last, number.text


def _is_care(pieces: Sequence[_Piece], at: int) -> bool:
    """Whether it is the "acht" of "Gib acht auf dich" or of "außer acht lassen"."""
    if _word_at(pieces, at) != "acht":
        return False
    after = _word_at(pieces, at + 2)
    is_counting = after.isalpha() and after != "auf"
    before = _word_at(pieces, at - 2)
    verb = _word_at(pieces, at - 4) if before in _BETWEEN_GIVING else before
    return before == "außer" or (verb in _GIVING and not is_counting)


def _is_share(pieces: Sequence[_Piece], number: _Number, language: str) -> bool:
    """Whether it is an ordinal behind an article or a cardinal: "un terzo", "drie vierde"."""
    if number.text[-1].isdecimal() or not _word_at(pieces, number.start - 1).isspace():
        return False
    before = find_numbers(pieces[number.start - 2 : number.start - 1], language, 0)
    return any(each.text[-1].isdecimal() for each in before)


def _with_years(numbers: Sequence[_Number], pieces: Sequence[_Piece]) -> Iterator[_Number]:
    """The numbers, and in place of two that are a year, this. A third beside them makes it a list."""
    runs: list[list[_Number]] = []
    for number in numbers:
        if runs and _are_neighbours(pieces, runs[-1][-1].end, number.start):
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        match run:
            case [century, year] if _is_year(century, year, pieces):
                value = 100 * century.value + year.value
                yield _Number(century.start, year.end, f"{value:.0f}", value)
            case _:
                yield from run


def _is_year(century: _Number, year: _Number, pieces: Sequence[_Piece]) -> bool:
    """Whether both are whole numbers in words, of two digits each, and nothing but a space is between."""
    between = [piece.written for piece in pieces[century.end : year.start]]
    is_in_words = not (pieces[century.start].written.isdecimal() or pieces[year.start].written.isdecimal())
    is_whole = century.text.isdecimal() and year.text.isdecimal()
    return (
        between == [" "]
        and is_in_words
        and is_whole
        and int(century.value) in _CENTURIES
        and int(year.value) in _YEARS
    )


def _goes_on(pieces: Sequence[_Piece], first: int, language: str) -> bool:
    """Whether the number that begins here multiplies one in digits: its value is not known."""
    is_after_digits = _word_at(pieces, first - 1).isspace() and _word_at(pieces, first - 2).isdecimal()
    return is_after_digits and any(
        _is_magnitude(each.value) for each in find_numbers(pieces[first : first + 1], language, _STAYS_UP_TO)
    )


def _are_neighbours(pieces: Sequence[_Piece], end: int, start: int) -> bool:
    """Whether no word is between two places."""
    return not any(piece.written.isalnum() for piece in pieces[end:start])


def _word_at(pieces: Sequence[_Piece], index: int) -> str:
    return pieces[index].written.lower() if 0 <= index < len(pieces) else ""


def _is_magnitude(value: float) -> bool:
    """Whether it is a hundred, a thousand, a million or more of them."""
    return value >= 100 and math.log10(value).is_integer()


def _changed(data: bytes, begin: int, end: int, changes: Iterable[_Change]) -> bytes:
    """Bytes `begin` to before `end` of a text with the changes between them."""
    written = b""
    for change in changes:
        written += data[begin : change.start] + change.written
        begin = change.end
    return written + data[begin:end]


def _groups(ends: Sequence[int], changes: Sequence[_Change]) -> Iterator[tuple[int, int, Sequence[_Change]]]:
    """First, and last + 1, of the pieces of a text that become one, and their changes: where a piece ends
    within a change, the next one belongs to it. `ends` ascend."""
    first = passed = at = 0
    for index, end in enumerate(ends):
        while at < len(changes) and changes[at].end <= end:
            at += 1
        if at == len(changes) or end <= changes[at].start or index + 1 == len(ends):
            yield first, index + 1, changes[passed:at]
            first, passed = index + 1, at


def _words(data: bytes, words: Sequence[Word], changes: Sequence[_Change]) -> Iterator[Word]:
    starts, ends = [], [0]
    for word in words:
        spoken = word.word.encode()
        starts.append(max(ends[-1], data.find(spoken, ends[-1])))
        ends.append(min(len(data), starts[-1] + len(spoken)))
    for first, last, within in _groups(ends[1:], changes):
        written = _changed(data, starts[first], ends[last], within).decode(errors="replace")
        known = [each.probability for each in words[first:last] if isinstance(each.probability, float)]
        yield Word(written, words[first].start, words[last - 1].end, min(known) if known else UNSET)


def _tokens(
    data: bytes, tokens: Sequence[TokenLogProb], changes: Sequence[_Change]
) -> Iterator[TokenLogProb]:
    """Where the tokens are not those of the text, they stay as they are."""
    pieces = written_bytes(tokens)
    spoken = b"".join(pieces)
    lead = spoken.find(data)
    if lead < 0:
        yield from tokens
        return
    moved = [_Change(lead + each.start, lead + each.end, each.written) for each in changes]
    ends = list(itertools.accumulate(map(len, pieces), initial=0))
    for first, last, within in _groups(ends[1:], moved):
        if not within:
            yield from tokens[first:last]
        else:
            written = _changed(spoken, ends[first], ends[last], within)
            logprob = min(token.logprob for token in tokens[first:last])
            yield TokenLogProb(written.decode(errors="replace"), written, logprob)
