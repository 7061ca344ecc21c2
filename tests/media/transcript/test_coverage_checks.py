"""Which answers do not account for the speech they are about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sensorium.actors.speech.retries.retranscription import middle_pause
from sensorium.media.speech.coverage import expected_s
from sensorium.media.transcript.coverage_checks import (
    doubt_of,
    is_better,
    is_next_to_nothing,
    is_other_text,
    may_be_babble,
)
from sensorium.media.transcript.range_answer import DetectedLanguage, RangeAnswer
from sensorium.protocols.transcription.transcript import Doubt

MEETING = "The meeting starts at nine o'clock in the large hall."


def said(text: str, logprob: float = -0.2, *, is_cut: bool = False) -> RangeAnswer:
    return RangeAnswer(text=text, logprobs=(logprob,) * 9, is_cut=is_cut)


@pytest.mark.parametrize(
    ("answer", "speech_s", "doubt"),
    [
        (said(MEETING), expected_s(MEETING), None),
        (said(MEETING), 1.15 * expected_s(MEETING), None),  # a slow speaker
        (said(MEETING), 2 * expected_s(MEETING), "unsaid"),
        (said(f"{MEETING} {MEETING}"), 1.9 * expected_s(MEETING), "unsaid"),  # perhaps three times, fast
        (said(f"{MEETING} {MEETING}"), 1.4 * expected_s(MEETING), None),
        (said("No. No."), 0.6, None),
        (said("Yes."), 1.2, None),  # little is missing, if anything
        (said("1, 1,", is_cut=True), 8.0, "cut"),
        (said("1, 1,", is_cut=True), 0.3, None),  # nobody speaks
        (said(MEETING, -0.6), expected_s(MEETING), "language"),
        (said(""), 9.0, None),
    ],
)
def test_doubts(answer: RangeAnswer, speech_s: float, doubt: Doubt | None) -> None:
    assert doubt_of(answer, speech_s, is_language_found=True) == doubt
    named = None if doubt == "language" else doubt
    assert doubt_of(answer, speech_s, is_language_found=False) == named
    translated = doubt_of(answer, speech_s, is_language_found=True, is_translated=True)
    assert translated == (doubt if doubt == "cut" else None), "it may be shorter"


TWICE_S = 2 * expected_s(MEETING)


@pytest.mark.parametrize(
    ("doubt", "others", "is_other", "better"),
    [
        ("unsaid", [said(MEETING), said(MEETING)], False, True),
        ("unsaid", [said(MEETING), said("")], False, False),
        ("unsaid", [said(MEETING, -1.1), said(MEETING, -1.2)], False, False),
        ("unsaid", [said(MEETING), said(MEETING, is_cut=True)], False, False),
        ("unsaid", [said(MEETING), said(4 * MEETING)], False, False),
        ("unsaid", [], False, False),
        ("cut", [said(MEETING), said("1, 1,", is_cut=True)], False, True),
        ("cut", [said("1, 1,", is_cut=True)], False, False),
        ("cut", [said("Yes."), said("No.")], False, False),
        ("language", [said(MEETING, -0.1)], True, True),
        ("language", [said(MEETING, -0.1)], False, False),
        ("language", [said("Eh.", -0.1)], True, False),
        ("language", [said(MEETING, -0.55)], True, False),
    ],
)
def test_what_is_better(doubt: Doubt, others: list[RangeAnswer], is_other: bool, better: bool) -> None:
    answer = said(MEETING, -0.6)
    answer = replace(answer, is_cut=doubt == "cut")
    assert is_better(doubt, answer, others, TWICE_S, is_other=is_other) == better


@pytest.mark.parametrize(
    ("doubt", "probability", "in_halves", "logprob", "no_speech", "babble"),
    [
        ("unsaid", 0.83, 0.0, -0.28, 0.29, True),  # four voices backwards
        ("cut", 0.70, 0.38, -0.38, 0.35, True),  # two
        ("language", 0.87, 0.0, -1.85, 0.1, True),  # three, French
        ("language", 0.68, 0.0, -0.61, 0.03, False),  # Spanish behind noise
        ("language", 0.67, 0.60, -0.54, 0.05, False),  # English, noise 3 dB louder
        ("language", 0.955, 0.0, -1.38, 0.11, False),  # English, a crowd as loud
        ("unsaid", 0.89, 0.24, -0.2, 0.1, False),  # sure that somebody speaks
        ("unsaid", 0.95, 0.0, -0.2, 0.3, False),  # sure of the language
        ("cut", 0.4, 1.0, -0.2, 0.3, False),  # too short to tell
    ],
)
def test_where_no_language_is_clear_an_answer_may_be_babble(
    doubt: Doubt, probability: float, in_halves: float, logprob: float, no_speech: float, babble: bool
) -> None:
    """As whisper-base answered them."""
    answer = replace(said(MEETING, logprob), no_speech_prob=no_speech)
    found = DetectedLanguage("en", probability, in_halves=in_halves)
    assert may_be_babble(doubt, answer, found) == babble


@pytest.mark.parametrize(
    ("answer", "speech_s", "nothing"),
    [
        (said("Thank you for watching.", -1.29), 11.0, True),
        (said("The", -3.5), 20.0, True),
        (said("Thank you.", -1.2), 11.2, True),
        (said("Thank you for watching.", -0.9), 11.0, False),  # likely
        (said("Thank you for watching.", -1.29), 1.5, False),  # about as long
    ],
)
def test_few_unlikely_words_are_next_to_nothing(answer: RangeAnswer, speech_s: float, nothing: bool) -> None:
    assert is_next_to_nothing("unsaid", answer, speech_s) == nothing
    assert not is_next_to_nothing("cut", answer, speech_s)


@pytest.mark.parametrize(
    ("text", "halves", "is_other"),
    [
        ("We love you guys. We love you guys.", ["There's no mercy.", "She was close"], True),
        ("We love you guys. We love you guys.", ["", ""], True),
        ("We love you guys.", ["We love", "those guys."], False),
        ("We love you guys.", ["She was close.", ""], True),
        ("Mase, chima, se, chima, se", ["Message, message.", "Message, a message."], False),
        ("1, 1, 1", ["One, one.", "One."], False),
        ("7, 7,", ["7 7 7 7", "7, 7"], False),
    ],
)
def test_halves_say_the_same_where_somebody_speaks(text: str, halves: list[str], is_other: bool) -> None:
    assert is_other_text(said(text), [said(half) for half in halves]) == is_other


@pytest.mark.parametrize(
    ("speech", "place"),
    [
        ([(0, 16_000)], None),
        ([(0, 7_000), (9_000, 16_000)], 8_000),
        ([(0, 1_000), (3_000, 16_000)], None),  # too near the beginning
        ([(0, 7_900), (8_100, 16_000)], None),  # no pause
        ([(0, 5_000), (13_000, 16_000)], 9_000),
        ([(0, 5_000), (7_000, 8_000), (11_000, 16_000)], 9_500),  # the longer one
    ],
)
def test_a_range_is_cut_in_a_long_pause_near_its_middle(
    speech: list[tuple[int, int]], place: int | None
) -> None:
    assert middle_pause((0, 16_000), speech) == place
    moved = [(start + 500, end + 500) for start, end in speech]
    assert middle_pause((500, 16_500), moved) == (None if place is None else place + 500)
