"""Who of those who wait for room in the ledger goes before whom, and how often."""

from __future__ import annotations

import itertools

import pytest
from sensorium.engine.planning.encoder.admission_queue import MAX_OVERTAKES, Ticket
from sensorium.engine.planning.encoder.effects import CacheEffect, Encode, Free, Grant
from sensorium.protocols.engine.messages import Service
from sensorium.protocols.errors import OverloadedError
from support.ledger import Ledger, item, make

T = [Ticket(number) for number in range(10)]
A, B, C, D = (item(name) for name in "ABCD")


def granted(effects: list[CacheEffect]) -> list[Ticket]:
    return [effect.ticket for effect in effects if isinstance(effect, Grant)]


def served(cache: Ledger, effects: list[CacheEffect]) -> list[Ticket]:
    """Who is granted something; what is to be encoded is encoded at once."""
    for effect in effects:
        if isinstance(effect, Encode):
            cache.encoded(effect.slot, int(effect.features.data[1:]))
    cache.check()
    return granted(effects)


def full(max_bytes: int = 100, max_waiting: int = 2) -> Ledger:
    """Whose room T[0] has all of."""
    cache = make(max_bytes, max_waiting)
    cache.need(T[0], [item(f"f{max_bytes}")])
    cache.encoded(0, max_bytes)
    return cache


def test_the_best_class_goes_first_and_a_class_in_order_of_arrival() -> None:
    cache = full(max_waiting=9)
    services: list[Service] = ["batch", "interactive", "batch", "live", "interactive", "live"]
    for number, service in enumerate(services, start=1):
        assert cache.need(T[number], [item(f"x{90 + number}")], service) == []
    order = [T[0]]
    for _ in services:
        order += served(cache, cache.release(order[-1]))
    assert order == [0, 4, 6, 2, 5, 1, 3]


def test_callers_of_a_class_take_turns() -> None:
    cache = full(max_waiting=9)
    for number in (1, 2, 3, 4):
        assert cache.need(T[number], [item(f"x{90 + number}")], caller="ada") == []
    order = [T[0]]
    order += served(cache, cache.release(T[0]))
    for number in (5, 6):
        assert cache.need(T[number], [item(f"x{90 + number}")], caller="bob") == []
    for _ in range(5):
        order += served(cache, cache.release(order[-1]))
    assert order == [0, 1, 2, 5, 3, 6, 4]


def test_who_passes_with_what_is_there_takes_nobodys_turn() -> None:
    cache = full(max_waiting=9)
    for number in (1, 2):
        assert cache.need(T[number], [item(f"x{90 + number}")], caller="ada") == []
    for number in (3, 4, 5):
        assert granted(cache.need(T[number], [item("f100")], caller="bob")) == [T[number]]
        cache.release(T[number])
    assert cache.need(T[6], [item("x96")], caller="carol") == []
    order = [T[0]]
    for _ in range(3):
        order += served(cache, cache.release(order[-1]))
    assert order == [0, 1, 6, 2]


def test_a_better_claim_that_fits_does_not_wait_for_worse_ones() -> None:
    cache = make(max_bytes=200)
    cache.need(T[0], [A])
    assert cache.need(T[1], [item("x150")], "batch") == []
    assert cache.need(T[2], [B], "batch") == [], "of the same class, and later"
    assert cache.need(T[3], [C], "live") == [Encode(1, C.features), Grant(T[3], (1,))]


def test_worse_claims_do_not_pass_a_better_one_even_if_their_contents_are_there() -> None:
    cache = full()
    assert cache.need(T[1], [B], "live") == []
    assert cache.need(T[2], [item("f100")], "batch") == []
    assert cache.need(T[3], [item("f100")], "live") == [Grant(T[3], (0,))]
    assert cache.release(T[0]) == []
    assert cache.release(T[3]) == [Free(0), Encode(1, B.features), Grant(T[1], (1,))]


def test_a_crowd_of_worse_claims_refuses_no_better_one() -> None:
    cache = full()
    for number in (1, 2):
        assert cache.need(T[number], [B], "batch") == []
    with pytest.raises(OverloadedError, match="and 2 others wait"):
        cache.need(T[3], [B], "batch")
    assert cache.need(T[4], [C], "interactive") == []
    assert cache.need(T[5], [D], "live") == []
    with pytest.raises(OverloadedError):
        cache.need(T[6], [D], "interactive")
    assert cache.need(T[7], [D], "live") == []
    assert granted(cache.release(T[0])) == [T[5], T[7]]
    cache.check()


@pytest.mark.parametrize("is_there", [True, False])
def test_worse_claims_are_not_starved(is_there: bool) -> None:
    """Two live ones are always there, of which one waits; a file gets its turn after a stated number."""
    cache = full(max_bytes=200)
    big = [item("x100"), item("y100")]
    assert cache.need(T[1], big, "batch") == []
    holders = [T[0]]
    for number in itertools.count(10):
        served(cache, cache.need(Ticket(number), [item("f200" if is_there else f"z{100 + number}")], "live"))
        holders.append(Ticket(number))
        if T[1] in served(cache, cache.release(holders.pop(0))):
            break
        assert number <= 12 + MAX_OVERTAKES
    assert number >= 9 + MAX_OVERTAKES, "and not before"
