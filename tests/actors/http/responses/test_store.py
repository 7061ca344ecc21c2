"""Responses are kept within bounds, each for its caller, and not for ever."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from sensorium.actors.callers import caller_by_address
from sensorium.actors.http.responses.row_codec import KeptResponse
from sensorium.actors.http.responses.sqlite_store import ResponseFile
from sensorium.actors.http.responses.store import ResponseStore
from sensorium.protocols.errors import NotFoundError, OverloadedError, UnavailableError
from support.kept_responses import MINE, YOURS, kept


async def test_each_key_has_its_own() -> None:
    store = ResponseStore()
    store.put(kept("a"))
    assert (await store.get(MINE, "a")).response.id == "a"
    with pytest.raises(NotFoundError):
        await store.get(YOURS, "a")
    with trio.testing.assert_checkpoints():
        await store.get(MINE, "a")
    store.put(kept("b", caller_by_address("10.0.0.1")))
    assert await store.get(caller_by_address("10.0.0.2"), "b"), "an address may change; the id is the secret"


async def test_they_expire(autojump_clock: trio.testing.MockClock) -> None:
    store = ResponseStore(kept_s=60)
    store.put(kept("a"))
    await trio.sleep(50)
    store.put(kept("b"))
    await trio.sleep(20)
    assert "a" in store, "not looked at yet"
    await store.get(MINE, "b")
    assert "a" not in store
    assert len(store) == 1


async def test_events_go_with_their_response(autojump_clock: trio.testing.MockClock) -> None:
    store = ResponseStore(kept_s=60, max_kept=2)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.start(kept("made", status="in_progress"), trio.sleep_forever)
        store.events.open("made", MINE)
        await trio.sleep(1)
        for name in "abc":
            store.events.open(name, MINE)
            store.events.add(name, b"data: {}\n\n")
            store.put(kept(name))
        assert len(store.events) == 3, "one goes for another, but not while it is made"
        await trio.sleep(60)
        await store.get(MINE, "made")
        assert len(store.events) == 1
        nursery.cancel_scope.cancel()


async def test_who_keeps_most_gives_way() -> None:
    store = ResponseStore(max_bytes=100_000)
    for index in range(8):
        store.put(kept(f"mine {index}", size=10_000))
    store.put(kept("yours", YOURS, size=30_000))
    assert "yours" in store
    assert "mine 0" not in store
    assert "mine 7" in store


async def test_those_that_give_way_are_found_without_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a large one hundreds go, and of another caller's there may be thousands in front of each."""
    num_looks = [0]

    class Counted(OrderedDict[str, Any]):
        def items(self) -> Any:  # noqa: ANN401 (a dictionary's)
            num_looks[0] += 1
            return super().items()

    store = ResponseStore(max_bytes=200_000)
    monkeypatch.setattr(store, "_places", Counted())
    store.put(kept("mine"))
    for index in range(40):
        store.put(kept(f"yours {index}", YOURS, size=2_000))
    num_looks[0] = 0
    store.put(kept("large", size=80_000))
    assert ["mine" in store, "yours 0" in store, "yours 39" in store] == [True, False, True]
    assert num_looks == [1], "of the oldest, which may be too old"


async def test_one_that_is_too_large_is_not_kept() -> None:
    store = ResponseStore(max_bytes=10_000)
    store.put(kept("a"))
    store.put(kept("b", size=50_000))
    assert "b" not in store
    store = ResponseStore(max_kept=2)
    for name in "abc":
        store.put(kept(name))
    assert ["a" in store, "b" in store, "c" in store] == [False, True, True]


async def test_put_again_it_counts_once() -> None:
    store = ResponseStore(max_bytes=25_000)
    for _ in range(10):
        store.put(kept("a", size=10_000))
    assert len(store) == 1
    store.put(kept("b"))
    assert len(store) == 2
    await store.forget("a")
    await store.forget("b")
    store.put(kept("c", size=20_000))
    assert "c" in store


