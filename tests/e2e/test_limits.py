"""Small limits, reached on purpose: each gives its documented answer and only its own client feels it."""

from __future__ import annotations

import dataclasses
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial

import httpx
import numpy as np
import pytest
import soundfile
from openai import APIStatusError, OpenAI
from sensorium.actors.config.server import FileConfig, ListenConfig, RealtimeConfig
from support.raw_socket import RawSession, pcm, raw_session, resumed_session, silence
from support.server import Server, make_config, running_server, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

KEY = "s3cret"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def small_server() -> Iterator[Server]:
    config = make_config(
        listen=ListenConfig(port=0, api_key=(KEY,), drain_s=5.0, send_timeout_s=1.0),
        files=FileConfig(max_upload_mib=1.0, max_audio_s=30.0, decode_workers=1, max_requests=2),
        realtime=RealtimeConfig(
            max_sessions=2, max_backlog_ms=2_000, idle_s=1.5, outbox_events=64, outbox_mib=0.05
        ),
    )
    with running_server(config) as server:
        yield server


@pytest.fixture
def server(small_server: Server) -> Iterator[Server]:
    with small_server.left_quiet():
        yield small_server


open_session = partial(raw_session, additional_headers=HEADERS)


def post(server: Server, data: bytes | io.BytesIO) -> httpx.Response:
    url = f"{server.api}/audio/transcriptions"
    return httpx.post(url, files={"file": ("a.wav", data)}, headers=HEADERS, timeout=60)


def flac(seconds: float) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(int(8_000 * seconds), np.int16), 8_000, format="FLAC")
    return buffer.getvalue()


