"""The synchronous live session over a real socket, against the fake server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sensorium.client import (
    APIError,
    Client,
    Completed,
    Delta,
    Event,
    RealtimeSession,
    SDKError,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    SessionClosedError,
    UnknownEvent,
)
from support.fake_server import FakeDialog, finals, serve_realtime

pytestmark = pytest.mark.slow

CHUNK = bytes(4_800)
"""100 ms of silence; the fake hears a word in every 500 ms."""


def names(events: list[Event]) -> list[str]:
    """Short names of events in order."""
    return [type(event).__name__.removeprefix("ConversationItemInputAudioTranscription") for event in events]


def test_transcribe_sends_in_the_background_and_stops_after_the_last_turn() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        assert session.created is not None
        events = list(session.transcribe([CHUNK] * 20))
    assert finals(events) == ["one two", "three four"]
    assert names(events)[:6] == [
        "InputAudioBufferSpeechStarted",
        "Delta",
        "Delta",
        "InputAudioBufferSpeechStopped",
        "InputAudioBufferCommitted",
        "Completed",
    ]


def test_transcribe_takes_chunks_and_not_a_whole_recording() -> None:
    whole: Any = CHUNK
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        with pytest.raises(TypeError, match="expected an iterable"):
            list(session.transcribe(whole))
        assert finals(list(session.transcribe([CHUNK] * 10)))


@pytest.mark.parametrize("binary", [True, False])
def test_manual_turns_from_the_callers_own_thread(binary: bool) -> None:
    with (
        serve_realtime() as url,
        Client(url) as client,
        client.realtime(turn_detection=None, binary=binary) as session,
    ):
        for _ in range(5):
            session.send(CHUNK)
        session.commit()
        for _ in range(10):
            session.send(CHUNK)
        session.finish()
        assert finals(list(session)) == ["one", "two three"]


def test_deltas_come_while_audio_is_still_being_sent() -> None:
    received = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield CHUNK * 5
        assert received.wait(5)  # the rest is only spoken once the first word is on the screen
        yield CHUNK * 5

    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        text = ""
        for event in session.transcribe(chunks()):
            match event:
                case Delta(delta=delta):
                    text += delta
                    received.set()
                case Completed(transcript=transcript):
                    assert transcript == text == "one two"


def test_speed_paces_recorded_audio() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        start = time.monotonic()
        list(session.transcribe([CHUNK] * 10, speed=5.0))
        assert time.monotonic() - start >= 0.2


def test_a_session_transcribes_again_after_it_finished() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        assert finals(list(session.transcribe([CHUNK] * 10))) == ["one two"]
        assert finals(list(session.transcribe([CHUNK] * 10))) == ["three four"]


def test_unknown_events_pass_through() -> None:
    make = lambda: FakeDialog(extra=('{"type":"weather.changed","sun":true}',))  # noqa: E731
    with serve_realtime(make) as url, Client(url) as client, client.realtime() as session:
        unknown = [event for event in session.transcribe([CHUNK] * 5) if isinstance(event, UnknownEvent)]
    assert [event.data["sun"] for event in unknown] == [True]


def test_an_exception_in_the_chunks_reaches_the_caller() -> None:
    def chunks() -> Iterator[bytes]:
        yield CHUNK * 5
        raise OSError("the microphone fell down")

    with (
        serve_realtime() as url,
        Client(url) as client,
        client.realtime() as session,
        pytest.raises(OSError, match="the microphone fell down"),
    ):
        list(session.transcribe(chunks()))


def test_leaving_the_loop_early_stops_the_sending() -> None:
    sent: list[int] = []

    def chunks() -> Iterator[bytes]:
        for index in range(1_000):
            sent.append(index)
            yield CHUNK

    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        for _ in session.transcribe(chunks(), speed=10.0):
            break
    time.sleep(0.05)
    num_sent = len(sent)
    time.sleep(0.05)
    assert len(sent) == num_sent < 1_000


def test_no_server_says_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Client(url) as client, pytest.raises(SensoriumConnectionError) as caught, client.realtime():
        pass
    assert str(caught.value) == f"no server at {url}; start one with: sensorium serve"


def test_a_refused_handshake_carries_the_servers_words() -> None:
    with (
        serve_realtime(status=lambda: 401) as url,
        Client(url) as client,
        pytest.raises(APIError) as caught,
        client.realtime(),
    ):
        pass
    assert str(caught.value).startswith("no such key (401, invalid_api_key, ")
    assert "SENSORIUM_CLIENT_API_KEY" in str(caught.value)


def test_a_refused_session_names_the_parameter() -> None:
    with (
        serve_realtime() as url,
        Client(url) as client,
        pytest.raises(APIError, match=r"param: session\.audio\.input\.transcription\.model"),
        client.realtime("missing"),
    ):
        pass


def test_a_close_in_the_middle_names_code_and_reason() -> None:
    with (
        serve_realtime(lambda: FakeDialog(close_at_ms=700)) as url,
        Client(url) as client,
        client.realtime() as session,
        pytest.raises(SessionClosedError) as caught,
    ):
        list(session.transcribe([CHUNK] * 20, speed=20.0))
    assert caught.value.code == 1011
    assert (
        str(caught.value) == "the server closed the session: code 1011 (server fault), reason: the fake broke"
    )


def send_for_two_seconds(session: RealtimeSession) -> None:
    """Plenty of time for the fake to close."""
    for _ in range(200):
        session.send(CHUNK)
        time.sleep(0.01)


def test_sending_into_a_closed_session_is_the_same_error() -> None:
    with (
        serve_realtime(lambda: FakeDialog(close_at_ms=100)) as url,
        Client(url) as client,
        client.realtime() as session,
        pytest.raises(SessionClosedError, match="1011"),
    ):
        send_for_two_seconds(session)


def test_a_server_that_stays_silent_is_a_timeout() -> None:
    with (
        serve_realtime(lambda: FakeDialog(silent=True)) as url,
        Client(url, timeout=0.1) as client,
        pytest.raises(SensoriumTimeoutError, match=r"did not accept the session within 0\.1 s"),
        client.realtime(),
    ):
        pass


def test_two_who_iterate_are_told_so() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        errors: list[str] = []

        def iterate() -> None:
            try:
                list(session)
            except SDKError as error:
                errors.append(str(error))
                session.close()

        threads = [threading.Thread(target=iterate) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert errors == ["this session is being iterated already: every event is given once"]


def test_close_from_another_thread_ends_the_iteration() -> None:
    with serve_realtime() as url, Client(url) as client, client.realtime() as session:
        timer = threading.Timer(0.1, session.close)
        timer.start()
        assert list(session) == []
        timer.join()
