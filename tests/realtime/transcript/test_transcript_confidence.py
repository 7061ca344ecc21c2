"""Which text is released where a model says how sure it is of its words, and of a capital."""

from __future__ import annotations

import pytest
from sensorium.realtime.transcript.policy import TranscriptPolicy
from support.release_rules import config, tokens_of, torn

LATE = 10_000
"""Milliseconds of speech after which nothing is special."""


def test_a_word_that_the_model_was_torn_about_waits_until_it_is_sure() -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8, doubt_ms=500))
    for_sure = tokens_of(("press", 0.9), ("4", 0.6), ("to", 0.99), ("go", 0.9))
    policy.observe("press 4 to go", 1000, tokens=for_sure)
    assert policy.observe("press 4 to go", 1200, tokens=for_sure) == "press"
    now = tokens_of(("press", 0.9), ("four", 0.85), ("to", 0.99), ("go", 0.9))
    assert policy.observe("press four to go", 1300, tokens=now) == ""
    assert policy.observe("press four to go", 1400, tokens=now) == " four to"


@pytest.mark.parametrize(("certainty", "released"), [(0.55, " 4 to"), (0.45, "")])
def test_a_doubt_ends_where_the_same_was_said_for_long_but_a_guess_stays_one(
    certainty: float, released: str
) -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8, doubt_ms=500))
    tokens = tokens_of(("press", 0.9), ("4", certainty), ("to", 0.99), ("go", 0.9))
    for speech_ms in (1000, 1200, 1499):
        policy.observe("press 4 to go", speech_ms, tokens=tokens)
    assert policy.released == "press"
    assert policy.observe("press 4 to go", 1500, tokens=tokens) == released


def test_what_was_released_is_not_doubted_again() -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8, doubt_ms=500))
    for _ in range(2):
        policy.observe("press four to", 1000, tokens=tokens_of(("press", 0.9), ("four", 0.9), ("to", 0.9)))
    assert policy.released == "press four"
    later = tokens_of(("press", 0.2), ("four", 0.2), ("to", 0.9), ("go", 0.9))
    assert policy.observe("press four to go", 1100, tokens=later) == " to"


@pytest.mark.parametrize(
    ("word", "sure", "released"),
    [
        ("the", 0.75, "The leader"),
        ("The", 0.75, "The leader"),
        ("the", 0.85, "the leader"),
        ("\u043e\u043d", 0.75, "\u041e\u043d leader"),
        ("\u00dfa", 0.75, "\u00dfa leader"),
    ],
)
def test_a_turn_begins_with_a_capital_unless_the_model_is_very_sure(
    word: str, sure: float, released: str
) -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8))
    for speech_ms in (1000, 1200):
        tokens = tokens_of((word, sure), ("leader", 0.9), ("has", 0.9))
        policy.observe(f"{word} leader has", speech_ms, tokens=tokens)
    assert policy.released == released


def test_a_first_word_with_and_without_its_capital_is_the_same_word() -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.8, agree=2))
    assert (
        policy.observe("the leader has", 1000, tokens=tokens_of(("the", 0.6), ("leader", 0.9), ("has", 0.9)))
        == ""
    )
    tokens = tokens_of(("The", 0.6), ("leader", 0.9), ("has", 0.9))
    assert policy.observe("The leader has", 1200, tokens=tokens) == "The leader"
    tokens = tokens_of(("the", 0.9), ("leader", 0.9), ("has", 0.9), ("four", 0.9), ("of", 0.9))
    assert policy.observe("the leader has four of", 1400, tokens=tokens) == " has"
    assert policy.observe("the leader has four of", 1600, tokens=tokens) == " four"
    assert policy.finish("The leader has four of them.") == " of them."
    assert not policy.corrected


@pytest.mark.parametrize("before", ["", "a leader has", "so"])
def test_another_first_word_is_not_made_the_same_by_a_capital(before: str) -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.8))
    policy.observe(before, 1000, tokens=tokens_of(*((word, 0.6) for word in before.split())))
    tokens = tokens_of(("the", 0.6), ("leader", 0.9), ("has", 0.9))
    assert policy.observe("the leader has", 1200, tokens=tokens) == ""
    assert policy.observe("the leader has", 1400, tokens=tokens) == "The leader"


@pytest.mark.parametrize(
    ("small", "capital", "released"),
    [
        (0.3, 0.6, ["", "Has left", ""]),
        (0.55, 0.4, ["", "", ""]),
        (0.35, 0.4, ["", "", ""]),
        (0.2, 0.25, ["", "", ""]),
    ],
)
def test_a_first_word_waits_for_a_likely_capital(small: float, capital: float, released: list[str]) -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.8, capital_ms=1000))
    tokens = torn("has", small, capital, ("left", 0.9), ("the", 0.9))
    text = tokens[0].text.strip() + " left the"
    assert [policy.observe(text, ms, tokens=tokens) for ms in (600, 700, 800)] == released


@pytest.mark.parametrize(
    ("small", "capital", "released"), [(0.55, 0.35, "has"), (0.4, 0.5, "Has"), (0.2, 0.25, "")]
)
def test_after_a_while_a_first_word_has_its_likelier_case(
    small: float, capital: float, released: str
) -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.8, capital_ms=1000))
    tokens = torn("has", small, capital, ("left", 0.9))
    text = tokens[0].text.strip() + " left"
    for speech_ms in (800, 900, 1000, 1100):
        policy.observe(text, speech_ms, tokens=tokens)
    assert policy.released == released


