"""HTTP through a gateway, over real sockets: which server answers, what passes, and what is tried again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
from support.gateways import Receive, Send, Stub, gateway

pytestmark = pytest.mark.slow


def body_of(model: str | None = "m", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], **more}


async def test_a_model_chooses_its_server() -> None:
    one, two = Stub("one", ("a", "b")), Stub("two", ("b", "c"))
    async with gateway(one, two) as front, httpx.AsyncClient(base_url=front.url) as client:
        listed = (await client.get("/v1/models")).json()
        assert sorted(each["id"] for each in listed["data"]) == ["a", "b", "c"]
        assert (await client.get("/v1/models/c")).json()["id"] == "c"
        for model, servers in (("a", {"one"}), ("c", {"two"})):
            found = {
                (await client.post("/v1/chat/completions", json=body_of(model))).json()["server"]
                for _ in range(4)
            }
            assert found == servers
        form = await client.post("/v1/audio/transcriptions", data={"model": "c"}, files={"file": b"x" * 1000})
        assert form.json()["server"] == "two"
        unknown = await client.post("/v1/chat/completions", json=body_of("d"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        assert (await client.get("/v1/models/d")).status_code == 404
        assert (await client.get("/health")).json() == {"status": "ok"}
        metrics = (await client.get("/metrics")).text
        assert f'sensorium_gateway_requests_total{{server="{one.url}",status="200"}} 4.0' in metrics


async def test_events_pass_as_they_come() -> None:
    go_on = trio.Event()

    async def answer(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"data: 2\n\n", "more_body": False})

    async with (
        gateway(Stub("one", answer=answer)) as front,
        httpx.AsyncClient(base_url=front.url) as client,
        client.stream("POST", "/v1/chat/completions", json=body_of()) as found,
    ):
        lines = found.aiter_raw()
        assert await anext(lines) == b"data: 1\n\n"
        go_on.set()
        assert b"".join([part async for part in lines]) == b"data: 2\n\n"
