"""What a response was asked with may be large: it is written and sent a slice at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import msgspec
from sensorium.actors.http.responses.routes import ResponseRoutes
from starlette.requests import Request

ITEM: Final = b'{"id":"msg_1","text":"%b"}' % (b"x" * 1_000_000)


async def test_input_items_are_sent_in_slices() -> None:
    async def get(caller: object, response_id: str) -> object:
        return SimpleNamespace(input_items=[msgspec.Raw(ITEM)])

    service: Any = SimpleNamespace(
        caller=lambda _: None, elsewhere=lambda *_: None, responses=SimpleNamespace(get=get)
    )
    scope: dict[str, Any] = {"type": "http", "query_string": b"", "path_params": {"id": "resp_1"}}
    response = await ResponseRoutes(service).input_items(Request(scope))
    parts: list[bytes] = []

    async def send(message: Any) -> None:  # noqa: ANN401 (ASGI's)
        parts.append(message.get("body", b""))

    async def receive() -> Any:  # noqa: ANN401 (ASGI's)
        return {"type": "http.disconnect"}

    await response(scope, receive, send)
    assert msgspec.json.decode(b"".join(parts))["data"] == [msgspec.json.decode(ITEM)]
    assert max(map(len, parts)) <= 64 * 1024
