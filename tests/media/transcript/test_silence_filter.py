"""What is said in a long silence is left out, tokens, words and all; everything else stays."""

from __future__ import annotations

import numpy as np
import pytest
from sensorium.media.transcript.range_answer import RangeAnswer
from sensorium.media.transcript.silence_filter import MARGIN_S, silences, without_silent_sentences
from sensorium.protocols.shared.audio_format import INTERNAL_RATE
from sensorium.protocols.transcription.transcript import Segment, Word


def samples(*seconds: float) -> tuple[int, int]:
    start, end = (round(INTERNAL_RATE * each) for each in seconds)
    return start, end


@pytest.mark.parametrize(
    ("speech", "expected"),
    [
        ([(2, 5), (9, 12)], [(0.0, 2 - MARGIN_S), (5 + MARGIN_S, 9 - MARGIN_S)]),
        ([(1, 12)], []),
        ([(1, 9)], [(9 + MARGIN_S, 13.0)]),
        ([], [(0.0, 13.0)]),
    ],
)
def test_only_long_silences_count(
    speech: list[tuple[float, float]], expected: list[tuple[float, float]]
) -> None:
    regions = [samples(start + 100, end + 100) for start, end in speech]
    found = silences(regions, samples(100, 113), 2.0)
    assert [pytest.approx(each) for each in found] == expected


def sentence(text: str, tokens: tuple[int, ...], start: float, end: float) -> Segment:
    return Segment(0, 0, start, end, text, tokens, 0.0, 0.0, 1.0, 0.0)


ANSWER = RangeAnswer(
    text="Good day. Thank you. Bye.",
    token_ids=(90, 1, 2, 3, 4, 5),
    num_header=1,
    logprobs=(-0.1, -0.2, -0.3, -0.4, -0.5),
)
WORDS = (
    Word("Good", 0.0, 0.5),
    Word("day.", 0.5, 1.0),
    Word("Thank", 5.0, 5.5),
    Word("you.", 5.5, 6.0),
    Word("Bye.", 9.0, 9.5),
)
SENTENCES = (
    sentence("Good day.", (1, 2), 0.0, 1.0),
    sentence(" Thank you.", (3, 4), 5.0, 6.0),
    sentence(" Bye.", (5,), 9.0, 9.5),
)


def test_a_sentence_in_a_silence_goes_with_its_words_and_tokens() -> None:
    kept, words = without_silent_sentences(ANSWER, WORDS, SENTENCES, [(1.2, 8.8)])
    assert (kept.text, kept.token_ids, kept.num_header) == ("Good day. Bye.", (90, 1, 2, 5), 1)
    assert kept.logprobs == (-0.1, -0.2, -0.5)
    assert words == (*WORDS[:2], WORDS[4])


@pytest.mark.parametrize("quiet", [[], [(5.1, 8.8)], [(1.2, 5.9)]])
def test_what_touches_speech_stays(quiet: list[tuple[float, float]]) -> None:
    assert without_silent_sentences(ANSWER, WORDS, SENTENCES, quiet) == (ANSWER, WORDS)


def test_the_first_sentence_may_go_and_all_of_them() -> None:
    kept, words = without_silent_sentences(ANSWER, WORDS, SENTENCES, [(0.0, 8.0)])
    assert (kept.text, words) == ("Bye.", WORDS[4:])
    assert without_silent_sentences(ANSWER, WORDS, SENTENCES, [(0.0, 10.0)])[0].text == ""


def test_tokens_that_are_not_the_sentences_stay() -> None:
    """A loop was cut: the answer's tokens are more than its text's."""
    longer = RangeAnswer(text=ANSWER.text, token_ids=tuple(np.arange(9)), logprobs=(-0.1,) * 9)
    kept, _ = without_silent_sentences(longer, WORDS, SENTENCES, [(1.2, 8.8)])
    assert (kept.text, kept.token_ids) == ("Good day. Bye.", longer.token_ids)
