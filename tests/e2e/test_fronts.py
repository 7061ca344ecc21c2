"""Servers of one cluster: whichever a client comes to, what another one has is answered as by that one."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.actors.config.server import ListenConfig, ProcessConfig, RealtimeConfig, ResponseConfig
from sensorium.testing import make_config, scripted_server
from sensorium.testing.scripted import DEFAULT_CONFIG
from support.directories import running_directory
from support.raw_socket import RawSession, raw_session, resumed_session
from support.server import Server, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.slow

SECRET = b"0123456789abcdef"
MODEL = "tiny-qwen3-vl"
KEY, OTHER = "one", "another"
NUM_SESSIONS = 8
IDLE_S = 1.0
MARK = "-" * 70
"""Long enough that answers are sent in several pieces."""


def auth(key: str = KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def front(
    folder: Path,
    directory: str,
    answer: str,
    *,
    tls: bool = False,
    idle_s: float = 600.0,
    **more: Any,  # noqa: ANN401
) -> Iterator[Server]:
    """A server that answers so; its engines are its own, and the directory lists none."""
    files: dict[str, Any] = (
        {f"engine_tls_{name}": folder / f"{name}.pem" for name in ("cert", "key", "ca")} if tls else {}
    )
    config = make_config(
        MODEL,
        engine=DEFAULT_CONFIG,
        listen=ListenConfig(port=0, drain_s=0.5, api_key=(KEY, OTHER)),
        realtime=RealtimeConfig(max_sessions=NUM_SESSIONS, resume_grace_s=30.0, idle_s=idle_s),
        process=ProcessConfig(cluster=directory, engine_secret_file=folder / "secret", **files),
        **more,
    )
    with scripted_server(answer, config=config) as server:
        yield Server(server.url, server.service, server.token, server.stop, server.thread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fronts")
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture(scope="module")
def directory() -> Iterator[str]:
    with running_directory(SECRET) as address:
        yield address


@pytest.fixture(scope="module")
def fronts(folder: Path, directory: str) -> Iterator[tuple[Server, Server]]:
    with (
        front(folder, directory, f"A {MARK}") as a,
        front(folder, directory, f"B {MARK}") as b,
    ):
        wait_until(lambda: others(a) == others(b) == 1)
        yield a, b


def others(server: Server) -> int:
    """How many other fronts it knows."""
    found: list[int] = []
    fronts = server.service.fronts
    assert fronts is not None
    server.run(lambda: found.append(fronts.num_others))
    return found[0]


def created(server: Server, key: str = KEY, **body: object) -> dict[str, Any]:
    answer = ask(server, "POST", "/responses", key, json={"input": "Hi", **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def text_of(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


def ask(server: Server, method: str, path: str, key: str = KEY, **options: Any) -> httpx.Response:  # noqa: ANN401
    return httpx.request(method, f"{server.api}{path}", headers=auth(key), timeout=60, **options)


def test_a_stored_response_is_answered_by_any(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    name = created(a)["id"]
    for path in ("", "/input_items", "/input_items?limit=0", "?stream=maybe"):
        ours, theirs = (ask(each, "GET", f"/responses/{name}{path}") for each in fronts)
        assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
        assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert ask(b, "POST", f"/responses/{name}/cancel").json()["error"]["param"] == "background"
    assert ask(b, "GET", f"/responses/{name}", OTHER).status_code == 404, "it is another caller's"
    assert ask(b, "GET", f"/responses/{name}", "wrong").status_code == 401
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    forged = f"v1 t={time.time():.0f} a=192.0.2.1 k={digest} s={'0' * 64}"
    for headers in ({}, auth(OTHER)):
        headers = headers | {"sensorium-relayed": "id", "sensorium-caller": forged}
        for each in fronts:
            answer = httpx.get(f"{each.api}/responses/{name}", headers=headers)
            assert answer.status_code == (404 if "Authorization" in headers else 401), "fields of a client"
    ours, theirs = (ask(each, "GET", f"/responses/{name[:-1]}x") for each in fronts)
    assert (ours.status_code, ours.json()) == (404, theirs.json())
    assert ask(b, "DELETE", f"/responses/{name}").json()["deleted"]
    assert ask(a, "GET", f"/responses/{name}").json()["error"]["code"] == "response_not_found"
    assert ask(b, "GET", "/responses/resp_" + 48 * "0").status_code == 404


def test_a_conversation_goes_on_where_it_is(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    first = created(a)
    for more in ({"previous_response_id": first["id"]}, reference(first)):
        found = created(b, **more)
        assert text_of(found) == f"A {MARK}"
        assert found["id"].startswith(f"resp_{a.service.tag}")
    assert text_of(created(b)) == f"B {MARK}"
    counts = [
        ask(each, "POST", "/responses/input_tokens", json={"previous_response_id": first["id"], "input": "x"})
        for each in fronts
    ]
    assert counts[0].json() == counts[1].json()
    body = {"input": "x", "previous_response_id": first["id"], "stream": True}
    answer = ask(b, "POST", "/responses", json=body)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert events[-1]["type"] == "response.completed"
    assert text_of(events[-1]["response"]) == f"A {MARK}"
    assert answer.text.endswith("data: [DONE]\n\n")
    refused = ask(b, "POST", "/responses", OTHER, json={"input": "x", "previous_response_id": first["id"]})
    assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert 'sensorium_relays_total{kind="request",outcome="answered"}' in ask_metrics(b)


def reference(response: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "item_reference", "id": response["output"][0]["id"]}
    return {"input": [item, {"role": "user", "content": "and?"}]}


def ask_metrics(server: Server) -> str:
    return httpx.get(f"{server.url}/metrics", headers=auth()).text


def test_a_response_in_the_background_is_followed_by_any(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    name = created(a, background=True, stream=False)["id"]
    wait_until(lambda: ask(b, "GET", f"/responses/{name}").json()["status"] == "completed")
    made = ask(a, "POST", "/responses", json={"input": "x", "background": True, "stream": True})
    streamed = json.loads(made.text.splitlines()[1].removeprefix("data: "))["response"]["id"]
    rest = f"/responses/{streamed}?stream=true&starting_after=1"
    ours, theirs = (ask(each, "GET", rest) for each in fronts)
    assert ours.text == theirs.text
    assert "response.completed" in ours.text


def test_a_socket_of_responses_goes_on_where_its_first_one_is(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    first = created(a)
    url = f"ws{b.url.removeprefix('http')}/v1/responses"
    with connect(url, additional_headers=auth()) as socket:
        for previous in (first["id"], None):
            made = on_socket(socket, previous)
            assert text_of(made) == f"A {MARK}"
            assert made["id"].startswith(f"resp_{a.service.tag}")
    with connect(url, additional_headers=auth()) as socket:
        assert text_of(on_socket(socket, None)) == f"B {MARK}"


def on_socket(socket: ClientConnection, previous: str | None) -> dict[str, Any]:
    named = {} if previous is None else {"previous_response_id": previous}
    socket.send(json.dumps({"type": "response.create", "input": "Hi", **named}))
    while (event := json.loads(socket.recv(60)))["type"] != "response.completed":
        assert event["type"] != "error", event
    response: dict[str, Any] = event["response"]
    return response


def test_a_socket_of_responses_that_says_nothing_is_closed(folder: Path, directory: str) -> None:
    with front(folder, directory, "D", idle_s=IDLE_S) as d:
        began = time.monotonic()
        with connect(f"ws{d.url.removeprefix('http')}/v1/responses", additional_headers=auth()) as socket:
            error = json.loads(socket.recv(60))["error"]
            assert error["code"] == "websocket_connection_limit_reached"
            assert "was idle" in error["message"]
        assert time.monotonic() - began >= IDLE_S


def talk(session: RawSession) -> str:
    """What a live session answers."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    session.send({"type": "conversation.item.create", "item": item})
    session.send({"type": "response.create"})
    done = session.until("response.done")
    text: str = done["response"]["output"][0]["content"][0]["text"]
    return text


