"""HTTP through a gateway, over real sockets: which server answers, what passes, and what is tried again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
import trio
import trio.testing
from sensorium.actors.gateway.affinity import Affinity
from sensorium.actors.transport.http_exchange import HALF_CLOSED
from support.gateways import CONFIG, WAIT_S, Receive, Send, Stub, echo, gateway, reply

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


def failing(num: int, how: str) -> Any:  # noqa: ANN401 (an Answer)
    """Fails so many requests, before the first byte or midway, then answers."""
    left = [num]

    async def answer(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        if not left[0]:
            await echo(stub, scope, body, receive, send)
            return
        left[0] -= 1
        if how == "full":
            await reply(send, {"error": {"code": "overloaded"}}, 503, (b"retry-after", b"1"))
            return
        if how != "before":
            kind = b"text/event-stream" if how == "events" else b"application/json"
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": b"data: half", "more_body": True})
        stub.kill()
        await trio.sleep_forever()

    return answer


async def test_another_server_is_tried_until_an_answer_begins() -> None:
    for how in ("before", "full"):
        one, two = Stub("one", answer=failing(9, how)), Stub("two", answer=failing(9, how))
        three = Stub("three")
        async with gateway(one, two, three) as front, httpx.AsyncClient(base_url=front.url) as client:
            for _ in range(4):
                found = await client.post("/v1/chat/completions", json=body_of())
                assert (found.status_code, found.json()["server"]) == (200, "three")
            assert len(one.scopes) == len(two.scopes) == 1  # the one is down then, the other left alone


async def test_what_may_have_been_done_is_not_done_twice() -> None:
    one, two = Stub("one", answer=failing(9, "before")), Stub("two", answer=failing(9, "before"))
    async with gateway(one, two) as front, httpx.AsyncClient(base_url=front.url) as client:
        lost = await client.post("/v1/responses", json={"model": "m", "input": "hello"})
        assert (lost.status_code, lost.json()["error"]["code"]) == (503, "server_lost")
        assert len(one.scopes) + len(two.scopes) == 1


async def test_where_all_servers_are_full_one_says_so() -> None:
    stubs = [Stub(name, answer=failing(9, "full")) for name in ("one", "two")]
    async with gateway(*stubs) as front, httpx.AsyncClient(base_url=front.url) as client:
        asked = await client.post("/v1/chat/completions", json=body_of())
        shed = await client.post("/v1/chat/completions", json=body_of())
        assert [len(stub.scopes) for stub in stubs] == [1, 1]
    for found in (asked, shed):
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert found.json()["error"]["code"] == "overloaded"


async def test_a_gateway_bounds_what_is_in_hand() -> None:
    async def wait(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        await go_on.wait()
        await reply(send, {})

    go_on = trio.Event()
    per_server, in_all = replace(CONFIG, max_requests_per_server=1), replace(CONFIG, max_requests=2)
    for config in (per_server, in_all):
        go_on = trio.Event()
        async with (
            gateway(Stub("one", answer=wait), Stub("two", answer=wait), config=config) as front,
            httpx.AsyncClient(base_url=front.url) as client,
            trio.open_nursery() as nursery,
        ):
            for _ in range(2):
                nursery.start_soon(partial(client.post, "/v1/chat/completions", json=body_of()))
            with trio.fail_after(WAIT_S):
                while front.state.requests.total() < 2:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            await trio.testing.wait_all_tasks_blocked(0.05)
            shed = await client.post("/v1/chat/completions", json=body_of())
            assert (shed.status_code, shed.headers["retry-after"]) == (503, "1")
            go_on.set()


async def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    one = Stub("one", answer=failing(9, "midway"))
    async with gateway(one) as front, httpx.AsyncClient(base_url=front.url) as client:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.post("/v1/chat/completions", json=body_of())
    for path, ends in (("/v1/chat/completions", "data: [DONE]\n\n"), ("/v1/messages", "data: [DONE]\n\n")):
        two = Stub("two", answer=failing(9, "events"))
        async with gateway(two) as front, httpx.AsyncClient(base_url=front.url) as client:
            events = (await client.post(path, json=body_of())).text
            assert events.startswith("data: half\n\n")
            assert '"error"' in events
            assert events.endswith(ends)


async def test_a_kept_connection_that_has_ended_loses_no_request() -> None:
    one = Stub("one")
    async with gateway(one) as front, httpx.AsyncClient(base_url=front.url) as client:
        for _ in range(5):
            assert (await client.post("/v1/responses", json=body_of())).status_code == 200
            one.kill()
            await front.restart(one)
        assert len(one.scopes) == 5


async def test_large_bodies_pass_and_small_ones_are_kept() -> None:
    config = replace(CONFIG, replay_mib=0.1)
    data = bytes(range(256)) * 20_000  # 5 MB
    one, two = Stub("one", answer=failing(1, "full")), Stub("two")
    async with gateway(one, two, config=config) as front, httpx.AsyncClient(base_url=front.url) as client:

        async def post(size: int) -> httpx.Response:
            return await client.post(
                "/v1/audio/transcriptions", data={"model": "m"}, files={"file": data[:size]}, timeout=60
            )

        small = [await post(50_000) for _ in range(2)]
        assert {each.status_code for each in small} == {200}
        for _ in range(3):
            found = await post(len(data))
            assert (found.status_code, found.json()["size"] > len(data)) == (200, True)
        front.server(one).health.refused()

        async def parts() -> Any:  # noqa: ANN401
            for start in range(0, 1_000_000, 10_000):
                yield data[start : start + 10_000]

        chunked = await client.post("/v1/files", content=parts())
        assert chunked.json()["size"] == 1_000_000


async def test_an_early_answer_to_a_large_body_arrives() -> None:
    class Early(Stub):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
            if scope["path"] in ("/health", "/v1/models"):
                await super().__call__(scope, receive, send)
            else:
                await reply(send, {"error": {"code": "too_large"}}, 413)

    async with gateway(Early("one")) as front, httpx.AsyncClient(base_url=front.url) as client:
        for size in (1000, 3_000_000, 9_000_000):
            found = await client.post("/v1/files", content=bytes(size), timeout=60)
            assert found.status_code == 413


async def test_a_client_that_leaves_ends_the_servers_work() -> None:
    left = trio.Event()

    async def stream(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (message := await receive())["type"] != "http.disconnect":
            if message["type"] == HALF_CLOSED:  # a client that has left answers this with a reset
                await send({"type": "http.response.body", "body": b": there?", "more_body": True})
        left.set()

    async with gateway(Stub("one", answer=stream)) as front:
        async with await trio.open_tcp_stream("127.0.0.1", front.port) as client:
            await client.send_all(
                b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: 2\r\n\r\n{}"
            )
            assert b"begun" in await client.receive_some(10_000)
        with trio.fail_after(WAIT_S):
            await left.wait()
        await front.wait_quiet()


async def test_a_slow_reader_holds_up_its_server_and_nobody_else() -> None:
    num_sent = 0

    async def flood(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        nonlocal num_sent
        if scope["path"] != "/v1/completions":
            await echo(stub, scope, body, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for num in range(600):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": num < 599})
            num_sent += 100_000

    async with gateway(Stub("one", answer=flood)) as front:
        async with await trio.open_tcp_stream("127.0.0.1", front.port) as stream:
            await stream.send_all(
                b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: 2\r\n\r\n{}"
            )
            assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200")
            before = -1
            while num_sent != before:  # until nothing more fits between the two
                before = num_sent
                await trio.sleep(0.3)
            assert num_sent < 30_000_000
            async with httpx.AsyncClient(base_url=front.url) as client:
                assert (await client.post("/v1/chat/completions", json=body_of())).status_code == 200
            rest = 0
            while rest < 60_000_000:
                rest += len(await stream.receive_some(1 << 20))
        await front.wait_quiet()


async def test_a_dead_servers_requests_go_elsewhere() -> None:
    one, two = Stub("one"), Stub("two")
    async with gateway(one, two) as front, httpx.AsyncClient(base_url=front.url, timeout=60) as client:
        one.is_frozen = True  # its connections stay open, as of a process that is stopped
        async with trio.open_nursery() as nursery:
            found: list[str] = []

            async def ask() -> None:
                found.append(
                    (await client.post("/v1/chat/completions", json=body_of(tag=len(found)))).json()["server"]
                )

            for _ in range(4):
                nursery.start_soon(ask)
        assert found == ["two"] * 4
        await front.wait_state(one, "dead")
        one.is_frozen = False
        one.kill()
        await front.restart(one)
        await front.wait_state(one, "up")


async def test_no_server_is_a_refusal_that_says_when_to_try_again() -> None:
    one = Stub("one")
    async with gateway(one) as front, httpx.AsyncClient(base_url=front.url) as client:
        one.health = 503
        await front.wait_state(one, "down")
        found = await client.post("/v1/chat/completions", json=body_of())
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/live")).status_code == 200
        one.health = 200
        await front.wait_state(one, "up")
        assert (await client.post("/v1/chat/completions", json=body_of())).status_code == 200


async def test_what_a_server_has_made_is_asked_of_that_server() -> None:
    async def store(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        stored: set[str] = stub.__dict__.setdefault("stored", set())
        if scope["method"] == "POST":
            asked = msgspec.json.decode(body).get("previous_response_id")
            if asked is not None and asked not in stored:
                await reply(send, {"error": {"code": "previous_response_not_found"}}, 400)
                return
            name = f"resp_{stub.name}{len(stored)}"
            stored.add(name)
            await reply(send, {"id": name, "server": stub.name})
            return
        name = scope["path"].rsplit("/", 1)[1]
        await reply(send, {"id": name}, 200 if name in stored else 404)

    stubs = [Stub(name, answer=store) for name in ("one", "two", "three")]
    async with gateway(*stubs) as front, httpx.AsyncClient(base_url=front.url) as client:
        made = [
            (await client.post("/v1/responses", json={"model": "m", "input": "x"})).json() for _ in range(6)
        ]
        assert {each["server"] for each in made} == {"one", "two", "three"}
        for forgets in (False, True):
            for each in made:
                if forgets:  # as after a restart
                    front.state.affinity = Affinity()
                more = {"model": "m", "input": "y", "previous_response_id": each["id"]}
                assert (await client.post("/v1/responses", json=more)).json()["server"] == each["server"]
                if forgets:
                    front.state.affinity = Affinity()
                assert (await client.get(f"/v1/responses/{each['id']}")).status_code == 200
        first = next(each for each in made if each["server"] == "one")
        stubs[0].health = 503
        await front.wait_state(stubs[0], "down")
        gone = await client.get(f"/v1/responses/{first['id']}")
        assert gone.status_code in (404, 503)


async def test_a_conversation_stays_where_its_prompt_was_computed() -> None:
    stubs = [Stub(name) for name in ("one", "two", "three")]
    system = {"role": "system", "content": "You are short."}
    async with gateway(*stubs) as front, httpx.AsyncClient(base_url=front.url) as client:
        servers: list[set[str]] = []
        for number in range(9):
            messages: list[dict[str, str]] = [system]
            servers.append(set())
            for turn in range(4):
                messages.append({"role": "user", "content": f"{number} {turn}"})
                found = await client.post("/v1/chat/completions", json={"model": "m", "messages": messages})
                servers[-1].add(found.json()["server"])
                messages.append({"role": "assistant", "content": "yes"})
        assert all(len(each) == 1 for each in servers)
        keyed = {
            (await client.post("/v1/chat/completions", json=body_of(tag=tag, prompt_cache_key="k"))).json()[
                "server"
            ]
            for tag in range(6)
        }
        assert len(keyed) == 1
