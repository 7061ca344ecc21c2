"""A connection is cut in the middle of a turn: the session goes on where it was, on another one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from sensorium.actors.config.server import ListenConfig, RealtimeConfig
from support.raw_socket import Event, RawSession, pcm, raw_session, resumed_session, silence
from support.server import Server, make_config, running_server, wait_until
from support.wire import frame
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

VAD = {"type": "server_vad"}


@pytest.fixture(scope="module")
def resuming_server() -> Iterator[Server]:
    realtime = RealtimeConfig(max_sessions=2, resume_grace_s=3.0)
    with running_server(make_config(realtime=realtime)) as server:
        yield server


@pytest.fixture
def server(resuming_server: Server) -> Iterator[Server]:
    yield resuming_server
    resuming_server.wait_quiet()


def numbered(*sessions: RawSession) -> list[Event]:
    """The stream of one session that was read from several sockets, one after the other."""
    first, *others = sessions
    stream = list(first.events)
    for later in others:
        start = [event["type"] for event in later.events].index("session.resumed")
        stream += later.events[start + 1 :]
    assert [event["server_event_seq"] for event in stream] == list(range(1, len(stream) + 1))
    return stream


def spoken(stream: list[Event]) -> list[tuple[str, str]]:
    """(joined deltas, transcript) of each turn."""
    turns = []
    for event in stream:
        if event["type"].endswith("transcription.completed"):
            deltas = [
                other["delta"]
                for other in stream
                if other["type"].endswith("transcription.delta") and other["item_id"] == event["item_id"]
            ]
            turns.append(("".join(deltas), event["transcript"]))
    return turns


def test_a_turn_that_is_cut_three_times_is_the_turn_that_is_not(server: Server, lights: bytes) -> None:
    audio = pcm(lights) + silence(1.0)
    pieces = [audio[start : start + 3_200] for start in range(0, len(audio), 3_200)]
    with raw_session(server.realtime) as whole:
        whole.configure(turn_detection=VAD)
        for piece in pieces:
            whole.append_binary(piece)
        expected = whole.until("completed")["transcript"]
    with ExitStack() as stack:
        sockets, sent = [stack.enter_context(raw_session(server.realtime))], 0
        sockets[0].configure(turn_detection=VAD)
        for cut in (5, 12, len(pieces)):
            for piece in pieces[sent:cut]:
                sockets[-1].append_binary(piece)
            sockets[-1].cut()
            sockets.append(stack.enter_context(resumed_session(server.realtime, known(sockets))))
            (resumed,) = sockets[-1].seen("session.resumed")
            # All but the update was audio; what did not arrive is sent again.
            sent = resumed["received_events"] - 1
            assert resumed["received_audio_bytes"] == sum(map(len, pieces[:sent]))
        for piece in pieces[sent:]:
            sockets[-1].append_binary(piece)
        assert sockets[-1].until("completed")["transcript"] == expected
    ((_, transcript),) = spoken(numbered(*sockets))
    assert transcript == expected


def known(sockets: list[RawSession]) -> RawSession:
    """What one client knows of its session after some sockets."""
    client = RawSession(sockets[-1].socket)
    client.events = numbered(*sockets)
    return client


def test_what_was_committed_is_answered_while_nobody_is_there(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as lost:
        lost.configure()
        lost.append(pcm(lights))
        lost.commit()
        lost.until("committed")
        lost.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        (session,) = server.service.sessions
        wait_until(lambda: session.turns.num_held == 0)
        wait_until(lambda: not server.statistics().num_cache_references)
        with resumed_session(server.realtime, lost) as again:
            again.until("completed")
            again.commit()
            again.until("completed")
        numbered(lost, again)
    metrics = httpx.get(f"{server.url}/metrics").text
    assert "sensorium_sessions_resumed_total" in metrics


def test_a_full_server_still_lets_its_sessions_resume(server: Server) -> None:
    with raw_session(server.realtime) as lost, raw_session(server.realtime):
        lost.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with connect(server.realtime) as third:
            assert json.loads(third.recv(5))["error"]["code"] == "too_many_sessions"
        with resumed_session(server.realtime, lost) as again:
            assert [event["type"] for event in again.events] == ["session.resumed"]


def test_the_newest_socket_wins(server: Server) -> None:
    with raw_session(server.realtime) as old, resumed_session(server.realtime, old) as new:
        assert old.until_closed() == (1008, "the session was resumed on another connection")
        new.configure()
        assert len(server.service.sessions) == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "guess"}, "invalid_resume_token"),
        ({"session_id": "sess_none"}, "session_not_found"),
        ({"after_seq": 99}, "invalid_value"),
    ],
)
def test_a_wrong_wish_is_refused(server: Server, changes: Event, code: str) -> None:
    with raw_session(server.realtime) as session:
        with raw_session(server.realtime) as other:
            other.send(session.resume_event() | changes)
            assert other.until_closed()[0] == 1008
            assert other.seen("error")[0]["error"]["code"] == code
        session.configure()


def test_a_goodbye_and_the_end_of_the_grace_give_everything_back(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        session.socket.close(1000)
        wait_until(lambda: not server.service.sessions, timeout_s=2.0)
    with raw_session(server.realtime) as lost:
        lost.configure(turn_detection=VAD)
        lost.append(pcm(lights)[: 2 * 20_000])
        lost.until("speech_started")
        started = time.monotonic()
        lost.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        server.wait_quiet()
        assert time.monotonic() - started >= 2.5
        with connect(server.realtime) as late:
            late.send(json.dumps(lost.resume_event()))
            refused = RawSession(late)
            assert refused.until_closed()[0] == 1008
            assert refused.seen("error")[0]["error"]["code"] == "session_not_found"


@pytest.mark.parametrize("is_masked", [True, False], ids=["as it should be", "Caddy 2.6"])
def test_a_proxy_that_goes_away_says_no_goodbye_for_its_client(server: Server, is_masked: bool) -> None:
    with raw_session(server.realtime) as lost:
        lost.configure()
        lost.socket.socket.sendall(frame(8, (1001).to_bytes(2), masked=is_masked))
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with resumed_session(server.realtime, lost) as again:
            numbered(lost, again)


def test_a_drain_warns_finishes_and_waits_for_the_lost(lights: bytes) -> None:
    realtime = RealtimeConfig(resume_grace_s=5.0)
    config = make_config(listen=ListenConfig(port=0, drain_s=5.0), realtime=realtime)
    with (
        running_server(config) as server,
        raw_session(server.realtime) as here,
        raw_session(server.realtime) as lost,
    ):
        for session in (here, lost):
            session.configure(turn_detection=VAD)
            session.append(pcm(lights)[: 2 * 20_000])
            session.until("speech_started")
        lost.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        server.run(server.stop.set)
        with resumed_session(server.realtime, lost) as again:
            for session in (here, again):
                assert session.until_closed()[0] == 1012
                kinds = [event["type"].rsplit(".", 1)[-1] for event in session.events]
                assert kinds.index("expiring") < kinds.index("completed") < kinds.index("error")
                assert session.seen("expiring")[0]["reason"] == "server_draining"