def test_a_live_session_is_resumed_through_any(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    options: Any = {"additional_headers": auth()}
    with ExitStack() as stack:
        lost = stack.enter_context(raw_session(a.realtime, **options))
        assert talk(lost) == f"A {MARK}"
        lost.cut()
        wait_until(lambda: a.service.sessions.num_detached == 1)
        again = stack.enter_context(resumed_session(b.realtime, lost, **options))
        assert talk(again) == f"A {MARK}"
        wait_until(lambda: (len(a.service.sessions), len(b.service.sessions)) == (1, 0))
        numbers = [event["server_event_seq"] for event in (*lost.events, *again.events)]
        stream = [number for number in numbers if number]
        assert stream[len(lost.events) + 1 :] == list(range(len(lost.events) + 1, max(stream) + 1))
        again.cut()
        wait_until(lambda: a.service.sessions.num_detached == 1)
        third = stack.enter_context(connect(b.realtime, **options))
        third.send(json.dumps(lost.resume_event() | {"token": "wrong"}))
        refused = RawSession(third)
        assert refused.until_closed()[0] == 1008
        assert refused.events[-1]["error"]["code"] == "invalid_resume_token"
        fourth = stack.enter_context(connect(b.realtime, additional_headers=auth(OTHER)))
        fourth.send(json.dumps(lost.resume_event()))
        refused = RawSession(fourth)
        assert refused.until_closed()[0] == 1008
        assert refused.events[-1]["error"]["code"] == "session_not_found"
    with resumed_session(b.realtime, lost, **options) as last:
        last.socket.close()  # a goodbye ends the session at the other server, too
    wait_until(lambda: not a.service.sessions and not b.service.sessions)


def secret_of(server: Server) -> str:
    body = {"session": {"type": "realtime", "instructions": "Be brief."}}
    found: str = ask(server, "POST", "/realtime/client_secrets", json=body).json()["value"]
    return found


def test_an_ephemeral_key_opens_sessions_at_any(fronts: tuple[Server, Server]) -> None:
    a, b = fronts
    with raw_session(b.realtime, additional_headers=auth(secret_of(a))) as session:
        assert session.events[0]["session"]["instructions"] == "Be brief."
        assert talk(session) == f"A {MARK}"
        session.cut()
        wait_until(lambda: a.service.sessions.num_detached == 1)
        # A page is given another key for each connection: by its front, to the session's front.
        for resuming, key in ((a, secret_of(b)), (b, secret_of(b)), (b, secret_of(a))):
            with resumed_session(resuming.realtime, session, additional_headers=auth(key)) as again:
                again.cut()
            wait_until(lambda: a.service.sessions.num_detached == 1)
        with resumed_session(b.realtime, session, additional_headers=auth()) as again:
            again.socket.close()
    offered: Any = ["realtime", f"openai-insecure-api-key.{secret_of(a)}"]
    with connect(b.realtime, subprotocols=offered) as page:
        assert page.subprotocol == "realtime"
        assert json.loads(page.recv(60))["type"] == "session.created"
    unknown = f"ek_{a.service.tag}{'x' * 43}"
    with pytest.raises(InvalidStatus) as refused, connect(b.realtime, additional_headers=auth(unknown)):
        pass
    assert refused.value.response.status_code == 401
    wait_until(lambda: not a.service.sessions and not b.service.sessions)


def test_bounds_are_those_of_all_together(fronts: tuple[Server, Server]) -> None:
    with ExitStack() as stack:
        for server in fronts:
            num = 0
            while True:
                socket = stack.enter_context(connect(server.realtime, additional_headers=auth(KEY)))
                event = json.loads(socket.recv(60))
                if event["type"] == "error":
                    assert event["error"]["code"] == "too_many_sessions"
                    break
                num += 1
            assert 0 < num <= NUM_SESSIONS // 2
        assert sum(len(server.service.sessions) for server in fronts) <= NUM_SESSIONS
    wait_until(lambda: not any(server.service.sessions for server in fronts))


def test_what_a_dead_front_had_is_an_error_at_once_until_it_is_back(
    fronts: tuple[Server, Server], folder: Path, directory: str
) -> None:
    """A front that keeps responses in a file has the same tag when it is started again."""
    a, b = fronts
    store = ResponseConfig(response_store=folder / "responses.db")
    stack = ExitStack()
    with front(folder, directory, "C", responses=store) as c:
        name, tag = created(c)["id"], c.service.tag
        wait_until(lambda: others(a) == 2)
        with raw_session(c.realtime, additional_headers=auth()) as lost:
            lost.cut()
            wait_until(lambda: c.service.sessions.num_detached == 1)
        moved = stack.enter_context(raw_session(a.realtime, additional_headers=auth()))
        moved.cut()
        wait_until(lambda: a.service.sessions.num_detached == 1)
        again = stack.enter_context(resumed_session(c.realtime, moved, additional_headers=auth()))
    with stack:
        assert again.until_closed()[0] == 1001, "a front that ends leaves what it relays to be resumed"
    with resumed_session(b.realtime, moved, additional_headers=auth()) as again:
        assert talk(again) == f"A {MARK}"
        again.socket.close()
    assert ask(a, "GET", f"/responses/{name}").json()["error"]["code"] == "front_lost"
    going_on = ask(a, "POST", "/responses", json={"input": "x", "previous_response_id": name})
    assert (going_on.status_code, going_on.json()["error"]["code"]) == (503, "front_lost")
    with connect(a.realtime, additional_headers=auth()) as socket:
        socket.send(json.dumps(lost.resume_event()))
        resuming = RawSession(socket)
        assert resuming.until_closed()[0] == 1012
        assert resuming.events[-1]["error"]["code"] == "session_lost"
    with connect(f"ws{a.url.removeprefix('http')}/v1/responses", additional_headers=auth()) as socket:
        socket.send(json.dumps({"type": "response.create", "input": "Hi", "previous_response_id": name}))
        assert json.loads(socket.recv(60))["error"]["code"] == "front_lost"
    with front(folder, directory, "C again", responses=store) as c:
        assert c.service.tag == tag
        wait_until(lambda: ask(a, "GET", f"/responses/{name}").status_code == 200)
        assert text_of(created(a, previous_response_id=name)) == "C again"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_fronts_with_tls_show_each_other_certificates(folder: Path) -> None:
    make_certificates(folder)
    with ExitStack() as stack:
        address = stack.enter_context(running_directory(SECRET, folder))
        a, b = (stack.enter_context(front(folder, address, f"{name} {MARK}", tls=True)) for name in "AB")
        wait_until(lambda: others(a) == others(b) == 1)
        first = created(a)
        assert text_of(created(b, previous_response_id=first["id"])) == f"A {MARK}"
        with raw_session(a.realtime, additional_headers=auth()) as lost:
            lost.cut()
            wait_until(lambda: a.service.sessions.num_detached == 1)
            with resumed_session(b.realtime, lost, additional_headers=auth()) as again:
                assert talk(again) == f"A {MARK}"
                again.cut()
            wait_until(lambda: a.service.sessions.num_detached == 1)


def make_certificates(folder: Path) -> None:
    """One that is its own authority, for 127.0.0.1."""
    new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=front"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    name = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *new.split(), *files, *name], check=True, capture_output=True)
    shutil.copy(folder / "cert.pem", folder / "ca.pem")
