"""What callers are, that each of them gets its share, and whose a lost session is."""

from __future__ import annotations

from collections import Counter

import trio
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.callers import Caller, caller_by_address, caller_by_key, greediest, has_room
from support.fake_sessions import FakeSocket, Sessions, resume_event
from trio.testing import MockClock


def test_an_ipv6_network_is_one_caller() -> None:
    assert caller_by_address("2001:db8::1") == caller_by_address("2001:db8::ffff:2")
    assert caller_by_address("2001:db8::1") != caller_by_address("2001:db8:0:1::1")
    assert caller_by_address("10.0.0.1") != caller_by_address("10.0.0.2")
    assert caller_by_key("10.0.0.1") != caller_by_address("10.0.0.1")


@given(st.integers(1, 200), st.integers(1, 6))
def test_callers_that_all_want_everything_get_the_same_and_a_newcomer_a_place(most: int, num: int) -> None:
    held = [0] * num
    for turn in range(most * num):
        if has_room(held[turn % num], sum(held), most):
            held[turn % num] += 1
    assert max(held) - min(held) <= 1
    assert sum(held) <= most
    if most >= 8 * num:
        assert has_room(0, sum(held), most)
    if num == 1:
        assert held[0] == most - most // 8
        assert has_room(0, held[0], most) == (most >= 8)


def test_one_caller_alone_has_everything() -> None:
    assert has_room(63, 63, 64, is_shared=False)
    assert not has_room(64, 64, 64, is_shared=False)


def test_who_has_most_gives_way() -> None:
    alice, bob, carol = (Caller(name) for name in ("alice", "bob", "carol"))
    assert greediest(Counter({alice: 1, bob: 3, carol: 2}), alice) == bob
    assert greediest(Counter({alice: 3, bob: 3, carol: 2}), alice) == alice
    assert greediest(Counter({alice: 3, bob: 3, carol: 2}), bob) == bob


async def test_lost_sessions_of_one_caller_do_not_end_anothers(autojump_clock: MockClock) -> None:
    sessions = Sessions(max_detached=3)
    alice, bob, carol = (caller_by_key(name) for name in ("alice", "bob", "carol"))
    async with sessions.running() as nursery:

        async def lose(caller: Caller) -> FakeSocket:
            socket = await sessions.connect(nursery, caller)
            socket.vanish()
            await trio.sleep(1)
            return socket

        alices = await lose(alice)
        bobs = [await lose(bob) for _ in range(5)]
        carols = await lose(carol)
        assert sessions.registry.num_detached == 3
        for caller, socket in ((alice, alices), (bob, bobs[-1]), (carol, carols)):
            assert (await sessions.resume(nursery, resume_event(socket, 1), caller)).of("session.resumed")


async def test_a_token_is_for_the_caller_that_began_the_session(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    alice, bob = caller_by_key("alice"), caller_by_key("bob")
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery, alice)
        socket.vanish()
        refused = (await sessions.resume(nursery, resume_event(socket, 1), bob)).of("error")
        assert refused[0]["error"]["code"] == "session_not_found"
        assert (await sessions.resume(nursery, resume_event(socket, 1), alice)).of("session.resumed")


async def test_a_caller_without_a_key_may_come_back_from_another_address(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery, caller_by_address("10.0.0.1"))
        socket.vanish()
        moved = caller_by_address("10.0.0.2")
        assert (await sessions.resume(nursery, resume_event(socket, 1), moved)).of("session.resumed")
