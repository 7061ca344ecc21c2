"""Which texts sound finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.realtime.endings import ending


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
    ],
)
def test_finished(text: str) -> None:
    assert ending(text) == "finished"


@pytest.mark.parametrize(
    "text",
    [
        "Turn on",
        "Turn on the.",
        "I was thinking and",
        "Well,",
        "Ich komme, weil.",
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
    assert ending(text) == "open"


@pytest.mark.parametrize("text", ["", " ", "สวัสดี", "♪", "“”"])
def test_unknown(text: str) -> None:
    assert ending(text) == "unknown"


@given(st.text(max_size=30))
def test_any_text_has_an_ending(text: str) -> None:
    assert ending(text) == ending(text + "  ")
