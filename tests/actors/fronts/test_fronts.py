"""What one front of a cluster knows of the others: whose an id is, its share of bounds, who is forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from sensorium.actors.callers import Caller, Shares
from sensorium.actors.cluster.directory import Directory, directory_listener
from sensorium.actors.config.engine import ProcessConfig
from sensorium.actors.config.validation import HostPort
from sensorium.actors.errors import ConfigError
from sensorium.actors.fronts import fronts as fronts_module
from sensorium.actors.fronts.fronts import FORGET_S, Front, Fronts
from sensorium.actors.fronts.listener import HEADER, RELAYED, FrontListener, proxies_of
from sensorium.actors.nodes.directory import ListedFront, Listing
from sensorium.actors.relay.connections import ServerConnection, ServerGoneError
from sensorium.actors.transport.connection_limits import ConnectionLimits
from sensorium.actors.transport.trusted_proxies import CALLER
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.server.front_tags import is_tag, new_tag, tag_of
from sensorium.protocols.server.signed_caller import HEADER as SIGNED
from sensorium.protocols.server.signed_caller import SignedCaller, sign
from trio.testing import MockClock

SECRET = b"0123456789abcdef"
OURS, THEIRS, THIRD = "0000000a", "0000000b", "0000000c"


@pytest.fixture
def fronts(tmp_path: Path) -> Fronts:
    return make(tmp_path, OURS)


def make(folder: Path, tag: str, port: int = 1) -> Fronts:
    (folder / "secret").write_bytes(SECRET)
    config = ProcessConfig(cluster=f"127.0.0.1:{port}", engine_secret_file=folder / "secret")
    return Fronts(config, tag)


def listing(tags: Sequence[str], port: int = 7000) -> Listing:
    listed = (ListedFront(tag, f"127.0.0.1:{port + index}") for index, tag in enumerate(tags))
    return Listing(("m",), (), tuple(listed))


def owner(fronts: Fronts, name: str) -> str | None:
    found = fronts.elsewhere(name)
    return None if found is None else found.tag


def test_tags() -> None:
    assert is_tag(new_tag())
    assert not any(map(is_tag, ("", "0000000A", "0000000", "000000000", 1, None)))
    for name in ("resp_0000000a1f", "msg_0000000a1f", "sess_0000000a1f", "ek_0000000a1f"):
        assert tag_of(name) == OURS
    assert not any(is_tag(tag_of(name)) for name in ("", "resp", "resp_", "sk-123", "ek_ABC"))


async def test_an_id_belongs_to_the_front_with_its_tag(fronts: Fronts) -> None:
    await trio.lowlevel.checkpoint()
    fronts.take(listing([OURS, THEIRS]))
    assert owner(fronts, f"resp_{THEIRS}{'1' * 40}") == THEIRS
    assert owner(fronts, f"resp_{OURS}{'1' * 40}") is None
    assert owner(fronts, f"resp_{THIRD}{'1' * 40}") is None
    assert fronts.elsewhere(None) is None


async def test_of_two_with_one_tag_the_newer_one_counts(fronts: Fronts) -> None:
    """A front that was started again with its store, while the directory still lists what it was before."""
    await trio.lowlevel.checkpoint()
    fronts.take(listing([THEIRS, OURS, THEIRS]))
    found = fronts.elsewhere(f"resp_{THEIRS}")
    assert found is not None
    assert found.address.port == 7002


async def test_a_front_is_forgotten_some_time_after_it_was_listed(
    fronts: Fronts, autojump_clock: MockClock
) -> None:
    """A directory that has begun anew has not heard of it yet; what is relayed to it ends with it."""
    fronts.take(listing([OURS, THEIRS]))
    found = fronts.elsewhere(f"resp_{THEIRS}")
    assert isinstance(found, Front)
    fronts.take(listing([OURS]))
    await trio.sleep(FORGET_S - 1)
    assert fronts.elsewhere(f"resp_{THEIRS}") is found
    fronts.take(listing([OURS, THEIRS]))
    fronts.take(listing([OURS]))
    with found.relaying() as scope:
        await trio.sleep(FORGET_S)
        assert not scope.cancel_called
        assert fronts.elsewhere(f"resp_{THEIRS}") is None, "also where no listing has come since"
        fronts.take(listing([OURS]))
        await trio.Event().wait()
    assert scope.cancelled_caught
    assert not fronts.num_others


async def test_a_listed_front_without_a_usable_address_is_passed_over(fronts: Fronts) -> None:
    await trio.lowlevel.checkpoint()
    fronts.take(Listing(("m",), (), (ListedFront(THEIRS, "nowhere"), ListedFront(THIRD, "127.0.0.1:7000"))))
    assert owner(fronts, f"resp_{THEIRS}") is None
    assert owner(fronts, f"resp_{THIRD}") == THIRD


async def test_the_shares_of_all_add_up_to_the_bound(tmp_path: Path) -> None:
    await trio.lowlevel.checkpoint()
    tags = [THEIRS, OURS, THIRD]
    for num in (1, 2, 3):
        each = [make(tmp_path, tag) for tag in tags[:num]]
        for one in each:
            one.take(listing(tags[:num]))
        for bound in (64, 7, 3):
            assert sum(one.share(bound) for one in each) == bound
        assert [one.share(0) for one in each] == [1] * num, "none is left without"


async def test_a_share_is_that_of_now(fronts: Fronts) -> None:
    await trio.lowlevel.checkpoint()
    shares, caller = Shares(4, "requests", share=fronts.share), Caller("a")
    with shares.holding(caller, 2):
        shares.check(caller, is_shared=False)
        fronts.take(listing([OURS, THEIRS]))
        with pytest.raises(OverloadedError, match="Too many requests in hand"):
            shares.check(caller, is_shared=False)


async def answer(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    """Says what it was relayed for, and for whom."""
    caller = scope.get(CALLER)
    said = f"{scope[RELAYED]} {scope['client'][0]} {caller and caller.name}".encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]}
    )
    await send({"type": "http.response.body", "body": said})


async def announced(nursery: trio.Nursery, fronts: Fronts) -> None:
    proxies = proxies_of(fronts.caller_secret)
    limits = ConnectionLimits(max_connections=8, max_per_address=8, idle_s=5.0)
    listener = FrontListener(answer, fronts.entrance, proxies, limits, 1 << 20, 5.0)
    with trio.fail_after(30):
        await nursery.start(fronts.run, listener)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 (of connections)
            await trio.sleep(0.01)


async def asked(front: Front, *headers: tuple[bytes, bytes]) -> bytes:
    connection = ServerConnection(await front.open())
    request = h11.Request(method="GET", target="/a", headers=[(b"host", b"front"), *headers])
    await connection.send(request, h11.EndOfMessage())
    await connection.head()
    found = await connection.body(1000)
    connection.close()
    return found


async def test_fronts_find_each_other_again_in_a_directory_that_begins_anew(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        directory = await nursery.start(directory_run, 0)
        one, other = (make(tmp_path, tag, directory.port) for tag in (OURS, THEIRS))
        for each in (one, other):
            await announced(nursery, each)
        await until(lambda: one.num_others == other.num_others == 1)
        directory.scope.cancel()
        found = one.elsewhere(f"resp_{THEIRS}")
        assert found is not None
        await directory.ended.wait()
        again = await nursery.start(directory_run, directory.port)
        await until(lambda: again.directory.num_fronts == 2 and found.unlisted_at is None)
        assert one.elsewhere(f"resp_{THEIRS}") is found
        signed = sign(
            SignedCaller("192.0.2.1", "0" * 64),
            one.caller_secret.encode(),
            now_s=time.time(),
            method=b"GET",
            target=b"/a",
        )
        assert await asked(found, (SIGNED, signed)) == b"id 192.0.2.1 " + b"0" * 64
        assert await asked(found, (HEADER, b"key")) == b"key 127.0.0.1 None"
        stranger = Front(ListedFront(THEIRS, str(found.address)), b"another secret of that size", None)
        with pytest.raises(ServerGoneError, match="its secret is another one"):
            await stranger.open()
        nursery.cancel_scope.cancel()


async def test_what_is_relayed_to_a_front_that_hangs_is_given_up_once_it_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts_module, "_CONNECT_S", 0.1)
    monkeypatch.setattr(fronts_module, "_CHECK_EVERY_S", 0.01)
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepted by the kernel only
    async with silent, trio.open_nursery() as nursery:
        directory = await nursery.start(directory_run, 0)
        one, other = (make(tmp_path, tag, directory.port) for tag in (OURS, THIRD))
        for each in (one, other):
            await announced(nursery, each)
        await until(lambda: one.num_others == 1)
        one.take(
            listing([OURS, THEIRS], silent.socket.getsockname()[1] - 1)
        )  # the directory lists other ones
        hung, alive = one.elsewhere(f"resp_{THEIRS}"), one.elsewhere(f"resp_{THIRD}")
        assert hung is not None
        assert alive is not None
        with alive.relaying() as unharmed:
            with trio.fail_after(30), hung.relaying() as scope:
                await trio.Event().wait()
            assert scope.cancelled_caught
            await alive.check()
            assert not unharmed.cancel_called
        nursery.cancel_scope.cancel()


async def test_two_fronts_with_one_tag_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        directory = await nursery.start(directory_run, 0)
        for _ in range(2):
            await announced(nursery, make(tmp_path, OURS, directory.port))
        await until(lambda: f"has the tag of this one, {OURS}" in caplog.text)
        nursery.cancel_scope.cancel()


@dataclass
class Running:
    directory: Directory
    port: int
    scope: trio.CancelScope
    ended: trio.Event


async def directory_run(port: int, *, task_status: trio.TaskStatus[Running]) -> None:
    ended = trio.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            directory = Directory(["m"], SECRET)
            address = await nursery.start(directory.run, directory_listener(HostPort("127.0.0.1", port)))
            task_status.started(Running(directory, address.port, scope, ended))
    ended.set()


def test_options() -> None:
    with pytest.raises(ConfigError, match=r"--front-listen is '1\.2\.3\.4:5' without --cluster"):
        ProcessConfig(front_listen="1.2.3.4:5")
    with pytest.raises(ConfigError, match="--front-listen is 'here'; allowed: HOST:PORT"):
        ProcessConfig(front_listen="here")
