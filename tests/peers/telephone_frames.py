"""Streams of telephone providers, played to a server: the sentence comes back, without an error."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from peers.phone_streams import OTHERS, STREAMS
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

CALLS = f"ws{os.environ['PEERS_URL'].removeprefix('http')}/v1/calls?model=tiny-qwen3-asr&language=en"


def until(socket: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """Events up to the first of that kind; AssertionError if the call ends before."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["event"] != kind:
        try:
            events.append(json.loads(socket.recv(60)))
        except ConnectionClosed as closed:
            raise AssertionError(f"the call ended ({closed}) after {events}") from closed
    return events


@pytest.mark.parametrize("provider", STREAMS)
def test_a_sentence(provider: str) -> None:
    stream = STREAMS[provider]
    offered = [Subprotocol(stream.subprotocol)] if stream.subprotocol else None
    with connect(CALLS, subprotocols=offered) as socket:
        assert socket.subprotocol == stream.subprotocol
        for frame in stream.frames():
            socket.send(frame)
        events = until(socket, "transcript.completed")
        if stream.closing:
            for each in stream.closing:
                socket.send(json.dumps(each))
            events += until(socket, "call.summary")
    assert events[0]["event"] == "call.started"
    if stream.call:
        assert events[0]["call"] == stream.call
    assert not [event for event in events if event["event"] in ("error", "transcript.failed")]
    (text,) = (event["text"] for event in events if event["event"] == "transcript.completed")
    assert "kitchen lights" in text


@pytest.mark.parametrize("provider", OTHERS)
def test_a_stream_that_is_not_read_ends_with_one_error(provider: str) -> None:
    with connect(CALLS) as socket:
        socket.send(json.dumps(OTHERS[provider]))
        events = until(socket, "error")
        assert events[-1]["code"] == "unknown_stream"
        rest = [json.loads(frame)["event"] for frame in socket]
    assert "error" not in rest
