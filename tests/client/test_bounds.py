"""A server that sends too much, too slowly or what is not understood costs an error of the SDK, no more."""

from __future__ import annotations

import gzip
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import Any

import anyio
import httpx
import pytest
from sensorium.client import (
    APIError,
    AsyncClient,
    Client,
    SDKError,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    bounds,
)
from sensorium.client.chat.answer import Round
from sensorium.client.connection import status_error
from sensorium.client.requests import METRICS, MODELS, VERSION, transcription
from sensorium.client.server_events import StreamDecoder

DEEP = b'{"error":' + b"[" * 100_000
DONE = b'data: {"type":"transcript.text.done","text":"a\xe2\x80\xa8b\xc2\x85c"}\n\n'


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is sent piece by piece."""

    def __init__(self, pieces: Iterator[bytes], wait_s: float = 0.0) -> None:
        self.pieces, self.wait_s, self.num_sent = pieces, wait_s, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            time.sleep(self.wait_s)
            self.num_sent += 1
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await anyio.sleep(self.wait_s)
            self.num_sent += 1
            yield piece


class Both:
    """The sync and the async client, each with the same call."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def do(
        self,
        method: str,
        body: Pieces,
        *,
        status: int = 200,
        **options: Any,  # noqa: ANN401 (whatever the client takes)
    ) -> Any:  # noqa: ANN401 (whatever the method returns)
        headers = options.pop("headers", {})

        def answer(request: httpx.Request) -> httpx.Response:
            assert request.headers["accept-encoding"] == "identity"
            return httpx.Response(status, headers=headers, stream=body)

        transport = httpx.MockTransport(answer)
        if self.is_async:
            return anyio.run(self._asynchronously, method, transport, options)
        with httpx.Client(transport=transport) as http:
            client = Client("http://a.test", http_client=http, max_retries=0, **options)
            if method == "stream":
                return list(client.transcribe_stream(b"x"))
            call: Callable[..., Any] = getattr(client, method)
            return call() if method in ("models", "version", "metrics") else call(b"x")

    async def _asynchronously(
        self, method: str, transport: httpx.MockTransport, options: dict[str, Any]
    ) -> Any:  # noqa: ANN401 (whatever the method returns)
        async with httpx.AsyncClient(transport=transport) as http:
            client = AsyncClient("http://a.test", http_client=http, max_retries=0, **options)
            if method == "stream":
                return [event async for event in client.transcribe_stream(b"x")]
            call: Callable[..., Awaitable[Any]] = getattr(client, method)
            return await (call() if method in ("models", "version", "metrics") else call(b"x"))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def both(request: pytest.FixtureRequest) -> Both:
    return Both(request.param)


