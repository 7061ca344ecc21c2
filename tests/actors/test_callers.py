"""What callers are, and that each of them gets its share."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.callers import Caller, caller_by_address, caller_by_key, greediest, has_room


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
    if num == 1 and most > 1:
        assert held[0] >= max(1, most * 7 // 8 - 1)
        assert has_room(0, held[0], most)


def test_one_caller_alone_has_everything() -> None:
    assert has_room(63, 63, 64, is_shared=False)
    assert not has_room(64, 64, 64, is_shared=False)


def test_who_has_most_gives_way() -> None:
    alice, bob, carol = (Caller(name) for name in ("alice", "bob", "carol"))
    assert greediest(Counter({alice: 1, bob: 3, carol: 2}), alice) == bob
    assert greediest(Counter({alice: 3, bob: 3, carol: 2}), alice) == alice
    assert greediest(Counter({alice: 3, bob: 3, carol: 2}), bob) == bob
