"""What the log of a server says first, and which address a browser is sent to."""

from __future__ import annotations

import webbrowser
from types import SimpleNamespace
from typing import cast

import pytest
from sensorium.actors import first_steps
from sensorium.actors.http.service import Service

URL = "http://127.0.0.1:8000"


def lines(*, console: bool = True, key: bool = False, hears: bool = False, chats: bool = False) -> list[str]:
    service = SimpleNamespace(
        config=SimpleNamespace(console=console),
        keys=SimpleNamespace(are_needed=key),
        transcribing={"a": None} if hears else {},
        has_chat_template=chats,
    )
    return list(first_steps.first_steps(cast("Service", service), URL))


def test_the_page_and_a_command_that_a_served_model_can_answer() -> None:
    assert lines(hears=True, chats=True) == [
        f"try it in a browser: {URL}/console",
        f"or transcribe a recording: curl {URL}/v1/audio/transcriptions -F file=@speech.wav",
    ]
    _, question = lines(chats=True)
    assert question.startswith(f"or ask something: curl {URL}/v1/chat/completions -H")
    assert lines(console=False) == []
    assert '-H "Authorization: Bearer $KEY"' in lines(console=False, hears=True, key=True)[0]


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("http://0.0.0.0:8000", "http://localhost:8000"),
        ("http://[::]:8000", "http://localhost:8000"),
        ("http://10.0.0.7:8000", "http://10.0.0.7:8000"),
        (URL, URL),
    ],
)
def test_a_server_on_every_address_is_opened_by_a_name_that_has_microphones(url: str, near: str) -> None:
    assert first_steps.near_url(url) == near


def test_no_browser_is_said_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[str] = []

    def refuse(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr(webbrowser, "open", refuse)
    thread = first_steps.open_page("http://0.0.0.0:9000")
    thread.join(10)
    assert opened == ["http://localhost:9000/console"]
    assert "no browser could be opened; the page is http://localhost:9000/console" in caplog.text