@pytest.mark.parametrize("method", ["models", "version", "metrics", "transcribe"])
def test_an_endless_answer_is_left(both: Both, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_ANSWER_BYTES", 1 << 20)
    body = Pieces(itertools.repeat(b" " * 65536))
    with pytest.raises(APIError, match="an answer of more than 1 MiB"):
        both.do(method, body)
    assert body.num_sent == 17


@pytest.mark.parametrize("method", ["models", "stream"])
def test_an_endless_error_is_cut_and_raised(both: Both, method: str) -> None:
    body = Pieces(itertools.repeat(b"busy " * 10_000))
    with pytest.raises(APIError, match=r"^busy busy") as raised:
        both.do(method, body, status=503)
    assert (raised.value.status, body.num_sent) == (503, 21)


@pytest.mark.parametrize("method", ["models", "stream", "transcribe"])
def test_a_compressed_answer_is_refused_before_it_is_read(both: Both, method: str) -> None:
    body = Pieces(itertools.repeat(gzip.compress(bytes(1 << 20))))
    with pytest.raises(APIError, match="compressed its answer"):
        both.do(method, body, headers={"content-encoding": "gzip"})
    assert body.num_sent == 0


def test_an_endless_line_ends_the_stream(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_LINE_BYTES", 1 << 20)
    body = Pieces(itertools.chain([b"data: "], itertools.repeat(b"x" * 65536)))
    with pytest.raises(APIError, match="a line of an event stream of more than 1 MiB"):
        both.do("stream", body)
    assert body.num_sent == 17


def test_endless_comments_end_the_stream(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_STREAM_BYTES", 1 << 20)
    with pytest.raises(APIError, match="an event stream of more than 1 MiB"):
        both.do("stream", Pieces(itertools.repeat(b": still here\n\n" * 1000)))


def test_a_whole_answer_that_drips_ends_with_the_timeout(both: Both) -> None:
    with pytest.raises(SensoriumTimeoutError, match=r"not complete within 0\.05 s"):
        both.do("models", Pieces(itertools.repeat(b" "), 0.005), timeout=0.05)


@pytest.mark.parametrize("piece", [b": \n\n", b"x"])
def test_a_stream_that_drips_ends_with_the_total_timeout(both: Both, piece: bytes) -> None:
    with pytest.raises(SensoriumTimeoutError, match=r"not complete within 0\.06 s"):
        both.do("stream", Pieces(itertools.repeat(piece), 0.005), timeout=0.05, total_timeout=0.06)


def test_a_slow_stream_may_take_longer_than_one_wait(both: Both) -> None:
    events = both.do("stream", Pieces(iter([b": \n"] * 6 + [DONE]), 0.02), timeout=0.05)
    assert [event.text for event in events] == ["a\u2028b\x85c"]


@contextmanager
def dripping(first: bytes, piece: bytes) -> Iterator[str]:
    """The address of a server that sends `piece` every 5 ms after `first`, for as long as anybody reads."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        while not select([listener], [], [], 0.05)[0]:
            if ended.is_set():
                return  # the client gave up before it was connected
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not ended.wait(0.005):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("method", ["models", "stream"])
@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nx: ", b"x"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"0"),
    ],
    ids=["status", "head", "interim", "body", "chunks"],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_server_that_drips_anything_is_left_at_the_total_timeout(
    first: bytes, piece: bytes, method: str, is_async: bool
) -> None:
    async def request_async(url: str) -> None:
        async with AsyncClient(url, timeout=0.3, total_timeout=0.1) as client:
            if method == "models":
                await client.models()
            else:
                async for _ in client.transcribe_stream(b"x"):
                    pass

    def request(url: str) -> None:
        if is_async:
            anyio.run(request_async, url)
            return
        with Client(url, timeout=0.3, total_timeout=0.1) as client:
            if method == "models":
                client.models()
            else:
                list(client.transcribe_stream(b"x"))

    with dripping(first, piece) as url, pytest.raises(SDKError) as raised:
        request(url)
    assert isinstance(raised.value, SensoriumTimeoutError | SensoriumConnectionError)
    assert "0.1 s" in str(raised.value) or first == b""  # a status line of no protocol is refused earlier


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_end_where_those_of_event_streams_do(size: int) -> None:
    data = "a\r\nb\u2028c\n\rd\x85\x0be".encode()
    splitter = bounds.LineSplitter(200, None)
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    assert [line for line in (*lines, *splitter.end()) if line] == ["a", "b\u2028c", "d\x85\x0be"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"text":"a","duration":"abc"}',
        b'{"text":"a","duration":"inf"}',
        b'{"text":"a","duration":"nan"}',
        b'{"text":"a","duration":-1}',
        b'{"text":7}',
        b'{"text":"\xff"}',
        b'{"text":"a","x":' + b"[" * 100_000,
        b"null",
        b"",
    ],
)
def test_an_answer_that_is_not_understood_is_an_error_of_the_sdk(body: bytes) -> None:
    with pytest.raises(APIError, match="the server's answer is not understood"):
        transcription(b"x", "verbose_json").result(200, body)


def test_so_are_those_of_other_calls() -> None:
    for call, body in (
        (MODELS, b'{"data":' + b"[" * 100_000),
        (VERSION, b'{"version":"\xff"}'),
        (METRICS, b"\xff"),
        (transcription(b"x", "srt"), b"\xff"),
    ):
        with pytest.raises(APIError, match="not understood"):
            call.result(200, body)


@pytest.mark.parametrize("body", [DEEP, b'{"error":"\xff"}', b'{"error":{"message":7}}'])
def test_an_error_that_is_not_understood_keeps_its_status(body: bytes) -> None:
    assert status_error(429, body).status == 429


@pytest.mark.parametrize("data", [DEEP.decode(), '{"error":"\udcff"}'])
def test_events_that_are_not_understood_end_as_an_answer_that_broke_off(data: str) -> None:
    decoder = StreamDecoder()
    assert decoder.feed(f"data: {data}") is None
    with pytest.raises(SDKError, match="broke off"):
        decoder.end()
    assert Round().add(data) is None


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "soon"])
def test_a_retry_after_that_is_no_time_is_none(both: Both, value: str) -> None:
    with pytest.raises(APIError) as raised:
        both.do("models", Pieces(iter([b"busy"])), status=429, headers={"retry-after": value})
    assert raised.value.retry_after_s is None


def test_the_total_timeout_is_above_0() -> None:
    with pytest.raises(ValueError, match="total_timeout is 0: expected seconds above 0"):
        Client(total_timeout=0)
