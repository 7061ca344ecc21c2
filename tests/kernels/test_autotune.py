"""Which candidate runs: the default, unless another is clearly faster and may take its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, repeat

import pytest
import torch
from sensorium.kernels.autotune import Choice, alike, confirmed, decide, doubtful, is_steady, measure
from support.choices import ROWS, Stopwatch, any_threads, no_others, scripted


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with no_others(monkeypatch):
        yield


def constant(old: float, new: float) -> Callable[[str, int], Iterator[float]]:
    return lambda name, _: repeat({"old": old, "new": new}[name])


def by_rows(new: dict[int, float]) -> Callable[[str, int], Iterator[float]]:
    """`old` takes a millisecond, `new` what is given for the rows."""
    return lambda name, rows: repeat(1e-3 if name == "old" else new[rows])


def decided(choice: Choice, clock: Stopwatch) -> tuple[str, ...]:
    times = measure(choice, clock, any_threads)
    assert times is not None
    return decide(choice, times, alike(choice, any_threads))


@pytest.mark.parametrize(
    ("new", "chosen"), [(0.5e-3, "new"), (0.94e-3, "new"), (0.97e-3, "old"), (1e-3, "old"), (2e-3, "old")]
)
def test_a_default_stays_unless_another_is_clearly_faster(new: float, chosen: str) -> None:
    clock = Stopwatch()
    assert decided(scripted(clock, constant(1e-3, new)), clock) == (chosen,) * len(ROWS)


def test_rows_choose_for_themselves_where_results_are_alike() -> None:
    clock = Stopwatch()
    choice = scripted(clock, by_rows({1: 2e-3, 4: 1e-3, 16: 0.5e-3, 64: 0.2e-3}))
    assert decided(choice, clock) == ("old", "old", "new", "new")


def test_rows_choose_together_where_results_are_not() -> None:
    results: dict[str, Callable[[int], torch.Tensor]] = {"old": torch.ones, "new": torch.zeros}
    clock = Stopwatch()
    mostly = scripted(clock, by_rows({1: 1.1e-3, 4: 0.5e-3, 16: 0.5e-3, 64: 2e-3}), results=results)
    assert decided(mostly, clock) == ("new", "new", "new", "old")
    rarely = scripted(clock, by_rows({1: 4e-3, 4: 2e-3, 16: 0.5e-3, 64: 0.5e-3}), results=results, shape="b")
    assert decided(rarely, clock) == ("old", "old", "old", "new")


def test_what_depends_on_the_number_of_rows_serves_beyond_the_promise_only() -> None:
    results: dict[str, Callable[[int], torch.Tensor]] = {
        "old": torch.ones,
        "new": lambda rows: torch.full((rows,), float(rows)),
    }
    clock = Stopwatch()
    choice = scripted(clock, constant(1e-3, 0.1e-3), results=results)
    assert alike(choice, any_threads) == [{"old"}]
    assert decided(choice, clock) == ("old", "old", "old", "new")


def test_a_default_that_breaks_the_promise_yields_to_what_keeps_it_only_if_that_is_faster() -> None:
    results: dict[str, Callable[[int], torch.Tensor]] = {
        "old": lambda rows: torch.full((rows,), float(rows)),
        "new": torch.ones,
    }
    clock = Stopwatch()
    slower = scripted(clock, constant(1e-3, 2e-3), results=results)
    assert decided(slower, clock) == ("old",) * 4
    faster = scripted(clock, constant(1e-3, 0.5e-3), results=results, shape="b")
    assert decided(faster, clock) == ("new",) * 4


@pytest.mark.parametrize("slow", [(0,), (2,), (1, 3)])
def test_rounds_in_which_others_computed_do_not_choose(slow: tuple[int, ...]) -> None:
    """Of five rounds behind two calls that set up; both candidates are as fast."""
    clock = Stopwatch()

    def seconds(name: str, _: int) -> Iterator[float]:
        rounds = [1e-3 * (50 if name == "old" and each in slow else 1) for each in range(5)]
        return iter([1e-3, 1e-3, *rounds])

    assert decided(scripted(clock, seconds), clock) == ("old",) * 4


def test_a_median_alone_does_not_choose() -> None:
    """Most of the default's rounds are slow, the fastest is as fast as ever: it was somebody else."""
    clock = Stopwatch()

    def seconds(name: str, _: int) -> Iterator[float]:
        return cycle([1e-3, 9e-3, 9e-3]) if name == "old" else repeat(1e-3)

    choice = scripted(clock, seconds)
    assert decided(choice, clock) == ("old",) * 4