async def test_work_in_the_background_needs_a_running_store() -> None:
    store = ResponseStore()
    done = trio.Event()

    async def work() -> None:
        done.set()

    with pytest.raises(OverloadedError):
        store.start(kept("a"), work)
    assert len(store) == 0
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.start(kept("a"), work)
        await done.wait()
        nursery.cancel_scope.cancel()
    with pytest.raises(OverloadedError):
        store.start(kept("b"), work)


async def test_work_that_raises_has_failed_and_ends_nobody_elses() -> None:
    store, others = ResponseStore(), trio.Event()
    bad = kept("a", status="in_progress")

    async def fail() -> None:
        raise ValueError("half a surrogate pair")

    async def wait() -> None:
        await others.wait()

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        other = kept("b", status="in_progress")
        store.start(other, wait)
        store.start(bad, fail)
        await trio.testing.wait_all_tasks_blocked()
        found = await store.get(MINE, "a")
        assert found.response.status == "failed"
        assert found.response.error is not None
        assert (await store.get(MINE, "b")).response.status == "in_progress"
        others.set()
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_kept_is_not_made() -> None:
    store = ResponseStore()
    text: dict[str, object] = {}
    for _ in range(200_000):  # Python 3.12 and later bear some thousands
        text = {"a": text}
    deep = kept("a")
    deep.response = msgspec.structs.replace(deep.response, text=text)

    async def work() -> None:
        raise AssertionError("it is not begun")

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        with pytest.raises(RecursionError):
            store.start(deep, work)
        with pytest.raises(NotFoundError):
            await store.get(MINE, "a")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["given up", "forgotten"])
