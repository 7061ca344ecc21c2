"""Files come from where they may, whole, in time, and within their size; else it is said why not."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
from sensorium.actors.config.fetching import FetchConfig
from sensorium.actors.fetching import fetcher as fetcher_file
from sensorium.actors.fetching.dns import Names
from sensorium.actors.fetching.fetcher import Fetcher
from sensorium.protocols.errors import FetchError, OverloadedError
from support.file_host import answer, file_host, redirect

HERE = ("127.0.0.1",)
QUICK = FetchConfig(allowed_media_networks=HERE, fetch_timeout_s=0.3)

pytestmark = pytest.mark.slow


def taken(_: int) -> None:
    """There is room for everything."""


def fetcher(
    config: FetchConfig | None = None, resolve: Callable[[str, int], Sequence[str]] = lambda *_: HERE
) -> Fetcher:
    return Fetcher(config or FetchConfig(allowed_media_networks=HERE), Names(resolve))


async def refusal(fetching: Fetcher, url: str) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await fetching.fetch(url, taken)
    return caught.value


async def test_a_file_comes_as_it_is_sent() -> None:
    async with file_host() as host:
        body = bytes(range(256)) * 1000
        host.answers["/a?b=c"] = answer(body)
        sizes: list[int] = []
        fetching = fetcher()
        assert await fetching.fetch(host.url("/a?b=c"), sizes.append) == body
        assert sum(sizes) == len(body)
        assert b"Host: files.test" in host.heads[0]
        assert b"Accept-Encoding: identity" in host.heads[0]
        assert fetching.statistics().num_bytes == len(body)


async def test_chunks_and_a_body_that_ends_with_the_connection_are_whole() -> None:
    async with file_host() as host:
        host.answers["/chunks"] = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        host.answers["/close"] = b"HTTP/1.0 200 OK\r\n\r\nabcde"
        for path in host.answers:
            assert await fetcher().fetch(host.url(path), taken) == b"abcde"


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"]
)
async def test_this_machine_is_not_asked_however_it_is_called(name: str) -> None:
    async with file_host() as host:
        host.answers["/"] = answer(b"secret")
        error = await refusal(Fetcher(FetchConfig()), f"http://{name}:{host.port}/")
        assert (error.status, error.code) == (422, "url_refused")
        assert host.requested == []


async def test_a_name_is_resolved_once_and_what_it_becomes_later_changes_nothing() -> None:
    calls: list[str] = []

    def rebinding(name: str, _: int) -> Sequence[str]:
        calls.append(name)
        return ["127.0.0.1"] if len(calls) == 1 else ["10.0.0.1"]

    async with file_host() as host:
        host.answers["/"] = answer(b"x")
        assert await fetcher(resolve=rebinding).fetch(host.url("/"), taken) == b"x"
        assert calls == ["files.test"]


async def test_of_several_addresses_only_those_that_may_be_reached_are_tried() -> None:
    async with file_host() as host:
        host.answers["/"] = answer(b"x")
        mixed = fetcher(
            FetchConfig(allowed_media_networks=("127.0.0.0/8",)),
            lambda *_: ["10.0.0.1", "127.0.0.9", "127.0.0.1"],
        )
        assert await mixed.fetch(host.url("/"), taken) == b"x"


async def test_names_inside_are_not_told_from_names_that_are_not_there() -> None:
    def no_such_name(*_: object) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    inside = await refusal(fetcher(FetchConfig(), lambda *_: ["10.0.0.1"]), "http://db.internal/")
    nowhere = await refusal(fetcher(FetchConfig(), no_such_name), "http://db.internal/")
    assert (inside.message, inside.code) == (nowhere.message, nowhere.code)


async def test_a_name_that_idna_refuses_is_a_name_like_others() -> None:
    """DNS has such names, as xn--ls8h.la; httpx would read them back, and raise."""
    async with file_host() as host:
        host.answers |= {"/": answer(b"x"), "/there": redirect(host.url("/", "xn--"))}
        fetching = fetcher()
        assert await fetching.fetch(host.url("/", "xn--ls8h.la"), taken) == b"x"
        assert await fetching.fetch(host.url("/there"), taken) == b"x"
    for url in ("http://a.xn--/", "https://xn--/"):
        assert (await refusal(fetcher(resolve=lambda *_: ["10.0.0.1"]), url)).code == "url_refused"
        assert (await refusal(fetcher(resolve=lambda *_: ()), url)).code == "url_refused"


async def test_every_redirect_is_vetted_again() -> None:
    def resolve(name: str, _: int) -> Sequence[str]:
        return ["10.0.0.1"] if name == "inside.test" else HERE

    async with file_host() as host:
        host.answers |= {
            "/there": redirect("/here"),
            "/here": answer(b"x"),
            "/inside": redirect(host.url("/", "inside.test")),
            "/file": redirect("file:///etc/passwd"),
            "/loop": redirect("/loop", 307),
            "/odd": redirect("http://a b\\c/"),
        }
        fetching = fetcher(resolve=resolve)
        assert await fetching.fetch(host.url("/there"), taken) == b"x"
        for path, code in (("/inside", "url_refused"), ("/file", "url_refused"), ("/odd", "fetch_refused")):
            assert (await refusal(fetching, host.url(path))).code == code
        host.requested.clear()
        assert "more than 5 times" in (await refusal(fetching, host.url("/loop"))).message
        assert len(host.requested) == 6


async def test_only_hosts_that_are_allowed_are_asked_on_redirects_too() -> None:
    config = FetchConfig(allowed_media_networks=HERE, allowed_media_domains=("files.test", "*.cdn.test"))
    async with file_host() as host:
        host.answers |= {"/": answer(b"x"), "/away": redirect(host.url("/", "evil.test"))}
        for name in ("files.test", "FILES.test", "files.test.", "a.cdn.test"):
            assert await fetcher(config).fetch(host.url("/", name), taken) == b"x"
        for name in ("cdn.test", "evil.test", "files.test.evil.test", "xfiles.test", "files.test@evil.test"):
            assert (await refusal(fetcher(config), host.url("/", name))).code == "url_refused"
        assert (await refusal(fetcher(config), host.url("/away"))).code == "url_refused"


async def test_what_the_other_server_refuses_is_said_at_once() -> None:
    async with file_host() as host:
        host.answers["/"] = answer(status=404)
        error = await refusal(fetcher(), host.url("/"))
        assert (error.code, error.message) == ("fetch_refused", "The host answered with status 404.")
        assert len(host.requested) == 1


async def test_what_may_pass_is_tried_again() -> None:
    answers = iter([answer(status=503), answer(b"abc", length=9), answer(b"abc")])

    async def next_one(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(next(answers))

    async with file_host() as host:
        host.answers |= {
            "/": next_one,
            "/down": answer(status=500),
            "/busy": answer(status=429, head="Retry-After: 999\r\n"),
        }
        fetching = fetcher()
        assert await fetching.fetch(host.url("/"), taken) == b"abc"
        assert fetching.statistics().num_retries == 2
        assert (await refusal(fetching, host.url("/down"))).code == "fetch_failed"
        assert host.requested.count("/down") == 3
        await refusal(fetching, host.url("/busy"))
        assert host.requested.count("/busy") == 1


async def test_what_broke_off_takes_no_room_twice() -> None:
    answers = iter([answer(b"a" * 60, length=90), answer(b"b" * 30, length=90), answer(b"c" * 90)])

    async def next_one(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(next(answers))

    async with file_host() as host:
        host.answers["/"] = next_one
        sizes: list[int] = []
        assert await fetcher().fetch(host.url("/"), sizes.append) == b"c" * 90
        assert sum(sizes) == 90


async def test_a_pause_that_is_no_number_is_none() -> None:
    async with file_host() as host:
        host.answers["/"] = b"HTTP/1.1 503 X\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n"
        assert (await refusal(fetcher(), host.url("/"))).code == "fetch_failed"
        assert host.requested.count("/") == 3


async def test_sizes_are_bounded_whatever_is_announced() -> None:
    async def endless(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            await stream.send_all(bytes(1 << 16))

    config = FetchConfig(allowed_media_networks=HERE, max_fetch_mib=0.1)
    async with file_host() as host:
        host.answers |= {"/large": answer(length=10**12), "/endless": endless}
        for path in host.answers:
            assert (await refusal(fetcher(config), host.url(path))).code == "file_too_large"


async def test_what_is_packed_is_not_unpacked() -> None:
    async with file_host() as host:
        bomb = gzip.compress(bytes(10_000_000))
        host.answers["/"] = answer(bomb, head="Content-Encoding: gzip\r\n")
        assert (await refusal(fetcher(), host.url("/"))).code == "fetch_refused"


async def test_a_drip_and_silence_end_in_time() -> None:
    async def drip(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(b"HTTP/1.0 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.02)

    async def silence(_: trio.SocketStream, __: str) -> None:
        await trio.sleep(60)

    async def slow_head(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nX-A: ")
        while True:
            await stream.send_all(b"a")
            await trio.sleep(0.02)

    async with file_host() as host:
        host.answers |= {"/drip": drip, "/silence": silence, "/head": slow_head}
        for path in host.answers:
            with trio.fail_after(10):
                assert (await refusal(fetcher(QUICK), host.url(path))).code == "fetch_timeout"


async def test_no_http_and_headers_without_end_are_refused() -> None:
    async def headers(stream: trio.SocketStream, _: str) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send_all(b"A: b\r\n" * 1000)

    async with file_host() as host:
        host.answers |= {"/ssh": b"SSH-2.0-OpenSSH_9.2\r\n", "/headers": headers, "/nothing": b""}
        for path in host.answers:
            assert (await refusal(fetcher(), host.url(path))).code == "fetch_failed"


async def test_a_host_that_sends_crumbs_does_not_keep_the_others_waiting() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with file_host() as host, trio.open_nursery() as nursery:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        host.answers["/"] = b"HTTP/1.1 100 \r\n\r\n" * 1000 + head + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n"
        nursery.start_soon(others)
        assert await fetcher().fetch(host.url("/"), taken) == b"x" * 5000
        assert turns > 3000
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("port", ["0", "65536", "-1", "9" * 30])
async def test_ports_that_there_are_not_are_refused(port: str) -> None:
    assert (await refusal(Fetcher(FetchConfig()), f"http://1.2.3.4:{port}/")).code == "url_refused"


async def test_no_room_ends_it_and_is_not_the_address_fault() -> None:
    def full(_: int) -> None:
        raise OverloadedError("full")

    async with file_host() as host:
        host.answers["/"] = answer(b"x")
        fetching = fetcher()
        with pytest.raises(OverloadedError):
            await fetching.fetch(host.url("/"), full)
        assert fetching.statistics().num_failed == 1


async def test_nothing_is_fetched_where_that_is_off_but_local_files_are_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    fetching = fetcher(FetchConfig(fetch_media="off", allowed_media_folder=(tmp_path,)))
    assert (await refusal(fetching, "http://files.test/")).code == "url_refused"
    assert await fetching.fetch(f"file://{tmp_path}/x", taken) == b"x"


async def test_a_disk_that_hangs_ends_in_time_and_holds_no_threads_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(fetcher_file, "read_local_file", lambda *_: go_on.wait())
    try:
        with trio.fail_after(10):
            assert (await refusal(fetcher(QUICK), "file:///x")).code == "fetch_timeout"
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
    finally:
        go_on.set()


async def test_cancelling_ends_the_connection() -> None:
    requested, ended = trio.Event(), trio.Event()

    async def wait_for_end(stream: trio.SocketStream, _: str) -> None:
        requested.set()
        assert await stream.receive_some() == b""
        ended.set()

    async with file_host() as host:
        host.answers["/"] = wait_for_end
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(fetcher().fetch, host.url("/"), taken))
            await requested.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await ended.wait()
