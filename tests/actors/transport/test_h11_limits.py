"""No head is long to read, and every line that was a field is still the same one."""

from __future__ import annotations

import re
import time

import h11
import pytest
from h11 import _abnf
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.transport.h11_limits import _FIELD, MAX_FIELDS, bound_heads

bound_heads()
_BEFORE = re.compile(_abnf.header_field.encode())
_GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
_POST = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\n"


def read(data: bytes) -> list[object]:
    """What h11 makes of it, as a server or, of an answer, as a client."""
    connection = h11.Connection(h11.CLIENT if data.startswith(_ANSWER) else h11.SERVER)
    if data.startswith(_ANSWER):
        connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    events: list[object] = [connection.next_event()]
    while not isinstance(events[-1], h11.EndOfMessage) and events[-1] is not h11.NEED_DATA:
        events.append(connection.next_event())
    return events


@pytest.mark.parametrize("begin", [_GET, _POST, _ANSWER])
@pytest.mark.parametrize("end", [b"\0", b"\x0b", b"x\0"])
def test_blanks_before_what_is_refused_cost_their_number_not_its_square(begin: bytes, end: bytes) -> None:
    began = time.process_time()
    with pytest.raises(h11.RemoteProtocolError, match="illegal header line"):
        read(begin + b"a:" + b" \t" * 8_000 + end + b"\r\n\r\n")
    assert time.process_time() - began < 0.3


@pytest.mark.parametrize("begin", [_GET, _POST, _ANSWER])
def test_fields_are_counted(begin: bytes) -> None:
    assert read(begin + b"a:b\r\n" * (MAX_FIELDS - 1) + b"\r\n")
    with pytest.raises(h11.RemoteProtocolError, match="256 header fields") as caught:
        read(begin + b"a:\r\n" * (MAX_FIELDS + 1) + b"\r\n")
    assert caught.value.error_status_hint == 431


@given(st.from_regex(_BEFORE, fullmatch=True) | st.binary(max_size=40).map(lambda tail: b"a: b" + tail))
def test_the_same_lines_are_fields_as_before(line: bytes) -> None:
    before, now = _BEFORE.fullmatch(line), _FIELD.fullmatch(line)
    assert (now and now.groupdict()) == (before and before.groupdict())