async def test_what_is_made_is_known_until_it_is_not_wanted(how: str) -> None:
    """Even where memory has no room for it meanwhile."""
    store, ended = ResponseStore(max_kept=1), trio.Event()

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        made = kept("a", status="queued")
        store.start(made, work)
        store.put(kept("b"))
        assert "a" not in store
        assert await store.get(MINE, "a") is made
        if how == "given up":
            store.give_up(made)
            assert (await store.get(MINE, "a")).response.status == "cancelled"
        else:
            await store.forget("a")
            with pytest.raises(NotFoundError):
                await store.get(MINE, "a")
        await ended.wait()
        store.become(made, msgspec.structs.replace(made.response, status="completed"))
        assert made.response.status != "completed", "it comes too late"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running(path: Path, **bounds: int) -> AsyncIterator[ResponseStore]:
    """A store with a file."""
    file = ResponseFile(path, now=time.time(), max_bytes=10**8, kept_s=1000.0)
    store = ResponseStore(file, **bounds)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_file_outlives_the_store(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    async with running(path) as store:
        store.put(kept("a", size=100))
        await store.saved("a")
        store.put(kept("b"))  # and nobody waits for that
    async with running(path) as store:
        assert len(store) == 0
        found = await store.get(MINE, "a")
        assert found == kept("a", size=100)
        assert await store.get(MINE, "a") is found, "read once"
        assert (await store.get(MINE, "b")).response.id == "b"
        with pytest.raises(NotFoundError, match=r"they are for 0\.27\d+ h"):
            await store.get(YOURS, "a")
        await store.forget("a")
        with pytest.raises(NotFoundError):
            await store.get(MINE, "a")
    async with running(path) as store:
        with pytest.raises(NotFoundError):
            await store.get(MINE, "a")


@pytest.mark.slow
async def test_what_memory_has_no_room_for_is_in_the_file(tmp_path: Path) -> None:
    async with running(tmp_path / "responses.db", max_kept=1) as store:
        for name in "abc":
            store.put(kept(name, size=1000))
        for name in "abc":  # written yet or not
            assert await store.get(MINE, name) == kept(name, size=1000)
        assert len(store) == 1


@pytest.mark.slow
async def test_the_newest_state_is_what_is_saved(tmp_path: Path) -> None:
    path, made = tmp_path / "responses.db", kept("a", status="queued")
    async with running(path) as store:
        for status in ("queued", "in_progress", "completed"):
            made.response = msgspec.structs.replace(made.response, status=status)
            store.put(made)
        await store.saved("a")
    async with running(path) as store:
        assert (await store.get(MINE, "a")).response.status == "completed"


@pytest.mark.slow
async def test_a_full_disk_loses_no_answer_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "responses.db"
    file = ResponseFile(path, now=0.0, max_bytes=10**8, kept_s=1e12)
    store = ResponseStore(file, max_kept=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        store.put(kept("before"))
        await store.saved("before")
        limit_pages(file, 0)
        for name in ("a", "b"):
            store.put(kept(name, size=100_000))
            await store.saved(name)
        for name in ("before", "a", "b"):
            assert (await store.get(MINE, name)).response.id == name
        for operation in (store.ready, partial(store.forget, "b")):
            with pytest.raises(UnavailableError) as caught:
                await operation()
            assert caught.value.code == "response_store_unavailable"
        assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
        limit_pages(file, 10_000)
        for _ in range(600):
            if await is_ready(store):
                break
            await trio.sleep(0.1)
        await store.saved("b")
        assert "written again" in caplog.text
        nursery.cancel_scope.cancel()
    async with running(path) as store:
        assert [(await store.get(MINE, name)).response.id for name in ("before", "a", "b")]


@pytest.mark.slow
async def test_what_could_not_be_saved_at_the_end_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ResponseFile(tmp_path / "responses.db", now=0.0, max_bytes=10**8, kept_s=1e12)
    store = ResponseStore(file)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        limit_pages(file, 0)
        store.put(kept("a", size=100_000))
        await store.saved("a")
        nursery.cancel_scope.cancel()
    assert "lacks 1 of the last" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_goes_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_replaced: bool
) -> None:
    """What memory holds is in a file that was put in its place, too."""
    path = tmp_path / "responses.db"
    async with running(path) as store:
        store.put(kept("a"))
        await store.saved("a")
        path.unlink()
        if is_replaced:
            path.touch()
        await store.ready()
        store.put(kept("b"))
        await store.saved("b")
        await store.saved("a")
    assert "removed or replaced" in caplog.text
    async with running(path) as store:
        assert (await store.get(MINE, "a")).response.id == "a"
        assert (await store.get(MINE, "b")).response.id == "b"


def limit_pages(file: ResponseFile, num_pages: int) -> None:
    """So many, or what it has now: more are a disk that is full to SQLite."""
    file._base.execute(f"PRAGMA max_page_count = {max(num_pages, 1)}")


async def is_ready(store: ResponseStore) -> bool:
    try:
        await store.ready()
    except UnavailableError:
        return False
    return True


@pytest.mark.slow
async def test_what_is_forgotten_while_it_is_read_stays_forgotten(tmp_path: Path) -> None:
    may_go_on = threading.Event()

    class SlowFile(ResponseFile):
        def load(self, name: str, *, now: float) -> KeptResponse | None:
            found = super().load(name, now=now)
            may_go_on.wait()
            return found

    file = SlowFile(tmp_path / "responses.db", now=0.0, max_bytes=10**8, kept_s=1e12)
    file.save(kept("a"), now=0.0)
    store = ResponseStore(file)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        async with trio.open_nursery() as both:
            both.start_soon(store.get, MINE, "a")
            await trio.testing.wait_all_tasks_blocked()
            both.start_soon(store.forget, "a")
            await trio.testing.wait_all_tasks_blocked()
            may_go_on.set()
        assert "a" not in store
        with pytest.raises(NotFoundError):
            await store.get(MINE, "a")
        nursery.cancel_scope.cancel()


async def test_one_that_cannot_be_written_is_in_memory_and_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    good, bad = kept("b"), kept("a")
    bad.response = msgspec.structs.replace(bad.response, text={"a": object()})
    async with running(path) as store:
        store._unsaved["a"] = bad  # what could not even be measured
        store.put(good)
        with trio.fail_after(5):
            await store.saved("a")
            await store.saved("b")
    file = ResponseFile(path, now=time.time(), max_bytes=10**8, kept_s=1000.0)
    assert [file.load(name, now=time.time()) is not None for name in "ab"] == [False, True]
    file.close()
