"""What the holders of different keys can do to each other on one server: nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sensorium.actors.config.server import EngineConfig, FileConfig, ListenConfig, RealtimeConfig
from sensorium.actors.http import api_keys as keys
from support.raw_socket import RawSession, raw_session, resumed_session
from support.server import Server, make_config, running_server, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

ALICE = {"Authorization": "Bearer alice"}
BOB = {"Authorization": "Bearer bob"}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# ours\nbob\n\ncarol\n")
    return file


@pytest.fixture(scope="module")
def server(key_file: Path) -> Iterator[Server]:
    """Bounds that one caller reaches soon."""
    listen = ListenConfig(port=0, drain_s=5.0, api_key=("alice",), api_key_file=key_file)
    realtime = RealtimeConfig(max_sessions=9, max_detached=4, resume_grace_s=20.0)
    config = make_config(listen=listen, realtime=realtime, files=FileConfig(decode_workers=1, max_requests=8))
    with running_server(config) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_left(server: Server) -> Iterator[None]:
    yield
    wait_until(lambda: not server.service.sessions and not server.service.num_requests)


def begin_upload(stack: ExitStack, server: Server, key: str) -> socket.socket:
    """A file that stops arriving; it takes its place."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        "Content-Length: 10000\r\n\r\n--x\r\n"
    )
    connection.sendall(head.encode())
    return connection


def test_places_for_files_are_not_one_keys_alone(server: Server, lights: bytes) -> None:
    def post(headers: dict[str, str]) -> httpx.Response:
        url = f"{server.api}/audio/transcriptions"
        return httpx.post(url, headers=headers, files={"file": ("a.wav", lights)}, timeout=60)

    with ExitStack() as stack:
        for number in range(7):
            begin_upload(stack, server, "bob")
            wait_until(lambda number=number: server.service.num_requests == number + 1)  # type: ignore[misc]
        refused = post(BOB)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "retry-after" in refused.headers
        assert post(ALICE).status_code == 200


def test_answers_are_not_one_keys_alone() -> None:
    """However few requests ask for them."""
    listen = ListenConfig(port=0, drain_s=5.0, api_key=("alice", "bob"))
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_waiting=8)
    files = FileConfig(decode_workers=1, max_requests=8)
    with running_server(make_config("tiny-qwen3-vl", listen=listen, engine=engine, files=files)) as server:

        def complete(headers: dict[str, str], num: int) -> httpx.Response:
            body = {"prompt": "a", "n": num, "max_tokens": 1}
            return httpx.post(f"{server.api}/completions", headers=headers, json=body, timeout=60)

        long = {"prompt": "a", "n": 8, "max_tokens": 4000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{server.api}/completions", headers=BOB, json=long, timeout=60) as bobs:
            lines = bobs.iter_lines()
            next(lines)
            refused = complete(BOB, 7)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert "You have 8 of 16 answers in hand, and ask for 7" in refused.text
            assert complete(BOB, 6).status_code == complete(ALICE, 1).status_code == 200
        wait_until(lambda: not server.service.num_requests)
        assert complete(BOB, 8).status_code == 200


def test_live_sessions_are_not_one_keys_alone(server: Server) -> None:
    with ExitStack() as stack:
        bobs = 0
        while True:
            session = stack.enter_context(connect(server.realtime, additional_headers=BOB))
            raw = RawSession(session)
            if raw.receive()["type"] == "error":
                break
            bobs += 1
        assert bobs == 8
        assert raw.events[0]["error"]["code"] == "too_many_sessions"
        with raw_session(server.realtime, additional_headers=ALICE) as alices:
            alices.configure()
        for each in server.service.sessions:
            server.run(each.end)


def test_live_sessions_take_turns_by_key(server: Server) -> None:
    with ExitStack() as stack:
        for headers in (ALICE, ALICE, BOB):
            stack.enter_context(raw_session(server.realtime, additional_headers=headers))
        names: list[str] = []
        server.run(lambda: names.extend(session.turns.caller for session in server.service.sessions))
    assert len(names) == 3
    assert len(set(names)) == 2
    assert "" not in names


def test_a_keys_lost_sockets_end_its_own_sessions(server: Server) -> None:
    with raw_session(server.realtime, additional_headers=ALICE) as alices:
        alices.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        for _ in range(6):
            with raw_session(server.realtime, additional_headers=BOB) as bobs:
                before = server.service.sessions.num_detached
                bobs.cut()
                wait_until(lambda before=before: server.service.sessions.num_detached > min(before, 3))  # type: ignore[misc]
        with resumed_session(server.realtime, alices, additional_headers=ALICE) as again:
            again.configure()
        for each in server.service.sessions:
            server.run(each.end)


def test_a_token_without_its_key_resumes_nothing(server: Server) -> None:
    with raw_session(server.realtime, additional_headers=ALICE) as alices:
        alices.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with raw_session(server.realtime, additional_headers=BOB) as bobs:
            bobs.send(alices.resume_event())
            assert bobs.receive()["error"]["code"] == "session_not_found"
        with resumed_session(server.realtime, alices, additional_headers=ALICE):
            pass


def make_secret(server: Server, headers: dict[str, str], **body: object) -> dict[str, str]:
    answer = httpx.post(f"{server.api}/realtime/client_secrets", headers=headers, json=body)
    return {"Authorization": f"Bearer {answer.raise_for_status().json()['value']}"}


def test_a_single_use_key_opens_one_session_and_resumes_it(server: Server) -> None:
    once = make_secret(server, ALICE, single_use=True)
    with raw_session(server.realtime, additional_headers=once) as first:
        with connect(server.realtime, additional_headers=once) as second:
            assert RawSession(second).receive()["error"]["code"] == "client_secret_used"
        first.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with resumed_session(server.realtime, first, additional_headers=once) as again:
            again.configure()
    wait_until(lambda: not server.service.sessions)
    with pytest.raises(InvalidStatus) as refused, connect(server.realtime, additional_headers=once):
        pass
    assert refused.value.response.status_code == 401


def test_ephemeral_keys_count_for_the_key_that_made_them(server: Server) -> None:
    bobs = make_secret(server, BOB)
    with raw_session(server.realtime, additional_headers=bobs) as session:
        session.cut()
        wait_until(lambda: server.service.sessions.num_detached == 1)
        with resumed_session(server.realtime, session, additional_headers=BOB):
            pass


def test_keys_of_a_file_come_and_go(server: Server, key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    def status(headers: dict[str, str]) -> int:
        return httpx.get(f"{server.api}/models", headers=headers).status_code

    carol = {"Authorization": "Bearer carol"}
    secret = make_secret(server, carol)
    assert [status(each) for each in (ALICE, BOB, carol, {})] == [200, 200, 200, 401]
    replaced = key_file.with_name("new")
    replaced.write_text("bob\ndave")
    os.replace(replaced, key_file)
    wait_until(lambda: status(carol) == 401, timeout_s=keys.CHECK_INTERVAL_S + 5)
    assert [status(each) for each in (ALICE, BOB, {"Authorization": "Bearer dave"})] == [200, 200, 200]
    with pytest.raises(InvalidStatus), connect(server.realtime, additional_headers=secret):
        pass
    key_file.write_text("\n")
    wait_until(lambda: "the keys of before hold" in caplog.text, timeout_s=keys.CHECK_INTERVAL_S + 5)
    assert [status(each) for each in (ALICE, BOB, {})] == [200, 200, 401]
