"""Chunks of fed requests on a real runner: whatever their cuts, batches, forks, evictions and failures."""

from __future__ import annotations

import random

import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Copy, Plan, SequenceId, TransduceStep
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    Features,
    InputChunk,
    Request,
    RequestId,
    TaskFailed,
    Transduce,
    Transduced,
)
from support.fake_transducer import FRAMES_PER_ROW, chunk_of
from support.feeding import Feeder
from support.step_loop import StepLoop
from support.toy_model import ToyModel
from support.toy_runner import full_above, make
from support.toy_transducer import POISON, ToyTransducer

NUM_SLOTS = 6


def make_runner(model: ToyTransducer | None = None, num_slots: int = NUM_SLOTS) -> Runner:
    torch.set_num_threads(1)
    return Runner(model or ToyTransducer(), num_blocks=1, num_state_slots=num_slots)


def step(
    number: int,
    frames: tuple[float, ...],
    *,
    is_first: bool = True,
    is_last: bool = False,
    num_padding: int = 0,
) -> TransduceStep:
    """A chunk of the request in that slot."""
    task = Transduce(condition=number % 4, logprobs=True)
    chunk = chunk_of(frames, is_last=is_last, num_padding=num_padding)
    return TransduceStep(SequenceId(number), RequestId(f"r{number}"), task, number, chunk, is_first)


def run(runner: Runner, *steps: TransduceStep) -> list[Transduced | TaskFailed]:
    return list(runner.execute(Plan(0, transduces=steps)).transduced)


def alone(task: Transduce, frames: list[float] | tuple[float, ...]) -> Transduced:
    """The answer to a whole input, by a runner of its own."""
    chunk = chunk_of(frames, is_last=True)
    only = TransduceStep(SequenceId(0), RequestId("alone"), task, 0, chunk, is_first=True)
    (found,) = run(make_runner(num_slots=1), only)
    assert isinstance(found, Transduced)
    return found


def draw_frames(rng: random.Random, most: int) -> list[float]:
    return [float(rng.randint(1, 6)) for _ in range(rng.randint(0, most))]


@pytest.mark.parametrize("num_slots", [2, NUM_SLOTS])
@pytest.mark.parametrize("seed", range(4))
def test_cuts_batches_forks_and_evictions_change_no_token(seed: int, num_slots: int) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(
        num_blocks=1,
        num_state_slots=num_slots,
        input_frames_per_row=FRAMES_PER_ROW,
        max_tokens_per_step=rng.choice([4, 100]),
    )
    model = ToyTransducer()
    if rng.random() < 0.5:
        model.before_emit = full_above(2)
    loop = StepLoop(Scheduler(config), make_runner(model, num_slots))
    feeders: list[Feeder] = []
    open_feeders: list[Feeder] = []
    for turn in range(800):
        if len(feeders) < 14 and rng.random() < 0.3:
            feeding = [each for each in open_feeders if not each.has_ended]
            request_id = RequestId(f"r{turn}")
            if feeding and rng.random() < 0.5:
                parent = rng.choice(feeding)
                fork = parent.forked(Request(request_id, (), parent.request.task), draw_frames(rng, 6))
                loop.take(loop.scheduler.fork(parent.request.request_id, fork.request))
                open_feeders.append(fork)
            else:
                task = Transduce(rng.choice([0, 1]), rng.randrange(4), logprobs=True)
                open_feeders.append(Feeder(Request(request_id, (), task), draw_frames(rng, 24), alone))
                loop.submit(open_feeders[-1].request)
            feeders.append(open_feeders[-1])
        for feeder in open_feeders:
            if feeder.request.request_id in loop.evicted:
                loop.evicted.remove(feeder.request.request_id)
                feeder.begin_again(is_again=True)
            elif not feeder.has_ended and rng.random() < 0.5:
                end, chunk = feeder.draw_chunk(rng)
                loop.scheduler.feed(feeder.request.request_id, chunk)
                feeder.fed(end, chunk)
        loop.plan()
        while len(loop.in_flight) > 1 or (loop.in_flight and rng.random() < 0.5):
            loop.finish()
        open_feeders = [each for each in open_feeders if not is_answered(loop, each)]
        if len(feeders) == 14 and not open_feeders:
            break
    assert not open_feeders
    for feeder in feeders:
        events = loop.transduced[feeder.request.request_id]
        feeder.take(events)
        assert [token for event in events for token in event.token_ids] == [
            token for token, _ in feeder.expected()
        ]
        if not feeder.start:
            whole = alone(feeder.request.task, feeder.frames)
            assert [value for event in events for value in event.logprobs] == list(whole.logprobs)
            assert events[-1].num_frames == whole.num_frames
    statistics = loop.scheduler.statistics()
    assert statistics.num_chunks_forked or num_slots == 2
    assert bool(statistics.num_state_evictions) == (num_slots == 2)
    assert any(event.token_ids for events in loop.transduced.values() for event in events)


def is_answered(loop: StepLoop, feeder: Feeder) -> bool:
    events = loop.transduced.get(feeder.request.request_id, [])
    return bool(events and events[-1].finish_reason)


