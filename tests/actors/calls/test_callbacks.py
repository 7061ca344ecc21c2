"""Events of a call are posted in order, signed, again if need be, and nowhere that is not allowed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import h11
import httpx
import pytest
import trio
from sensorium.actors.calls import callbacks
from sensorium.actors.calls.callbacks import Callback, read_address, signature
from sensorium.actors.config.calls import CallConfig
from sensorium.actors.errors import ConfigError
from sensorium.actors.fetching.dns import Names
from sensorium.actors.fetching.http_get import Connections
from sensorium.protocols.errors import BadRequestError

SECRET = "a secret of an operator"
CONFIG = CallConfig(("hooks.example",), ("127.0.0.1",), SECRET)


class Hook:
    """A server that answers each post with the next of its statuses, then with 204."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.posts: list[tuple[bytes, dict[bytes, bytes]]] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        body, fields = b"", {}
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(65_536)))
            elif isinstance(event, h11.Request):
                fields = dict(event.headers)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        self.posts.append((body, fields))
        status = self.statuses.pop(0) if self.statuses else 204
        headers = [("Content-Length", "0"), ("Location", "http://127.0.0.1:1/")]
        answer = http.send(h11.Response(status_code=status, headers=headers)) or b""
        await stream.send_all(answer + (http.send(h11.EndOfMessage()) or b""))


@asynccontextmanager
async def posting(
    hook: Hook, config: CallConfig = CONFIG, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Callback, list[str]]]:
    """A callback that runs, and the codes of the problems it tells."""
    problems: list[str] = []
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, hook.serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        target = read_address(f"http://hooks.example:{port}/calls?x=1", config)
        names = Names(lambda *_: [host])
        callback = Callback(
            target, config, Connections(names, config.networks), lambda code, _: problems.append(code)
        )
        async with trio.open_nursery() as running:
            running.start_soon(callback.run)
            yield callback, problems
            callback.finish()
        nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_FIRST_PAUSE_S", 0.01)


async def test_events_come_in_order_and_signed() -> None:
    hook = Hook()
    async with posting(hook) as (callback, problems):
        for number in range(5):
            callback.put(f'{{"seq":{number}}}')
    assert [body for body, _ in hook.posts] == [b'{"seq":%d}' % number for number in range(5)]
    body, fields = hook.posts[0]
    stamp, code = fields[b"sensorium-signature"].decode().split(",")
    signed = stamp.removeprefix("t=").encode() + b"." + body
    assert code == "v1=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert signature(body, SECRET, now=int(stamp[2:])) == f"{stamp},{code}"
    assert (fields[b"content-type"], callback.num_posted, problems) == (b"application/json", 5, [])


async def test_what_is_not_taken_is_sent_again_before_the_next() -> None:
    hook = Hook(500, 302, 429)
    async with posting(hook) as (callback, problems):
        callback.put("first")
        callback.put("second")
    assert [body for body, _ in hook.posts] == [b"first"] * 4 + [b"second"]
    assert not problems


async def test_what_nobody_takes_is_dropped_and_told_once() -> None:
    hook = Hook(*[503] * 12)
    async with posting(hook) as (callback, problems):
        for text in ("first", "second", "third"):
            callback.put(text)
    assert (callback.num_dropped, callback.num_posted) == (2, 1)
    assert problems == ["callback_failed"]


async def test_a_full_queue_is_told_and_no_call_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING", 3)
    async with posting(Hook()) as (callback, problems):
        for number in range(5):
            callback.put(str(number))
        assert problems == ["callback_overflow"]
    assert callback.num_posted == 3


async def test_events_that_wait_are_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_MAX_WAITING_BYTES", 10)
    hook = Hook()
    async with posting(hook) as (callback, problems):
        for text in ("12345", "67890", "x"):
            callback.put(text)
        assert problems == ["callback_overflow"]
        while callback.num_waiting:
            await trio.lowlevel.checkpoint()
        callback.put("0123456789")
    assert [body for body, _ in hook.posts] == [b"12345", b"67890", b"0123456789"]


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_inside_is_not_followed(host: str) -> None:
    hook = Hook()
    async with posting(hook, host=host) as (callback, problems):
        callback.put("secret")
    assert not hook.posts
    assert problems == ["callback_failed"]


@pytest.mark.parametrize(
    "address",
    [
        "ftp://hooks.example/",
        "http://hooks.example.org/",
        "http://a@hooks.example/",
        "http://",
        "nonsense",
        "http://[::1/",
        "http://hooks.example:65536/",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        read_address(address, CONFIG)
    assert (refused.value.code, refused.value.param) == ("callback_refused", "callback")


def test_a_name_that_idna_refuses_is_a_name_like_others() -> None:
    """DNS has such names, as xn--ls8h.la; httpx would read them back, and raise."""
    allowed = CallConfig(("xn--ls8h.la",), (), SECRET)
    assert read_address("https://xn--ls8h.la/", allowed).raw_host == b"xn--ls8h.la"
    with pytest.raises(BadRequestError, match="not allowed here"):
        read_address("https://xn--ls8h.la/", CONFIG)


def test_without_an_operators_word_there_are_no_callbacks() -> None:
    with pytest.raises(BadRequestError, match="not allowed here"):
        read_address("https://hooks.example/", CallConfig())
    allowing = CallConfig(("*.b.example",), (), SECRET)
    assert read_address("https://a.b.example/", allowing) == httpx.URL("https://a.b.example/")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"call_callback_domains": ("http://x",)}, "--call-callback-domains is 'http://x'"),
        ({"call_callback_networks": ("10.0.0.0/99",)}, "--call-callback-networks is '10.0.0.0/99'"),
        ({"call_callback_domains": ("x.example",), "call_callback_secret": "short"}, "has 5 characters"),
    ],
)
def test_options_that_are_wrong(options: dict[str, tuple[str, ...]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CallConfig(**options)  # type: ignore[arg-type]
