"""The device's thread: one and the same, never in the loop's way, waited for when stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import pytest
import trio
from sensorium.actors.inference.client import whole_answer
from sensorium.actors.inference.detokenizer import TextStream
from sensorium.actors.inference.engine import EngineBounds
from sensorium.actors.inference.executor import ThreadWorker, Worker, run_in
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.protocols.engine.messages import Lane, SampleRequest, TextGenerated
from sensorium.protocols.errors import DeviceLostError, InternalError, UnavailableError
from sensorium.testing import InlineWorker
from support.fake_engine import (
    BOUNDS,
    NUM_BLOCKS,
    make_fake_engine,
    make_scheduler_config,
    request,
    run_whole,
)
from support.fake_runner import FakeRunner, answer_alone, decode, item
from trio.testing import MockClock

pytestmark = pytest.mark.slow


class SlowRunner(FakeRunner):
    """Takes real time for a step, and notes in which threads it was used."""

    def __init__(self, step_s: float) -> None:
        super().__init__(num_blocks=NUM_BLOCKS)
        self.step_s = step_s
        self.threads = {threading.current_thread()}
        self.began = threading.Event()
        self.is_executing = False

    def execute(self, plan: Plan) -> StepResult:
        self.threads.add(threading.current_thread())
        self.is_executing = True
        self.began.set()
        time.sleep(self.step_s)
        result = super().execute(plan)
        self.is_executing = False
        return result


class SlowThirdStep(SlowRunner):
    """Two quick steps, then slow ones."""

    def execute(self, plan: Plan) -> StepResult:
        self.step_s = 2.0 if self.num_steps == 2 else self.step_s
        return super().execute(plan)


async def test_a_job_gives_its_result_or_its_error() -> None:
    worker = ThreadWorker()
    assert await run_in(worker, lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        await run_in(worker, lambda: 1 // 0)
    await worker.aclose(grace_s=1.0)


async def test_jobs_run_in_order_and_none_after_closing() -> None:
    worker = ThreadWorker()
    ran: list[int] = []
    third = trio.Event()
    release = threading.Event()
    worker.submit(release.wait, lambda _: None, lambda _: None)
    for number in range(3):
        worker.submit(partial(ran.append, number), lambda _: None, lambda _: None)
    worker.submit(lambda: None, lambda _: third.set(), lambda _: None)
    release.set()
    await third.wait()
    hold = threading.Event()
    worker.submit(hold.wait, lambda _: None, lambda _: None)
    worker.submit(partial(ran.append, 3), lambda _: None, lambda _: None)
    await worker.aclose(grace_s=0.0)
    hold.set()
    await trio.sleep(0.02)
    assert ran == [0, 1, 2]


async def test_one_thread_for_everything_and_the_loop_stays_free() -> None:
    runners: list[SlowRunner] = []

    def make_runner() -> SlowRunner:
        runners.append(SlowRunner(0.2))
        return runners[0]

    engine = make_fake_engine(make_runner, make_worker=ThreadWorker)
    longest_s = 0.0

    async def feel_the_loop() -> None:
        nonlocal longest_s
        while True:
            start = time.perf_counter()
            await trio.sleep(0.001)
            longest_s = max(longest_s, time.perf_counter() - start)

    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        nursery.start_soon(feel_the_loop)
        async with engine.placed([item("A")]) as place:
            answer = await whole_answer(place, request("a", on="A"))
        assert answer.token_ids == answer_alone(request("a"), b"A")[0]
        nursery.cancel_scope.cancel()
    assert len(runners[0].threads) == 1
    assert threading.current_thread() not in runners[0].threads
    assert longest_s < 0.18, "the loop waited for a step"
    busy_s = engine.statistics().busy_s
    assert busy_s >= 6 * 0.2


OVERLAPPED = replace(make_scheduler_config(num_blocks=200), overlap_encoder=True)


def spoken(request: SampleRequest) -> SampleRequest:
    """The same by somebody who speaks."""
    return msgspec.structs.replace(request, lane=Lane("live"))


class Parted(FakeRunner):
    """What is encoded apart takes until three steps are done meanwhile, or for ever."""

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__(num_blocks=OVERLAPPED.num_blocks)
        self.hangs = hangs
        self.steps = threading.Semaphore(0)
        self.threads: dict[bool, set[threading.Thread]] = {False: set(), True: set()}
        self.released = threading.Event()

    def execute(self, plan: Plan) -> StepResult:
        self.threads[plan.is_overlapped].add(threading.current_thread())
        if not plan.is_overlapped:
            self.steps.release()
            time.sleep(0.002)
            return super().execute(plan)
        if self.hangs:
            self.released.wait()
        while self.steps.acquire(blocking=False):
            pass
        for _ in range(3):
            assert self.steps.acquire(timeout=10), "no step was executed meanwhile"
        return super().execute(plan)


async def test_what_is_encoded_apart_has_its_own_thread_until_nobody_speaks() -> None:
    runner = Parted()
    engine = make_fake_engine(lambda: runner, make_worker=ThreadWorker, config=OVERLAPPED)
    speaker = spoken(request("speaker", max_tokens=120))
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with engine.placed() as place, place.run(speaker) as stream:
            await anext(aiter(stream))
            async with engine.placed([item("A")]) as place:
                answer = await whole_answer(place, spoken(request("a", on="A")))
        assert answer.token_ids == answer_alone(request("a"), b"A")[0]
        (encoder_thread,), (step_thread,) = runner.threads[True], runner.threads[False]
        assert encoder_thread.is_alive()
        assert encoder_thread is not step_thread
        while encoder_thread.is_alive():
            await run_whole(engine, request("b", max_tokens=50))
        async with engine.placed([item("B")]) as place:
            answer = await whole_answer(place, request("c", on="B"))
        assert answer.token_ids == answer_alone(request("c"), b"B")[0]
        assert runner.threads == {True: {encoder_thread}, False: {step_thread}}
        nursery.cancel_scope.cancel()
    assert engine.statistics().busy_s > 0


async def test_an_encode_that_hangs_apart_ends_the_engine_as_a_step_does() -> None:
    runners: list[Parted] = []

    def make_runner() -> Parted:
        runners.append(Parted(hangs=not runners))
        return runners[-1]

    engine = make_fake_engine(
        make_runner, make_worker=ThreadWorker, config=OVERLAPPED, bounds=replace(BOUNDS, step_timeout_s=0.3)
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with engine.placed([item("A")]) as place:
            with pytest.raises(UnavailableError, match="is being restarted"):
                await whole_answer(place, spoken(request("a", on="A")))
        runners[0].released.set()
        while engine.health != "ready":  # noqa: ASYNC110 (health gives no event)
            await trio.sleep(0.01)
        assert (await run_whole(engine, request("b"))).token_ids == answer_alone(request("b"))[0]
        nursery.cancel_scope.cancel()


async def test_stopping_waits_for_both_threads_at_once(autojump_clock: MockClock) -> None:
    closing: list[Worker] = []
    are_both = trio.Event()

    class Slow(InlineWorker):
        async def aclose(self, *, grace_s: float) -> None:
            closing.append(self)
            if len(closing) == 2:
                are_both.set()
            with trio.move_on_after(grace_s, shield=True):
                await are_both.wait()

    engine = make_fake_engine(make_worker=lambda: Slow(0.01), config=OVERLAPPED)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with engine.placed([item("A")]) as place:
            await whole_answer(place, spoken(request("a", on="A")))
        start = trio.current_time()
        nursery.cancel_scope.cancel()
    assert len(closing) == 2
    assert trio.current_time() == start, "neither waited for the other one's end"


async def test_time_in_which_two_threads_were_busy_counts_once() -> None:
    class Sleeping(FakeRunner):
        def execute(self, plan: Plan) -> StepResult:
            time.sleep(0.4 if plan.is_overlapped else 0.05)
            return super().execute(plan)

    engine = make_fake_engine(
        lambda: Sleeping(num_blocks=OVERLAPPED.num_blocks), make_worker=ThreadWorker, config=OVERLAPPED
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        start = time.perf_counter()
        async with engine.placed() as place, place.run(spoken(request("speaker", max_tokens=20))) as stream:
            await anext(aiter(stream))
            async with engine.placed([item("A")]) as place:
                await whole_answer(place, spoken(request("a", on="A", max_tokens=1)))
        took_s = time.perf_counter() - start
        assert 0.4 < engine.statistics().busy_s <= took_s + 0.05
        nursery.cancel_scope.cancel()


async def test_stopping_waits_for_the_running_step() -> None:
    runner = SlowRunner(0.2)
    engine = make_fake_engine(lambda: runner, make_worker=ThreadWorker)

    async def complete() -> None:
        with pytest.raises(UnavailableError):
            await run_whole(engine, request("a"))

    async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        askers.start_soon(complete)
        await trio.to_thread.run_sync(runner.began.wait)
        nursery.cancel_scope.cancel()
    assert not runner.is_executing
    engine_thread = next(thread for thread in runner.threads if thread.name.startswith("sensorium"))
    engine_thread.join(1.0)
    assert not engine_thread.is_alive()


async def test_a_thread_that_does_not_end_is_left_behind() -> None:
    worker = ThreadWorker()
    release = threading.Event()
    with trio.move_on_after(0.01):
        await run_in(worker, release.wait)
    start = trio.current_time()
    await worker.aclose(grace_s=0.05)
    assert trio.current_time() - start < 1.0
    release.set()


async def test_a_hung_thread_is_replaced_and_its_result_ignored() -> None:
    release = threading.Event()
    runners: list[SlowRunner] = []

    class Stuck(SlowRunner):
        def execute(self, plan: Plan) -> StepResult:
            if len(runners) == 1:
                self.began.set()
                release.wait()
            return super().execute(plan)

    def make_runner() -> SlowRunner:
        runners.append(Stuck(0.0))
        return runners[-1]

    engine = make_fake_engine(make_runner, make_worker=ThreadWorker, bounds=EngineBounds(step_timeout_s=0.2))
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        with pytest.raises(UnavailableError):
            await run_whole(engine, request("a"))
        release.set()
        while engine.health != "ready":  # noqa: ASYNC110 (health gives no event)
            await trio.sleep(0.01)
        assert (await run_whole(engine, request("b"))).token_ids == answer_alone(request("b"))[0]
        nursery.cancel_scope.cancel()
    assert runners[0].threads.isdisjoint(runners[1].threads)


async def test_a_thread_that_hangs_with_the_devices_memory_ends_the_engine() -> None:
    release = threading.Event()

    class Stuck(SlowRunner):
        def execute(self, plan: Plan) -> StepResult:
            release.wait()
            return super().execute(plan)

    bounds = EngineBounds(step_timeout_s=0.2, survives_hanging=False)
    engine = make_fake_engine(lambda: Stuck(0.0), make_worker=ThreadWorker, bounds=bounds)
    with pytest.RaisesGroup(DeviceLostError):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            with pytest.raises(UnavailableError, match="lost to this process"):
                await run_whole(engine, request("a"))
            assert engine.health == "failed"
            await trio.sleep_forever()
    release.set()


@pytest.mark.parametrize("breaks", ["the actor", "one answer"])
async def test_those_in_flight_learn_of_a_crash_before_the_step_ends(
    breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text cannot be made while the device is busy for long: nobody waits for the device to hear of it."""
    runner = SlowThirdStep(0.0)
    expected: type[Exception] = InternalError
    if breaks == "the actor":
        expected = UnavailableError
        monkeypatch.setattr(TextStream, "put_nowait", break_on_second_message())
    decodes = decode if breaks == "the actor" else break_on_second_token
    engine = make_fake_engine(lambda: runner, make_worker=ThreadWorker, decode=decodes)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with engine.placed() as place, place.run(request("a", max_tokens=100)) as stream:
            with pytest.raises(expected):
                _ = [part async for part in stream]
        assert runner.num_steps == 2, "the third is not done"
        nursery.cancel_scope.cancel()


def break_on_second_message() -> Callable[[TextStream, TextGenerated], bool]:
    """A stream with a defect: it takes one message."""
    put, num_messages = TextStream.put_nowait, 0

    def broken(stream: TextStream, text: TextGenerated) -> bool:
        nonlocal num_messages
        num_messages += 1
        if num_messages > 1:
            raise RuntimeError("no such message")
        return put(stream, text)

    return broken


def break_on_second_token(token_ids: Sequence[int]) -> str:
    """A tokenizer with a defect: it gives one text."""
    if len(token_ids) > 1:
        raise RuntimeError("no such token")
    return decode(token_ids)