def test_every_route_but_health_and_ping_wants_a_key(server: Server, lights: bytes) -> None:
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert httpx.get(f"{server.url}/ping").status_code == 200
    for path in ("/v1/models", "/metrics", "/version", "/load", "/nowhere"):
        response = httpx.get(server.url + path)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
        wrong = httpx.get(server.url + path, headers={"Authorization": f"Bearer {KEY}x"})
        assert wrong.status_code == 401
    assert httpx.get(f"{server.api}/models", headers=HEADERS).status_code == 200
    with OpenAI(base_url=server.api, api_key=KEY) as client:
        assert client.audio.transcriptions.create(model="tiny-whisper", file=("a.wav", lights)).text
    with OpenAI(base_url=server.api, api_key="no", max_retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            client.models.list()
        assert caught.value.status_code == 401


def test_a_socket_wants_a_key_too(server: Server) -> None:
    with pytest.raises(InvalidStatus) as caught, connect(server.realtime):
        pass
    assert caught.value.response.status_code == 401
    assert caught.value.response.body is not None
    assert json.loads(caught.value.response.body)["error"]["code"] == "invalid_api_key"
    with open_session(server.realtime):
        pass
    # Browsers cannot set headers; they offer the key as a subprotocol.
    protocols = ["realtime", f"openai-insecure-api-key.{KEY}"]
    with raw_session(server.realtime, subprotocols=protocols) as session:
        assert session.socket.subprotocol == "realtime"
    with pytest.raises(InvalidStatus), connect(server.realtime, subprotocols=["openai-insecure-api-key.no"]):  # type: ignore[list-item]
        pass


def test_resuming_wants_a_key_too(server: Server) -> None:
    with open_session(server.realtime) as lost:
        lost.cut()
        with pytest.raises(InvalidStatus), resumed_session(server.realtime, lost):
            pass
        with resumed_session(server.realtime, lost, additional_headers=HEADERS):
            pass


def test_a_file_that_is_too_large(server: Server, lights: bytes) -> None:
    response = post(server, bytes(3 * 1024 * 1024))
    assert response.status_code == 413
    assert response.json()["error"]["param"] == "file"
    # Just over the file's own limit, inside the allowance for the form.
    assert post(server, bytes(1024 * 1024 + 1)).status_code == 413
    assert post(server, lights).status_code == 200


def test_a_body_of_unknown_length_is_stopped_on_the_way(server: Server) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(8 * 16):
            sent += 65_536
            yield bytes(65_536)

    headers = HEADERS | {"Content-Type": "multipart/form-data; boundary=cut"}
    response = httpx.post(
        f"{server.api}/audio/transcriptions", content=endless(), headers=headers, timeout=60
    )
    assert response.status_code == 413


def test_a_small_file_that_decodes_to_hours(server: Server, lights: bytes) -> None:
    data = flac(4 * 3600)
    assert len(data) < 1024 * 1024
    response = post(server, data)
    assert response.status_code == 413
    assert response.json()["error"]["param"] == "file"
    assert post(server, lights).status_code == 200


def test_too_many_requests_are_told_to_come_back(server: Server) -> None:
    head = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\nAuthorization: Bearer s3cret\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as one:
        one.sendall(head)
        with socket.create_connection(("127.0.0.1", server.port)) as two:
            two.sendall(head)
            wait_until(lambda: server.service.num_requests == 2)
            response = post(server, b"x")
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "overloaded"
            assert int(response.headers["retry-after"]) >= 1


def test_too_many_sessions_are_told_to_come_back(server: Server) -> None:
    with (
        open_session(server.realtime),
        open_session(server.realtime),
        connect(server.realtime, additional_headers=HEADERS) as third,
    ):
        assert json.loads(third.recv(60))["error"]["code"] == "too_many_sessions"
        assert RawSession(third).until_closed()[0] == 1013
    server.wait_quiet()
    with open_session(server.realtime):
        pass


def test_an_append_past_the_backlog_is_refused_and_the_session_goes_on(server: Server, lights: bytes) -> None:
    audio = pcm(lights)
    with open_session(server.realtime) as session:
        session.configure()
        session.append((audio + silence(0.1)) * 3)
        errors: list[dict[str, object]] = []
        while not errors:
            session.append(audio)
            event = session.receive()
            errors = [event["error"]] if event["type"] == "error" else []
        assert errors[0]["code"] == "input_audio_buffer_overflow"
        session.send({"type": "input_audio_buffer.clear"})
        while session.receive()["type"] != "input_audio_buffer.cleared":
            pass
        session.append(audio[:32_000])
        session.commit()
        while session.receive()["type"] != "conversation.item.input_audio_transcription.completed":
            pass


def test_an_idle_session_is_closed(server: Server) -> None:
    with open_session(server.realtime) as session:
        code, _ = session.until_closed(5)
        assert code == 1008
        assert session.seen("error")[-1]["error"]["code"] == "session_idle"


def test_a_reader_that_stops_loses_its_session_and_nobody_elses(server: Server, lights: bytes) -> None:
    stop = threading.Event()

    def pester(connection: socket.socket) -> None:
        frame = client_frame(b'{"type":"session.update","session":{"type":"transcription"}}')
        try:
            while not stop.is_set():
                connection.sendall(frame * 20)
        except OSError:
            return

    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(
            b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Authorization: Bearer s3cret\r\n\r\n"
        )
        assert b"101" in connection.recv(64)
        thread = threading.Thread(target=pester, args=(connection,))
        thread.start()
        try:
            wait_until(lambda: len(server.service.sessions) == 1)
            with open_session(server.realtime) as other:
                other.configure()
                other.append(pcm(lights)[:48_000])
                other.commit()
                assert other.until("completed")["transcript"]
            wait_until(lambda: not server.service.sessions, timeout_s=15)
        finally:
            stop.set()
            thread.join(15)
    metrics = httpx.get(f"{server.url}/metrics", headers=HEADERS).text
    assert 'sensorium_sessions_total{code="1008"}' in metrics


def client_frame(payload: bytes) -> bytes:
    """One masked text frame (the mask is zero)."""
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload), 0, 0, 0, 0]) + payload


def test_health_and_others_are_quick_while_files_are_decoded(server: Server, lights: bytes) -> None:
    started = time.monotonic()
    threads = [threading.Thread(target=post, args=(server, lights)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert httpx.get(f"{server.url}/health").status_code == 200
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 30


def test_each_channel_of_a_session_takes_a_place(server: Server) -> None:
    with open_session(server.realtime) as both:
        both.configure(channels=2)
        with connect(server.realtime, additional_headers=HEADERS) as late:
            assert json.loads(late.recv(60))["error"]["code"] == "too_many_sessions"
    server.wait_quiet()
    with open_session(server.realtime) as three:
        with pytest.raises(AssertionError, match="too_many_sessions"):
            three.configure(channels=3)
        three.configure(channels=2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "Hi", "max_output_tokens": 9}),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "logprobs": True},
        ),
    ],
)
def test_too_many_logprobs_are_refused_by_the_field_that_says_how_many(
    text_server: Server, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
) -> None:
    config = text_server.service.config
    few = dataclasses.replace(config.engine, max_logprob_entries=5)
    monkeypatch.setattr(text_server.service, "config", dataclasses.replace(config, engine=few))
    request = {**body, "model": "vision", "top_logprobs": 2}
    answer = httpx.post(f"{text_server.api}/{path}", json=request, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "top_logprobs"
    assert "`top_logprobs`" in answer.json()["error"]["message"]
