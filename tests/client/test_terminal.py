"""What people see: text that grows in place, and times."""

from __future__ import annotations

import io

import pytest
from sensorium.client.terminal import LiveText, milliseconds, timestamp


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_partial_text_grows_in_place_on_a_terminal_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for out in (screen, file):
        live = LiveText(out)
        live.partial("good")
        live.line("good day")
    assert screen.getvalue() == "\r\x1b[K\x1b[2mgood\x1b[0m\r\x1b[Kgood day\n"
    assert file.getvalue() == "good day\n"


def test_a_long_partial_shows_its_end_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Terminal()
    LiveText(screen).partial("a" * 50 + "end")
    shown = screen.getvalue().split("\x1b[2m")[1].removesuffix("\x1b[0m")
    assert shown.startswith("…")
    assert shown.endswith("end")
    assert len(shown) < 20


def test_times_for_people() -> None:
    assert timestamp(83.25) == "1:23.2"
    assert milliseconds([0.1, None, 0.3, 0.2]) == "200 ms (worst 300 ms)"
    assert milliseconds([]) == "–"
