"""Request ids and the access log around any ASGI application."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
import trio
from sensorium.actors.http.access_log import AccessLog, RefusalLog
from sensorium.actors.telemetry.logs import FIELDS, REQUEST_ID, LogConfig
from sensorium.actors.transport.refusals import Refusal
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEY = "s3cret"
BAD_IDS = ("", "x" * 129, "a b", "a\r\nSet-Cookie: b", "ä", 'a"b', "{}")


def answering(*messages: Message, seen: list[str | None] | None = None, seconds: float = 0.0) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if seen is not None:
            seen.append(REQUEST_ID.get())
        for message in messages:
            await trio.sleep(seconds)
            await send(message)

    return app


OK = (
    {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]},
    {"type": "http.response.body", "body": b"1234", "more_body": True},
    {"type": "http.response.body", "body": b"56"},
)


async def request(
    app: ASGIApp,
    *,
    kind: str = "http",
    path: str = "/v1/models",
    headers: Sequence[tuple[str, str]] = (),
    config: LogConfig | None = None,
    subprotocols: Sequence[str] = (),
) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {
        "type": kind,
        "method": "GET",
        "path": path,
        "client": ("10.0.0.7", 4711),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "subprotocols": list(subprotocols),
    }
    await AccessLog(app, config or LogConfig())(scope, receive, send)
    return sent


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [getattr(record, FIELDS) for record in caplog.records]


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sensorium.access")


def test_what_was_refused_before_it_was_a_request(caplog: pytest.LogCaptureFixture) -> None:
    refusal = Refusal(431, "invalid_value", "req_1", ("10.0.0.7", 4711), "GET", "/ping")
    for config in (LogConfig(), LogConfig(access_log="off")):
        log = RefusalLog(config)
        log(refusal, 0)
        log(replace(refusal, method="", path=""), 7)
    assert [record.getMessage() for record in caplog.records] == [
        "- - 431 refused invalid_value 10.0.0.7 (7 more before it)"
    ]
    assert fields(caplog)[0]["unreported"] == 7


async def test_a_clients_id_goes_through_to_tasks_and_answer(autojump_clock: object) -> None:
    seen: list[str | None] = []
    sent = await request(answering(*OK, seen=seen), headers=[("X-Request-Id", "trace-1:2/3")])
    assert seen == ["trace-1:2/3"]
    assert sent[0]["headers"] == [
        (b"a", b"b"),
        (b"request-id", b"trace-1:2/3"),
        (b"x-request-id", b"trace-1:2/3"),
    ]
    assert REQUEST_ID.get() is None


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_an_id_unfit_for_a_log_is_replaced(bad: str) -> None:
    sent = await request(answering(*OK), headers=[("X-Request-Id", bad)])
    request_id = sent[0]["headers"][-1][1]
    assert request_id.startswith(b"req_")
    assert len(request_id) == 28


async def test_a_line_says_what_was_answered_to_whom(
    caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    await request(answering(*OK, seconds=0.25), headers=[("Authorization", f"Bearer {KEY}")])
    (line,) = fields(caplog)
    caller = "10.0.0.7 key:1ec1c26b"  # printf s3cret | sha256sum
    assert line == {
        "method": "GET",
        "path": "/v1/models",
        "status": 200,
        "bytes": 6,
        "ms": 750.0,
        "caller": caller,
        "complete": True,
    }
    assert caplog.messages == [f"GET /v1/models 200 6 B 750.0 ms {caller}"]
    assert KEY not in caplog.text


async def test_what_was_cut_off_and_who_left_is_told(caplog: pytest.LogCaptureFixture) -> None:
    await request(answering(*OK[:2]))
    await request(answering())
    assert [(line["status"], line["complete"]) for line in fields(caplog)] == [(200, False), (499, False)]


async def test_paths_can_be_left_out_and_all_of_it(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/health", "/live", "/metrics"):
        await request(answering(*OK), path=path)
    await request(answering(*OK), path="/v1/models", config=LogConfig(access_log_skip=("/v1/models",)))
    sent = await request(answering(*OK), config=LogConfig(access_log="off"))
    assert not caplog.records
    assert sent[0]["headers"][-1][0] == b"x-request-id"


async def test_a_websocket_is_told_twice(caplog: pytest.LogCaptureFixture) -> None:
    app = answering(
        {"type": "websocket.accept", "subprotocol": "realtime"},
        {"type": "websocket.send", "text": "12345"},
        {"type": "websocket.close", "code": 1008},
    )
    sent = await request(app, kind="websocket", subprotocols=["realtime", f"openai-insecure-api-key.{KEY}"])
    assert [name for name, _ in sent[0]["headers"]] == [b"request-id", b"x-request-id"]
    opened, closed = fields(caplog)
    assert (opened["method"], opened["status"], "bytes" in opened) == ("WEBSOCKET", 101, False)
    assert (closed["bytes"], closed["close_code"]) == (5, 1008)
    assert str(closed["caller"]).startswith("10.0.0.7 key:")
    assert KEY not in caplog.text
