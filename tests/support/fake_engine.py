"""An `Engine` on the fake runner, inline or in a real thread, and what to ask it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import trio
from sensorium.actors.inference.client import EngineClient, whole_answer
from sensorium.actors.inference.engine import Engine, EngineBounds, EngineText
from sensorium.actors.inference.executor import Runner, Worker
from sensorium.actors.inference.grammars import Grammars
from sensorium.actors.runtime.supervisor import RestartPolicy
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.text.detokenizer import Decode
from sensorium.protocols.engine.messages import (
    ContentHash,
    Outcome,
    PromptRequest,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
    TextGenerated,
    Transduce,
    TransduceRequest,
)
from sensorium.protocols.engine.statistics import EngineStatistics
from sensorium.testing import InlineWorker
from support.fake_runner import BYTES_PER_SLOT, INFO, FakeRunner, decode
from support.fake_transducer import FRAMES_PER_ROW

STEP_S = 0.01
NUM_ITEMS = 2
"""Items of the usual size that the encoder cache has room for."""
NUM_BLOCKS = 32
BOUNDS = EngineBounds(max_encoder_bytes=NUM_ITEMS * BYTES_PER_SLOT, grammar_timeout_s=0.5)


def make_scheduler_config(
    *, plans_in_flight: int = 1, num_blocks: int = NUM_BLOCKS, max_context: int = INFO.max_context
) -> SchedulerConfig:
    """Small blocks, few of them."""
    return SchedulerConfig(
        num_blocks=num_blocks,
        block_size=4,
        positions=rotary_positions,
        max_waiting=8,
        max_context=max_context,
        max_plans_in_flight=plans_in_flight,
    )


CONFIG = make_scheduler_config()


def encoder_bytes(num_tokens: int) -> int:
    """What the fake runner says an encoding takes."""
    return BYTES_PER_SLOT


def make_fake_engine(
    make_runner: Callable[[], Runner] | None = None,
    *,
    make_worker: Callable[[], Worker] = lambda: InlineWorker(STEP_S),
    config: SchedulerConfig = CONFIG,
    bounds: EngineBounds = BOUNDS,
    decode: Decode = decode,
    grammars: Grammars | None = None,
) -> Engine:
    """An engine that needs no model; a step takes `STEP_S` of the virtual clock."""
    return Engine(
        "fake",
        make_runner or (lambda: FakeRunner(num_blocks=config.num_blocks, block_size=config.block_size)),
        text=EngineText(decode=decode, grammars=grammars),
        config=config,
        bounds=bounds,
        encoder_bytes=encoder_bytes,
        restart_policy=RestartPolicy(first_delay_s=1.0),
        make_worker=make_worker,
    )


FED_CONFIG = replace(CONFIG, num_state_slots=3, input_frames_per_row=FRAMES_PER_ROW, max_unread_chunks=5)


def make_fed_engine(
    make_runner: Callable[[], Runner] | None = None,
    *,
    make_worker: Callable[[], Worker] = lambda: InlineWorker(STEP_S),
    config: SchedulerConfig = FED_CONFIG,
) -> Engine:
    """An engine whose requests are fed while they run."""

    def make_fed_runner() -> FakeRunner:
        return FakeRunner(
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            num_state_slots=config.num_state_slots,
        )

    return make_fake_engine(make_runner or make_fed_runner, make_worker=make_worker, config=config)


def fed(name: str, task: Transduce | None = None) -> TransduceRequest:
    """A request that is fed."""
    return Request(RequestId(name), (), task or Transduce())


def request(
    name: str,
    prompt: Sequence[int] = (1, 2, 3),
    *,
    on: str | None = None,
    max_tokens: int = 6,
    session: str | None = None,
    stop: str | None = None,
) -> SampleRequest:
    """A request on the item called `on`."""
    return Request(
        RequestId(name),
        tuple(prompt),
        Sample(SamplingParams(max_tokens=max_tokens, stop=() if stop is None else (stop,))),
        encoder_hash=None if on is None else ContentHash(on),
        session=None if session is None else SessionKey(session),
    )


async def run_whole(engine: EngineClient, request: SampleRequest) -> TextGenerated:
    """All of the text of a request without items, in one message."""
    async with engine.placed() as place:
        return await whole_answer(place, request)


async def run_task(engine: EngineClient, request: PromptRequest) -> Outcome:
    """The outcome of a request that does not sample."""
    async with engine.placed() as place, place.run(request) as run:
        return await run.outcome()


async def counted(engine: EngineClient) -> EngineStatistics:
    """What it counts, up to now."""
    await engine.refresh()
    return engine.statistics()


async def expect_all_free(engine: EngineClient) -> None:
    """Within one step of the last departure everything is back: blocks, places, and sessions."""
    await trio.sleep(STEP_S)
    statistics = await counted(engine)
    assert statistics.num_free_blocks == statistics.num_total_blocks == NUM_BLOCKS
    assert (statistics.num_running, statistics.num_waiting, statistics.num_cache_references) == (0, 0, 0)
    assert statistics.num_sessions_parked == 0
