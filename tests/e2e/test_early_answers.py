"""Answers that come early or late, and ends that are no goodbye: every client sees why, and can go on."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openai import AuthenticationError, NotFoundError, OpenAI
from sensorium import Client
from sensorium.actors.config.server import FileConfig, ListenConfig, RealtimeConfig
from sensorium.actors.http.service import Service
from sensorium.actors.transport.http11 import HttpConnection
from sensorium.client.errors import APIError
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.plan import Plan, StepResult
from support.event_frames import event_frames
from support.raw_socket import raw_session
from support.server import Server, make_config, running_server, wait_until
from support.wire import HANDSHAKE, frame

pytestmark = pytest.mark.slow

KEY = "s3cret"
WITH_KEY = {"Authorization": f"Bearer {KEY}"}
JSON = WITH_KEY | {"Content-Type": "application/json"}
FORM = WITH_KEY | {"Content-Type": "multipart/form-data; boundary=x"}
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def shut_server(folders: dict[str, Path]) -> Iterator[Server]:
    """One that answers early: it wants a key, and takes files of 1 MiB at most."""
    config = make_config(
        str(folders["text"]),
        "tiny-whisper",
        listen=ListenConfig(port=0, api_key=(KEY,), health_port=free_port()),
        files=FileConfig(max_upload_mib=1.0, decode_workers=1),
        realtime=RealtimeConfig(resume_grace_s=60.0),
    )
    with running_server(config) as server:
        yield server


@pytest.fixture
def server(shut_server: Server) -> Iterator[Server]:
    with shut_server.left_quiet():
        yield shut_server


EARLY = {
    "401 transcriptions": ("POST", "/v1/audio/transcriptions", {}, 401),
    "401 chat": ("POST", "/v1/chat/completions", {"Content-Type": "application/json"}, 401),
    "404 route": ("POST", "/v1/audio/speech", JSON, 404),
    "405": ("POST", "/v1/models", JSON, 405),
    "413": ("POST", "/v1/audio/transcriptions", FORM, 413),
    "415": ("POST", "/v1/chat/completions", WITH_KEY | {"Content-Type": "text/plain"}, 400),
    "426": ("POST", "/v1/realtime", JSON, 405),
    "426 get": ("GET", "/v1/realtime", JSON, 426),
    "ping": ("POST", "/ping", JSON, 200),
    "500": ("POST", "/v1/chat/completions", JSON, 500),
    "503": ("POST", "/v1/chat/completions", JSON, 503),
}


@contextmanager
def made_to(server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that drains for a 503, or has a defect for a 500."""
    with monkeypatch.context() as patch:
        if name == "500":
            patch.setattr(Service, "admission", lambda *_, **__: 1 / 0)
        server.service.is_draining = name == "503"
        try:
            yield
        finally:
            server.service.is_draining = False


def num_connections(client: httpx.Client) -> int:
    """How many the server has ever taken in."""
    found = re.search(
        r"^sensorium_connections_total (\S+)", client.get("/metrics", headers=WITH_KEY).text, re.M
    )
    assert found is not None
    return int(float(found[1]))


