"""Live sessions with and without somebody else's heaviest request beside them, on a server of our own.

    python examples/benchmarks/bench_lanes.py [--streams 24] [--rounds 2] [--load answers] [--vision FOLDER]
    python examples/benchmarks/bench_lanes.py --model FOLDER --recording TALK.wav --streams 2 --file FILE.wav

Each round is spoken twice at real-time pace: alone, and beside a process that repeats a completion with
`n=64, max_tokens=2000, ignore_eos` (or pushes the backlog of 63 sessions, sends 30 MB of tools, holds 1,000
connections, asks the vision model in FOLDER about one largest image after the other; see
`examples/make_random_qwen3_vl.py`). Rounds interleave, so that a machine that drifts does so for both.
Printed are first partials and finals of both, in milliseconds, and their ratio; about two minutes.

With `--file` it is a file that is transcribed: alone, and then again and again beside the sessions, each time
in other samples. Printed is how long that takes, and first partials and finals beside it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import io
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx
from PIL import Image
from sensorium.client import AsyncClient
from sensorium.client.audio import read_wav
from sensorium.client.bench import files, realtime
from sensorium.client.bench.files import FilesPlan, FilesRound, FileToRead, read_file
from sensorium.client.bench.realtime import RealtimePlan, RealtimeRound, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import read_spoken_turns

TALK: Final = Path(__file__).parents[1] / "data" / "conversation.wav"
HEAVY: Final = {"prompt": "x", "n": 64, "max_tokens": 2000, "ignore_eos": True}
READY: Final = "listening on "
_PR_SET_PDEATHSIG: Final = 1
"""<sys/prctl.h>"""


def end_with_parent() -> None:
    """Called in a child before its program: on Linux it is terminated when the thread that started it ends,
    however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def serving(arguments: Sequence[str], *, is_silent: bool = False) -> Iterator[tuple[str, int]]:
    """A server's address and process id; `is_silent`: its log is not shown."""
    command = [str(Path(sys.executable).with_name("sensorium")), "serve", "--port", "0", *arguments]
    log = subprocess.DEVNULL if is_silent else None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=end_with_parent
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(READY):
                    yield line.removeprefix(READY).strip(), process.pid
                    return
            raise SystemExit("the server did not start")
        finally:
            process.terminate()


async def answers(url: str) -> None:
    """The heaviest completion, again as soon as it is answered."""
    async with httpx.AsyncClient(timeout=None) as http:
        while True:
            (await http.post(f"{url}/v1/completions", json=HEAVY)).raise_for_status()


async def backlog(url: str) -> None:
    """63 sessions that send recorded speech as fast as the server takes it."""
    audio = read_wav(TALK)

    async def push() -> None:
        while True:
            async with AsyncClient(url) as client, client.realtime(sample_rate=audio.rate) as session:
                async for _ in session.transcribe(audio.chunks()):
                    pass

    async with anyio.create_task_group() as tasks:
        for _ in range(63):
            tasks.start_soon(push)


