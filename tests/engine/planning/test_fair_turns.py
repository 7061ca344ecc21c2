"""Callers of one class take turns; one alone is served as it came, and none waits for ever."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.fair_turns import FairLines, FairTurns
from sensorium.protocols.engine.messages import Align, Lane, Request, SampleRequest, Service, SessionKey
from sensorium.protocols.errors import OverloadedError
from support.fake_runner import item
from support.scheduler_dialogs import align, generate, make_loop


def make_request(
    caller: str, number: int, service: Service = "interactive", priority: int = 0
) -> SampleRequest:
    name = (
        f"{caller}-{number}" if (service, priority) == ("interactive", 0) else f"{caller}-{service}-{number}"
    )
    request = generate(name, max_tokens=2)
    return msgspec.structs.replace(request, lane=Lane(service, priority, caller))


def aligned(caller: str, number: int, priority: int = 0) -> Request[Align]:
    command = align(f"align-{caller}-{number}")
    return msgspec.structs.replace(command, lane=Lane("interactive", priority, caller))


def test_of_one_round_whoever_came_first_is_first() -> None:
    turns = FairTurns()
    first, second = turns.take(0), turns.take(0)
    assert first < second < turns.take(first)


def test_a_newcomer_does_not_wait_for_all_of_somebody_elses() -> None:
    turns = FairTurns()
    bobs = list(accumulate(range(99), lambda last, _: turns.take(last), initial=turns.take(0)))
    assert bobs == sorted(set(bobs))
    turns.begin(bobs[0])
    turns.begin(bobs[1])
    alices = [first := turns.take(0), turns.take(first)]
    assert sorted(bobs + alices)[:7] == [*bobs[:3], alices[0], bobs[3], alices[1], bobs[4]]


def test_who_comes_again_with_an_old_turn_lets_no_newcomer_before_those_that_wait() -> None:
    """It was preempted, and keeps its turn; the clock goes on from the latest."""
    turns = FairTurns()
    first, second = turns.take(0), 0
    for _ in range(9):
        second = turns.take(second)
        turns.begin(second)
    waiting = turns.take(second)
    turns.begin(first)
    assert turns.take(0) > waiting


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_between_two_turns_of_a_caller_nobody_that_waits_has_three(steps: list[tuple[str, bool]]) -> None:
    turns, waiting = FairTurns(), list[tuple[int, str]]()
    since: dict[str, dict[str, int]] = {}
    for caller, takes in steps:
        if takes or not waiting:
            last = max((turn for turn, who in waiting if who == caller), default=0)
            waiting.append((turns.take(last), caller))
            since.setdefault(caller, {})
            continue
        turn, served = min(waiting)
        waiting.remove((turn, served))
        turns.begin(turn)
        for each in {who for _, who in waiting} - {served}:
            since[each][served] = since[each].get(served, 0) + 1
            assert since[each][served] <= 2
        since[served] = {}


def test_the_engine_admits_callers_in_turn() -> None:
    loop = make_loop(max_running=2)
    for number in range(10):
        loop.submit(make_request("bob", number))
    loop.submit(make_request("alice", 0))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert len(ended) == 11
    assert ended.index("alice-0") <= 2


@pytest.mark.parametrize(("service", "priority"), [("batch", 0), ("interactive", 1)])
def test_what_a_caller_has_in_a_worse_line_costs_it_no_turn(service: Service, priority: int) -> None:
    loop = make_loop(max_running=2, num_blocks=200)
    loop.submit(make_request("zed", 0))
    loop.submit(make_request("zed", 1))
    loop.plan()
    for number in range(20):
        loop.submit(make_request("alice", 100 + number, service, priority))
    for number in range(20):
        loop.submit(make_request("bob", number))
    loop.submit(make_request("alice", 0))
    loop.run()
    ended = [str(name) for name in loop.ends if "alice-1" not in name and service not in name]
    assert ended.index("alice-0") <= 4, "as if it had nothing else"


def test_a_better_request_of_its_caller_moves_no_other_clock() -> None:
    """A newcomer's would else come behind all of the backlog that has its turns already."""
    loop = make_loop(max_running=2)
    for number in range(20):
        loop.submit(make_request("alice", number, "batch"))
    for _ in range(2):
        loop.step()
    loop.submit(make_request("alice", 0, "live"))
    for _ in range(2):
        loop.step()
    loop.submit(make_request("bob", 0, "batch"))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert ended.index("bob-batch-0") <= 8


def test_a_revised_request_keeps_its_place_only_in_its_own_line() -> None:
    loop = make_loop(max_running=1)
    loop.submit(make_request("zed", 0))
    loop.plan()
    for number in range(5):
        loop.submit(make_request("alice", number, "batch"))
    loop.submit(msgspec.structs.replace(make_request("alice", 5, "batch"), session=SessionKey("s")))
    for number in range(3):
        loop.submit(make_request("bob", number))
    loop.submit(msgspec.structs.replace(make_request("alice", 6), session=SessionKey("s")))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert ended.index("alice-6") < ended.index("bob-1")


