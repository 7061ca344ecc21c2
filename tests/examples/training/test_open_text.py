"""What training says beside the grammar: divided cleanly, repeatable, writable by the model."""

import itertools
import random

import pytest
from open_text import KINDS, Kind, OpenText, drawn_kind, is_rare_held_out
from speech_grammar import LANGUAGES, Language, is_held_out, normalised
from support.word_samples import open_text
from tiny_whisper_tokens import LETTERS

NUM_PHRASES = 60


@pytest.fixture(params=LANGUAGES, scope="module")
def texts(request: pytest.FixtureRequest) -> OpenText:
    language: Language = request.param
    return open_text(language)


def phrases(texts: OpenText, kind: Kind, seed: int, *, held_out: bool = False) -> list[str]:
    rng = random.Random(seed)
    return [texts.phrase(kind, rng, held_out=held_out) for _ in range(NUM_PHRASES)]


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_evaluation_share_no_phrase_of_four_words(texts: OpenText, kind: Kind) -> None:
    assert not any(is_held_out(text) for text in phrases(texts, kind, 1))
    reserved = [text for text in phrases(texts, kind, 1, held_out=True) if len(text.split()) >= 4]
    assert all(is_held_out(text) for text in reserved)


@pytest.mark.parametrize("kind", KINDS)
def test_every_phrase_is_a_sentence_in_letters(texts: OpenText, kind: Kind) -> None:
    for text in phrases(texts, kind, 2):
        assert set(normalised(text)) <= set(LETTERS), text
        assert text.lstrip("¿")[0].isupper(), text
        assert text[-1] in ".?", text
        assert text == " ".join(text.split()), text
        assert ("¿" in text) == (texts.language == "es" and text.endswith("?")), text


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_determines_the_phrases(texts: OpenText, kind: Kind) -> None:
    assert phrases(texts, kind, 3) == phrases(texts, kind, 3)
    assert len(set(phrases(texts, kind, 3))) > NUM_PHRASES / 4


def test_any_word_may_follow_any_other(texts: OpenText) -> None:
    rng = random.Random(4)
    words = [word for _ in range(400) for word in texts.words(10, rng)]
    assert set(words) == set(texts.lists.words)
    pairs = set(itertools.pairwise(words))
    assert len(pairs) > 0.9 * len(words), "words come in an order that could be learned"


def test_invented_words_are_in_no_list_and_divided(texts: OpenText) -> None:
    rng = random.Random(5)
    known = {word.lower() for word in (*texts.lists.words, *texts.lists.names)}
    for held_out in (False, True):
        invented = [texts.invented.word(rng, held_out=held_out) for _ in range(50)]
        assert known.isdisjoint(word.lower() for word in invented)
        assert all(is_rare_held_out(word) is held_out for word in invented)
        assert all(word[0].isupper() and word.isalpha() for word in invented)


def test_only_evaluation_says_the_reserved_invented_words(texts: OpenText) -> None:
    known = {word.lower() for word in (*texts.lists.words, *texts.lists.variants)}
    for held_out in (False, True):
        said = {
            word for text in phrases(texts, "rare", 6, held_out=held_out) for word in text.rstrip(".").split()
        }
        invented = {word for word in said if word.lower() not in known}
        assert invented
        assert all(is_rare_held_out(word) is held_out for word in invented)


def test_every_kind_is_drawn() -> None:
    rng = random.Random(7)
    assert {drawn_kind(rng) for _ in range(500)} == set(KINDS)
