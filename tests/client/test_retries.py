"""What is sent again, with whose client and which headers. httpx's own transports stand for the network."""

from __future__ import annotations

import io
from collections.abc import Callable

import httpx
import pytest
from sensorium.client import APIError, AsyncClient, Client, SensoriumConnectionError, SensoriumTimeoutError

Answer = Callable[[httpx.Request], httpx.Response]


def models() -> httpx.Response:
    return httpx.Response(200, json={"object": "list", "data": []})


def busy(**headers: str) -> httpx.Response:
    error = {"message": "busy", "type": "server_error", "param": None, "code": "overloaded"}
    return httpx.Response(
        503, json={"error": error}, headers={name.replace("_", "-"): v for name, v in headers.items()}
    )


class Server:
    """Gives one answer after the other and remembers the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **options: object) -> Client:
        http = httpx.Client(transport=httpx.MockTransport(self))
        return Client("http://a.test", "k", http_client=http, **options)  # type: ignore[arg-type]


def test_what_is_overloaded_or_unreachable_is_asked_again() -> None:
    server = Server(busy(), httpx.ConnectError("refused"), models())
    assert server.client(max_retries=2).models() == []
    assert len(server.requests) == 3


def test_two_more_attempts_are_the_default() -> None:
    server = Server(busy(), httpx.ConnectError("refused"), models(), models())
    assert server.client().models() == []
    assert len(server.requests) == 3


def test_a_timeout_is_not_sent_again() -> None:
    server = Server(httpx.ReadTimeout("slow"), models())
    with pytest.raises(SensoriumTimeoutError):
        server.client().models()
    assert len(server.requests) == 1


def test_no_retries_are_one_request() -> None:
    server = Server(busy(x_request_id="req_7", retry_after="3"), models())
    with pytest.raises(APIError, match="request req_7") as raised:
        server.client(max_retries=0).models()
    assert (raised.value.request_id, raised.value.retry_after_s) == ("req_7", 3.0)


@pytest.mark.parametrize("status", [400, 401, 404, 413])
def test_our_own_fault_is_not_repeated(status: int) -> None:
    server = Server(httpx.Response(status, text="no"), models())
    with pytest.raises(APIError):
        server.client(max_retries=5).models()
    assert len(server.requests) == 1


def test_readiness_is_asked_for_once_and_a_file_object_is_read_once() -> None:
    server = Server(busy(), busy(), models())
    client = server.client(max_retries=5)
    assert client.health() is False
    with pytest.raises(APIError):
        client.transcribe(io.BytesIO(b"RIFF"))
    assert len(server.requests) == 2


def test_it_gives_up() -> None:
    server = Server(*(httpx.ConnectError("refused") for _ in range(9)))
    with pytest.raises(SensoriumConnectionError):
        server.client(max_retries=3).models()
    assert len(server.requests) == 4


def test_headers_and_key_go_with_every_request_of_a_given_client_which_stays_open() -> None:
    server = Server(models())
    http = httpx.Client(transport=httpx.MockTransport(server))
    with Client("http://a.test/v1", "k", headers={"X-Team": "blue"}, http_client=http) as client:
        client.models()
    (request,) = server.requests
    assert str(request.url) == "http://a.test/v1/models"
    assert (request.headers["authorization"], request.headers["x-team"]) == ("Bearer k", "blue")
    assert not http.is_closed


def test_the_timeout_is_that_of_a_given_client_too() -> None:
    server = Server(models())
    server.client(timeout=7.0).models()
    (request,) = server.requests
    assert set(request.extensions["timeout"].values()) == {7.0}


async def test_the_async_client_is_the_same() -> None:
    server = Server(busy(), models())
    http = httpx.AsyncClient(transport=httpx.MockTransport(server))
    async with AsyncClient("http://a.test", max_retries=1, http_client=http) as client:
        assert await client.models() == []
    assert len(server.requests) == 2
    await http.aclose()


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="max_retries"):
        Client(max_retries=-1)
