"""Which text is released: agreed more than once, never taken back, never half a word."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.transcription.options import Delay
from sensorium.realtime.transcript import policy as transcript
from sensorium.realtime.transcript.delay_presets import RELEASES, ReleaseConfig
from sensorium.realtime.transcript.pieces import units, weight
from sensorium.realtime.transcript.policy import TranscriptPolicy
from support.release_rules import config

LATE = 10_000
"""Milliseconds of speech after which nothing is special."""

texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["one", "two", "three", "4", "東", "京", "จ้า", ".", "five,"]), max_size=8).map(
        " ".join
    ),
    st.lists(st.sampled_from(["a", "b", "東", "京", "จ้า", " ", ",", "\ufffd"]), max_size=12).map("".join),
)
configs = st.builds(
    ReleaseConfig,
    first_agree=st.integers(1, 4),
    agree=st.integers(1, 4),
    withhold=st.integers(0, 3),
    hold_ms=st.sampled_from([0, 500]),
    settle_ms=st.sampled_from([0, 300]),
    first_sure=st.sampled_from([0.0, 0.7]),
    sure=st.sampled_from([0.0, 0.8]),
    pause_sure=st.sampled_from([0.0, 0.5]),
    capital_ms=st.sampled_from([0, 700]),
    hurry_ms=st.sampled_from([0, 600]),
    doubt_ms=st.sampled_from([0, 500]),
    min_language=st.just(0.5),
    first_update_ms=st.just(300),
    early_update_ms=st.just(200),
    update_ms=st.just(400),
)


def policy_after(*hypotheses: str, **changes: int) -> TranscriptPolicy:
    policy = TranscriptPolicy(config(**changes))
    for text in hypotheses:
        policy.observe(text, LATE)
    return policy


def test_words_are_released_when_two_hypotheses_agree_and_the_last_is_held() -> None:
    policy = TranscriptPolicy(config())
    assert policy.observe("set a tie", LATE) == ""
    assert policy.observe("set a timer for", LATE) == "set a"
    assert policy.observe("set a timer for two", LATE) == " timer for"
    assert policy.observe("set a timer for two", LATE) == ""
    assert policy.finish("set a timer for two minutes") == " two minutes"
    assert not policy.corrected
    assert policy.num_withheld == 2


def test_the_first_text_waits_until_the_language_is_clear() -> None:
    policy = TranscriptPolicy(config(settle_ms=200))
    for speech_ms, probability in ((400, 0.4), (800, 0.99), (1200, 0.4)):
        assert policy.observe("set a timer", speech_ms, language_probability=probability) == ""
    assert policy.observe("set a timer", 1600, language_probability=1.0) == "set a"
    assert policy.observe("set a timer for two", 2000, language_probability=0.4) == " timer"
    assert policy.observe("set a timer for two", 2400, language_probability=0.4) == " for"


def test_a_language_that_never_becomes_clear_holds_no_text_back_for_long() -> None:
    policy = TranscriptPolicy(config())
    for speech_ms in (800, 1400, 2000):
        assert policy.observe("set a timer", speech_ms, language_probability=0.4) == ""
    assert policy.observe("set a timer", 2001, language_probability=0.4) == "set a"


def test_disagreement_with_released_text_releases_nothing_until_it_agrees_again() -> None:
    policy = policy_after("the cat sat down", "the cat sat down")
    assert policy.released == "the cat sat"
    assert policy.observe("a cat sat down", LATE) == ""
    assert policy.observe("a cat sat down here", LATE) == ""
    policy.observe("the cat sat down here now", LATE)
    assert policy.observe("the cat sat down here now", LATE) == " down here"


def test_what_nobody_goes_on_from_is_concluded_by_the_newest_hypothesis() -> None:
    policy = policy_after("set a time", "set a timer", "set a timer for ten")
    assert policy.released == "set a timer"
    policy.conclude()
    assert policy.released == "set a timer for ten"
    assert policy_after("set a", "set a", "let go").conclude() == ""
    assert policy_after().conclude() == ""


def test_a_final_that_contradicts_releases_nothing_more() -> None:
    policy = policy_after("one two three", "one two three")
    assert policy.finish("ten two three") == ""
    assert policy.corrected
    assert policy.released == "one two"


def test_later_text_needs_more_agreement_than_the_first() -> None:
    policy = policy_after("one two", "one two three", agree=3)
    assert policy.released == "one two"
    assert policy.observe("one two three four", LATE) == ""
    assert policy.observe("one two three four five", LATE) == " three"


def test_unspaced_scripts_agree_by_character_and_two_are_held() -> None:
    assert policy_after("東京はい", "東京都にい").released == "東京"
    assert policy_after("東京都", "東京都").released == "東"


@pytest.mark.parametrize(
    ("hypotheses", "released"),
    [
        (("Turn.", "Turn on."), "Turn"),
        (("Turn.", "Turn."), ""),
        (("Well, then", "Well, then we"), "Well"),
        (("Well, then we", "Well, then we go"), "Well, then we"),
        (("Well. then we", "Well, then we go"), "Well"),
        (("Stop. The", "Stop. The end"), "Stop"),
        (("Stop. The", "Stop. The end is"), "Stop. The"),
        (("at 5 of", "at 5 of us"), "at 5 of"),
        (("at 5", "at 5 of"), "at"),
        (("turn on", "Turn on the"), ""),
        (("do so gro\ufffd", "do so gro\ufffd"), "do"),
        (("so \ufffd gone on", "so \ufffd gone on"), ""),
    ],
)
def test_what_the_edge_makes_up_is_not_released(hypotheses: tuple[str, ...], released: str) -> None:
    assert policy_after(*hypotheses).released == released


def test_the_first_seconds_need_one_more_witness() -> None:
    policy = TranscriptPolicy(config(hold_ms=500))
    assert policy.observe("Uh huh.", 300) == ""
    assert policy.observe("Uh huh.", 450) == ""
    assert policy.observe("Turn on the", 600) == ""
    assert policy.observe("Turn on the light", 800) == "Turn on the"
    again = TranscriptPolicy(config(hold_ms=500))
    assert [again.observe("Turn on", ms) for ms in (300, 400, 480)] == ["", "", "Turn"]


def test_a_long_first_word_is_shown_once_it_has_settled() -> None:
    policy = TranscriptPolicy(config(settle_ms=300))
    assert [policy.observe("Nein.", ms) for ms in (400, 500, 600, 700)] == ["", "", "", "Nein"]
    assert policy.observe("Nein, heute.", 900) == ""
    changing = TranscriptPolicy(config(settle_ms=300))
    assert [
        changing.observe(text, 400 + 200 * n) for n, text in enumerate(["Con", "Conver", "Conversation"])
    ] == [
        "",
        "",
        "",
    ]


def test_updates_are_quick_until_text_was_released_or_none_comes() -> None:
    policy = TranscriptPolicy(config())
    assert policy.update_ms(300) == 300
    policy.observe("one", 300)
    assert policy.update_ms(500) == 200
    assert policy.update_ms(5000) == 400
    policy.observe("one two", 500)
    assert policy.released == "one"
    assert policy.update_ms(700) == 400


def test_more_delay_asks_less_often_and_trusts_less() -> None:
    table = [RELEASES[name] for name in get_args(Delay)]
    assert set(RELEASES) == set(get_args(Delay))
    waits = ("first_agree", "agree", "withhold", "pause_sure", "doubt_ms")
    for sooner, later in itertools.pairwise(table):
        for knob in (*waits, "first_update_ms", "early_update_ms", "update_ms"):
            assert getattr(sooner, knob) <= getattr(later, knob), knob
        assert sooner != later


@given(configs, st.lists(st.tuples(texts, st.integers(0, 2000)), max_size=8), texts)
def test_released_text_only_grows_and_ends_as_the_final(
    config: ReleaseConfig, hypotheses: list[tuple[str, int]], final: str
) -> None:
    policy = TranscriptPolicy(config)
    shown = ""
    for text, speech_ms in hypotheses:
        new = policy.observe(text, speech_ms)
        shown += new
        assert shown == policy.released
        assert "\ufffd" not in new
        if new:
            assert shown in set(itertools.accumulate(units(text))), "only whole words of this hypothesis"
    rest = policy.finish(final)
    if policy.corrected:
        assert rest == ""
        assert not final.startswith(shown)
    else:
        assert shown + rest == final


class WholePolicy(TranscriptPolicy):
    """Looks at every word again and again."""

    def _move_head(self, passed: list[str]) -> None:
        pass


parts = st.sampled_from(
    ["one", " two", " it's", "東", "京", ",", ".", " ", "จ้", "า", "é", "\u200d", "\ufffd", "5"]
)


@given(
    st.sampled_from(list(RELEASES.values())),
    st.lists(parts, max_size=6),
    st.lists(st.tuples(parts, st.integers(0, 3), st.lists(parts, max_size=2)), min_size=40, max_size=60),
)
def test_not_looking_at_old_words_again_changes_nothing(
    config: ReleaseConfig, beginning: list[str], steps: list[tuple[str, int, list[str]]]
) -> None:
    policy, whole = TranscriptPolicy(config), WholePolicy(config)
    text = "".join(beginning)
    for number, (part, num_lost, end) in enumerate(steps):
        text += part
        shown = text[: len(text) - num_lost] + "".join(end)
        assert policy.observe(shown, 200 * number) == whole.observe(shown, 200 * number)
    assert policy.num_withheld == whole.num_withheld
    assert policy.finish(text) == whole.finish(text)
    assert policy.released == whole.released


@pytest.mark.parametrize("word", [" word", "語"])
def test_the_work_of_an_update_does_not_grow_with_the_turn(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []

    def counted(text: str) -> list[str]:
        lengths.append(len(text))
        return units(text)

    monkeypatch.setattr(transcript, "units", counted)
    policy = TranscriptPolicy(config())
    for num_words in range(2, 1000, 2):
        policy.observe(word * num_words, LATE)
    assert len(policy.released) > 900 * len(word)
    assert max(lengths) <= 40 * len(word)


def test_what_contradicts_for_minutes_is_not_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def counted(text: str) -> list[str]:
        lengths.append(len(text))
        return units(text)

    policy = policy_after(" word" * 100, " word" * 100)
    released = policy.released
    monkeypatch.setattr(transcript, "units", counted)
    for num_words in range(101, 2000):
        assert policy.observe(" word" * 98 + " wrong" + " word" * (num_words - 99), LATE) == ""
    assert max(lengths) < 3000
    lengths.clear()
    for _ in range(2):  # and is, where it comes back to what was said
        policy.observe(" word" * 2000, LATE)
    assert policy.released == " word" * 1999 != released


@given(configs, texts)
def test_a_repeated_hypothesis_withholds_only_its_end(config: ReleaseConfig, text: str) -> None:
    policy = TranscriptPolicy(config)
    for _ in range(5):
        policy.observe(text, LATE)
    withheld = units(text[len(policy.released) :].partition("\ufffd")[0])
    assert sum(map(weight, withheld)) <= 2 * config.withhold + 1 + 2 + 2
    assert config.withhold == 0 or policy.released != text or not text