@pytest.mark.parametrize("name", EARLY)
def test_a_connection_goes_on_after_an_early_answer(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, path, headers, status = EARLY[name]
    with httpx.Client(base_url=server.url, timeout=60) as client:
        before = num_connections(client)
        for size in (10, 900_000) if name != "413" else (10,):
            body = bytes(size) if name != "413" else FILE + bytes(2_200_000)
            with made_to(server, name, monkeypatch):
                assert client.request(method, path, headers=headers, content=body).status_code == status
            assert client.get("/v1/models", headers=WITH_KEY).status_code == 200
        if name != "413":
            assert num_connections(client) == before
        with made_to(server, name, monkeypatch):
            answer = client.request(method, path, headers=headers, content=bytes(20_000_000))
            assert answer.status_code == status
        assert client.get("/v1/models", headers=WITH_KEY).status_code == 200


@pytest.mark.parametrize("name", EARLY)
def test_a_client_that_sends_all_before_it_reads_sees_the_status(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, path, headers, status = EARLY[name]
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 20000000"]
    lines += [f"{header}: {value}" for header, value in headers.items()]
    with made_to(server, name, monkeypatch), socket.create_connection(("127.0.0.1", server.port), 10) as raw:
        raw.sendall("\r\n".join([*lines, "", ""]).encode() + bytes(20_000_000))
        assert raw.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def test_openai_sees_early_answers(server: Server) -> None:
    with (
        OpenAI(base_url=server.api, api_key="wrong", max_retries=0, timeout=60) as client,
        pytest.raises(AuthenticationError),
    ):
        client.audio.transcriptions.create(model="tiny-whisper", file=("a.wav", bytes(20_000_000)))
    with OpenAI(base_url=server.api, api_key=KEY, max_retries=0, timeout=60) as client:
        for _ in range(3):
            with pytest.raises(NotFoundError):
                client.audio.speech.create(model="x", voice="alloy", input="Hello")
            answer = client.chat.completions.create(
                model="text", messages=[{"role": "user", "content": "Hello"}], max_tokens=2
            )
            assert answer.choices[0].finish_reason


def test_the_sdk_sees_early_answers(server: Server) -> None:
    with Client(server.url, api_key="wrong") as client:
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(APIError) as caught:
                client.transcribe(bytes(20_000_000))
            assert caught.value.status == 401
            assert time.monotonic() - began < 10


def test_a_form_that_is_cut_off_says_so(server: Server) -> None:
    url = f"{server.api}/audio/transcriptions"
    refused = httpx.post(url, content=FILE + b"RIFF", headers=FORM)
    assert refused.status_code == 400
    assert "cut off" in refused.json()["error"]["message"]


def test_a_request_for_a_socket_without_one(server: Server) -> None:
    refused = httpx.get(f"{server.api}/realtime", headers=WITH_KEY)
    assert refused.status_code == 426
    assert refused.headers["upgrade"] == "websocket"
    assert "proxy" in refused.json()["error"]["message"]


def test_text_that_is_none_frees_its_place_at_once(server: Server) -> None:
    """Also where sessions of lost connections wait for a minute."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
        key = f"Authorization: Bearer {KEY}\r\n\r\n".encode()
        raw.sendall(
            HANDSHAKE.replace(b"GET /", b"GET /v1/realtime").replace(b"Host: x", b"Host: 127.0.0.1") + key
        )
        wait_until(lambda: len(server.service.sessions) == 1)
        raw.sendall(frame(1, b"\xff"))
        wait_until(lambda: not server.service.sessions, timeout_s=2)
        received = b""
        while part := raw.recv(10_000):
            received += part
        assert re.search(rb"\x88.%b" % re.escape((1007).to_bytes(2)), received, re.DOTALL)


def test_requests_open_at_the_end_of_the_drain_are_told(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Runner.execute

    def slowly(self: Runner, plan: Plan) -> StepResult:
        time.sleep(0.05)
        return execute(self, plan)

    monkeypatch.setattr(Runner, "execute", slowly)
    config = make_config(str(folders["text"]), listen=ListenConfig(port=0, drain_s=0.5))
    answers: dict[tuple[str, bool], httpx.Response] = {}

    def request(url: str, path: str, *, stream: bool) -> None:
        body = CHAT | {"max_tokens": 400, "structured_outputs": {"regex": "[a-z]{400}"}, "stream": stream}
        answers[path, stream] = httpx.post(f"{url}/{path}", json=body, timeout=60)

    with running_server(config) as server:
        threads = [
            threading.Thread(target=request, args=[server.api, path], kwargs={"stream": stream})
            for path in ("chat/completions", "messages")
            for stream in (False, True)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.service.num_requests == len(threads))
        num_begun = server.statistics().num_decode_tokens + 8 * len(threads)
        wait_until(lambda: server.statistics().num_decode_tokens > num_begun)
        began = time.monotonic()
        server.run(server.stop.set)
        for thread in threads:
            thread.join(10)
        server.thread.join(10)
        assert not server.thread.is_alive()
        assert time.monotonic() - began < 0.5 + 2.0
    whole, streamed = answers["chat/completions", False], answers["chat/completions", True]
    assert (whole.status_code, streamed.status_code) == (503, 200)
    assert whole.json()["error"]["code"] == "draining"
    frames = event_frames(streamed.text)
    assert json.loads(frames[-2].removeprefix("data: "))["error"]["code"] == "draining"
    assert frames[-1] == "data: [DONE]"
    fault = {"type": "overloaded_error", "message": "The server is shutting down."}
    assert answers["messages", False].json() == {"type": "error", "error": fault}
    name, data = event_frames(answers["messages", True].text)[-2].split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {"type": "error", "error": fault}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_body_that_is_no_http_is_told_in_the_shape_of_its_api(server: Server, path: str) -> None:
    fields = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
        key = f"Authorization: Bearer {KEY}\r\n"
        raw.sendall(f"POST {path} HTTP/1.1\r\n{fields}{key}\r\nzz\r\n".encode())
        received = b""
        while part := raw.recv(10_000):
            received += part
    error = json.loads(received.partition(b"\r\n\r\n")[2])
    assert error["error"]["message"] == "The body is not HTTP/1.1: illegal chunk header."
    assert error.get("type") == ("error" if path == "/v1/messages" else None)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_request_whose_body_is_still_read_when_the_server_stops_is_answered(
    folders: dict[str, Path], is_streamed: bool
) -> None:
    config = make_config(str(folders["text"]), listen=ListenConfig(port=0, drain_s=60.0))
    body = json.dumps(CHAT | {"stream": is_streamed}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with running_server(config) as server:
        with socket.create_connection(("127.0.0.1", server.port), 60) as raw:
            raw.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body[:10])
            wait_until(lambda: server.service.num_requests == 1, timeout_s=60)
            server.run(server.stop.set)
            wait_until(lambda: server.service.is_draining, timeout_s=60)
            raw.sendall(body[10:])
            received = b""
            while part := raw.recv(10_000):
                received += part
        server.thread.join(60)
        assert not server.thread.is_alive()
    assert received.startswith(b"HTTP/1.1 200 ")
    assert (b"data: [DONE]" if is_streamed else b'"finish_reason"') in received


def test_probes_have_a_port_of_their_own(server: Server) -> None:
    url = f"http://127.0.0.1:{server.service.config.listen.health_port}"
    assert [httpx.get(f"{url}/{path}").status_code for path in ("health", "live", "ping")] == [200] * 3
    assert httpx.get(f"{url}/v1/models", headers=WITH_KEY).status_code == 404


def test_connections_are_known_by_the_keys_they_show(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP, with a handshake, by a client's secret and by the `start` of a call; not by a wrong key."""
    shown: list[str] = []
    monkeypatch.setattr(HttpConnection, "_note_key", lambda _: shown.append("key"))
    models = f"{server.api}/models"
    httpx.get(models)
    httpx.get(models, headers={"Authorization": "Bearer wrong"})
    assert not shown
    httpx.get(models, headers=WITH_KEY)
    assert shown
    secret = httpx.post(f"{server.api}/realtime/client_secrets", headers=WITH_KEY, json={}).json()["value"]
    for key in (KEY, secret):
        shown.clear()
        with raw_session(server.realtime, additional_headers={"Authorization": f"Bearer {key}"}):
            assert shown