def test_a_step_too_large_is_run_in_parts_and_states_are_those_of_before_it() -> None:
    frames = [(1.0, 2.0, 3.0), (2.0,), (4.0, 4.0), (5.0, 1.0, 2.0, 2.0), (1.0,)]
    expected = [run(make_runner(), *(step(number, each) for number, each in enumerate(frames)))]
    later = [step(number, (3.0, 5.0), is_first=False, is_last=True) for number in range(len(frames))]
    reference = make_runner()
    run(reference, *(step(number, each) for number, each in enumerate(frames)))
    expected.append(run(reference, *later))
    for where in ("before_listen", "before_emit"):
        model = ToyTransducer()
        runner = make_runner(model)
        setattr(model, where, full_above(2))
        assert run(runner, *(step(number, each) for number, each in enumerate(frames))) == expected[0]
        num_listened = model.num_listened
        assert run(runner, *later) == expected[1]
        assert model.num_listened - num_listened <= len(frames), "it has learned how many fit"


def test_what_fits_no_memory_alone_fails_and_takes_none_along() -> None:
    model = ToyTransducer()
    runner = make_runner(model)

    def fail(num: int) -> None:
        if model.num_listened in (2, 3):  # the pair, and its first half
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …")

    model.before_listen = fail
    failed, other = run(runner, step(0, (1.0, 2.0)), step(1, (1.0, 2.0)))
    assert isinstance(failed, TaskFailed)
    assert failed.fault == "out_of_memory"
    assert "2.00 GiB" in failed.error
    assert other == run(make_runner(), step(1, (1.0, 2.0)))[0]


@pytest.mark.parametrize(
    ("frame", "fault", "message"),
    [(POISON, "not_encoded", "index 7 is out of range"), (float("nan"), "not_finite", "not finite")],
)
def test_one_input_at_fault_fails_alone(frame: float, fault: str, message: str) -> None:
    runner = make_runner()
    good = [step(number, (1.0, 2.0, 3.0)) for number in (0, 2, 3)]
    first, failed, *others = run(runner, good[0], step(1, (1.0, frame)), *good[1:])
    assert isinstance(failed, TaskFailed)
    assert failed.fault == fault
    assert message in failed.error
    assert [first, *others] == run(make_runner(), *good)
    assert run(runner, step(1, (4.0, 4.0))) == run(make_runner(), step(1, (4.0, 4.0))), "its slot begins anew"


def test_an_input_ends_without_a_frame_too() -> None:
    runner = make_runner()
    (first,) = run(runner, step(0, (1.0, 2.0)))
    (last,) = run(runner, step(0, (), is_first=False, is_last=True))
    assert isinstance(first, Transduced)
    assert last == Transduced(RequestId("r0"), num_frames=first.num_frames, finish_reason="stop")
    assert run(runner, step(1, (), is_last=True, num_padding=3)) == [
        Transduced(RequestId("r1"), finish_reason="stop")
    ]


def test_a_copy_goes_on_as_its_source_would() -> None:
    runner = make_runner()
    run(runner, step(0, (1.0, 2.0, 3.0)))
    task = Transduce(condition=0, logprobs=True)
    copied = TransduceStep(SequenceId(9), RequestId("r0"), task, 5, chunk_of((7.0, 8.0)))
    result = runner.execute(Plan(1, copies=(Copy(0, 5),), transduces=(copied,)))
    assert list(result.transduced) == run(runner, step(0, (7.0, 8.0), is_first=False))


def test_what_a_model_cannot_take_is_refused() -> None:
    runner = make_runner()
    wide = InputChunk(Features((2, 2), bytes(16)), 2)
    short = InputChunk(Features((1, 2), bytes(4)), 2)
    for slot, task, chunk, message in (
        (0, Transduce(), wide, "features of shape (2, 2) are not"),
        (0, Transduce(), short, "the chunk's features are not those of shape"),
        (0, Transduce(condition=4), chunk_of((1.0,)), "condition is 4; allowed: 0 to 3"),
        (NUM_SLOTS, Transduce(), chunk_of((1.0,)), f"the state slot {NUM_SLOTS} is not one of {NUM_SLOTS}"),
    ):
        only = TransduceStep(SequenceId(0), RequestId("r"), task, slot, chunk, is_first=True)
        (failed,) = run(runner, only)
        assert isinstance(failed, TaskFailed)
        assert message in failed.error
    with pytest.raises(RuntimeError, match="the model takes whole inputs"):
        run(make(ToyModel()), step(0, (1.0,)))
    with pytest.raises(ValueError, match="num_state_slots is 0"):
        make_runner(num_slots=0)


def test_warming_up_runs_a_chunk_and_leaves_nothing() -> None:
    model = ToyTransducer()
    runner = make_runner(model)
    runner.warm_up()
    assert model.num_listened == 1
    assert run(runner, step(0, (1.0, 2.0))) == run(make_runner(), step(0, (1.0, 2.0)))
