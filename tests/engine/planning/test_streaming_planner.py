"""Requests that are fed: who has a slot, who loses it, what a step takes of whom. One rule each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Copy
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    InputChunk,
    Lane,
    Request,
    RequestId,
    Service,
    SessionKey,
    StateEvicted,
    TaskFailed,
    Transduce,
    TransduceRequest,
)
from sensorium.protocols.errors import BadRequestError, OverloadedError
from support.fake_runner import FakeRunner
from support.fake_transducer import FRAMES_PER_ROW, NOT_A_NUMBER, chunk_of, transduced_alone
from support.scheduler_dialogs import generate, make_loop
from support.step_loop import StepLoop

CONFIG = SchedulerConfig(
    num_blocks=1, num_state_slots=4, max_running=8, input_frames_per_row=FRAMES_PER_ROW, max_unread_chunks=5
)
FOUR = (1.0, 2.0, 3.0, 4.0)


def make(**given: int) -> StepLoop:
    options: dict[str, Any] = dict(given)
    config = replace(CONFIG, **options)
    runner = FakeRunner(num_blocks=1, num_state_slots=config.num_state_slots)
    return StepLoop(Scheduler(config), runner)


def request(
    name: str,
    *,
    service: Service = "live",
    lookahead: int = 0,
    condition: int = 0,
    logprobs: bool = False,
) -> TransduceRequest:
    return Request(RequestId(name), (), Transduce(lookahead, condition, logprobs), lane=Lane(service))


def feed(
    loop: StepLoop,
    name: str,
    frames: tuple[float, ...] = FOUR,
    *,
    num_padding: int = 0,
    is_last: bool = False,
    is_first: bool = False,
) -> None:
    chunk = chunk_of(frames, num_padding=num_padding, is_last=is_last, is_first=is_first)
    loop.scheduler.feed(RequestId(name), chunk)


def begin(loop: StepLoop, *names: str, service: Service = "live") -> None:
    """Each has a slot, and waits for input."""
    for name in names:
        loop.submit(request(name, service=service))
        feed(loop, name)
        loop.run()


def fork(loop: StepLoop, parent: str, message: TransduceRequest) -> None:
    loop.take(loop.scheduler.fork(RequestId(parent), message))


def step(loop: StepLoop) -> list[str]:
    """Whose chunks are run in one step."""
    plan = loop.plan()
    if plan:
        loop.finish()
    loop.scheduler.check()
    return [each.request_id for each in plan.transduces]


def tokens(loop: StepLoop, name: str) -> list[int]:
    return [token for event in loop.transduced[RequestId(name)] for token in event.token_ids]


def expect_whole(loop: StepLoop, name: str, frames: tuple[float, ...], task: Transduce | None = None) -> None:
    assert loop.transduced[RequestId(name)][-1].finish_reason == "stop"
    assert tokens(loop, name) == list(transduced_alone(task or Transduce(), frames).token_ids)


def test_each_chunk_has_one_answer_and_the_last_ends_the_request() -> None:
    loop = make()
    loop.submit(request("a", lookahead=2, logprobs=True))
    assert step(loop) == [], "it waits for input"
    for frames in ((1.0,), (2.0, 3.0), ()):
        feed(loop, "a", frames, is_last=not frames)
    loop.run(max_in_flight=2)
    events = loop.transduced[RequestId("a")]
    assert [each.num_frames for each in events] == [0, 1, 2], "a row is two frames, or the last one"
    assert [each.finish_reason for each in events] == [None, None, "stop"]
    expect_whole(loop, "a", (1.0, 2.0, 3.0), Transduce(lookahead=2))
    assert all(len(each.logprobs) == len(each.token_ids) for each in events)
    statistics = loop.scheduler.statistics()
    assert (statistics.num_chunks, statistics.num_state_slots, statistics.num_running) == (3, 0, 0)


def test_padding_of_the_last_chunk_is_not_heard() -> None:
    loop = make()
    loop.submit(request("a"))
    feed(loop, "a", FOUR[:3], num_padding=5, is_last=True)
    loop.run()
    expect_whole(loop, "a", FOUR[:3])


def test_who_waits_for_input_runs_and_keeps_its_slot() -> None:
    loop = make(num_state_slots=2)
    begin(loop, "a")
    loop.submit(request("b"))
    statistics = loop.scheduler.statistics()
    assert (statistics.num_running_live, statistics.num_waiting_live, statistics.num_state_slots) == (1, 1, 1)


def test_a_step_has_one_chunk_of_each_and_live_ones_first() -> None:
    loop = make(max_tokens_per_step=9, num_low_priority_tokens=3)
    for name in ("batch", "one", "two", "three"):
        loop.submit(request(name, service="batch" if name == "batch" else "live"))
        feed(loop, name)
        feed(loop, name)
    assert step(loop) == ["one", "two", "three", "batch"], "of two rows each; six are for live ones"
    assert step(loop) == ["one", "two", "three", "batch"]


def test_who_waited_longest_goes_first_where_not_all_can() -> None:
    loop = make(max_tokens_per_step=4)
    for name in ("a", "b", "c"):
        loop.submit(request(name))
    for _ in range(4):
        for name in ("a", "b", "c"):
            feed(loop, name)
    assert [step(loop) for _ in range(6)] == [["a", "b"], ["c", "a"], ["b", "c"]] * 2


def test_a_chunk_larger_than_the_share_goes_alone() -> None:
    loop = make(max_tokens_per_step=2)
    for name in ("a", "b"):
        loop.submit(request(name))
        feed(loop, name, FOUR * 3)
        feed(loop, name, FOUR)
    assert [step(loop) for _ in range(5)] == [["a"], ["b"], ["a"], ["b"], []]


def test_the_longest_idle_loses_its_slot_and_is_fed_again() -> None:
    loop = make(num_state_slots=2)
    begin(loop, "a", "b")
    feed(loop, "a")
    loop.run()
    before = tokens(loop, "b")
    loop.submit(request("c"))
    feed(loop, "c")
    assert step(loop) == ["c"]
    assert loop.evicted == ["b"]
    feed(loop, "b", (9.0,))  # it was on its way
    assert step(loop) == []
    feed(loop, "b", FOUR[:2], is_first=True)
    feed(loop, "b", (*FOUR[2:], 5.0), is_last=True)
    loop.run()
    expect_whole(loop, "b", (*FOUR, 5.0))
    assert tokens(loop, "b")[: len(before)] == before
    statistics = loop.scheduler.statistics()
    assert (statistics.num_state_evictions, statistics.num_chunks_again) == (2, 2)
    assert statistics.num_chunks == 6


def test_who_is_fed_again_keeps_its_slot_until_it_is_where_it_was() -> None:
    loop = make(num_state_slots=1)
    begin(loop, "a", "b")
    assert loop.evicted == ["a"]
    feed(loop, "a", FOUR[:2], is_first=True)
    assert step(loop) == ["a"]
    assert loop.evicted == ["a", "b"]
    feed(loop, "b", FOUR, is_first=True)
    assert step(loop) == [], "else two that feed slowly would never come beyond where they were"
    feed(loop, "a", FOUR[2:])
    assert step(loop) == ["a"]
    assert step(loop) == ["b"]


def test_nobody_loses_a_slot_to_an_equal_while_there_is_input() -> None:
    loop = make(num_state_slots=1)
    loop.submit(request("a"))
    loop.submit(request("b"))
    for name in ("a", "a", "b"):
        feed(loop, name)
    assert [step(loop), step(loop)] == [["a"], ["a"]]
    assert not loop.evicted
    assert step(loop) == ["b"]
    assert loop.evicted == ["a"]


def test_a_better_class_takes_a_slot_that_is_used_and_no_idle_one_of_a_better() -> None:
    loop = make(num_state_slots=1)
    loop.submit(request("file", service="batch"))
    feed(loop, "file")
    feed(loop, "file")
    assert step(loop) == ["file"]
    loop.submit(request("live"))
    feed(loop, "live")
    assert step(loop) == ["live"]
    assert loop.evicted == ["file"]
    feed(loop, "file", is_first=True)
    loop.run()
    assert len(loop.transduced[RequestId("live")]) == 1, "idle, it keeps its slot"
    assert loop.scheduler.statistics().num_state_slots == 1
    loop.scheduler.abort(RequestId("live"))
    assert step(loop) == ["file"]


def test_the_results_of_a_lost_slot_are_not_given() -> None:
    loop = make(num_state_slots=1)
    loop.submit(request("file", service="batch"))
    feed(loop, "file")
    loop.plan()
    loop.submit(request("live"))
    feed(loop, "live", is_last=True)
    loop.plan()
    loop.finish()
    assert loop.transduced[RequestId("file")] == []
    loop.finish()
    expect_whole(loop, "live", FOUR)


def test_a_fork_answers_what_follows_its_parent_s_input() -> None:
    loop = make()
    begin(loop, "a")
    feed(loop, "a", (5.0,))
    fork(loop, "a", request("final", logprobs=True))
    feed(loop, "final", (6.0,), is_last=True)
    feed(loop, "a", (7.0, 8.0), is_last=True)
    loop.run()
    expect_whole(loop, "a", (*FOUR, 5.0, 7.0, 8.0))
    events = loop.transduced[RequestId("final")]
    whole = transduced_alone(Transduce(), (*FOUR, 5.0, 6.0))
    expected = [(token, row) for token, row in zip(whole.token_ids, whole.frames, strict=True) if row >= 2]
    assert [pair for each in events for pair in zip(each.token_ids, each.frames, strict=True)] == expected
    assert events[-1].num_frames == 3
    statistics = loop.scheduler.statistics()
    assert (statistics.num_chunks, statistics.num_chunks_forked) == (4, 1)
    assert statistics.num_state_evictions == 0


def test_a_fork_s_states_are_copied_with_the_first_chunk_of_either() -> None:
    loop = make()
    begin(loop, "a", "b")
    fork(loop, "a", request("fork of a"))
    fork(loop, "b", request("fork of b"))
    assert not loop.plan(), "until then it needs none"
    feed(loop, "fork of a")
    feed(loop, "b")
    plan = loop.plan()
    assert plan.copies == (Copy(0, 2), Copy(1, 3))
    loop.finish()
    feed(loop, "fork of b", is_last=True)
    loop.run()
    whole = transduced_alone(Transduce(), FOUR + FOUR)
    assert tokens(loop, "fork of b") == [
        token for token, row in zip(whole.token_ids, whole.frames, strict=True) if row >= 2
    ]


def test_a_fork_without_a_slot_is_told_when_its_parent_goes_on() -> None:
    loop = make(num_state_slots=1)
    begin(loop, "a")
    fork(loop, "a", request("fork"))
    feed(loop, "fork", is_last=True)
    assert step(loop) == [], "its parent has what it needs"
    feed(loop, "a")
    assert step(loop) == ["a"]
    assert loop.evicted == ["fork"]
    feed(loop, "fork", FOUR, is_first=True)
    feed(loop, "fork", (5.0,), is_last=True)
    loop.run()
    expect_whole(loop, "fork", (*FOUR, 5.0))


def test_forks_whose_parent_is_gone_are_told() -> None:
    loop = make()
    begin(loop, "a")
    fork(loop, "a", request("fork"))
    fork(loop, "fork", request("fork of the fork"))
    assert loop.scheduler.abort(RequestId("a"))
    events = loop.scheduler.take_events()
    assert events == [StateEvicted(RequestId("fork")), StateEvicted(RequestId("fork of the fork"))]
    loop.take(events)
    assert loop.scheduler.fork(RequestId("fork"), request("late")) == [StateEvicted(RequestId("late"))]


def test_a_fork_of_what_has_no_input_yet_is_a_request_like_any() -> None:
    loop = make()
    loop.submit(request("a"))
    fork(loop, "a", request("fork"))
    feed(loop, "fork", is_last=True)
    loop.run()
    expect_whole(loop, "fork", FOUR)


def test_what_cannot_be_computed_fails_alone() -> None:
    loop = make()
    loop.submit(request("a"))
    loop.submit(request("b"))
    feed(loop, "a", (1.0, NOT_A_NUMBER))
    feed(loop, "b", is_last=True)
    loop.run()
    failed = loop.outcomes[RequestId("a")]
    assert isinstance(failed, TaskFailed)
    assert failed.fault == "not_finite"
    expect_whole(loop, "b", FOUR)
    with pytest.raises(BadRequestError, match="no request 'a' is being fed"):
        feed(loop, "a")


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (chunk_of(FOUR * 65), "a chunk has 260 frames; allowed: up to 256"),
        (InputChunk(chunk_of(FOUR).features, 5), "num_valid is 5 of 4 frames"),
        (InputChunk(chunk_of(FOUR).features, 3), "num_valid is 3 of 4 frames"),
        (chunk_of(()), "num_valid is 0 of 0 frames"),
        (InputChunk(msgspec.structs.replace(chunk_of(FOUR).features, data=b"no"), 4), "has 2 bytes; needed"),
        (
            InputChunk(msgspec.structs.replace(chunk_of(FOUR).features, encoded="float32"), 4),
            "needed: float32 numbers",
        ),
        (chunk_of(FOUR, is_first=True), "the input has begun"),
    ],
)
def test_a_chunk_that_can_never_be_run_is_refused(chunk: InputChunk, message: str) -> None:
    loop = make()
    begin(loop, "a")
    with pytest.raises(BadRequestError, match=message):
        loop.scheduler.feed(RequestId("a"), chunk)
    feed(loop, "a", is_last=True)
    loop.run()
    expect_whole(loop, "a", FOUR + FOUR)


def test_what_is_fed_too_fast_or_behind_the_end_is_refused() -> None:
    loop = make()
    loop.submit(request("a"))
    for _ in range(CONFIG.max_unread_chunks):
        feed(loop, "a", (1.0, 2.0))
    with pytest.raises(OverloadedError, match="5 chunks of the request wait to be run"):
        feed(loop, "a")
    step(loop)
    feed(loop, "a", (3.0,), is_last=True)
    for refused in (lambda: feed(loop, "a"), lambda: fork(loop, "a", request("fork"))):
        with pytest.raises(BadRequestError, match="the input of the request 'a' has ended"):
            refused()
    loop.run()
    expect_whole(loop, "a", (1.0, 2.0) * 5 + (3.0,))


def test_requests_that_make_no_sense_are_refused() -> None:
    loop = make()
    begin(loop, "a")
    prompt: Any = generate("text")
    session: Any = msgspec.structs.replace(request("b"), session=SessionKey("s"))
    for refused, message in (
        (prompt, "takes no prompts"),
        (session, "has no prompt, items or session"),
        (request("b", lookahead=-1), "lookahead is -1; allowed: at least 0"),
        (request("a"), "request id 'a' is in use"),
    ):
        with pytest.raises(BadRequestError, match=message):
            loop.scheduler.submit(refused)
    for other in (request("b", lookahead=1), request("b", condition=1)):
        with pytest.raises(BadRequestError, match="allowed: those of its parent, 0 and 0"):
            fork(loop, "a", other)
    plain = make_loop()
    for verb in (lambda: plain.submit(request("a")), lambda: feed(plain, "a")):
        with pytest.raises(BadRequestError, match="takes whole inputs"):
            verb()
    with pytest.raises(ValueError, match="num_state_slots is 0; allowed: at least 1"):
        replace(CONFIG, num_state_slots=0)


def test_too_many_that_wait_are_refused_but_forks_are_not() -> None:
    loop = make(max_waiting=2)
    begin(loop, "a")
    loop.submit(request("b"))
    loop.submit(request("c"))
    with pytest.raises(OverloadedError, match="2 requests are waiting"):
        loop.submit(request("d"))
    fork(loop, "a", request("fork"))
    feed(loop, "fork", is_last=True)
    loop.run()
    assert loop.transduced[RequestId("fork")][-1].finish_reason == "stop"


def tokens_from(first: int, frames: tuple[float, ...]) -> list[int]:
    """Those of an input from a row on."""
    whole = transduced_alone(Transduce(), frames)
    return [token for token, row in zip(whole.token_ids, whole.frames, strict=True) if row >= first]


@pytest.mark.parametrize("service", ["live", "interactive"])
def test_a_fork_does_not_begin_in_the_step_that_makes_the_state_it_goes_on_from(service: Service) -> None:
    """However far down the line of forks, and in whichever class."""
    loop = make()
    begin(loop, "a")
    feed(loop, "a", (5.0, 6.0))
    fork(loop, "a", request("b"))
    feed(loop, "b", (7.0, 8.0))
    fork(loop, "b", request("c", service=service))
    feed(loop, "c", (9.0, 1.0), is_last=True)
    loop.run()
    assert tokens(loop, "c") == tokens_from(4, (*FOUR, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0))


def test_a_fork_of_a_fork_that_was_fed_nothing_goes_on_from_where_that_does() -> None:
    loop = make()
    begin(loop, "a")
    fork(loop, "a", request("b"))
    fork(loop, "b", request("c"))
    feed(loop, "c", (7.0, 8.0), is_last=True)
    loop.run()
    assert tokens(loop, "c") == tokens_from(2, (*FOUR, 7.0, 8.0))
    feed(loop, "b", (1.0, 2.0), is_last=True)
    loop.run()
    assert tokens(loop, "b") == tokens_from(2, (*FOUR, 1.0, 2.0))
