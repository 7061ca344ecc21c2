"""Forms are read within bounds on bytes and time, and what a client declares about them is not believed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import trio
from sensorium.actors.http.uploads import Upload, read_upload
from sensorium.protocols.errors import BadRequestError, RequestTimeoutError, TooLargeError
from starlette.requests import Request
from starlette.types import Message

HEAD = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
TAIL = b"\r\n--cut--\r\n"


async def read(
    chunks: Iterable[bytes],
    *,
    pause_s: float = 0.0,
    content_type: str = "multipart/form-data; boundary=cut",
    encoding: str = "",
) -> Upload:
    """Read a form that arrives in `chunks`, with a pause before each."""
    messages: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    waiting = iter(messages)

    async def receive() -> Message:
        await trio.sleep(pause_s)
        return next(waiting)

    headers = [(b"content-type", content_type.encode()), (b"content-encoding", encoding.encode())]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
    return await read_upload(request, max_bytes=64 * 1024)


def field(name: str, value: bytes) -> bytes:
    return b'--cut\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)


async def test_a_form_in_any_pieces() -> None:
    body = field("prompt", "größer".encode()) + HEAD + b"RIFF" + TAIL
    expected = Upload([("prompt", "größer")], b"RIFF")
    assert await read([body]) == expected
    assert await read([body[index : index + 1] for index in range(len(body))]) == expected


async def test_a_data_uri_may_be_as_large_as_a_file() -> None:
    uri = b"data:audio/wav;base64," + bytes(300 * 1024).replace(b"\0", b"A")
    read_fields = (await read([field("prompt", b"a"), field("url", uri), b"--cut--\r\n"])).fields
    assert read_fields == [("prompt", "a"), ("url", uri.decode())]
    with pytest.raises(BadRequestError, match="256KB"):
        await read([field("url", uri), field("prompt", uri), b"--cut--\r\n"])


async def test_a_body_that_is_compressed_is_refused_by_its_header() -> None:
    body = HEAD + b"RIFF" + TAIL
    assert (await read([body], encoding="Identity")).data == b"RIFF"
    with pytest.raises(BadRequestError, match="`Content-Encoding: gzip`"):
        await read([body], encoding="gzip")


async def test_too_many_bytes() -> None:
    with pytest.raises(TooLargeError):
        await read([HEAD, bytes(64 * 1024 + 1), TAIL])


@pytest.mark.parametrize("pause_s", [math.inf, 31.0])
async def test_a_body_that_stops(pause_s: float, autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(RequestTimeoutError):
        await read([HEAD, b"RIFF", TAIL], pause_s=pause_s)


async def test_a_body_that_trickles(autojump_clock: trio.testing.MockClock) -> None:
    started = trio.current_time()
    with pytest.raises(RequestTimeoutError):
        await read([HEAD, *[b"x"] * 10_000, TAIL], pause_s=1.0)
    assert trio.current_time() - started < 60


async def test_a_slow_line_has_time_enough(autojump_clock: trio.testing.MockClock) -> None:
    assert (await read([HEAD, *[bytes(2_000)] * 30, TAIL], pause_s=0.5)).data == bytes(60_000)
    assert (await read([HEAD, b"RIFF", TAIL], pause_s=7.0)).data == b"RIFF"


@pytest.mark.parametrize("charset", ["undefined", "idna", "punycode", "unicode_escape", "base64", "nonsense"])
async def test_the_client_does_not_choose_the_codec(charset: str) -> None:
    body = field("prompt", b"a..b \\ud800") + HEAD + b"RIFF" + TAIL
    content_type = f"multipart/form-data; boundary=cut; charset={charset}"
    assert (await read([body], content_type=content_type)).fields == [("prompt", "a..b \\ud800")]


async def test_bytes_that_are_not_utf_8_are_read_as_latin_1() -> None:
    assert (await read([field("prompt", b"gr\xf6\xdfer") + HEAD + b"RIFF" + TAIL])).fields == [
        ("prompt", "größer")
    ]


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data", "multipart/form-data; boundary=", f"multipart/form-data; boundary={'x' * 300}"],
)
async def test_a_form_without_a_usable_boundary(content_type: str) -> None:
    with pytest.raises(BadRequestError):
        await read([HEAD + b"RIFF" + TAIL], content_type=content_type)


async def test_two_files_are_refused() -> None:
    with pytest.raises(BadRequestError, match="Too many files"):
        await read([HEAD + b"RIFF\r\n" + HEAD + b"RIFF" + TAIL])
