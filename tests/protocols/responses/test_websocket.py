"""What a client of the WebSocket of `/v1/responses` sends, read; and events as its messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.errors import ClientError
from sensorium.protocols.responses.stream_events import OutputTextDelta
from sensorium.protocols.responses.websocket import as_messages, cancelled_by, lane_of, parse_create
from sensorium.protocols.shared.generation import named_sse


def create(**fields: Any) -> bytes:  # noqa: ANN401 (JSON)
    return json.dumps({"type": "response.create", "input": "Hi", **fields}).encode()


def test_a_request() -> None:
    read = parse_create(create(stream_id="a.b-C_1", generate=False, stream=False))
    assert (read.stream_id, read.is_warm_up) == ("a.b-C_1", True)
    assert (read.checked.chat.streams, read.checked.chat.includes_usage) == (True, True)
    assert not parse_create(create(generate=None)).is_warm_up


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        (create(type="response.steer"), "type"),
        (create(type=None), "type"),
        (b'{"type": "response.cancel"}', "response_id"),
        (create(stream_id=""), "stream_id"),
        (create(stream_id="a\n"), "stream_id"),
        (create(stream_id="a" * 257), "stream_id"),
        (create(background=True), "background"),
        (create(generate=1), "generate"),
        (create(colour="red"), "colour"),
        (b'{"input": "Hi"}', "type"),
    ],
)
def test_what_is_wrong_is_named(frame: bytes, param: str) -> None:
    with pytest.raises(ClientError) as caught:
        parse_create(frame)
    assert caught.value.param == param


def test_who_gives_up_names_the_response() -> None:
    frame = {"type": "response.cancel", "response_id": "resp_1", "event_id": "e"}
    assert cancelled_by(json.dumps(frame).encode()) == "resp_1"
    for other in (
        {**frame, "type": "response.create"},
        {**frame, "response_id": None},
        {**frame, "a": "x" * 1024},
    ):
        assert cancelled_by(json.dumps(other).encode()) is None
    for garbage in (b"", b"{", b"\xff", b"[" * 1000, b'{"a":' + b"[" * 1000):
        assert cancelled_by(garbage) is None


def test_the_lane_of_what_is_wrong() -> None:
    assert lane_of(create(colour="red", stream_id="a")) == "a"
    for nameless in (create(), create(stream_id="no lane"), create(stream_id=1), b"{"):
        assert lane_of(nameless) is None


@pytest.mark.parametrize("stream_id", [None, "a"])
def test_every_event_is_a_message(stream_id: str | None) -> None:
    texts = ["data: a\n\ndata: b", "\r\n\u2028é", "}"]
    frames = [
        named_sse(OutputTextDelta(sequence_number=n, item_id="i", output_index=0, delta=text, logprobs=[]))
        for n, text in enumerate(texts)
    ]
    messages = [json.loads(each) for each in as_messages(b"".join(frames), stream_id)]
    assert [each["delta"] for each in messages] == texts
    assert {each.get("stream_id") for each in messages} == {stream_id}
