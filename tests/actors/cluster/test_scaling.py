"""How many engines a cluster has: by how long requests waited, and by what has nothing to do."""

from __future__ import annotations

import math

import pytest
from sensorium.actors.cluster.scaling import WINDOW_S, Grow, Scaler, Seen, Shrink, percentile
from sensorium.protocols.engine.histograms import SECONDS, Tally

UP_S, IDLE_S = 0.5, 300.0


class Clock:
    """Asks a scaler once a second about engines that a test describes."""

    def __init__(self, min_replicas: int = 1, max_replicas: int = 3) -> None:
        self.scaler = Scaler(min_replicas, max_replicas, scale_up_queue_s=UP_S, scale_down_idle_s=IDLE_S)
        self.now = 1000.0
        self.waits: dict[str, Tally] = {}

    def engine(self, address: str) -> None:
        self.waits[address] = Tally(SECONDS)

    def wait(self, address: str, *seconds: float) -> None:
        for each in seconds:
            self.waits[address].add(each)

    def second(self, *, busy: tuple[str, ...] = (), unseen: bool = False) -> Grow | Shrink | None:
        self.now += 1.0
        seen = {
            address: None if unseen else Seen(int(address in busy), tally.distribution())
            for address, tally in self.waits.items()
        }
        changing = len(seen) != self.scaler.num_wanted
        return self.scaler.decide(self.now, seen, is_changing=changing)

    def seconds(self, count: int, *, busy: tuple[str, ...] = ()) -> list[Grow | Shrink]:
        found = [self.second(busy=busy) for _ in range(count)]
        return [each for each in found if each is not None]


def test_one_more_where_requests_wait_too_long_and_not_before_that_helped() -> None:
    clock = Clock()
    clock.engine("a")
    assert clock.seconds(5) == []
    clock.wait("a", *[0.01] * 90, *[2.0] * 10)
    (grown,) = clock.seconds(1)
    assert isinstance(grown, Grow)
    assert UP_S < grown.queue_s <= 2.5
    assert clock.scaler.num_wanted == 2
    for _ in range(60):  # it takes a minute to load: more would not help sooner
        clock.wait("a", *[5.0] * 10)
        assert clock.second(busy=("a",)) is None
    clock.engine("b")
    for _ in range(round(WINDOW_S) - 1):
        clock.wait("a", 5.0)
        assert clock.second(busy=("a", "b")) is None
    clock.wait("b", 5.0)
    assert [type(each) for each in clock.seconds(3)] == [Grow]
    assert clock.scaler.num_wanted == 3


def test_waits_of_more_than_half_a_minute_ago_do_not_count() -> None:
    clock = Clock()
    clock.engine("a")
    clock.scaler.num_wanted = 2  # one of two loads: nothing is decided
    clock.seconds(3)
    clock.wait("a", *[10.0] * 100)
    clock.seconds(2)
    clock.engine("b")
    for _ in range(round(WINDOW_S) + 5):
        clock.wait("b", 0.001)
        assert clock.second() is None


def test_a_few_slow_ones_among_many_are_no_reason() -> None:
    clock = Clock()
    clock.engine("a")
    clock.seconds(1)
    clock.wait("a", *[0.01] * 96, *[5.0] * 4)
    assert clock.seconds(40) == []


def test_never_more_than_allowed() -> None:
    clock = Clock(max_replicas=1)
    clock.engine("a")
    clock.seconds(1)
    for _ in range(100):
        clock.wait("a", 60.0)
        assert clock.second(busy=("a",)) is None


def test_what_has_nothing_to_do_goes_one_at_a_time_down_to_the_least() -> None:
    clock = Clock()
    clock.scaler.num_wanted = 3
    for address in "abc":
        clock.engine(address)
    gone = []
    for second in range(3 * round(IDLE_S)):
        decision = clock.second(busy=("a",) if second < 100 else ())
        if decision is not None:
            assert isinstance(decision, Shrink)
            gone.append((second, decision.address))
            del clock.waits[decision.address]
    assert len(gone) == 2
    assert "a" not in {address for _, address in gone}, "it was busy last"
    assert gone[0][0] >= IDLE_S - 1
    assert gone[1][0] >= gone[0][0] + WINDOW_S
    assert clock.scaler.num_wanted == 1


def test_what_answered_something_was_not_idle_though_never_seen_at_it() -> None:
    clock = Clock()
    clock.scaler.num_wanted = 2
    for address in "ab":
        clock.engine(address)
    for second in range(2 * round(IDLE_S)):
        if second % 60 == 0:
            clock.wait("a", 0.001)
            clock.wait("b", 0.001)
        assert clock.second() is None


def test_without_servers_nothing_grows_and_what_is_idle_goes() -> None:
    clock = Clock()
    clock.scaler.num_wanted = 2
    for address in "ab":
        clock.engine(address)
    clock.wait("a", *[9.0] * 10)
    decisions = [clock.second(unseen=True) for _ in range(round(IDLE_S) + 2)]
    assert [type(each) for each in decisions if each] == [Shrink]


def test_an_engine_that_counts_from_zero_again_is_no_reason() -> None:
    """Its process began again; nor is one that was out of sight and has counted on."""
    clock = Clock()
    clock.engine("a")
    clock.wait("a", *[9.0] * 10)
    clock.seconds(5)
    clock.waits["a"] = Tally(SECONDS)
    clock.wait("a", 0.001)
    assert clock.seconds(40) == []


@pytest.mark.parametrize(
    ("values", "share", "low", "high"),
    [
        ([], 0.95, 0.0, 0.0),
        ([0.0005] * 10, 0.95, 0.0, 0.001),
        ([0.2] * 99 + [100.0], 0.95, 0.15, 0.2),
        ([0.2] * 90 + [100.0] * 10, 0.95, 60.0, 120.0),
        ([1000.0], 0.95, math.inf, math.inf),
    ],
)
def test_percentiles_lie_in_their_bucket(values: list[float], share: float, low: float, high: float) -> None:
    tally = Tally(SECONDS)
    for value in values:
        tally.add(value)
    assert low <= percentile(tally.distribution().counts, share) <= high
