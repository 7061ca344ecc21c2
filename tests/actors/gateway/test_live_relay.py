"""WebSockets through a gateway, over real sockets: which server has a session, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
import trio
from sensorium.actors.gateway.affinity import Affinity
from support.gateways import CONFIG, WAIT_S, Gateway, Receive, Send, Stub, echo_socket, gateway, reply
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close, Frame, Opcode
from websockets.trio.client import connect
from websockets.utils import accept_key

pytestmark = pytest.mark.slow


class Sessions:
    """What a stub keeps of sessions, in the words of ours: they outlive their socket, and can be resumed."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.goodbyes: dict[str, int] = {}
        self.is_full = False

    async def talk(self, stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        async def tell(**event: object) -> None:
            await send({"type": "websocket.send", "text": msgspec.json.encode(event).decode()})

        async def refuse(code: str, close: int) -> None:
            await tell(type="error", error={"code": code})
            await send({"type": "websocket.close", "code": close})

        await receive()
        await send({"type": "websocket.accept"})
        name = f"sess_{stub.name}{len(self.ids)}"
        if self.is_full:
            first = await receive()
            if '"session.resume"' not in first.get("text", ""):
                await refuse("too_many_sessions", 1013)
                return
        else:
            self.ids.add(name)
            await tell(type="session.created", session={"id": name, "resume_token": "t"}, server=stub.name)
            first = await receive()
        if first["type"] == "websocket.receive" and '"session.resume"' in first.get("text", ""):
            wanted = msgspec.json.decode(first["text"])
            self.ids.discard(name)
            if wanted["session_id"] not in self.ids:
                await refuse("session_not_found", 1008)
                return
            name = wanted["session_id"]
            await tell(type="session.resumed", session={"id": name}, server=stub.name)
            first = await receive()
        while first["type"] == "websocket.receive":
            if first.get("text") == "end":
                await send({"type": "websocket.close", "code": 1012, "reason": "draining"})
            else:
                await tell(type="heard", server=stub.name, data=first.get("text") or len(first["bytes"]))
            first = await receive()
        self.goodbyes[name] = first["code"]
        if first["code"] == 1000:
            self.ids.discard(name)


def stub_of(name: str, sessions: Sessions) -> Stub:
    return Stub(name, talk=sessions.talk)


@asynccontextmanager
async def opened(front: Gateway, path: str = "/v1/realtime", **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401
    async with connect(f"ws://127.0.0.1:{front.port}{path}", **options) as socket:
        yield Client(socket)


class Client:
    def __init__(self, socket: Any) -> None:  # noqa: ANN401 (websockets')
        self.socket = socket

    async def next(self) -> dict[str, Any]:
        with trio.fail_after(WAIT_S):
            found: dict[str, Any] = msgspec.json.decode(await self.socket.recv())
            return found

    async def say(self, data: str | bytes) -> dict[str, Any]:
        await self.socket.send(data)
        return await self.next()

    async def resume(self, name: str) -> dict[str, Any]:
        """The answer, what comes before it left out."""
        await self.socket.send(
            msgspec.json.encode(
                {"type": "session.resume", "session_id": name, "token": "t", "after_seq": 1}
            ).decode()
        )
        while (event := await self.next())["type"] == "session.created":
            pass
        return event

    async def close_code(self) -> int:
        with trio.fail_after(WAIT_S):
            try:
                while True:
                    await self.socket.recv()
            except ConnectionClosed as error:
                return 1006 if error.rcvd is None else error.rcvd.code


async def cut(client: Client) -> None:
    """As a network does: no close."""
    await trio.aclose_forcefully(client.socket.stream)


async def test_messages_pass_both_ways() -> None:
    one = Stub("one")
    async with gateway(one) as front:
        async with opened(front, "/v1/realtime?model=m&x=1", subprotocols=["realtime", "other"]) as client:
            assert client.socket.subprotocol == "realtime"
            assert (await client.next()) == {"server": "one"}
            for size in (0, 1, 125, 126, 70_000, 900_000):
                data = bytes(size)
                await client.socket.send(data)
                assert await client.socket.recv() == data
                await client.socket.send("é" * (size // 2))
                assert await client.socket.recv() == "é" * (size // 2)
            assert one.scopes[0]["query_string"] == b"model=m&x=1"
            await client.socket.aclose(4001, "bye")
        await front.wait_quiet()
        with trio.fail_after(WAIT_S):
            while not one.close_codes:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert one.close_codes == [4001]


async def test_a_lost_client_comes_back_to_its_server() -> None:
    """Also where the gateway has forgotten where it is, and where its server takes no new sessions."""
    kept = [Sessions() for _ in range(3)]
    stubs = [stub_of(f"s{i}", each) for i, each in enumerate(kept)]
    async with gateway(*stubs) as front:
        for number in range(6):
            async with opened(front) as client:
                created = await client.next()
                assert (await client.say("a"))["server"] == created["server"]
                await cut(client)
            if number % 2:
                front.state.affinity = Affinity()
            owner = kept[int(created["server"][1:])]
            owner.is_full = number > 2
            async with opened(front) as client:
                resumed = await client.resume(created["session"]["id"])
                assert (resumed["type"], resumed["server"]) == ("session.resumed", created["server"])
                assert (await client.say(b"bytes"))["server"] == created["server"]
            owner.is_full = False
            await front.wait_quiet()
            assert owner.goodbyes[created["session"]["id"]] == 1000


async def test_a_cut_between_gateway_and_server_is_one_to_come_back_from() -> None:
    sessions = Sessions()
    one = stub_of("one", sessions)
    async with gateway(one, stub_of("two", Sessions())) as front:
        created: dict[str, Any] = {"server": ""}
        while created["server"] != "one":
            async with opened(front) as client:
                created = await client.next()
                if created["server"] == "one":
                    assert one._scope is not None
                    one.kill()
                    await front.restart(one)
                    assert await client.close_code() == 1001
        async with opened(front) as client:
            assert (await client.resume(created["session"]["id"]))["server"] == "one"


async def test_only_sessions_of_a_dead_server_end() -> None:
    stubs = [stub_of(f"s{i}", Sessions()) for i in range(3)]
    async with gateway(*stubs) as front, trio.open_nursery() as nursery:
        codes: dict[str, list[int]] = {stub.name: [] for stub in stubs}
        lost: list[str] = []
        begun = 0

        async def live() -> None:
            nonlocal begun
            async with opened(front) as client:
                created = await client.next()
                begun += 1
                if created["server"] == "s0":
                    lost.append(created["session"]["id"])
                    codes["s0"].append(await client.close_code())
                    return
                await gone.wait()
                assert (await client.say("still"))["server"] == created["server"]
                codes[created["server"]].append(0)

        gone = trio.Event()
        for _ in range(9):
            nursery.start_soon(live)
        with trio.fail_after(WAIT_S):
            while begun < 9:  # noqa: ASYNC110
                await trio.sleep(0.01)
        stubs[0].kill()
        await front.wait_state(stubs[0], "down", "dead")
        async with opened(front) as client:
            answer = await client.resume(lost[0])
            assert (answer["type"], answer["error"]["code"]) == ("error", "session_lost")
            assert await client.close_code() == 1012
        async with opened(front) as client:
            assert (await client.next())["server"] != "s0"
        gone.set()
        with trio.fail_after(WAIT_S):
            while sum(map(len, codes.values())) < 9:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert codes == {"s0": [1012] * 3, "s1": [0] * 3, "s2": [0] * 3}


async def test_a_frozen_server_is_found_dead() -> None:
    one = stub_of("one", Sessions())
    async with gateway(one) as front, opened(front) as client:
        await client.next()
        one.is_frozen = True
        assert await client.close_code() == 1012


async def test_a_session_begins_where_there_is_room() -> None:
    full, free = Sessions(), Sessions()
    full.is_full = True
    async with gateway(stub_of("full", full), stub_of("free", free)) as front:
        for number in range(4):
            async with opened(front) as client:
                await client.socket.send("first")
                assert (await client.next())["server"] == "free"
                assert (await client.next())["data"] == "first"
                assert (await client.say(f"more {number}"))["data"] == f"more {number}"
        free.is_full = True
        async with opened(front) as client:
            refused = await client.say("first")
            assert refused["error"]["code"] == "too_many_sessions"
            assert await client.close_code() == 1013


async def test_what_a_client_sends_while_a_server_is_found_reaches_it() -> None:
    asked, sent = trio.Event(), trio.Event()

    async def refuse(stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": '{"type":"error","error":{"code":"overloaded"}}'})
        await receive()

    async def take(stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        asked.set()
        await sent.wait()
        await echo_socket(stub, scope, receive, send)

    full, slow = Stub("full", talk=refuse), Stub("slow", talk=take)
    async with gateway(full, slow) as front:
        front.state.servers._turn = 1  # of two with nothing in hand, the next is the first one
        async with opened(front) as client:
            with trio.fail_after(WAIT_S):
                await asked.wait()
                for number in range(3):
                    await client.socket.send(f"{number}")
                await (await client.socket.ping()).wait()  # all of it has arrived
            sent.set()
            assert (await client.next()) == {"server": "slow"}
            assert [await client.next() for _ in range(3)] == [0, 1, 2]


async def test_a_drained_server_keeps_its_sessions_and_gets_no_others(tmp_path: Any) -> None:  # noqa: ANN401
    stubs = [stub_of("one", Sessions()), stub_of("two", Sessions())]
    file = tmp_path / "servers"
    async with gateway(*stubs) as plain:
        file.write_text("\n".join(each.address.url for each in plain.state.servers))
        config = replace(CONFIG, servers_file=file)
        async with gateway(config=config) as front, opened(front) as client:
            server = (await client.next())["server"]
            draining = next(stub for stub in stubs if stub.name == server)
            file.write_text(
                "\n".join(f"{stub.url} drain" if stub is draining else stub.url for stub in stubs)
            )
            with trio.fail_after(WAIT_S):
                while not front.server(draining).is_draining:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            for _ in range(3):
                async with opened(front) as other:
                    assert (await other.next())["server"] != server
            assert (await client.say("on"))["server"] == server
            assert front.server(draining).load == 1
            await client.socket.send("end")
            assert await client.close_code() == 1012
            with trio.fail_after(WAIT_S):
                while front.server(draining).load:  # noqa: ASYNC110
                    await trio.sleep(0.01)


async def test_a_handshake_is_refused_as_the_server_refuses_it() -> None:
    async def refuse(stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        kind = [(b"content-type", b"application/json")]
        await send({"type": "websocket.http.response.start", "status": 401, "headers": kind})
        await send({"type": "websocket.http.response.body", "body": b'{"error": "key"}'})

    async with gateway(Stub("one", talk=refuse)) as front:
        with pytest.raises(InvalidStatus) as raised:
            async with opened(front):
                pass
        assert (raised.value.response.status_code, raised.value.response.body) == (401, b'{"error": "key"}')
        with pytest.raises(InvalidStatus) as raised:
            async with opened(front, "/other"):
                pass
        assert raised.value.response.status_code == 404


@pytest.mark.parametrize("closes", [False, True])
async def test_what_comes_together_with_the_handshake_is_relayed(*, closes: bool) -> None:
    """A server's first message, and its close, may be in the packet of its answer to the handshake."""

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(100_000)
        key = re.search(rb"(?i)sec-websocket-key: *(\S+)", request)
        if key is None:  # a probe
            await stream.send_all(
                b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"data":[]}'
            )
            return
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key[1].decode())}\r\n\r\n"
        )
        frames = [Frame(Opcode.TEXT, b'{"type":"session.created"}')]
        if closes:
            frames.append(Frame(Opcode.CLOSE, Close(4001, "bye").serialize()))
        await stream.send_all(head.encode() + b"".join(frame.serialize(mask=False) for frame in frames))
        while await stream.receive_some(100_000):
            pass

    async def serve_quietly(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # the gateway cuts a probe or a session off
            await serve(stream)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve_quietly, listeners)
        async with gateway(config=replace(CONFIG, servers=(url,))) as front, opened(front) as client:
            assert (await client.next()) == {"type": "session.created"}
            if closes:
                assert await client.close_code() == 4001
        nursery.cancel_scope.cancel()


async def test_an_ephemeral_key_opens_sessions_at_the_server_that_made_it() -> None:
    async def make(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
        await reply(send, {"value": f"ek_{stub.name}_12345678"})

    stubs = [Stub(name, answer=make) for name in ("one", "two", "three")]
    async with gateway(*stubs) as front, httpx.AsyncClient(base_url=front.url) as asking:
        for _ in range(3):
            key = (await asking.post("/v1/realtime/client_secrets", json={})).json()["value"]
            for options in (
                {"additional_headers": {"authorization": f"Bearer {key}"}},
                {"subprotocols": ["realtime", f"openai-insecure-api-key.{key}"]},
            ):
                async with opened(front, **options) as client:
                    assert (await client.next())["server"] == key.split("_")[1]


async def test_a_slow_reader_holds_up_its_server() -> None:
    num_sent = 0

    async def flood(stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        nonlocal num_sent
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(600):
            await send({"type": "websocket.send", "bytes": bytes(100_000)})
            num_sent += 1

    async with gateway(Stub("one", talk=flood)) as front, opened(front, max_size=None) as client:
        before = -1
        while num_sent != before:
            before = num_sent
            await trio.sleep(0.3)
        assert num_sent < 300
        for _ in range(600):
            assert len(await client.socket.recv()) == 100_000


async def test_a_gateway_that_ends_leaves_sessions_to_be_resumed() -> None:
    sessions = Sessions()
    one = stub_of("one", sessions)
    async with gateway(one) as first:
        async with opened(first) as client:
            created = await client.next()
            first.stop.set()
            assert await client.close_code() == 1001
        await first.wait_quiet()
        assert created["session"]["id"] in sessions.ids
