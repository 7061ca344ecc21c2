"""The sentences the embedded models learn from: rich enough, divided cleanly, repeatable."""

import random

import pytest
from speech_grammar import (
    HELD_OUT_MIN_WORDS,
    HELD_OUT_ONE_IN,
    LANGUAGES,
    MAX_NUMBER,
    Language,
    is_held_out,
    load_grammar,
    normalised,
    number_words,
    ordinal_words,
)

NUM_SENTENCES = 1500


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> Language:
    name: Language = request.param
    return name


def sentences(language: Language, seed: int, count: int = NUM_SENTENCES) -> list[str]:
    rng = random.Random(seed)
    return [load_grammar(language).training_sentence(rng) for _ in range(count)]


def test_a_language_has_many_templates_and_words(language: Language) -> None:
    words = {word for text in sentences(language, 1) for word in normalised(text).split()}
    assert len(load_grammar(language).templates) >= 25
    assert len(words) >= 300


def test_training_sentences_are_never_held_out(language: Language) -> None:
    assert not any(is_held_out(text) for text in sentences(language, 2))


def test_held_out_sentences_are_held_out_and_differ_from_training(language: Language) -> None:
    rng = random.Random(3)
    reserved = {normalised(load_grammar(language).held_out_sentence(rng)) for _ in range(300)}
    assert all(is_held_out(text) for text in reserved)
    assert reserved.isdisjoint(map(normalised, sentences(language, 4)))


def test_held_out_words_also_occur_in_training(language: Language) -> None:
    rng = random.Random(5)
    known = {word for text in sentences(language, 6, 8_000) for word in normalised(text).split()}
    reserved = [load_grammar(language).held_out_sentence(rng) for _ in range(300)]
    words = [word for text in reserved for word in normalised(text).split()]
    # German writes numbers as one word, and some of the large ones are rare.
    assert sum(word not in known for word in words) <= len(words) // 100


def test_the_division_ignores_case_and_punctuation(language: Language) -> None:
    for text in sentences(language, 7, 200):
        assert is_held_out(text.lower().rstrip(".?")) == is_held_out(text)


def test_about_the_promised_share_is_held_out(language: Language) -> None:
    rng = random.Random(8)
    texts = {load_grammar(language).sentence(rng) for _ in range(NUM_SENTENCES)}
    long = [text for text in texts if len(normalised(text).split()) >= HELD_OUT_MIN_WORDS]
    share = sum(map(is_held_out, long)) / len(long)
    assert 0.5 / HELD_OUT_ONE_IN < share < 1.5 / HELD_OUT_ONE_IN


def test_the_seed_determines_the_sentences(language: Language) -> None:
    assert sentences(language, 9, 100) == sentences(language, 9, 100)
    assert sentences(language, 9, 100) != sentences(language, 10, 100)


def test_sentences_are_written_out(language: Language) -> None:
    for text in sentences(language, 11):
        letters = text.lstrip("¿")
        assert letters[0].isupper(), text
        assert text[-1] in ".?", text
        assert not any(char.isdigit() or char in "{}" for char in text), text
        assert text == " ".join(text.split()), text


def test_every_number_has_its_own_words(language: Language) -> None:
    spoken = [number_words(number, language) for number in range(MAX_NUMBER + 1)]
    assert len(set(spoken)) == len(spoken)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, ("zero", "cero", "null")),
        (16, ("sixteen", "dieciséis", "sechzehn")),
        (21, ("twenty one", "veintiuno", "einundzwanzig")),
        (42, ("forty two", "cuarenta y dos", "zweiundvierzig")),
        (100, ("one hundred", "cien", "einhundert")),
        (101, ("one hundred one", "ciento uno", "einhunderteins")),
        (999, ("nine hundred ninety nine", "novecientos noventa y nueve", "neunhundertneunundneunzig")),
    ],
)
def test_numbers_in_words(number: int, words: tuple[str, str, str]) -> None:
    assert tuple(number_words(number, language) for language in LANGUAGES) == words


def test_ordinals_in_words() -> None:
    assert [ordinal_words(n, "en") for n in (1, 12, 20, 31)] == [
        "first",
        "twelfth",
        "twentieth",
        "thirty first",
    ]
    assert [ordinal_words(n, "de") for n in (1, 3, 8, 20)] == ["erste", "dritte", "achte", "zwanzigste"]


@pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        number_words(number, "en")
