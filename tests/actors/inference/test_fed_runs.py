"""Requests that are fed: their tokens, forks, input fed again, refusals, ends; here and across a line."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
import trio
from sensorium.actors.inference.client import EngineClient, FedRun
from sensorium.actors.inference.fed_runs import unanswered
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.protocols.engine.messages import (
    RequestId,
    StateEvicted,
    Transduce,
    Transduced,
    TransduceEvent,
)
from sensorium.protocols.errors import (
    BadRequestError,
    InternalError,
    OverloadedError,
    UnavailableError,
)
from support.fake_engine import (
    FED_CONFIG,
    STEP_S,
    counted,
    expect_all_free,
    fed,
    make_fake_engine,
    make_fed_engine,
    request,
    run_whole,
)
from support.fake_runner import FakeRunner
from support.fake_transducer import FRAMES_PER_ROW, NOT_A_NUMBER, chunk_of, transduced_alone
from support.remote_engine import Connection
from trio.testing import MockClock

CRASH = -1.0
"""The runner crashes on a frame of it."""
FRAMES = tuple(map(float, range(1, 12)))


class CrashingRunner(FakeRunner):
    """A fake one that an input can crash."""

    def __init__(self) -> None:
        super().__init__(
            num_blocks=FED_CONFIG.num_blocks,
            block_size=FED_CONFIG.block_size,
            num_state_slots=FED_CONFIG.num_state_slots,
        )

    def execute(self, plan: Plan) -> StepResult:
        """See `FakeRunner.execute`."""
        if any(step.chunk == chunk_of((CRASH,)) for step in plan.transduces):
            raise RuntimeError("the device is gone")
        return super().execute(plan)


@pytest.fixture(params=["one plan", "two plans", "remote"])
async def engine(nursery: trio.Nursery, request: pytest.FixtureRequest) -> AsyncIterator[EngineClient]:
    """A ready engine whose requests are fed; afterwards nothing is held."""
    num_plans = 2 if request.param == "two plans" else 1
    here = make_fed_engine(CrashingRunner, config=replace(FED_CONFIG, max_plans_in_flight=num_plans))
    await nursery.start(here.run)
    if request.param == "remote":
        connection = Connection(here)
        await nursery.start(connection.run)
        yield connection.remote
    else:
        yield here
    await expect_all_free(here)
    assert here.statistics().num_state_slots == 0


def tokens_of(event: TransduceEvent) -> list[tuple[int, int]]:
    """With the row of each."""
    assert isinstance(event, Transduced)
    return list(zip(event.token_ids, event.frames, strict=True))


def expected(frames: Sequence[float], *, start: int = 0) -> list[tuple[int, int]]:
    """All tokens from a frame on."""
    whole = tokens_of(transduced_alone(Transduce(), frames))
    return [(token, row) for token, row in whole if row >= start // FRAMES_PER_ROW]


async def feed(run: FedRun, frames: Sequence[float], *, size: int = 2, is_again: bool = False) -> None:
    """All frames in chunks; the last one ends the input."""
    for start in range(0, len(frames), size):
        part = frames[start : start + size]
        chunk = chunk_of(part, is_last=start + size >= len(frames), is_first=is_again and not start)
        await run.feed(chunk)
        await trio.sleep(2 * STEP_S)


async def fill(run: FedRun, taken: list[float]) -> None:
    """Feed frame after frame until one is refused."""
    for frame in FRAMES:
        await run.feed(chunk_of((frame,)))
        taken.append(frame)


async def expect_next(run: FedRun, kind: type[TransduceEvent]) -> TransduceEvent:
    event = await anext(aiter(run))
    assert isinstance(event, kind)
    return event


async def test_each_chunk_is_answered_as_it_is_heard(autojump_clock: MockClock, engine: EngineClient) -> None:
    times: list[float] = []
    given: list[tuple[int, int]] = []
    task = Transduce(logprobs=True)
    async with engine.placed() as place, place.run(fed("a", task)) as run, trio.open_nursery() as nursery:
        nursery.start_soon(feed, run, FRAMES)
        async for event in run:
            given += tokens_of(event)
            times.append(trio.current_time())
            assert isinstance(event, Transduced)
            assert len(event.logprobs) == len(event.token_ids)
    assert given == expected(FRAMES)
    assert len(times) == 6
    assert times[-1] - times[0] >= 5 * STEP_S, "the first long before the last was fed"


async def test_the_outcome_is_all_that_was_not_iterated_over(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async with engine.placed() as place:
        async with place.run(fed("a")) as run:
            await run.feed(chunk_of(FRAMES[:4]))
            await run.feed(chunk_of(FRAMES[4:], is_last=True))
            outcome = await run.outcome()
        assert tokens_of(outcome) == expected(FRAMES)
        assert outcome == replace_id(transduced_alone(Transduce(), FRAMES))
        async with place.run(fed("a")) as run:
            await run.feed(chunk_of(FRAMES[:4]))
            first = await expect_next(run, Transduced)
            await run.feed(chunk_of(FRAMES[4:], is_last=True))
            assert tokens_of(first) + tokens_of(await run.outcome()) == expected(FRAMES)


def replace_id(event: Transduced) -> Transduced:
    return Transduced(
        RequestId("a"), event.token_ids, event.frames, event.logprobs, event.num_frames, event.finish_reason
    )


async def test_a_fork_answers_what_the_end_would_be_and_its_parent_goes_on(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    async with engine.placed() as place, place.run(fed("a")) as run:
        await run.feed(chunk_of(FRAMES[:4]))
        given = tokens_of(await expect_next(run, Transduced))
        async with run.fork(fed("b")) as fork:
            await run.feed(chunk_of(FRAMES[4:8]))
            await fork.feed(chunk_of((77.0,), is_last=True))
            final = tokens_of(await fork.outcome())
        assert given + final == expected((*FRAMES[:4], 77.0))
        async with run.fork(fed("c")) as nested:
            await nested.feed(chunk_of((55.0,)))
            async with nested.fork(fed("d")) as innermost:
                await innermost.feed(chunk_of((), is_last=True))
                given += tokens_of(await expect_next(run, Transduced))
                assert given + tokens_of(await innermost.outcome()) == expected((*FRAMES[:8], 55.0))
        await run.feed(chunk_of(FRAMES[8:], is_last=True))
        assert given + tokens_of(await run.outcome()) == expected(FRAMES)


async def test_a_fork_outlives_its_parent(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed() as place, trio.open_nursery() as nursery:
        left = trio.Event()

        async def go_on(run: FedRun, *, task_status: trio.TaskStatus[None]) -> None:
            async with run.fork(fed("b")) as fork:
                await fork.feed(chunk_of(FRAMES[4:6]))
                await expect_next(fork, Transduced)
                task_status.started()
                await left.wait()
                await fork.feed(chunk_of(FRAMES[6:], is_last=True))
                assert tokens_of(await fork.outcome()) == expected(FRAMES, start=6)

        async with place.run(fed("a")) as run:
            await run.feed(chunk_of(FRAMES[:4]))
            await nursery.start(go_on, run)
        left.set()


async def test_a_request_that_loses_its_states_is_fed_again_and_gives_all_again(
    autojump_clock: MockClock, engine: EngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    given: list[tuple[int, int]] = []
    async with engine.placed() as place, place.run(fed("idle")) as idle:
        await idle.feed(chunk_of(FRAMES[:6]))
        given += tokens_of(before := await expect_next(idle, Transduced))
        async with trio.open_nursery() as nursery:

            async def speak(name: str) -> None:
                async with place.run(fed(name)) as run, trio.open_nursery() as feeding:
                    feeding.start_soon(feed, run, FRAMES)
                    assert tokens_of(await run.outcome()) == expected(FRAMES)

            for name in "bcd":
                nursery.start_soon(speak, name)
        await idle.feed(chunk_of(FRAMES[6:8]))  # before the eviction is known
        assert await idle.outcome() == StateEvicted(RequestId("idle"))
        async with trio.open_nursery() as feeding:
            feeding.start_soon(lambda: feed(idle, FRAMES, size=3, is_again=True))
            outcome = await idle.outcome()
    assert isinstance(before, Transduced)
    assert isinstance(outcome, Transduced)
    assert tokens_of(outcome) == expected(FRAMES)
    assert given + tokens_of(unanswered(outcome, before.num_frames)) == expected(FRAMES)
    assert (await counted(engine)).num_state_evictions == 1
    assert "idle: its states were evicted" in caplog.text


async def test_refusals_leave_the_request_as_it_was(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed() as place, place.run(fed("a")) as run:
        taken: list[float] = []
        with pytest.raises(OverloadedError, match="5 chunks of the request wait"):
            await fill(run, taken)
        assert len(taken) > FED_CONFIG.max_unread_chunks, "those that run do not wait"
        with pytest.raises(BadRequestError, match="num_valid is 1 of 3 frames"):
            await run.feed(chunk_of(FRAMES[:1], num_padding=2))
        with pytest.raises(BadRequestError, match="lookahead and condition"):
            async with run.fork(fed("b", Transduce(lookahead=1))):
                raise AssertionError("it is no fork")
        with pytest.raises(BadRequestError, match="'a' is in use"):
            async with place.run(fed("a")):
                raise AssertionError("it runs")
        await trio.sleep(10 * STEP_S)
        await run.feed(chunk_of(FRAMES[len(taken) :], is_last=True))
        with pytest.raises(BadRequestError, match="ended"):
            await run.feed(chunk_of(FRAMES))
        assert tokens_of(await run.outcome()) == expected(FRAMES)
        with pytest.raises(BadRequestError, match="ended"):
            await run.feed(chunk_of(FRAMES))
        with pytest.raises(BadRequestError, match="ended"):
            async with run.fork(fed("b")):
                raise AssertionError("nothing is there to go on from")
    with pytest.raises(BadRequestError, match="takes no prompts"):
        await run_whole(engine, request("text"))


async def test_an_engine_of_prompts_cannot_be_fed(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    engine = make_fake_engine()
    await nursery.start(engine.run)
    with pytest.raises(BadRequestError, match="cannot be fed"):
        async with engine.placed() as place, place.run(fed("a")):
            raise AssertionError("it is no such model")


async def test_one_that_fails_alone_says_so(
    autojump_clock: MockClock, engine: EngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine.placed() as place, place.run(fed("a")) as run, place.run(fed("b")) as other:
        await run.feed(chunk_of((1.0, NOT_A_NUMBER)))
        with pytest.raises(InternalError, match="are not numbers"):
            await run.outcome()
        with pytest.raises(BadRequestError, match="ended"):
            await run.feed(chunk_of(FRAMES))
        await other.feed(chunk_of(FRAMES, is_last=True))
        assert tokens_of(await other.outcome()) == expected(FRAMES)
    assert "a request failed alone" in caplog.text


async def test_a_crash_ends_all_that_is_fed(autojump_clock: MockClock, engine: EngineClient) -> None:
    async with engine.placed() as place, place.run(fed("a")) as run, place.run(fed("b")) as other:
        await other.feed(chunk_of(FRAMES[:2]))
        await expect_next(other, Transduced)
        await run.feed(chunk_of((CRASH,)))
        for each in (run, other):
            with pytest.raises(UnavailableError):
                await each.outcome()
        with pytest.raises(UnavailableError):
            await other.feed(chunk_of(FRAMES))
        with pytest.raises(UnavailableError):
            async with other.fork(fed("c")):
                raise AssertionError("nothing is there to go on from")
    await trio.sleep(2.0)
    async with engine.placed() as place, place.run(fed("a")) as run:
        await run.feed(chunk_of(FRAMES, is_last=True))
        assert tokens_of(await run.outcome()) == expected(FRAMES)


async def test_a_cancelled_caller_leaves_nothing_within_one_step(
    autojump_clock: MockClock, engine: EngineClient
) -> None:
    for steps in (0.5, 1.5, 3.5):
        with trio.move_on_after(steps * STEP_S):
            async with (
                engine.placed() as place,
                place.run(fed("a")) as run,
                run.fork(fed("b")) as fork,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(feed, run, FRAMES)
                nursery.start_soon(feed, fork, FRAMES)
        await trio.sleep(STEP_S)
        assert (await counted(engine)).num_state_slots == 0


@dataclass
class Speaker:
    """Feeds one request at its own pace, and again from the beginning when it must; may have it forked."""

    rng: random.Random
    frames: Sequence[float]
    start: int = 0
    """A fork's first frame of its own."""
    next: int = 0
    is_again: bool = False
    has_ended: bool = False
    num_evictions: int = 0
    num_frames: int = 0
    """Rows that were answered, by its parent too."""
    given: list[tuple[int, int]] = field(default_factory=list)
    forks: list[Speaker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next = self.start
        self._is_evicted = trio.Event()

    async def speak(self, run: FedRun) -> None:
        """Until its last answer."""
        async with trio.open_nursery() as forks, trio.open_nursery() as feeding:
            feeding.start_soon(self._feed, run, forks)
            async for event in run:
                if isinstance(event, StateEvicted):
                    self.next, self.is_again, self.has_ended = 0, True, False
                    self.num_evictions += 1
                    self._is_evicted.set()
                else:
                    self.given += tokens_of(unanswered(event, self.num_frames))
                    self.num_frames = max(self.num_frames, event.num_frames)
            feeding.cancel_scope.cancel()

    async def _feed(self, run: FedRun, forks: trio.Nursery) -> None:
        while True:
            if self.has_ended:
                self._is_evicted = trio.Event()
                await self._is_evicted.wait()
            num_evictions, start = self.num_evictions, self.next
            end = min(start + self.rng.randint(1, 4), len(self.frames))
            is_last = end == len(self.frames)
            try:
                await run.feed(chunk_of(self.frames[start:end], is_last=is_last, is_first=self.is_again))
            except OverloadedError:
                await trio.sleep(STEP_S)
                continue
            if num_evictions == self.num_evictions:
                self.next, self.is_again, self.has_ended = end, False, is_last
                if not is_last and len(self.forks) < 2 and self.rng.random() < 0.3:
                    await forks.start(self._fork, run)
                await trio.sleep(self.rng.choice((0.0, 0.5, 2.0, 5.0)) * STEP_S)

    async def _fork(self, run: FedRun, *, task_status: trio.TaskStatus[None]) -> None:
        own = [self.rng.uniform(20, 30) for _ in range(self.rng.randint(0, 5))]
        rows = self.next // FRAMES_PER_ROW
        fork = Speaker(self.rng, [*self.frames[: self.next], *own], start=self.next, num_frames=rows)
        self.forks.append(fork)
        fork.forks = self.forks
        async with run.fork(fed(f"fork {self.rng.random()}")) as forked:
            task_status.started()
            await fork.speak(forked)

    def check(self) -> None:
        """Each token was given once; of a fork those behind its parent's."""
        assert self.given == expected(self.frames, start=self.start)


@pytest.mark.parametrize("seed", range(6))
async def test_forked_and_fed_again_at_random_each_token_is_new_once(
    autojump_clock: MockClock, engine: EngineClient, seed: int
) -> None:
    rng = random.Random(seed)
    speakers = [
        Speaker(random.Random(rng.random()), [rng.uniform(1, 9) for _ in range(rng.randint(1, 25))])
        for _ in range(5)
    ]

    async def speak(name: str, speaker: Speaker) -> None:
        async with engine.placed((), name) as place, place.run(fed(name)) as run:
            await speaker.speak(run)

    async with trio.open_nursery() as nursery:
        for number, speaker in enumerate(speakers):
            nursery.start_soon(speak, f"s{number}", speaker)
    for speaker in speakers:
        for each in (speaker, *speaker.forks):
            each.check()
    assert sum(speaker.num_evictions for speaker in speakers)
