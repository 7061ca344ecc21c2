"""Events can be read again by their numbers, within bounds; what is gone is said to be."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from sensorium.actors.http.responses.background_events import EventBook
from sensorium.protocols.errors import BadRequestError
from support.kept_responses import MINE, YOURS


def frame(number: int, size: int = 0) -> bytes:
    return b"data: %d%s\n\n" % (number, b"." * size)


async def read(book: EventBook, name: str, after: int = -1) -> list[bytes]:
    found: list[bytes] = []
    await book.get(name).follow(after, found.append)
    return found


async def test_readers_have_all_behind_their_number_as_it_comes(autojump_clock: object) -> None:
    book = EventBook()
    book.open("a", MINE)
    book.add("a", frame(0) + frame(1))
    early: list[bytes] = []
    late: list[bytes] = []
    ahead: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(book.get("a").follow, -1, early.append)
        nursery.start_soon(book.get("a").follow, 0, late.append)
        nursery.start_soon(book.get("a").follow, 2, ahead.append)
        await trio.sleep(1)
        assert (early, late, ahead) == ([frame(0), frame(1)], [frame(1)], [])
        book.add("a", frame(2) + frame(3))
        await trio.sleep(1)
        book.close("a")
    assert early == [frame(number) for number in range(4)]
    assert late == early[1:]
    assert ahead == early[3:]
    assert await read(book, "a") == early, "after its end, too"
    assert await read(book, "a", 99) == []


async def test_of_each_the_latest_are_kept() -> None:
    book = EventBook(max_bytes_each=1000)
    book.open("a", MINE)
    for number in range(100):
        book.add("a", frame(number, 100))
    book.close("a")
    with pytest.raises(BadRequestError, match="up to 94 are no longer kept") as caught:
        await read(book, "a")
    assert (caught.value.param, caught.value.code) == ("starting_after", "events_not_kept")
    assert await read(book, "a", 94) == [frame(number, 100) for number in range(95, 100)]


async def test_who_keeps_most_gives_way_and_is_told() -> None:
    book = EventBook(max_bytes=5700)
    for name, owner in (("old", MINE), ("new", MINE), ("yours", YOURS)):
        book.open(name, owner)
        for number in range(10):
            book.add(name, frame(number, 60))
    book.close("old")
    for number in range(10, 20):
        book.add("new", frame(number, 60))
        book.add("yours", frame(number, 60))
    assert len(await closed(book, "yours")) == 20
    with pytest.raises(BadRequestError, match="No events"):
        await read(book, "old")
    assert len(await closed(book, "new")) == 20
    book.open("long", MINE)
    for number in range(45):
        book.add("long", frame(number, 60))
    with pytest.raises(BadRequestError, match="are no longer kept"):
        await closed(book, "long")
    assert await read(book, "long", 43) == [frame(44, 60)], "it is not over: what comes is kept"
    assert len(await read(book, "yours")) == 20


async def closed(book: EventBook, name: str, after: int = -1) -> list[bytes]:
    book.close(name)
    return await read(book, name, after)


async def test_what_is_forgotten_ends_for_its_readers() -> None:
    book = EventBook()
    book.open("a", MINE)
    found: list[bytes] = []
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(book.get("a").follow, -1, found.append)
            await trio.testing.wait_all_tasks_blocked()
            book.forget("a")
    book.add("a", frame(0))
    book.close("a")
    assert (found, len(book)) == ([], 0)