async def tools(url: str) -> None:
    """Chats with one tool whose description has 30 MB; they are refused."""
    function = {"name": "f", "description": "word " * 6_000_000, "parameters": {}}
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": function}],
        }
    ).encode()
    async with httpx.AsyncClient(timeout=None) as http:
        while True:
            answer = await http.post(
                f"{url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 400, answer.text


async def connections(url: str) -> None:
    """A thousand connections that say nothing, opened again as they are closed."""
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def hold() -> None:
        while True:
            async with await anyio.connect_tcp(host, int(port)) as stream:
                with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    await stream.receive()

    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(hold)


async def images(url: str) -> None:
    """Chats about one picture of the most pixels allowed, each time another one."""
    async with httpx.AsyncClient(timeout=None) as http:
        models = (await http.get(f"{url}/v1/models")).json()["data"]
        for number in itertools.count():
            picture = io.BytesIO()
            Image.effect_noise((1448, 1448), 10.0 + number).save(picture, "JPEG")
            data = f"data:image/jpeg;base64,{base64.b64encode(picture.getvalue()).decode()}"
            content = [{"type": "image_url", "image_url": {"url": data}}, {"type": "text", "text": "hi"}]
            body = {
                "model": models[-1]["id"],
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 1,
            }
            (await http.post(f"{url}/v1/chat/completions", json=body)).raise_for_status()


OTHERS: Final = {each.__name__: each for each in (answers, backlog, tools, connections, images)}


@contextmanager
def disturbing(kind: str, url: str) -> Iterator[None]:
    """Somebody else at work, in a process of their own."""
    with subprocess.Popen([sys.executable, __file__, "--be", kind, "--url", url]) as process:
        try:
            yield
            assert process.poll() is None, f"{kind} ended by itself"
        finally:
            process.terminate()


async def measure(url: str, plan: RealtimePlan, num_streams: int, num_rounds: int, other: str) -> None:
    """Both, in turn, and what is printed of them."""
    alone: list[RealtimeRound] = []
    loaded: list[RealtimeRound] = []
    async with AsyncClient(url) as client:
        await realtime.warm_up(client, plan)
        for number in range(num_rounds):
            print(f"round {number + 1} of {num_rounds}", file=sys.stderr)
            alone.append(await realtime.run_round(client, plan, num_streams, seed=2 * number))
            with disturbing(other, url):
                loaded.append(await realtime.run_round(client, plan, num_streams, seed=2 * number + 1))
        metrics = await client.metrics()
    rows = [row for field in ("first_partial_s", "final_s") for row in compared(field, alone, loaded)]
    print(table(["latency in ms", "turns", "alone", f"beside {other}", "ratio"], rows))
    for name in sorted(metrics):
        if name.startswith("sensorium_preemptions"):
            print(f"{name} {metrics[name]:.0f}")
    errors = [error for each in (*alone, *loaded) for error in each.errors]
    print(f"drops: {sum(each.num_drops for each in (*alone, *loaded))}, errors: {errors[:3] or 'none'}")


async def measure_file(
    url: str, plan: RealtimePlan, num_streams: int, num_rounds: int, file: FileToRead
) -> None:
    """How long a file takes alone and beside the sessions, and how late these are."""
    alone, loaded, spoken = FilesRound(1), FilesRound(1), RealtimeRound(num_streams)
    seeds = itertools.count()

    async def transcribe(found: FilesRound) -> None:
        done = await files.run_round(client, FilesPlan((file,), 1), 1, seed=next(seeds))
        found.latency_s += done.latency_s
        found.errors += done.errors

    async def again_and_again() -> None:
        await anyio.sleep(realtime.STAGGER_S)
        while True:
            await transcribe(loaded)

    async with AsyncClient(url) as client:
        await realtime.warm_up(client, plan)
        await transcribe(FilesRound(1))
        for number in range(num_rounds):
            for _ in range(3):
                await transcribe(alone)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(again_and_again)
                spoken.add(await realtime.run_round(client, plan, num_streams, seed=number))
                tasks.cancel_scope.cancel()
    rows = [
        [name, str(len(values)), *(f"{1000 * percentile(values, share):.0f}" for share in (50, 95, 100))]
        for name, values in (
            ("file alone", alone.latency_s),
            (f"file beside {num_streams}", loaded.latency_s),
            ("first partial beside it", spoken.first_partial_s),
            ("final beside it", spoken.final_s),
        )
    ]
    print(
        table(
            [f"latency in ms, {file.audio.duration_s:.0f} s of file", "number", "p50", "p95", "longest"], rows
        )
    )
    errors = [*spoken.errors, *alone.errors, *loaded.errors]
    print(f"drops: {spoken.num_drops}, corrected: {spoken.num_corrections}, errors: {errors[:3] or 'none'}")


def compared(field: str, alone: list[RealtimeRound], loaded: list[RealtimeRound]) -> Iterator[list[str]]:
    """Median and 95th percentile of all turns, without and with the other request."""
    pooled = [[value for each in rounds for value in getattr(each, field)] for rounds in (alone, loaded)]
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
    parser.add_argument("--load", choices=sorted(OTHERS), default="answers")
    parser.add_argument("--vision", type=Path, metavar="FOLDER", help="of a vision model, for images")
    parser.add_argument("--recording", type=Path, default=TALK, help="with its turns in a JSON beside it")
    parser.add_argument("--file", type=Path, metavar="WAV", help="transcribe it beside the sessions")
    parser.add_argument("--be", choices=sorted(OTHERS), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be is not None:
        anyio.run(OTHERS[options.be], options.url)
    spoken = read_spoken_turns(options.recording.with_suffix(".json"))
    recording = Recording(read_wav(options.recording), tuple(spoken))
    if options.load == "images" and options.vision is None:
        parser.error("--load images needs --vision FOLDER")
    models = [options.model, *([str(options.vision), "--max-context", "4096"] if options.vision else [])]
    with serving([*models, "--max-sessions", "128"]) as (url, _):
        plan = RealtimePlan(recording, options.seconds)
        if options.file is None:
            anyio.run(measure, url, plan, options.streams, options.rounds, options.load)
        else:
            file = read_file(options.file)
            anyio.run(measure_file, url, plan, options.streams, options.rounds, file)


if __name__ == "__main__":
    main()
