"""Host time of one engine step without a device: the scheduler with a stub in the runner's place.

    python examples/benchmarks/bench_scheduler.py [--running 256] [--history 1000] [--in-flight 2]

Prints the median and 99th percentile of `schedule()` (making the plan included) and of `update()`, once all
requests decode, and of the steps in which they are admitted with cold and with cached prefixes.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from collections import deque
from collections.abc import Sequence

from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import Request, RequestId, Sample, SamplingParams, TokensSampled

BLOCK_SIZE = 16
_ID = RequestId("stub")


def stub(plan: Plan) -> StepResult:
    """One token for every sequence that samples."""
    sampled = tuple(TokensSampled(_ID, (7,) if step.answers else ()) for step in plan.sequences)
    return StepResult(plan.step, sampled)


class Bench:
    """A scheduler, its stub, and the times of both calls in microseconds."""

    def __init__(self, *, num_running: int, num_history: int, num_in_flight: int, num_steps: int) -> None:
        max_tokens = num_steps + 100
        blocks = num_running * (-(-(num_history + max_tokens) // BLOCK_SIZE)) + 1
        self.scheduler = Scheduler(
            SchedulerConfig(
                num_blocks=2 * blocks,
                block_size=BLOCK_SIZE,
                max_context=num_history + max_tokens,
                max_running=num_running,
                max_waiting=2 * num_running,
                max_tokens_per_step=num_running * num_history,
            )
        )
        self.num_running = num_running
        self.num_history = num_history
        self.sampling = SamplingParams(max_tokens=max_tokens)
        self.num_in_flight = num_in_flight
        self.in_flight: deque[Plan] = deque()
        self.schedule_us: list[float] = []
        self.update_us: list[float] = []

    def submit(self, name: str) -> None:
        """Requests whose prompts share nothing; the same ones for every `name`."""
        for number in range(self.num_running):
            prompt = tuple(range(number, number + self.num_history))
            self.scheduler.submit(Request(RequestId(f"{name} {number}"), prompt, Sample(self.sampling)), None)

    def step(self) -> None:
        """One call of each, as many plans in flight as there may be."""
        start = time.perf_counter()
        plan = self.scheduler.schedule()
        self.schedule_us.append(1e6 * (time.perf_counter() - start))
        if plan:
            self.in_flight.append(plan)
        if len(self.in_flight) >= self.num_in_flight or not plan:
            result = stub(self.in_flight.popleft())
            start = time.perf_counter()
            self.scheduler.update(result)
            self.update_us.append(1e6 * (time.perf_counter() - start))

    def settle(self, name: str) -> None:
        """Abort everything."""
        for number in range(self.num_running):
            self.scheduler.abort(RequestId(f"{name} {number}"))
        while self.in_flight or self.scheduler.num_in_flight:
            self.step()


def line(name: str, times_us: Sequence[float]) -> str:
    """Median and 99th percentile."""
    ordered = sorted(times_us)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{name:34} p50 {statistics.median(ordered):8.0f} µs   p99 {p99:8.0f} µs   ({len(ordered)} calls)"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--history", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    bench = Bench(
        num_running=options.running,
        num_history=options.history,
        num_in_flight=options.in_flight,
        num_steps=options.steps,
    )
    print(f"{platform.machine()}, Python {platform.python_version()}, {options.running} requests")
    bench.submit("cold")
    bench.step()
    print(line("schedule, all prompts cold", bench.schedule_us))
    for _ in range(options.in_flight + 1):
        bench.step()
    bench.schedule_us.clear()
    bench.update_us.clear()
    gc.collect()
    gc.freeze()
    for _ in range(options.steps):
        bench.step()
    print(line("schedule, all decoding", bench.schedule_us))
    print(line("update, all decoding", bench.update_us))
    both = [one + other for one, other in zip(bench.schedule_us, bench.update_us, strict=True)]
    print(line("both", both))
    bench.settle("cold")
    bench.submit("cached")
    bench.schedule_us.clear()
    bench.step()
    print(line("schedule, all prompts cached", bench.schedule_us))


if __name__ == "__main__":
    main()
