"""Which texts sound finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.turns.end_of_turn import ending


@pytest.mark.parametrize(
    "text",
    [
        "Turn on the light.",
        "Really?",
        "“Stop!”",
        "今日は晴れです。",
        "好吗？",
        "क्या हुआ।",
        "متى؟",
        "Ich will das. ",
        "Room 5.",
        "He said: “Stop.” ",
        '"Stop. "',
        "We take plan A.",
    ],
)
def test_finished(text: str) -> None:
    assert ending(text, "en") == "finished"


@pytest.mark.parametrize(
    ("text", "language"),
    [("Mach das Licht an.", "de"), ("Schalte es ein.", "de"), ("Wash the car.", "en"), ("Vieni su.", "it")],
)
def test_a_word_that_leads_on_in_another_language_ends_a_sentence(text: str, language: str) -> None:
    assert ending(text, language) == "finished"


@pytest.mark.parametrize(
    "text",
    [
        "Turn on",
        "Turn on the.",
        "I was thinking and",
        "Well,",
        "Turn on the. ”",
        "Quiero pan y",
        "um",
        "So…",
        "wait...",
        "今日は、",
        "안녕",
        "at 5",
        "first:",
        "He said (yes), the)",
    ],
)
def test_open(text: str) -> None:
    assert ending(text, "en") == "open"


@pytest.mark.parametrize(
    ("text", "language"),
    [("Ich komme, weil.", "de"), ("Quiero pan y.", "es"), ("Je viens avec.", "fr"), ("Vou com.", "pt")],
)
def test_a_word_that_leads_on_keeps_the_sentence_open(text: str, language: str) -> None:
    assert ending(text, language) == "open"
    assert ending(text, "xx") == "finished"


@pytest.mark.parametrize("text", ["", " ", "สวัสดี", "♪", "“”"])
def test_unknown(text: str) -> None:
    assert ending(text) == "unknown"


@given(st.text(max_size=30), st.sampled_from(["", "en", "de"]))
def test_any_text_has_an_ending(text: str, language: str) -> None:
    assert ending(text, language) == ending(text + "  ", language)
    assert ending("x" * 100_000 + "1 " + text, language) == ending("1 " + text, language)
