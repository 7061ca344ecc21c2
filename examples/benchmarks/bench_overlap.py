"""Host work per step: the real actors on a stub runner with many running requests, by actor.

    python examples/benchmarks/bench_overlap.py [--requests 256] [--steps 300] [--plans-in-flight 1]

The stub samples a constant token for every sequence and takes no time of its own, so what is measured is
what the loop does between two steps: the scheduler (taking results, planning), the detokenizer (tokens to
text), the executor's hand-over, and what trio needs to switch tasks and wake readers. Times are the loop
thread's own CPU time, so that a busy machine does not count. The garbage collector is on.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio
from sensorium.actors.inference.client import whole_answer
from sensorium.actors.inference.detokenizer import DetokenizerActor
from sensorium.actors.inference.engine import Engine, EngineText
from sensorium.actors.inference.executor import ExecutorActor
from sensorium.actors.inference.scheduler import SchedulerActor
from sensorium.engine.models.info import ModelInfo
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan, SequenceId, StepResult
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import Request, RequestId, Sample, SamplingParams, TokensSampled

BLOCK_SIZE = 16
NUM_PROMPT = 64
VOCABULARY = tuple(f" word{index}".encode() for index in range(1000))


class StubRunner:
    """Answers every plan at once."""

    info = ModelInfo(
        name="stub", folder=Path("stub"), family="qwen3", vocab_size=len(VOCABULARY), max_context=1 << 20
    )
    block_size = BLOCK_SIZE

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._sampled: dict[SequenceId, TokensSampled] = {}

    def execute(self, plan: Plan) -> StepResult:
        """One token for each sequence that samples."""
        known = self._sampled
        for step in plan.sequences:
            if step.sequence_id not in known:
                begin = step.begin
                assert begin is not None
                token_id = step.sequence_id % 1000
                known[step.sequence_id] = TokensSampled(begin.request_id, (token_id,), (-0.5,))
        return StepResult(
            plan.step,
            tuple(
                known[step.sequence_id] if step.answers else TokensSampled(known[step.sequence_id].request_id)
                for step in plan.sequences
            ),
        )


class Stopwatch:
    """Seconds spent inside methods, each without those it calls."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def watch(self, owner: type, method: str, label: str) -> None:
        """Time `owner.method` under `label` from now on."""
        function: Callable[..., object] = getattr(owner, method)

        def timed(*args: object) -> object:
            self._inner.append(0.0)
            start = time.thread_time()
            try:
                return function(*args)
            finally:
                took = time.thread_time() - start
                self.seconds[label] += took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        setattr(owner, method, timed)


def make_engine(num_requests: int, num_steps: int, plans_in_flight: int) -> Engine:
    """An engine with room for all requests at once."""
    blocks_each = -(-(NUM_PROMPT + num_steps + 64) // BLOCK_SIZE)
    config = SchedulerConfig(
        num_blocks=num_requests * blocks_each,
        block_size=BLOCK_SIZE,
        max_context=1 << 20,
        max_running=num_requests,
        max_waiting=num_requests,
        max_tokens_per_step=1 << 16,
        max_plans_in_flight=plans_in_flight,
    )

    def decode(_: object) -> str:
        raise AssertionError("there is a table")

    return Engine(
        "stub",
        lambda: StubRunner(config.num_blocks),
        text=EngineText(decode=decode, byte_table=VOCABULARY),
        config=config,
    )


async def generate(engine: Engine, index: int, max_tokens: int, *, stream: bool) -> None:
    """One request with a prompt of its own, read as it comes or at its end."""
    prompt = tuple((index * 7 + place) % 1000 for place in range(NUM_PROMPT))
    request = Request(
        RequestId(f"r{index}"),
        prompt,
        Sample(SamplingParams(max_tokens=max_tokens, ignore_eos=True, logprobs=0)),
    )
    async with engine.placed() as place:
        if not stream:
            await whole_answer(place, request)
            return
        async with place.run(request) as run:
            async for _ in run:
                pass


async def measure(num_requests: int, num_steps: int, plans_in_flight: int, *, stream: bool) -> None:
    """Run all requests at once and print microseconds per step, once all of them decode."""
    engine = make_engine(num_requests, num_steps, plans_in_flight)
    watch = Stopwatch()
    watch.watch(Scheduler, "schedule", "scheduler: plan")
    watch.watch(Scheduler, "update", "scheduler: take results")
    watch.watch(SchedulerActor, "_handle_message", "scheduler: other messages")
    watch.watch(DetokenizerActor, "_handle_message", "detokenizer")
    watch.watch(ExecutorActor, "_done", "executor: hand over results")
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with trio.open_nursery() as askers:
            for index in range(num_requests):
                askers.start_soon(partial(generate, engine, index, num_steps + 32, stream=stream))
            while engine.statistics().num_decode_tokens < 16 * num_requests:  # noqa: ASYNC110
                await trio.sleep(0.001)
            gc.collect()
            watch.seconds.clear()
            before, start = engine.statistics(), time.thread_time()
            while engine.statistics().num_steps < before.num_steps + num_steps - 64:  # noqa: ASYNC110
                await trio.sleep(0.005)
            elapsed, after = time.thread_time() - start, engine.statistics()
            seconds = dict(watch.seconds)
        nursery.cancel_scope.cancel()
    steps = after.num_steps - before.num_steps
    assert after.num_running == num_requests, "not everybody was running"
    report(seconds, elapsed, steps)


def report(seconds: dict[str, float], loop_s: float, steps: int) -> None:
    """Print microseconds per step."""
    scheduler_s = sum(value for label, value in seconds.items() if label.startswith("scheduler"))
    for label, value in sorted(seconds.items()):
        print(f"{label:34} {value / steps * 1e6:8.0f} µs")
    print(f"{'scheduler together':34} {scheduler_s / steps * 1e6:8.0f} µs")
    rest_s = loop_s - sum(seconds.values())
    print(f"{'trio: task switches, readers':34} {rest_s / steps * 1e6:8.0f} µs")
    print(f"{'loop thread':34} {loop_s / steps * 1e6:8.0f} µs  ({steps} steps)")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--plans-in-flight", type=int, default=1)
    parser.add_argument("--stream", action="store_true", help="read every token as it comes")
    options = parser.parse_args()
    trio.run(lambda: measure(options.requests, options.steps, options.plans_in_flight, stream=options.stream))


if __name__ == "__main__":
    main()