def test_times_of_a_busy_machine_are_told() -> None:
    clock = Stopwatch()
    quiet = measure(scripted(clock, constant(1e-3, 1e-3)), clock, any_threads)
    assert quiet is not None
    assert is_steady(quiet)
    busy = measure(scripted(clock, lambda *_: cycle([1e-3, 3e-3, 4e-3]), shape="b"), clock, any_threads)
    assert busy is not None
    assert not is_steady(busy)


@pytest.mark.parametrize(("waiting", "steady"), [(0.0, True), (0.05, True), (0.3, False)])
def test_times_while_others_computed_are_told(waiting: float, steady: bool) -> None:
    """Though each round takes as long: two threads of three have a processor, always."""
    clock = Stopwatch()
    clock.waiting = waiting
    times = measure(scripted(clock, constant(1e-3, 1e-3)), clock, any_threads, waited=clock.waited)
    assert times is not None
    assert is_steady(times) is steady


def test_a_second_look_is_at_what_differs_from_the_default_only() -> None:
    clock = Stopwatch()
    choice = scripted(clock, constant(1e-3, 0.5e-3))
    among = doubtful(choice, ("old", "old", "new", "old"))
    assert among == {16: {"old", "new"}}
    times = measure(choice, clock, any_threads, among)
    assert times is not None
    assert set(times) == {16}


@pytest.mark.parametrize(
    ("second", "left"),
    [
        ({4: 0.5e-3, 16: 0.5e-3, 64: 0.5e-3}, ("old", "new", "new", "new")),
        ({4: 0.5e-3, 16: 0.5e-3, 64: 0.99e-3}, ("old", "new", "new", "old")),
        ({4: 0.5e-3, 16: 1.1e-3, 64: 0.5e-3}, ("old", "new", "new", "new")),  # together they gain
        ({4: 0.98e-3, 16: 1.0e-3, 64: 0.5e-3}, ("old", "old", "old", "new")),
    ],
)
def test_what_a_second_look_does_not_confirm_is_the_default(
    second: dict[int, float], left: tuple[str, ...]
) -> None:
    clock = Stopwatch()
    choice = scripted(clock, by_rows(second))
    chosen = ("old", "new", "new", "new")
    times = measure(choice, clock, any_threads, doubtful(choice, chosen))
    assert times is not None
    assert confirmed(choice, chosen, times) == left


def test_measuring_ends_in_time() -> None:
    clock = Stopwatch()
    choice = scripted(clock, constant(0.1, 0.1))
    assert measure(choice, clock, any_threads, end=1.5) is None
    assert clock.now <= 2.0
    assert measure(choice, clock, any_threads, end=clock.now + 10) is not None


def test_what_is_short_is_repeated() -> None:
    clock = Stopwatch()
    assert measure(scripted(clock, constant(1e-6, 1e-6)), clock, any_threads) is not None
    assert clock.num_calls > 10 * 2 * len(ROWS)


def test_each_number_of_rows_has_a_candidate() -> None:
    choice = scripted(Stopwatch(), constant(1.0, 1.0))
    choice.chosen = ("a", "b", "c", "d")
    assert [choice.at(rows) for rows in (1, 2, 4, 5, 16, 17, 64, 65, 5000)] == list("abbccdddd")


def test_a_name_has_one_choice_for_as_long_as_somebody_holds_it() -> None:
    clock = Stopwatch()
    first = scripted(clock, constant(1.0, 1.0))
    assert scripted(clock, constant(1.0, 1.0)) is first
    first.chosen = ("new",) * 4
    del first
    assert scripted(clock, constant(1.0, 1.0)).chosen == ("old",) * 4