def test_a_capital_confirms_a_small_letter_but_not_the_other_way_round() -> None:
    small, large = torn("has", 0.55, 0.35, ("left", 0.9)), torn("has", 0.4, 0.5, ("left", 0.9))
    rules = config(first_sure=0.5, sure=0.8, capital_ms=1000)
    rising, falling = TranscriptPolicy(rules), TranscriptPolicy(rules)
    rising.observe("has left", 1000, tokens=small)
    assert rising.observe("Has left", 1100, tokens=large) == "Has"
    falling.observe("Has left", 1000, tokens=large)
    assert falling.observe("has left", 1100, tokens=small) == ""
    assert falling.observe("has left", 1200, tokens=small) == "has"


def test_how_sure_the_model_is_of_a_first_word_does_not_depend_on_its_case() -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.8, capital_ms=1000))
    tokens = torn("press", 0.15, 0.4, ("six", 0.9), ("to", 0.9))
    for speech_ms in (600, 700):
        policy.observe("Press six to", speech_ms, tokens=tokens)
    assert policy.released == "Press six"


def test_a_torn_case_in_front_of_a_pause_is_what_the_model_says() -> None:
    policy = TranscriptPolicy(config(first_agree=3, pause_sure=0.3, sure=0.9, capital_ms=1000))
    tokens = torn("is", 0.5, 0.4, ("unavailable", 0.9))
    assert policy.observe("is unavailable", 800, tokens=tokens) == ""
    assert policy.observe("is unavailable", 900, tokens=tokens, is_paused=True) == "is unavailable"


def test_only_the_first_word_is_shown_with_less_certainty_than_later_ones() -> None:
    policy = TranscriptPolicy(config(first_sure=0.5, sure=0.85, doubt_ms=4000))
    tokens = tokens_of(("At", 0.6), ("the", 0.9), ("town", 0.7), ("please", 0.9))
    for speech_ms in (1000, 1100):
        policy.observe("At the town please", speech_ms, tokens=tokens)
    assert policy.released == "At the"


def test_in_front_of_a_pause_a_small_letter_stays_small() -> None:
    policy = TranscriptPolicy(config(first_agree=3, pause_sure=0.3, sure=0.9))
    tokens = tokens_of(("or", 0.6), ("nine", 0.9))
    assert policy.observe("or nine", LATE, tokens=tokens, is_paused=True) == "or nine"


def test_a_first_word_is_not_shown_alone_while_it_is_doubtful() -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8, doubt_ms=5000, settle_ms=300))
    for speech_ms in (500, 700, 900):
        assert policy.observe("the", speech_ms, tokens=tokens_of(("the", 0.6))) == ""
    assert policy.observe("The", 1000, tokens=tokens_of(("The", 0.9))) == ""
    assert policy.observe("The", 1300, tokens=tokens_of(("The", 0.9))) == "The"


def test_in_front_of_a_pause_words_are_shown_at_once_but_not_the_mark_behind_them() -> None:
    policy = TranscriptPolicy(config(first_agree=3, agree=3, withhold=2, pause_sure=0.3, sure=0.9))
    tokens = tokens_of(("It", 0.6), ("is.", 0.5))
    assert policy.observe("It is.", LATE, tokens=tokens) == ""
    assert policy.observe("It is.", LATE, tokens=tokens, is_paused=True) == "It is"
    assert policy.finish("It is.") == "."


def test_a_number_in_digits_may_go_on_behind_a_pause() -> None:
    policy = TranscriptPolicy(config(first_agree=3, agree=3, withhold=2))
    released = policy.observe("About 1 or 20.", LATE, is_paused=True, is_in_digits=True)
    assert released == "About 1 or"
    assert policy.finish("About 1 or 25 people.") == " 25 people."
    assert not policy.corrected
    policy = TranscriptPolicy(config(first_agree=3, agree=3, withhold=2))
    assert policy.observe("About 20 people.", LATE, is_paused=True, is_in_digits=True) == "About 20 people"


def test_a_guess_is_not_shown_in_front_of_a_pause_either() -> None:
    policy = TranscriptPolicy(config(first_agree=3, agree=3, pause_sure=0.3))
    tokens = tokens_of(("It", 0.6), ("hiss", 0.2))
    assert policy.observe("It hiss", LATE, tokens=tokens, is_paused=True) == "It"


def test_a_language_in_doubt_keeps_the_first_text_back_in_a_pause_too() -> None:
    policy = TranscriptPolicy(config(min_language=0.5))
    assert policy.observe("건설", 800, language_probability=0.4, is_paused=True) == ""
    assert policy.observe("Ja", 900, language_probability=0.6, is_paused=True) == "Ja"


def test_in_a_hurry_the_first_text_need_not_be_sure() -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, sure=0.8, hurry_ms=1000))
    tokens = tokens_of(("That", 0.4), ("one", 0.4), ("is", 0.4), ("full", 0.4))
    for speech_ms in (600, 900):
        assert policy.observe("That one is", speech_ms, tokens=tokens[:3]) == ""
    assert policy.observe("That one is", 1000, tokens=tokens[:3]) == "That one"
    assert policy.observe("That one is full", 1200, tokens=tokens) == "", "later text waits as always"
    assert policy.finish("That one is full") == " is full"


def test_a_wild_guess_is_not_shown_in_a_hurry() -> None:
    policy = TranscriptPolicy(config(first_sure=0.7, hurry_ms=1000))
    for speech_ms in (900, 1100, 1300):
        assert policy.observe("Lagan is", speech_ms, tokens=tokens_of(("Lagan", 0.2), ("is", 0.9))) == ""
