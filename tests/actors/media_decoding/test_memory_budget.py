"""Memory for media is taken before it is used, in line, and comes back however a request ends."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from sensorium.actors.media_decoding.memory_budget import MediaBudget
from sensorium.protocols.errors import OverloadedError, TooLargeError


async def test_what_is_reserved_is_given_back() -> None:
    budget = MediaBudget(max_bytes=100)
    async with budget.reserved(40) as first, budget.reserved(0):
        assert budget.num_bytes == 40
        first.settle(10)
        assert budget.num_bytes == 10
    with pytest.raises(ZeroDivisionError):
        async with budget.reserved(50):
            raise ZeroDivisionError
    assert budget.num_bytes == 0


async def test_nobody_takes_more_than_half() -> None:
    with pytest.raises(TooLargeError, match="the limit is 50"):
        async with MediaBudget(max_bytes=100).reserved(51):
            pass


async def test_who_waits_too_long_is_told_to_come_back(autojump_clock: trio.testing.MockClock) -> None:
    budget = MediaBudget(max_bytes=100, wait_s=2.0)
    async with budget.reserved(50), budget.reserved(50):
        started = trio.current_time()
        with pytest.raises(OverloadedError) as caught:
            async with budget.reserved(1):
                pass
        assert trio.current_time() - started == 2.0
        assert caught.value.retry_after_s > 0
    assert budget.num_bytes == 0


async def test_the_line_is_served_in_order_and_small_ones_do_not_overtake(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget, order = MediaBudget(max_bytes=100, wait_s=10.0), []

    async def hold(name: str, num_bytes: int) -> None:
        async with budget.reserved(num_bytes):
            order.append(name)
            assert budget.num_bytes <= 100
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for name, num_bytes in (("a", 50), ("b", 40), ("large", 50), ("small", 10), ("c", 50)):
            nursery.start_soon(hold, name, num_bytes)
            await trio.sleep(0.1)
        assert order == ["a", "b"], "the small one would fit, but the large one is before it"
    assert sorted(order[2:4]) == ["large", "small"]
    assert order[4] == "c"
    assert budget.num_bytes == 0


async def test_one_that_gives_up_lets_the_next_go(autojump_clock: trio.testing.MockClock) -> None:
    budget = MediaBudget(max_bytes=100, wait_s=10.0)
    served = trio.Event()

    async def small() -> None:
        async with budget.reserved(20):
            served.set()

    async with budget.reserved(50), budget.reserved(20), trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            async with budget.reserved(50):
                raise AssertionError("there is no room")
        nursery.start_soon(small)
        with trio.fail_after(1):
            await served.wait()
    assert budget.num_bytes == 0


async def test_cancelling_in_the_moment_of_the_turn_gives_it_back() -> None:
    budget = MediaBudget(max_bytes=100)
    with trio.CancelScope() as scope:
        scope.cancel()
        async with budget.reserved(50):
            pass
    assert scope.cancelled_caught
    assert budget.num_bytes == 0


async def test_who_comes_new_finds_room_however_much_another_wants(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget, order = MediaBudget(max_bytes=800, wait_s=10.0), list[str]()

    async def hold(name: str, num_bytes: int) -> None:
        async with budget.reserved(num_bytes, name[0]):
            order.append(name)
            await trio.sleep(3)

    async with trio.open_nursery() as nursery:
        for index in range(9):
            nursery.start_soon(hold, f"a{index}", 100)
            await trio.sleep(0.1)
        assert len(order) == 7, "seven eighths are all that one of several gets"
        nursery.start_soon(hold, "b", 80)
        await trio.sleep(0.1)
        assert order[7:] == ["b"], "and who waits for more than that keeps nobody else waiting"
    assert order[8:] == ["a7", "a8"]
    assert budget.num_bytes == 0


async def test_who_holds_little_is_not_overtaken_by_who_holds_much(
    autojump_clock: trio.testing.MockClock,
) -> None:
    budget, order = MediaBudget(max_bytes=800, wait_s=10.0), list[str]()

    async def hold(name: str, num_bytes: int, seconds: float) -> None:
        async with budget.reserved(num_bytes, name[0]):
            order.append(name)
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        for name, num_bytes, seconds in (("a0", 300, 5), ("a1", 200, 1), ("b", 400, 5), ("a2", 100, 5)):
            nursery.start_soon(hold, name, num_bytes, seconds)
            await trio.sleep(0.1)
    assert order == ["a0", "a1", "b", "a2"], "the small one would have fitted"


async def test_what_arrives_leaves_room_for_others() -> None:
    budget = MediaBudget(max_bytes=800)
    async with budget.reserved(0, "a") as held:
        held.grow(700)
        with pytest.raises(OverloadedError):
            held.grow(1)
        async with budget.reserved(0, "b") as other:
            other.grow(80)
            assert budget.num_bytes == 780


async def test_what_a_header_lied_about_needs_room() -> None:
    budget = MediaBudget(max_bytes=100)
    async with budget.reserved(40), budget.reserved(1) as lied:
        lied.settle(60)
        with pytest.raises(OverloadedError):
            lied.settle(61)
        assert budget.num_bytes == 100
        lied.settle(20)
        assert budget.num_bytes == 60
    assert budget.num_bytes == 0


async def test_who_was_let_in_is_not_turned_away_for_a_frame_more() -> None:
    """A newcomer may take nearly all that others leave, and with that more than a fair share of the rest."""
    budget = MediaBudget(max_bytes=1000)
    async with budget.reserved(430, "a"), budget.reserved(400, "b"), budget.reserved(160, "c") as honest:
        honest.settle(162)
        assert budget.num_bytes == 992
        with pytest.raises(OverloadedError):
            honest.settle(171)
        honest.settle(170)
        assert budget.num_bytes == 1000


async def test_who_holds_nothing_takes_all_that_is_free(autojump_clock: trio.testing.MockClock) -> None:
    budget = MediaBudget(max_bytes=100)
    async with budget.reserved(50, "a"), budget.reserved(50, "b"):
        assert budget.num_bytes == 100
