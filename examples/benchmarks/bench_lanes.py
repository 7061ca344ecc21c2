"""Live sessions with and without somebody else's heaviest request beside them, on a server of our own.

    python examples/benchmarks/bench_lanes.py [--streams 24] [--rounds 2] [--model tiny-qwen3-asr]

Each round is spoken twice at real-time pace: alone, and beside one client that repeats a completion with
`n=64, max_tokens=2000, ignore_eos`. Rounds interleave, so that a machine that drifts does so for both.
Printed are first partials and finals of both, in milliseconds, and their ratio; about two minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx
from sensorium.client import AsyncClient
from sensorium.client.audio import read_wav
from sensorium.client.bench import realtime
from sensorium.client.bench.realtime import RealtimePlan, RealtimeRound, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import read_spoken_turns

TALK: Final = Path(__file__).parents[1] / "data" / "conversation.wav"
HEAVY: Final = {"prompt": "x", "n": 64, "max_tokens": 2000, "ignore_eos": True}
READY: Final = "listening on "


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[str]:
    """A server's address, for as long as it is needed."""
    command = [str(Path(sys.executable).with_name("sensorium")), "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(READY):
                    yield line.removeprefix(READY).strip()
                    return
            raise SystemExit("the server did not start")
        finally:
            process.terminate()


class Heavy:
    """Somebody who asks for the same again as soon as it is answered."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/completions"
        self.num_tokens = 0

    async def repeat(self) -> None:
        """Until cancelled; a request is read as a stream, so that its tokens count while it runs."""
        body = {**HEAVY, "stream": True, "return_token_ids": True}
        async with httpx.AsyncClient(timeout=None) as http:
            while True:
                async with http.stream("POST", self._url, json=body) as answer:
                    answer.raise_for_status()
                    async for line in answer.aiter_lines():
                        self.num_tokens += line.count('"token_ids"')


async def measure(url: str, plan: RealtimePlan, num_streams: int, num_rounds: int) -> None:
    """Both, in turn, and what is printed of them."""
    alone: list[RealtimeRound] = []
    beside: list[RealtimeRound] = []
    heavy = Heavy(url)
    async with AsyncClient(url) as client:
        await realtime.warm_up(client, plan)
        for number in range(num_rounds):
            print(f"round {number + 1} of {num_rounds}", file=sys.stderr)
            alone.append(await realtime.run_round(client, plan, num_streams, seed=2 * number))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(heavy.repeat)
                beside.append(await realtime.run_round(client, plan, num_streams, seed=2 * number + 1))
                tasks.cancel_scope.cancel()
        metrics = await client.metrics()
    rows = [row for field in ("first_partial_s", "final_s") for row in compared(field, alone, beside)]
    print(table(["latency in ms", "turns", "alone", "beside", "ratio"], rows))
    seconds = sum(each.audio_s for each in beside) / num_streams
    print(f"the other's tokens: {heavy.num_tokens / seconds:.0f} a second")
    for name in sorted(metrics):
        if name.startswith("sensorium_preemptions"):
            print(f"{name} {metrics[name]:.0f}")
    errors = [error for each in (*alone, *beside) for error in each.errors]
    print(f"drops: {sum(each.num_drops for each in (*alone, *beside))}, errors: {errors[:3] or 'none'}")


def compared(field: str, alone: list[RealtimeRound], beside: list[RealtimeRound]) -> Iterator[list[str]]:
    """Median and 95th percentile of all turns, without and with the other request."""
    pooled = [[value for each in rounds for value in getattr(each, field)] for rounds in (alone, beside)]
    for percent in (50, 95):
        without, with_it = (1000 * percentile(values, percent) for values in pooled)
        name = f"{field.removesuffix('_s').replace('_', ' ')} p{percent}"
        yield [name, str(len(pooled[1])), f"{without:.1f}", f"{with_it:.1f}", f"{with_it / without:.2f}"]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of speech per round, at least")
    parser.add_argument("--model", default="tiny-qwen3-asr")
    options = parser.parse_args()
    recording = Recording(read_wav(TALK), tuple(read_spoken_turns(TALK.with_suffix(".json"))))
    with serving([options.model]) as url:
        plan = RealtimePlan(recording, options.seconds)
        anyio.run(measure, url, plan, options.streams, options.rounds)


if __name__ == "__main__":
    main()
