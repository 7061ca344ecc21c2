"""Which web pages may use a server, in a browser's own words: `Origin`, `Host`, and preflights."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from sensorium.actors.config.server import ListenConfig
from support.server import Server, make_config, running_server

OWN_APP = "https://app.example.com"
EVIL = "http://evil.example"
ROUTES = (
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/v1/realtime/client_secrets"),
    ("DELETE", "/v1/responses/resp_1"),
    ("GET", "/nowhere"),
)


@pytest.fixture(scope="module")
def open_server() -> Iterator[Server]:
    """A server with a key that the pages of `OWN_APP` may use, under a name of its own."""
    listen = ListenConfig(
        port=0, api_key=("alice",), allowed_origins=(OWN_APP,), allowed_hosts=("*.example.com",)
    )
    with running_server(make_config(listen=listen)) as server:
        yield server


def preflight(server: Server, path: str, origin: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    return httpx.options(server.url + path, headers=headers)


def code_of(response: httpx.Response) -> str:
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    return str(response.json()["error"]["code"])


def upgrade(server: Server, **headers: str) -> int:
    """The status with which a WebSocket is answered."""
    fields = {
        "Host": f"127.0.0.1:{server.port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        **headers,
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items()]
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"GET /v1/realtime HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
        return int(connection.recv(64).split()[1])


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://localhost:3000", "file://", "http://evil.example:x"]
)
def test_a_foreign_page_cannot_use_a_server_without_keys(server: Server, lights: bytes, origin: str) -> None:
    headers = {"Origin": origin}
    form = {"file": ("a.wav", lights)}
    refused = httpx.post(f"{server.api}/audio/transcriptions", headers=headers, files=form)
    assert (refused.status_code, code_of(refused)) == (403, "origin_not_allowed")
    for method, path in ROUTES:
        assert httpx.request(method, server.url + path, headers=headers).status_code == 403, path
        answer = preflight(server, path, origin)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    assert upgrade(server, Origin=origin) == 403
    assert httpx.post(f"{server.api}/audio/transcriptions", files=form).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost.evil.example", "intranet"]
)
def test_a_name_of_somebody_elses_is_not_ours(server: Server, host: str) -> None:
    """A page of that origin would be the server's own, if the name resolved to it."""
    host = host.format(port=server.port)
    headers = {"Host": host, "Origin": f"http://{host}"}
    for method, path in ROUTES:
        refused = httpx.request(method, server.url + path, headers={"Host": host})
        assert (refused.status_code, code_of(refused)) == (403, "host_not_allowed"), path
    assert upgrade(server, **headers) == 403


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "127.0.0.1:{port}", "LOCALHOST", "[::1]:{port}", "10.0.0.7"]
)
def test_its_own_pages_and_programs_may(server: Server, host: str) -> None:
    host = host.format(port=server.port)
    for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host.lower()}"}):
        answer = httpx.post(f"{server.api}/realtime/client_secrets", headers=headers)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
        assert upgrade(server, **headers) == 101


@pytest.mark.parametrize("path", ["/health", "/live", "/ping"])
def test_probes_may_call_it_what_they_like(server: Server, path: str) -> None:
    assert httpx.get(server.url + path, headers={"Host": "sensorium.example.com:8000"}).status_code == 200


def test_a_body_without_its_type_is_not_read_as_json(server: Server) -> None:
    """A page may send a body of no type, or as text, without asking first."""
    url = f"{server.api}/realtime/client_secrets"
    for headers in (
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ):
        refused = httpx.post(url, content=b"{}", headers=headers)
        assert refused.status_code == 400
        assert "Content-Type: application/json" in refused.json()["error"]["message"]
    assert httpx.post(url, content=b"{}", headers={"Content-Type": "application/JSON"}).status_code == 200
    assert httpx.post(url).status_code == 200  # a body that is not there is of no type


@pytest.mark.parametrize("key", ["alice", "wrong"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_named_page_reads_every_answer(open_server: Server, key: str, method: str, path: str) -> None:
    """Errors included, for else a page would only learn that something failed."""
    preflight_answer = preflight(open_server, path, OWN_APP)
    assert preflight_answer.status_code == 204
    assert not preflight_answer.content
    assert preflight_answer.headers["access-control-allow-origin"] == OWN_APP
    assert method in preflight_answer.headers["access-control-allow-methods"]
    assert preflight_answer.headers["access-control-allow-headers"] == "authorization, content-type"
    headers = {"Origin": OWN_APP, "Authorization": f"Bearer {key}"}
    answer = httpx.request(method, open_server.url + path, headers=headers)
    assert (answer.status_code == 401) == (key == "wrong")
    assert answer.headers["access-control-allow-origin"] == OWN_APP
    assert answer.headers["access-control-expose-headers"] == "*"
    assert "Origin" in answer.headers["vary"]


def test_only_the_named_page_may(open_server: Server) -> None:
    key = {"Authorization": "Bearer alice"}
    for origin, status in ((OWN_APP, 101), (EVIL, 403), ("https://app.example.com.evil.example", 403)):
        assert upgrade(open_server, Origin=origin, **key) == status
    assert preflight(open_server, "/v1/models", EVIL).status_code == 403
    plain = httpx.get(f"{open_server.api}/models", headers=key)
    assert "access-control-allow-origin" not in plain.headers
    assert plain.headers["vary"] == "Origin"  # or a cache would give the page an answer without permission


def test_only_the_named_hosts_are_ours(open_server: Server) -> None:
    key = {"Authorization": "Bearer alice"}
    for host, status in (("asr.example.com", 200), ("127.0.0.1", 200), ("example.org", 403), ("gpu1", 403)):
        assert httpx.get(f"{open_server.api}/models", headers={**key, "Host": host}).status_code == status