def test_only_lines_with_somebody_in_them_are_remembered() -> None:
    loop = make_loop(max_running=1)
    for number in range(30):
        loop.submit(make_request("bob", number, priority=number % 10 - 5))
    assert len(loop.scheduler._queues._turns._lines) == 10
    loop.run()
    loop.submit(make_request("bob", 0))
    loop.submit(make_request("bob", 1, "live"))
    loop.submit(make_request("bob", 2, "live", 9))
    assert sorted(loop.scheduler._queues._turns._lines) == [(0, 0), (0, 9), (1, 0)]


def test_a_line_that_is_forgotten_begins_anew() -> None:
    lines = FairLines()
    first = lines.take((1, 0), 0, ())
    lines.begin((1, 0), first)
    assert lines.take((1, 0), 0, ()) > lines.take((1, 1), 0, [(1, 0)])
    lines.take((1, 2), 0, ())
    assert list(lines._lines) == [(1, 2)]


def test_callers_alignments_are_made_in_turn() -> None:
    loop = make_loop(max_tokens_per_step=8)
    loop.scheduler.encode(0, item("A").features)
    for number in range(6):
        loop.scheduler.submit(aligned("bob", number), 0)
    loop.plan()
    loop.scheduler.submit(aligned("alice", 0), 0)
    loop.scheduler.submit(aligned("carol", 0, priority=-1), 0)
    loop.run()
    assert [str(name) for name in loop.outcomes][:4] == [
        "align-bob-0",
        "align-carol-0",
        "align-bob-1",
        "align-alice-0",
    ]


@pytest.mark.parametrize("gives_up", [False, True], ids=["revises", "gives up"])
def test_what_never_ran_costs_no_turn(gives_up: bool) -> None:
    loop = make_loop(max_running=1)
    loop.submit(make_request("carol", 0))
    loop.plan()
    for number in range(10):
        request = msgspec.structs.replace(make_request("alice", number), session=SessionKey("alice's"))
        loop.submit(request)
        if gives_up:
            loop.scheduler.abort(request.request_id)
    loop.submit(make_request("alice", 10))
    for number in range(5):
        loop.submit(make_request("bob", number))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert ended.index("alice-10") < ended.index("bob-2")


def test_a_caller_leaves_room_in_the_queue() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(7):
        loop.submit(make_request("bob", number))
    with pytest.raises(OverloadedError, match="7 of your requests are waiting"):
        loop.submit(make_request("bob", 7))
    loop.submit(make_request("alice", 0))
    with pytest.raises(OverloadedError, match="8 requests are waiting"):
        loop.submit(make_request("carol", 0))


def test_a_callers_batch_keeps_nothing_better_of_its_own_out() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(7):
        loop.submit(make_request("bob", number, "batch"))
    with pytest.raises(OverloadedError, match="7 of your requests"):
        loop.submit(make_request("bob", 7, "batch"))
    for number in range(7):
        loop.submit(make_request("bob", number))
    loop.submit(make_request("bob", 0, "live"))
    loop.run()
    assert len(loop.ends) == 15


def test_a_callers_alignments_count_as_its_requests_do() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    loop.scheduler.encode(0, item("A").features)
    for number in range(7):
        loop.scheduler.submit(aligned("bob", number), 0)
    with pytest.raises(OverloadedError, match="7 of your requests"):
        loop.submit(make_request("bob", 0))
    with pytest.raises(OverloadedError, match="7 of your requests"):
        loop.scheduler.submit(aligned("bob", 7), 0)
    loop.submit(make_request("alice", 0))


def test_who_revises_a_request_that_waits_needs_no_more_room() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(7):
        loop.submit(msgspec.structs.replace(make_request("bob", number), session=SessionKey(f"{number}")))
    loop.submit(msgspec.structs.replace(make_request("bob", 7), session=SessionKey("6")))
    loop.submit(make_request("alice", 0))
    with pytest.raises(OverloadedError, match="8 requests"):
        loop.submit(make_request("alice", 1))


def test_parts_of_what_is_admitted_fill_nobodys_queue() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(20):
        loop.take(loop.scheduler.submit(make_request("bob", number), None, is_admitted=True))
    for number in range(20, 27):
        loop.submit(make_request("bob", number))
    with pytest.raises(OverloadedError):
        loop.submit(make_request("bob", 27))
    loop.submit(make_request("alice", 0))
    with pytest.raises(OverloadedError):
        loop.submit(make_request("alice", 1))
    loop.run()
    assert len(loop.ends) == 28
    loop.scheduler.check()
