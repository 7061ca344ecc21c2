"""Speech and words are held against each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.speech.coverage import NEAR_S, coverage, expected_s
from sensorium.protocols.transcription.transcript import Coverage, Word
from support.timed_speech import LANGUAGES, timed_speech

S = 16_000


def words(*spans: tuple[float, float]) -> list[Word]:
    return [Word("meeting", start, end) for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "speech", "found"),
    [
        ([], [], Coverage()),
        ([], [(0, 2)], Coverage(2.0, 2.0)),
        ([(0.0, 0.5)], [], Coverage(0.0, 0.0, 1, 1)),
        ([(0.0, 1.0)], [(0, 1)], Coverage(1.0, 0.0, 1)),
        ([(0.0, 0.5)], [(0, 2)], Coverage(2.0, 1.3, 1)),
        ([(0.0, 0.5), (1.0, 1.4)], [(0, 2)], Coverage(2.0, 0.5, 2)),
        ([(0.0, 0.5), (3.0, 3.4)], [(0, 0.5), (1, 2), (3, 3.3)], Coverage(1.8, 1.0, 2)),
        ([(1.15, 1.5)], [(0, 1)], Coverage(1.0, 0.95, 1)),
        ([(1.25, 1.5)], [(0, 1)], Coverage(1.0, 1.0, 1, 1)),
    ],
)
def test_what_is_farther_than_200_ms_does_not_account_for_each_other(
    spans: list[tuple[float, float]], speech: list[tuple[float, float]], found: Coverage
) -> None:
    assert coverage(words(*spans), [(round(a * S), round(b * S)) for a, b in speech]) == found


def test_a_word_accounts_for_no_more_than_its_letters_allow() -> None:
    drawn_out = coverage([Word("a", 0.0, 8.0)], [(0, 8 * S)])
    assert drawn_out.speech_without_words > 6.0
    assert coverage([Word("—", 5.0, 5.1)], []).words_without_speech == 0, "a sign is not said"


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_of_speech_account_for_all_of_it(language: str) -> None:
    talk = timed_speech(language)
    region = round(talk.words[0].start * S), round(talk.words[-1].end * S)
    found = coverage(talk.words, [region])
    assert found.words_without_speech == 0
    assert found.speech_without_words <= 0.35 * found.speech, "pauses are part of this region"
    lasts_s = sum(word.end - word.start for word in talk.words)
    assert 1.0 <= expected_s(talk.text) / lasts_s <= 1.45, "synthesisers are fast"
    half = coverage(talk.words[: len(talk.words) // 2], [region])
    assert half.speech_without_words > found.speech_without_words + 0.25 * lasts_s


@given(
    st.lists(st.floats(0, 30), max_size=12).map(sorted), st.lists(st.floats(0, 30), max_size=12).map(sorted)
)
def test_shares_are_never_more_than_there_is(starts: list[float], edges: list[float]) -> None:
    said = [Word("ja", start, start + 0.2) for start in starts]
    speech = [(round(a * S), round(b * S)) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    found = coverage(said, speech)
    assert 0 <= found.speech_without_words <= found.speech + 0.001
    assert 0 <= found.words_without_speech <= found.words == len(said)
    assert found + Coverage() == found
    times = [index * 0.01 for index in range(3_100)]
    far = [
        time
        for time in times
        if any(a / S <= time < b / S for a, b in speech)
        and all(time < word.start - NEAR_S or time > word.end + NEAR_S for word in said)
    ]
    assert found.speech_without_words == pytest.approx(
        0.01 * len(far), abs=0.02 * (2 + len(starts) + len(speech))
    )
