"""An engine's lives: what a crash or a hung device does to what is in flight, and how it ends."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import trio
import trio.lowlevel
from sensorium.actors.config.server import STEP_TIMEOUT_S
from sensorium.actors.inference.client import whole_answer
from sensorium.actors.inference.engine import Engine
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.protocols.engine.messages import Align, ContentHash, Request, RequestId
from sensorium.protocols.errors import InternalError, ModelLoadError, UnavailableError
from sensorium.testing import InlineWorker
from support.fake_engine import (
    CONFIG,
    NUM_BLOCKS,
    STEP_S,
    expect_all_free,
    make_fake_engine,
    make_scheduler_config,
    request,
    run_task,
    run_whole,
)
from support.fake_runner import CRASH_ID, FakeRunner, answer_alone, item
from trio.testing import MockClock


def align(name: str) -> Request[Align]:
    return Request(RequestId(name), (1, 2, 3, 4, 5), Align(2, 4, 10), encoder_hash=ContentHash(name))


def health(engine: Engine) -> str:
    """As a call, so that it may differ from one to the next."""
    return engine.health


in_flight = pytest.mark.parametrize("num_plans", [1, 2])


@in_flight
async def test_a_crash_fails_what_is_in_flight_and_the_engine_comes_back(
    autojump_clock: MockClock, nursery: trio.Nursery, num_plans: int
) -> None:
    engine = make_fake_engine(config=make_scheduler_config(plans_in_flight=num_plans))
    await nursery.start(engine.run)
    failed: list[str] = []

    async def complete(name: str, prompt: tuple[int, ...]) -> None:
        try:
            async with engine.placed([item("A")]) as place:
                await whole_answer(place, request(name, prompt, on="A", max_tokens=50))
        except UnavailableError as error:
            failed.append(error.message)

    async with trio.open_nursery() as askers:
        askers.start_soon(complete, "a", (1, 2))
        await trio.sleep(5 * STEP_S)
        askers.start_soon(complete, "b", (1, CRASH_ID))
    assert failed == ["the model fake failed and is being restarted"] * 2
    assert engine.health == "restarting"
    assert engine.inboxes() == ()
    with pytest.raises(UnavailableError, match="the model fake is restarting"):
        await run_whole(engine, request("c"))
    before = engine.statistics()
    assert before.num_steps > 0
    assert before.num_total_blocks == 0
    await trio.sleep(2.0)
    assert engine.statistics().num_restarts == 1
    assert (await run_whole(engine, request("d"))).token_ids == answer_alone(request("d"), None)[0]
    assert engine.statistics().num_steps >= before.num_steps + 6
    assert len(engine.inboxes()) == 4
    await expect_all_free(engine)


async def test_questions_open_at_a_crash_are_answered(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """One waits for room, two align, and hold across the crash, and ask again."""

    class Fragile(FakeRunner):
        def execute(self, plan: Plan) -> StepResult:
            assert not plan.wholes, "the device is on fire"
            return super().execute(plan)

    engine = make_fake_engine(lambda: Fragile(num_blocks=NUM_BLOCKS))
    await nursery.start(engine.run)
    errors: list[str] = []

    async def wait_for_room() -> None:
        with pytest.raises(UnavailableError):
            async with engine.placed([item("C")]):
                raise AssertionError("there is no room")
        errors.append("room")

    async def hold(name: str) -> None:
        async with engine.placed([item(name)]) as place:
            with pytest.raises(UnavailableError):
                await run_task(engine, align(name))
            await trio.sleep(3.0)
            assert engine.health == "ready"
            with pytest.raises(UnavailableError, match="not held"):
                await whole_answer(place, request("late", on=name))
        errors.append(name)

    async with trio.open_nursery() as askers:
        askers.start_soon(hold, "A")
        askers.start_soon(hold, "B")
        await trio.lowlevel.checkpoint()
        askers.start_soon(wait_for_room)
    assert sorted(errors) == ["A", "B", "room"]
    await expect_all_free(engine)


@in_flight
async def test_a_hung_step_fails_what_is_in_flight_and_its_thread_is_left_behind(
    autojump_clock: MockClock, nursery: trio.Nursery, num_plans: int
) -> None:
    workers: list[InlineWorker] = []

    def make_worker() -> InlineWorker:
        workers.append(InlineWorker(STEP_S, hang=None if workers else 4))
        return workers[-1]

    engine = make_fake_engine(
        make_worker=make_worker, config=make_scheduler_config(plans_in_flight=num_plans)
    )
    await nursery.start(engine.run)
    start = trio.current_time()
    with pytest.raises(UnavailableError, match="failed and is being restarted"):
        await run_whole(engine, request("a", max_tokens=50))
    assert STEP_TIMEOUT_S <= trio.current_time() - start < STEP_TIMEOUT_S + 1
    assert health(engine) == "restarting"
    await trio.sleep(2.0)
    assert health(engine) == "ready"
    assert len(workers) == 2
    assert (await run_whole(engine, request("b"))).token_ids == answer_alone(request("b"))[0]
    await expect_all_free(engine)


async def test_sessions_do_not_outlive_a_crash(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    engine = make_fake_engine()
    await nursery.start(engine.run)
    prompt = (1, 2, 3, 4, 5)
    await run_whole(engine, request("a", prompt, session="s"))
    with pytest.raises(UnavailableError):
        await run_whole(engine, request("b", (1, CRASH_ID)))
    await trio.sleep(2.0)
    assert engine.statistics().num_sessions_parked == 0
    again = request("c", (*prompt, 6), session="s")
    assert (await run_whole(engine, again)).token_ids == answer_alone(again)[0]


async def test_a_runner_unlike_its_scheduler_is_not_started() -> None:
    for runner in (FakeRunner(num_blocks=7), FakeRunner(num_blocks=NUM_BLOCKS, block_size=8)):
        engine = make_fake_engine(lambda runner=runner: runner)  # type: ignore[misc]
        with pytest.raises(InternalError, match=f"{runner.num_blocks} blocks of {runner.block_size} tokens"):
            await engine.run()


async def test_a_model_that_cannot_be_loaded_is_told_at_once(autojump_clock: MockClock) -> None:
    def fail() -> FakeRunner:
        raise ModelLoadError("no weights here")

    engine = make_fake_engine(fail)
    with pytest.raises(UnavailableError, match="not loaded yet"):
        _ = engine.info
    with pytest.raises(UnavailableError, match="the model fake is starting"):
        await run_whole(engine, request("a"))
    with pytest.raises(ModelLoadError, match="no weights here"):
        await engine.run()
    assert engine.health == "failed"


async def test_stopping_fails_what_is_open(autojump_clock: MockClock) -> None:
    engine = make_fake_engine()

    async def complete() -> None:
        with pytest.raises(UnavailableError, match="no longer served"):
            await run_whole(engine, request("a", max_tokens=100))

    async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        askers.start_soon(complete)
        await trio.sleep(2 * STEP_S)
        nursery.cancel_scope.cancel()
    assert engine.health == "stopped"


async def test_a_runner_that_broke_is_gone_before_the_next_is_made(autojump_clock: MockClock) -> None:
    """A device has no room for two: nothing that remembers the crash may hold the frames of it."""
    made: list[weakref.ref[FakeRunner]] = []
    alive_before: list[int] = []

    def make_runner() -> FakeRunner:
        alive_before.append(sum(each() is not None for each in made))
        runner = FakeRunner(num_blocks=CONFIG.num_blocks, block_size=CONFIG.block_size)
        made.append(weakref.ref(runner))
        return runner

    gc.collect()
    gc.disable()
    logging.disable(logging.CRITICAL)  # pytest keeps what is logged
    try:
        async with trio.open_nursery() as nursery:
            engine = make_fake_engine(make_runner)
            await nursery.start(engine.run)
            for number in range(3):
                with pytest.raises(UnavailableError):
                    await run_whole(engine, request(f"r{number}", (1, CRASH_ID)))
                await trio.sleep(20.0)
                assert engine.health == "ready"
            nursery.cancel_scope.cancel()
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
    assert alive_before == [0, 0, 0, 0]
