"""Those whose key is still to come: how many wait, and who gives way."""

from __future__ import annotations

from collections.abc import Callable

from sensorium.actors.callers import Caller
from sensorium.actors.http.strangers import MAX_OF_ADDRESS, MAX_STRANGERS, Strangers

HERE, THERE = Caller("192.0.2.1"), Caller("192.0.2.2")


class Waiting:
    """Strangers, numbered as they come, and the numbers of those that gave way."""

    def __init__(self) -> None:
        self.strangers = Strangers()
        self.gone: list[int] = []
        self.num = 0

    def come(self, address: Caller) -> Callable[[], object]:
        number, self.num = self.num, self.num + 1
        return self.strangers.enter(address, lambda: self.gone.append(number))


def test_of_an_address_the_one_that_has_waited_longest_gives_way() -> None:
    waiting = Waiting()
    waiting.come(THERE)
    for _ in range(MAX_OF_ADDRESS + 2):
        waiting.come(HERE)
    assert waiting.gone == [1, 2]
    assert len(waiting.strangers) == MAX_OF_ADDRESS + 1


def test_of_many_addresses_the_one_that_has_waited_longest_gives_way() -> None:
    waiting = Waiting()
    for number in range(MAX_STRANGERS + 2):
        waiting.come(Caller(f"2001:db8:{number:x}::/64"))
    assert waiting.gone == [0, 1]
    assert len(waiting.strangers) == MAX_STRANGERS


def test_who_waits_no_longer_makes_room_and_does_not_give_way() -> None:
    waiting = Waiting()
    known = [waiting.come(HERE) for _ in range(MAX_OF_ADDRESS)]
    for leave in known[:3]:
        leave()
        leave()
    for _ in range(3):
        waiting.come(HERE)
    assert not waiting.gone
    waiting.come(HERE)
    assert waiting.gone == [3]
    known[3]()
    assert len(waiting.strangers) == MAX_OF_ADDRESS
