"""The same content is made once for one scope, within bytes; names point at contents of their own scope."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.media_decoding.cache import _MAX_NAMES, MediaCache, MediaKey, digest_of
from sensorium.protocols.errors import MediaError


def key(digest: str = "a", scope: str = "", way: str = "image", caller: str = "") -> MediaKey:
    return MediaKey(scope, digest, way, caller)


class Maker:
    """Makes values of `size` bytes, slowly; the first `num_bad` fail."""

    def __init__(self, size: int = 1000, num_bad: int = 0) -> None:
        self.size = size
        self.num_bad = num_bad
        self.num_made = 0

    async def __call__(self) -> bytes:
        self.num_made += 1
        await trio.sleep(1)
        if self.num_made <= self.num_bad:
            raise MediaError("bad")
        return bytes(self.size)


def cache(max_bytes: int = 100_000) -> MediaCache[bytes]:
    return MediaCache(max_bytes, len)


async def test_the_same_is_made_once_and_is_the_same(autojump_clock: trio.abc.Clock) -> None:
    found, make = cache(), Maker()
    first = await found.get(key(), make)
    assert await found.get(key(), make) is first
    assert make.num_made == 1
    for other in (key("b"), key(scope="bob"), key(way="video")):
        await found.get(other, make)
    assert make.num_made == 4
    statistics = found.statistics()
    assert (statistics.num_hits, statistics.num_misses, statistics.num_entries) == (1, 4, 4)


async def test_who_asks_meanwhile_waits_for_it(autojump_clock: trio.abc.Clock) -> None:
    found, make = cache(), Maker()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(found.get, key(), make)
    assert make.num_made == 1
    assert found.statistics().num_hits == 4


async def test_one_that_fails_or_is_cancelled_leaves_it_to_the_next(autojump_clock: trio.abc.Clock) -> None:
    found, make = cache(), Maker(num_bad=1)
    got: list[bytes] = []

    async def fail() -> None:
        with pytest.raises(MediaError):
            await found.get(key(), make)

    async def decode_once() -> None:
        got.append(await found.get(key(), make))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        await trio.sleep(0.1)
        nursery.start_soon(decode_once)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            nursery.start_soon(decode_once)
            await found.get(key("b"), make)
        nursery.start_soon(found.get, key("b"), make)
    assert make.num_made == 4
    assert len(got) == 2


async def test_bytes_are_bounded_and_the_oldest_goes_first(autojump_clock: trio.abc.Clock) -> None:
    found, make = cache(max_bytes=10_000), Maker(size=2000)
    for name in "abc":
        await found.get(key(name), make)
    await found.get(key("a"), make)
    await found.get(key("d"), make)
    assert [name for name in "abcd" if found.peek(key(name)) is not None] == ["a", "c", "d"]
    statistics = found.statistics()
    assert statistics.num_evictions == 1
    assert 6000 < statistics.num_kept_bytes <= 10_000


async def test_what_is_asked_for_is_kept_for_who_asked_first(autojump_clock: trio.abc.Clock) -> None:
    found, make = cache(max_bytes=40_000), Maker(size=3000 - 1024)
    for number in range(13):
        await found.get(key(f"a{number}", caller="ada"), make)
    for number in range(3):
        await found.get(key(f"b{number}", caller="bob"), make)
    for number in range(13, 40):
        await found.get(key(f"a{number}", caller="ada"), make)
    kept = [name for name in (*(f"a{n}" for n in range(40)), "b0", "b1", "b2") if found.peek(key(name))]
    assert kept == [*(f"a{number}" for number in range(30, 40)), "b0", "b1", "b2"]
    num_made = make.num_made
    await found.get(key("b2", caller="ada"), make)
    assert make.num_made == num_made, "who asks makes no other content of it"
    assert found.statistics().num_kept_bytes == 39_000
    assert found.statistics().num_evictions == num_made - 13


async def test_what_is_larger_than_half_of_all_and_without_room_is_not_kept(
    autojump_clock: trio.abc.Clock,
) -> None:
    for found in (cache(max_bytes=10_000), cache(max_bytes=0)):
        make = Maker(size=5000)
        for _ in range(2):
            assert len(await found.get(key(), make)) == 5000
        assert make.num_made == 2
        assert found.statistics().num_kept_bytes == 0


def test_names_are_of_their_scope_and_bounded() -> None:
    found = cache()
    found.call(key("1", "alice", caller="alice"), "x")
    assert found.named("alice", "x") == "1"
    assert found.named("bob", "x") is None
    found.call(key("2", "alice", caller="alice"), "x")
    assert found.named("alice", "x") == "2"
    for number in range(2 * _MAX_NAMES):
        found.call(key("3", "bob", caller="bob"), str(number))
    assert found.named("bob", "0") is None
    assert found.named("bob", str(2 * _MAX_NAMES - 1)) == "3"
    assert found.named("alice", "x") == "2", "another's many push out nobody's few"


async def test_digests_are_of_all_bytes() -> None:
    large = bytes(10**6)
    assert await digest_of(large) == await digest_of(bytes(10**6))
    assert len({await digest_of(each) for each in (large, large[1:], large[:-1] + b"x", b"")}) == 4
