"""Callers of one class take turns; one alone is served as it came, and none waits for ever."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.fair_turns import FairTurns
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.messages import Generate, Lane, SessionKey
from support.scheduler_dialogs import generate, make_loop


def asked(caller: str, number: int) -> Generate:
    request = generate(f"{caller}-{number}", max_tokens=2)
    return msgspec.structs.replace(request, lane=Lane("interactive", caller=caller))


def test_a_newcomer_does_not_wait_for_all_of_somebody_elses() -> None:
    turns = FairTurns()
    bobs = list(accumulate(range(99), lambda last, _: turns.take(last), initial=turns.take(0)))
    assert bobs == sorted(set(bobs))
    turns.begin(bobs[0])
    turns.begin(bobs[1])
    alices = [first := turns.take(0), turns.take(first)]
    assert sorted(bobs + alices)[:7] == [*bobs[:3], alices[0], bobs[3], alices[1], bobs[4]]


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
        loop.submit(asked("bob", number))
    loop.submit(asked("alice", 0))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert len(ended) == 11
    assert ended.index("alice-0") <= 2


@pytest.mark.parametrize("gives_up", [False, True], ids=["revises", "gives up"])
def test_what_never_ran_costs_no_turn(gives_up: bool) -> None:
    loop = make_loop(max_running=1)
    loop.submit(asked("carol", 0))
    loop.plan()
    for number in range(10):
        request = msgspec.structs.replace(asked("alice", number), session=SessionKey("alice's"))
        loop.submit(request)
        if gives_up:
            loop.scheduler.abort(request.request_id)
    loop.submit(asked("alice", 10))
    for number in range(5):
        loop.submit(asked("bob", number))
    loop.run()
    ended = [str(name) for name in loop.ends]
    assert ended.index("alice-10") < ended.index("bob-2")


def test_a_caller_leaves_room_in_the_queue() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(7):
        loop.submit(asked("bob", number))
    with pytest.raises(OverloadedError):
        loop.submit(asked("bob", 7))
    loop.submit(asked("alice", 0))
    with pytest.raises(OverloadedError):
        loop.submit(asked("carol", 0))


def test_parts_of_what_is_admitted_fill_nobodys_queue() -> None:
    loop = make_loop(max_running=1, max_waiting=8)
    for number in range(20):
        loop.take(loop.scheduler.submit(asked("bob", number), None, is_admitted=True))
    for number in range(20, 27):
        loop.submit(asked("bob", number))
    with pytest.raises(OverloadedError):
        loop.submit(asked("bob", 27))
    loop.submit(asked("alice", 0))
    with pytest.raises(OverloadedError):
        loop.submit(asked("alice", 1))
    loop.run()
    assert len(loop.ends) == 28
    loop.scheduler.check()
