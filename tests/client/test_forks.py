"""The synchronous client in a forked child: its own connections for requests, an error for a live session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from sensorium.client import Client, DialogueSession, RealtimeSession
from sensorium.client.connection import PerProcess
from sensorium.client.realtime.conversation_machine import DialogueCore
from support.fake_server import finals, serve_realtime
from support.forks import in_fork

pytestmark = pytest.mark.slow

FORKED = "SDKError: this process was forked after the live session was opened"
CHUNK = bytes(4_800)
JPEG = b"\xff\xd8\xff\xe0"


@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.send(CHUNK),
        lambda session: session.commit(),
        lambda session: next(session),
        lambda session: list(session.transcribe([CHUNK])),
    ],
    ids=["send", "commit", "iterate", "transcribe"],
)
def test_a_live_session_names_the_fork(use: Callable[[RealtimeSession], object]) -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        assert in_fork(partial(use, session)).startswith(FORKED)


def test_leaving_in_the_child_ends_nothing_of_the_parent() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime(turn_detection=None) as session:

        def leave() -> str:
            session.close()
            client.close()
            return "left"

        for _ in range(5):
            session.send(CHUNK)
        assert in_fork(leave) == "left"
        session.finish()
        assert finals(list(session)) == ["one"]


@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.ask("What?"),
        lambda session: session.send_frame(JPEG),
        lambda session: session.send_audio(CHUNK),
        lambda session: next(session.events()),
        lambda session: next(session.answers()),
        lambda session: session.interrupt(),
    ],
    ids=["ask", "frame", "audio", "events", "answers", "interrupt"],
)
def test_a_dialogue_names_the_fork(use: Callable[[DialogueSession], object]) -> None:
    """Also where another thread held the session's locks at the fork, as one that reads does."""
    session = DialogueSession(DialogueCore(), timeout_s=60, connect=lambda _: pytest.fail("not connected"))
    with session._news, session._state:
        assert in_fork(partial(use, session)).startswith(FORKED)


def test_a_child_has_connections_of_its_own() -> None:
    made = PerProcess(list[int])
    first = made.value
    assert made.value is first
    assert in_fork(lambda: (made.value is first, made.value is made.value)) == "(False, True)"
    assert made.value is first
