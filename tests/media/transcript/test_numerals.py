"""Numbers in digits: text, words and tokens say the same, and a growing text is not taken back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.transcript.numerals import answer_in_digits, in_digits, in_digits_so_far
from sensorium.media.transcript.range_answer import RangeAnswer
from sensorium.protocols.transcription.numerals import DIGIT_LANGUAGES
from sensorium.protocols.transcription.transcript import TokenLogProb, Word

NUMBERS = "one two Three twenty twenty-five hundred thousand million first and point zero nineteen"
OTHERS = (
    "ein zwei und tausend zweiundzwanzig dos mil veinticinco deux cent 250 3.5 cats, dogs. of? Grüße 今天。"
)
PIECES = st.sampled_from(f"{NUMBERS} {OTHERS}".split())
TEXTS = st.lists(PIECES, max_size=14).map(" ".join)
LANGUAGES = st.sampled_from([*DIGIT_LANGUAGES, "pl", None])
BEGUN_IN_DIGITS = [
    ("da", "5 millioner to hundrede tusind."),
    ("da", "5 tusind to hundrede."),
    ("de", "5 Millionen zweihunderttausend Euro."),
    ("de", "1,5 Milliarden zweihundert Millionen."),
    ("de", "2 hundert fünfzig."),
    ("en", "5 million two hundred thousand."),
    ("es", "5 millones doscientos mil euros."),
    ("es", "5 mil doscientos."),
    ("fr", "1 million deux cent mille."),
    ("fr", "2 cent cinquante."),
    ("nl", "5 miljoen tweehonderdduizend."),
    ("pt", "1 milhão e duzentos mil."),
    ("pt", "5\u00a0mil e duzentos."),
]
"""Numbers whose value is not known."""


@pytest.mark.parametrize(
    ("language", "said", "written"),
    [
        ("en", "Call two five five, nine.", "Call 2 5 5, 9."),
        ("en", "Twenty-five thousand and two people came.", "25002 people came."),
        ("en", "The twenty-first of May, three point one four.", "The 21st of May, 3.14."),
        ("en", "One of them had two.", "One of them had two."),
        ("en", "Millions of people, a hundred.", "Millions of people, a hundred."),
        ("en", "Two hundred millions.", "200 millions."),
        ("en", "Tens of thousands, hundreds and thousands.", "Tens of thousands, hundreds and thousands."),
        ("en", "In the nineteen eighties, two fives.", "In the nineteen eighties, two fives."),
        (
            "es",
            "Unos veinte minutos, el tercer piso, tres cuartos.",
            "Unos 20 minutos, el tercer piso, 3 cuartos.",
        ),
        ("it", "Due terzi e tre quarti.", "Due terzi e 3 quarti."),
        ("pt", "Umas dez, vinte e uma, três quartos.", "Umas 10, 21, 3 quartos."),
        ("en", "From nine o'clock to seven O’Brien.", "From 9 o'clock to 7 O’Brien."),
        ("en", "It was 250 or 3.5.", "It was 250 or 3.5."),
        ("en", "", ""),
        ("en", "A twenty second pause, the twenty-second of May.", "A 20 second pause, the 22nd of May."),
        ("en", "Two-thirds and one fifth, three tenths.", "Two-thirds and one fifth, 3 tenths."),
        ("en", "A hundred and two, a hundred thousand.", "102, 100000."),
        (
            "en",
            "Several hundred thousand, 250 thousand and two.",
            "Several hundred thousand, 250 thousand and two.",
        ),
        ("en", "One hundred and one hundred.", "One hundred and one hundred."),
        ("en", "In nineteen eighty-four, not twenty ten.", "In 1984, not 2010."),
        ("en", "Eighteen nineteen twenty, fifteen, sixteen.", "18 19 20, 15, 16."),
        ("en", "Twelve thirty or nineteen five.", "12 30 or 19 5."),
        ("en", "Nineteen eightieth, 19 eighty, nineteen point five sixty.", "19 80th, 19 80, 19.5 60."),
        (
            "en",
            "Fifty one-dollar bills, two hundred ten-year-olds.",
            "50 1-dollar bills, 200 10-year-olds.",
        ),
        ("en", "A twenty-five-year-old, one hundred-dollar bill.", "A 25-year-old, 100-dollar bill."),
        ("it", "Sei sicuro? Cinque, sei, sette.", "Sei sicuro? 5, 6, 7."),
        ("fr", "Quoi de neuf ? A neuf heures.", "Quoi de neuf ? A 9 heures."),
        ("de", "Nimm dich in Acht, um acht Uhr am achten Mai.", "Nimm dich in Acht, um 8 Uhr am 8. Mai."),
        ("de", "Nimm dich in Acht vor acht neun.", "Nimm dich in Acht vor 8 9."),
        ("de", "Gib acht! Gebt acht auf euch. Um acht.", "Gib acht! Gebt acht auf euch. Um 8."),
        ("de", "Es gibt acht Gleise, sieben außer acht.", "Es gibt 8 Gleise, 7 außer acht."),
        ("de", "Achte auf den achten, wir achten darauf.", "Achte auf den 8., wir achten darauf."),
        ("de", "Geben Sie acht! Ich gebe gut acht auf dich.", "Geben Sie acht! Ich gebe gut acht auf dich."),
        ("de", "Es gibt Kaffee um acht.", "Es gibt Kaffee um 8."),
        ("de", "Ich gebe Ihnen die Nummer sieben eins acht.", "Ich gebe Ihnen die Nummer 7 1 8."),
        ("de", "Am zweiundzwanzigsten achten.", "Am 22. 8.."),
        ("nl", "Hij gaf les tot acht.", "Hij gaf les tot 8."),
        ("nl", "Geef acht! Drie vierde van acht.", "Geef acht! 3 vierde van 8."),
        ("it", "Un terzo, tre sesti, il terzo giorno.", "Un terzo, 3 sesti, il 3º giorno."),
        ("fr", "Un dixième, trois dixièmes, le dixième.", "Un dixième, 3 dixièmes, le 10ème."),
        ("es", "Una quinta parte de la quinta planta.", "Una quinta parte de la 5ª planta."),
        ("pt", "Um terceiro, dois décimos, o terceiro.", "Um terceiro, dois décimos, o 3º."),
        ("es", "Son dos mil veinticinco.", "Son 2025."),
        ("de", "Am dritten Mai kamen zweiundzwanzig.", "Am 3. Mai kamen 22."),
        ("fr", "quatre-vingt-dix-neuf ballons", "99 ballons"),
        *((language, said, said) for language, said in BEGUN_IN_DIGITS),
        ("de", "Um 5 zweihundert Millionen.", "Um 5 200000000."),
        ("fr", "1,5 deux cents.", "1,5 200."),
        ("pl", "dwadzieścia", "dwadzieścia"),
        (None, "twenty", "twenty"),
    ],
)
def test_numbers_are_written_in_digits(language: str | None, said: str, written: str) -> None:
    assert in_digits(said, language) == written


def test_words_and_tokens_of_one_number_become_one() -> None:
    said = "We saw twenty-five thousand and two well-known cats."
    words = [Word(word, float(at), at + 0.9) for at, word in enumerate(said.split())]
    pieces = (" We saw", " twen", "ty-five", " thous", "and and", " two", " well", "-known cats.")
    tokens = tuple(
        TokenLogProb(text, text.encode(), -0.1 * at, ((text.encode(), -0.1 * at),))
        for at, text in enumerate(pieces)
    )
    answer = RangeAnswer(said, tokens=tokens, logprobs=(-0.2, -0.4, -0.6), token_ids=(1, 2, 3))
    changed, timed = answer_in_digits(answer, words, "en")
    assert changed.text == "We saw 25002 well-known cats."
    assert timed == (*words[:2], Word("25002", 2.0, 5.9), *words[6:])
    assert [(token.text, token.logprob) for token in changed.tokens] == [
        (" We saw", 0),
        (" 25002", -0.5),
        (" well", pytest.approx(-0.6)),
        ("-known cats.", pytest.approx(-0.7)),
    ]
    assert changed.tokens[0] is tokens[0]
    assert changed.logprobs == pytest.approx((-0.4,) * 3)
    assert changed.token_ids == answer.token_ids


def test_what_has_no_numbers_stays_as_it_is() -> None:
    answer = RangeAnswer("No one came.", logprobs=(-0.1, -0.3))
    assert answer_in_digits(answer, (), "en") == (answer, ())


def test_tokens_that_are_not_those_of_the_text_stay() -> None:
    token = TokenLogProb("forty", b"forty", -1.0)
    changed, _ = answer_in_digits(RangeAnswer("twenty", tokens=(token,), logprobs=(-1.0,)), (), "en")
    assert (changed.text, changed.tokens) == ("20", (token,))


def test_a_token_that_is_no_character_keeps_no_number_from_being_written() -> None:
    pieces = (b" a\xe4", b"\xbb", b" twen", b"ty", b" cats")
    tokens = tuple(TokenLogProb(piece.decode(errors="replace"), piece, -1.0) for piece in pieces)
    changed, _ = answer_in_digits(RangeAnswer("a\ufffd twenty cats", tokens=tokens), (), "en")
    assert [token.data for token in changed.tokens] == [*pieces[:2], b" 20", b" cats"]


@given(said=TEXTS, language=LANGUAGES, cuts=st.lists(st.integers(0, 200), max_size=30))
def test_words_and_tokens_join_to_the_text(said: str, language: str | None, cuts: list[int]) -> None:
    words = [Word(word, float(at), at + 0.5) for at, word in enumerate(said.split())]
    data = f" {said}".encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    tokens = tuple(TokenLogProb(piece.decode(errors="replace"), piece, -1.0) for piece in pieces)
    answer = RangeAnswer(said, tokens=tokens, logprobs=(-1.0,) * len(tokens))
    changed, timed = answer_in_digits(answer, words, language)
    assert changed.text == in_digits(said, language)
    assert "".join(word.word for word in timed) == changed.text.replace(" ", "")
    assert b"".join(token.data for token in changed.tokens) == f" {changed.text}".encode()
    assert [(word.start, word.end) for word in timed] == sorted((word.start, word.end) for word in timed)
    if words:
        assert (timed[0].start, timed[-1].end) == (words[0].start, words[-1].end)
    assert len(changed.logprobs) == len(answer.logprobs)


@given(said=TEXTS, more=TEXTS, language=LANGUAGES)
def test_a_sentence_that_has_ended_is_not_taken_back(said: str, more: str, language: str | None) -> None:
    shown = in_digits_so_far(said, language)
    assert in_digits(f"{said} {more}", language).startswith(shown)
    assert in_digits(said, language).startswith(shown)
    assert language in DIGIT_LANGUAGES or shown == said
