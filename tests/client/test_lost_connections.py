"""Sessions whose connection is lost for good, or refused: an error that says why, in time, and no loops."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
import msgspec
import pytest
from sensorium.client import AsyncClient, AsyncRealtimeSession, Client, Event, Resumed, SessionClosedError
from sensorium.client.options import client_options
from sensorium.client.realtime.async_socket import open_socket
from sensorium.client.realtime.socket import open_connection
from sensorium.client.realtime.transcription_machine import SessionOptions
from sensorium.protocols.realtime.codec import decode_client_event, encode_event
from sensorium.protocols.realtime.events import Error, ErrorDetail, SessionCreated, SessionUpdated
from sensorium.protocols.realtime.lifecycle import SessionResume, SessionResumed
from sensorium.protocols.realtime.session import SessionView
from support.both_loops import both_loops
from support.fake_server import SESSION, DialogClosedError, FakeDialog, serve_realtime

pytestmark = pytest.mark.slow

Second = Literal["silent", "refusing", "resuming", "unauthorized"]

GRACE_S = 1.0
PATIENCE_S = 120.0
"""Longer than a busy machine takes, and shorter than for ever."""
CHUNK = bytes(4_800)
VIEW, PATIENT_VIEW = [
    msgspec.convert(
        SESSION | {"resume_token": "t", "limits": SESSION["limits"] | {"resume_grace_s": grace_s}},
        SessionView,
    )
    for grace_s in (GRACE_S, PATIENCE_S)
]


@dataclass
class LossyDialog(FakeDialog):
    """The first one is cut after 100 ms of audio; what becomes of the wish to resume it is `second`."""

    is_first: bool = True
    second: Second = "silent"

    def receive(self, frame: str | bytes) -> list[str]:
        if self.is_first:
            answers = super().receive(frame)
            if isinstance(frame, bytes):
                raise DialogClosedError(1001, "a proxy goes away")
            return answers
        event = None if isinstance(frame, bytes) else decode_client_event(frame)
        if not isinstance(event, SessionResume) or self.second == "silent":
            return []
        if self.second == "refusing":
            return [encode_event(Error(error=ErrorDetail(code="session_not_found", message="it is gone")))]
        time.sleep(0.3)
        answer = SessionResumed(
            session=VIEW, after_seq=1, last_seq=1, received_events=2, received_audio_bytes=0
        )
        return [encode_event(answer)]


@contextmanager
def serving(second: Second) -> Iterator[str]:
    num_dialogs = num_handshakes = 0

    def make() -> FakeDialog:
        nonlocal num_dialogs
        num_dialogs += 1
        return LossyDialog(
            greeting=encode_event(SessionCreated(session=VIEW)), is_first=num_dialogs == 1, second=second
        )

    def status() -> int | None:
        nonlocal num_handshakes
        num_handshakes += 1
        return 401 if second == "unauthorized" and num_handshakes > 1 else None

    with serve_realtime(make, status=status) as url:
        yield url


WHYS = [
    ("silent", "nobody answered in time", GRACE_S),
    ("refusing", "it is gone", 0.0),
    ("unauthorized", "no such key", 0.0),
]


def options(second: Second) -> SessionOptions:
    """A session that is gone begins again at another one, but where its audio is in a container."""
    if second == "refusing":
        return {"turn_detection": None, "audio_format": "audio/ogg"}
    return {"turn_detection": None}


@pytest.mark.parametrize(("second", "why", "least_s"), WHYS)
def test_the_error_says_why_a_session_did_not_go_on(second: Second, why: str, least_s: float) -> None:
    with (
        serving(second) as url,
        Client(url, timeout=0.3) as client,
        client.realtime(**options(second)) as session,
    ):
        started = time.monotonic()
        with pytest.raises(SessionClosedError, match=f"1001.*could not be resumed: .*{why}"):
            list(session.transcribe([CHUNK] * 5))
        assert least_s <= time.monotonic() - started + 0.1 < PATIENCE_S
        with pytest.raises(SessionClosedError):
            session.send(CHUNK)


@pytest.mark.parametrize(("second", "why", "least_s"), WHYS)
@both_loops
async def test_the_error_comes_even_where_the_timeout_is_shorter_than_the_grace(
    second: Second, why: str, least_s: float
) -> None:
    with serving(second) as url:
        async with AsyncClient(url, timeout=0.3) as client, client.realtime(**options(second)) as session:
            started = anyio.current_time()
            with (
                anyio.fail_after(PATIENCE_S),
                pytest.raises(SessionClosedError, match=f"1001.*could not be resumed: .*{why}"),
            ):
                async for _ in session.transcribe([CHUNK] * 5):
                    pass
            assert anyio.current_time() - started > least_s - 0.1


async def look_again_and_again(session: AsyncRealtimeSession) -> None:
    while True:
        with anyio.move_on_after(0.1):
            await anext(session)


@both_loops
async def test_looking_for_events_again_and_again_does_not_put_the_error_off() -> None:
    with serving("silent") as url:
        async with AsyncClient(url) as client, client.realtime(turn_detection=None) as session:
            await session.send(CHUNK)
            with anyio.fail_after(PATIENCE_S), pytest.raises(SessionClosedError, match="1001"):
                await look_again_and_again(session)


def test_an_error_in_the_source_while_the_connection_is_lost_is_raised() -> None:
    raised: list[BaseException] = []

    def source() -> Iterator[bytes]:
        yield CHUNK
        time.sleep(0.1)
        raise KeyError("the microphone")

    def run() -> None:
        try:
            with Client(url) as client, client.realtime(turn_detection=None) as session:
                list(session.transcribe(source()))
        except BaseException as error:
            raised.append(error)

    with serving("resuming") as url:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
    assert [type(error) for error in raised] == [KeyError]


def test_a_session_that_is_closed_while_it_comes_back_stays_closed() -> None:
    events: list[Event] = []
    with serving("resuming") as url, Client(url) as client, client.realtime(turn_detection=None) as session:
        session.send(CHUNK)
        thread = threading.Thread(target=lambda: events.extend(session))
        thread.start()
        time.sleep(0.15)  # half-way through the answer to the wish
        session.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert all(isinstance(event, SessionCreated | Resumed) for event in events)


@dataclass
class StuckDialog(FakeDialog):
    """Reads nothing after the first audio until `go_on`, and is cut by a commit; the next one resumes."""

    go_on: threading.Event = field(default_factory=threading.Event)
    first: FakeDialog | None = None

    def receive(self, frame: str | bytes) -> list[str]:
        if self.first is None:
            self.received.append(frame)
            if isinstance(frame, bytes):
                assert self.go_on.wait(PATIENCE_S)
            elif "commit" in frame:
                raise DialogClosedError(1001, "a proxy goes away")
            elif "session.update" in frame:
                return [encode_event(SessionUpdated(session=PATIENT_VIEW))]
            return []
        taken = len(self.first.received)
        answer = SessionResumed(
            session=PATIENT_VIEW, after_seq=1, last_seq=1, received_events=taken, received_audio_bytes=0
        )
        return [encode_event(answer)] if isinstance(frame, str) and "resume" in frame else []


@both_loops
async def test_a_cancelled_send_tears_nothing_and_the_session_can_still_be_resumed() -> None:
    dialogs: list[StuckDialog] = []

    def make() -> FakeDialog:
        first = dialogs[0] if dialogs else None
        dialogs.append(StuckDialog(greeting=encode_event(SessionCreated(session=PATIENT_VIEW)), first=first))
        return dialogs[-1]

    with serve_realtime(make) as url:
        async with AsyncClient(url) as client, client.realtime(turn_detection=None) as session:
            sent: list[bytes] = []
            with anyio.fail_after(PATIENCE_S):
                was_cancelled = False
                while not was_cancelled:
                    sent.append(len(sent).to_bytes(4, "big") * 16_384)
                    with anyio.move_on_after(0.5) as scope:
                        await session.send(sent[-1])
                    was_cancelled = scope.cancelled_caught
                dialogs[0].go_on.set()
                sent.append(CHUNK)
                await session.send(CHUNK)
                await session.commit()
                while not isinstance(await anext(session), Resumed):
                    pass
            assert [frame for frame in dialogs[0].received if isinstance(frame, bytes)] == sent


def test_a_network_that_vanished_is_noticed_by_the_kernel() -> None:
    """One machine cannot act that out, so this looks at the option."""

    def limit_s(connected: socket.socket) -> float:
        return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000

    async def body() -> None:
        async with open_socket(named.realtime_url(), named, 30.0) as opened:
            connection: Any = opened
            trio_stream = getattr(connection, "stream", None)
            connected = trio_stream.socket if trio_stream else connection.transport.get_extra_info("socket")
            assert 10 <= limit_s(connected) <= 60

    with serve_realtime() as url:
        named = client_options(url)
        with open_connection(named.realtime_url(), named, 30.0) as connection:
            assert 10 <= limit_s(connection.socket) <= 60
        for backend in ("asyncio", "trio"):
            anyio.run(body, backend=backend)
