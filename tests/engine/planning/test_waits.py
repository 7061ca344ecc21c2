"""What a request waits for is known, and it goes on when its owner has it."""

from __future__ import annotations

from sensorium.engine.planning.waits import WAITS
from sensorium.protocols.engine.messages import InputChunk, KvSource, Request, RequestId, Transduce
from support.fake_runner import item
from support.fake_transducer import FRAMES_PER_ROW, chunk_of
from support.scheduler_dialogs import align, generate, make_loop
from support.step_loop import StepLoop


def waits(loop: StepLoop) -> dict[str, int]:
    """How many requests wait for what, once a step was planned; those that wait for nothing are left out."""
    plan = loop.plan()
    counts = {name: getattr(loop.scheduler.statistics(), f"num_waits_{name}") for name in WAITS}
    if plan:
        loop.finish()
    return {name: count for name, count in counts.items() if count}


def expect_answered(loop: StepLoop, num: int) -> None:
    loop.run()
    assert len(loop.ends) + len(loop.outcomes) == num
    assert waits(loop) == {}


def test_for_a_slot() -> None:
    loop = make_loop(max_running=1)
    for name in ("a", "b", "c"):
        loop.submit(generate(name))
    assert waits(loop) == {"slot": 2}
    expect_answered(loop, 3)


def test_for_blocks() -> None:
    loop = make_loop(num_blocks=4)
    loop.submit(generate("a", tuple(range(1, 12)), max_tokens=3))
    loop.submit(generate("b", tuple(range(20, 31)), max_tokens=3))
    assert waits(loop) == {"blocks": 1}
    expect_answered(loop, 2)


def test_for_blocks_that_another_computes() -> None:
    loop = make_loop(max_tokens_per_step=9)
    loop.submit(generate("a", tuple(range(1, 31)), max_tokens=2))
    loop.submit(generate("b", tuple(range(1, 31)), max_tokens=2))
    assert waits(loop) == {"prefix": 1}
    expect_answered(loop, 2)


def test_for_an_encoding() -> None:
    loop = make_loop(max_encodes_per_step=1)
    for slot, name in enumerate("ABC"):
        loop.scheduler.encode(slot, item(name).features)
    loop.submit(generate("a", on="A"), 0)
    loop.submit(generate("b", on="B"), 1)
    loop.submit(align("c"), 2)
    assert waits(loop) == {"encoding": 2}
    expect_answered(loop, 3)


def test_for_blocks_of_another_engine() -> None:
    """It goes on when the transfer has ended, here by its failure."""
    loop = make_loop()
    loop.submit(generate("a", tuple(range(1, 12)), kv_from=KvSource("nowhere", 8)))
    assert waits(loop) == {"transfer": 1}
    expect_answered(loop, 1)


def test_for_input() -> None:
    loop = make_loop(num_state_slots=1, max_running=1, input_frames_per_row=FRAMES_PER_ROW)

    def feed(name: str, chunk: InputChunk) -> None:
        loop.scheduler.feed(RequestId(name), chunk)

    for name in ("a", "b"):
        loop.submit(Request(RequestId(name), (), Transduce()))
    assert waits(loop) == {"input": 2}
    for name in ("a", "b"):
        feed(name, chunk_of((1.0, 2.0)))
    assert waits(loop) == {"slot": 1}
    assert loop.scheduler.statistics().num_waits_input == 1
    loop.run()
    assert loop.evicted == ["a"]
    feed("b", chunk_of((), is_last=True))
    feed("a", chunk_of((1.0, 2.0), is_last=True, is_first=True))
    loop.run()
    assert {name: events[-1].finish_reason for name, events in loop.transduced.items()} == {
        "a": "stop",
        "b": "stop",
    }
    assert waits(loop) == {}
