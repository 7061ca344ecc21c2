"""Those whose key is still to come: how many wait, and who gives way."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from sensorium.actors.callers import Caller
from sensorium.actors.http.pending_auth import MAX_UNAUTHENTICATED, MIN_OF_ADDRESS, PendingAuth

HERE, THERE = Caller("192.0.2.1"), Caller("192.0.2.2")


class Waiting:
    """Unauthenticated clients, numbered as they come, and the numbers of those that gave way."""

    def __init__(self, max_of_address: int = 20) -> None:
        self.pending_auth = PendingAuth(max_of_address)
        self.gone: list[int] = []
        self.num = 0

    def come(self, address: Caller) -> Callable[[], object]:
        number, self.num = self.num, self.num + 1
        return self.pending_auth.enter(address, lambda: self.gone.append(number))


def test_of_an_address_one_of_its_own_gives_way() -> None:
    waiting = Waiting()
    waiting.come(THERE)
    for _ in range(20):
        waiting.come(HERE)
    assert not waiting.gone
    for _ in range(3):
        waiting.come(HERE)
    assert len(waiting.gone) == 3
    assert 0 not in waiting.gone
    assert len(waiting.pending_auth) == 21


@pytest.mark.parametrize(
    ("connections", "expected"),
    [(0, MIN_OF_ADDRESS), (8, MIN_OF_ADDRESS), (200, 200), (2048, MAX_UNAUTHENTICATED)],
)
def test_the_bound_of_an_address_follows_that_of_its_connections(connections: int, expected: int) -> None:
    assert PendingAuth(connections).max_of_address == expected


def test_the_address_with_the_most_gives_way() -> None:
    waiting = Waiting(MAX_UNAUTHENTICATED)
    for number in range(MAX_UNAUTHENTICATED - 100):
        waiting.come(Caller(f"2001:db8:{number:x}::/64"))
    for _ in range(103):
        waiting.come(HERE)
    assert len(waiting.gone) == 3
    assert min(waiting.gone) >= MAX_UNAUTHENTICATED - 100
    assert len(waiting.pending_auth) == MAX_UNAUTHENTICATED


def test_who_waits_no_longer_makes_room_and_does_not_give_way() -> None:
    waiting = Waiting()
    known = [waiting.come(HERE) for _ in range(20)]
    for leave in known[:3]:
        leave()
        leave()
    for _ in range(3):
        waiting.come(HERE)
    assert not waiting.gone
    waiting.come(HERE)
    (gone,) = waiting.gone
    assert gone >= 3
    for leave in known:
        leave()
    assert len(waiting.pending_auth) in (3, 4)


def test_a_flood_from_one_address_leaves_most_genuine_calls_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy's address, 500 sockets a second without a key: calls that send theirs after 100 ms."""
    monkeypatch.setattr(random, "choice", random.Random(3).choice)
    waiting = Waiting(MAX_UNAUTHENTICATED)
    for _ in range(MAX_UNAUTHENTICATED):
        waiting.come(HERE)
    calls: list[int] = []
    for _ in range(100):
        calls.append(waiting.num)
        leave = waiting.come(HERE)
        for _ in range(50):
            waiting.come(HERE)
        leave()
    assert len(set(calls) & set(waiting.gone)) <= 10
