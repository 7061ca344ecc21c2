"""Questions over a running video, beside the same questions put as fresh prompts, on a server of our own.

    python examples/make_random_qwen3_vl.py /tmp/small --shape small
    python examples/benchmarks/bench_watching.py /tmp/small [--seconds 60] [--every 10] [--retention 20]

Two frames a second are shown in real time (a frame may not come from the future, so that the time cannot be
made shorter). Every so often a question is asked in the session. With `--fresh` the last question of all is
asked once more as a chat completion with one frame of each pair that the session may remember, as pictures,
and with a salt of its own: what a server does that keeps nothing. A row is of `--row` seconds: the
median of the questions' times to their first text, the longest, tokens that they had to read (their median)
and that the last one's prompt had, pairs shown and encoded, tokens prefilled, keys and values in use, the
server's memory. Then two questions about each of some pictures. `--talk` bounds the conversation's tokens.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import statistics
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import numpy as np
from bench_lanes import serving
from PIL import Image
from sensorium.client import Client, DialogueSession

FPS: Final = 2.0
ANSWER: Final = 4
"""Tokens of an answer."""
PICTURES: Final = 12
"""That are asked about twice, at the end."""
WORDS: Final = "What is going on there now, and what has changed?"
HEAD: Final = (
    "until s",
    "first text ms",
    "longest ms",
    "new tokens",
    "of prompt",
    "pairs",
    "encoded",
    "prefilled",
    "KV blocks",
    "RSS MiB",
    "fresh ms",
    "fresh read",
)
TimedAnswer = tuple[float, int, int]
"""Seconds to the first text, tokens of the prompt, and those of them that were there."""


def film(size: tuple[int, int], first: int = 0) -> Iterator[bytes]:
    """A square that moves over a background that changes: no frame is another's double."""
    width, height = size
    x = np.arange(width)[None, :, None]
    for number in itertools.count(first):
        frame = np.full((height, width, 3), (number * 5 % 200, number // 40 % 200, 60), np.uint8)
        frame = np.where(abs(x - number * 17 % width) < width // 10, 255 - frame, frame).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=90)
        yield file.getvalue()


def timed_answer(session: DialogueSession, pictures: tuple[bytes, ...] = ()) -> TimedAnswer:
    """One question."""
    began = time.monotonic()
    answer = session.ask(WORDS, pictures=pictures, max_output_tokens=ANSWER, temperature=0)
    next(iter(answer), "")
    first_s = time.monotonic() - began
    answer.text()
    usage = answer.usage
    assert usage is not None
    return first_s, usage.input_tokens, usage.input_token_details.cached_tokens


def fresh(url: str, model: str, frames: list[bytes], salt: str) -> TimedAnswer:
    """The same as one prompt that shares nothing."""
    urls = [f"data:image/jpeg;base64,{base64.b64encode(each).decode()}" for each in frames]
    content: list[object] = [{"type": "image_url", "image_url": {"url": each}} for each in urls]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": [*content, {"type": "text", "text": WORDS}]}],
        "max_tokens": 1,
        "temperature": 0,
        "cache_salt": salt,
    }
    began = time.monotonic()
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=300)
    answer.raise_for_status()
    usage = answer.json()["usage"]
    return (
        time.monotonic() - began,
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


def watch(client: Client, options: argparse.Namespace, model: str) -> None:
    """Show and ask, and print what it took."""
    frames = film((options.width, options.width * 3 // 4))
    kept: deque[bytes] = deque(maxlen=round(options.retention * FPS))
    medians: list[float] = []
    print("  ".join(f"{name:>13}" for name in HEAD), flush=True)
    video = {"retention_s": options.retention}
    limits = {"token_limits": {"post_instructions": options.talk}} if options.talk else {}
    keep = {"type": "retention_ratio", "retention_ratio": 0.5, **limits}
    with client.realtime(model, type="realtime", video=video, truncation=keep) as session:
        for _ in range(options.history):
            session.add(WORDS)
            session.add("Nothing so far.", role="assistant")
        before, began, found = client.metrics(), time.monotonic(), list[TimedAnswer]()
        for number in range(1, round(options.seconds * FPS) + 1):
            time.sleep(max(0.0, began + number / FPS - time.monotonic()))
            kept.append(next(frames))
            session.send_frame(kept[-1], round(1000 * number / FPS))
            if number % round(options.every * FPS):
                continue
            found.append(timed_answer(session))
            if number % round(options.row * FPS):
                continue
            now, other = client.metrics(), None
            if options.fresh and number == round(options.seconds * FPS):
                other = fresh(client.options.root_url, model, list(kept)[::2], f"{number}")
            cells = row(f"{number / FPS:.0f}", found, other, round(options.row * FPS / 2), before, now)
            print("  ".join(f"{cell:>13}" for cell in cells), flush=True)
            medians.append(statistics.median(first_s for first_s, _, _ in found))
            before, found = client.metrics(), []
        print(f"the last row's median over the first's: {medians[-1] / medians[0]:.2f}")
    again(client, model, [next(frames) for _ in range(PICTURES)])


def again(client: Client, model: str, pictures: list[bytes]) -> None:
    """Two questions about each picture, in a session of its own."""
    times: tuple[list[float], list[float]] = ([], [])
    for picture in pictures:
        with client.realtime(model, type="realtime") as session:
            times[0].append(timed_answer(session, (picture,))[0])
            times[1].append(timed_answer(session)[0])
    first_ms, second_ms = (1000 * statistics.median(each) for each in times)
    print(
        f"{len(pictures)} pictures: {first_ms:.0f} ms, asked again {second_ms:.1f} ms: "
        f"{second_ms / first_ms:.2f} (medians)"
    )


def row(
    name: str,
    found: list[TimedAnswer],
    other: TimedAnswer | None,
    num_pairs: int,
    before: dict[str, float],
    now: dict[str, float],
) -> list[str]:
    """The questions of some time."""
    encoded, prefilled = (
        now[f"sensorium_{each}_total"] - before[f"sensorium_{each}_total"]
        for each in ("encoder_cache_misses", "prefill_tokens")
    )
    used = now["sensorium_kv_blocks"] - now["sensorium_kv_blocks_free"]
    memory = sum(value for name, value in now.items() if name.endswith("process_resident_memory_bytes"))
    times = [1000 * first_s for first_s, _, _ in found]
    new = [num_read - num_there for _, num_read, num_there in found]
    cells = [
        name,
        f"{statistics.median(times):.0f}",
        f"{max(times):.0f}",
        f"{statistics.median(new):.0f}",
        str(found[-1][1]),
        str(num_pairs),
        f"{encoded:.0f}",
        f"{prefilled:.0f}",
        f"{used:.0f}",
        f"{memory / 2**20:.0f}",
    ]
    return cells if other is None else [*cells, f"{1000 * other[0]:.0f}", str(other[1])]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of a vision model")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two questions")
    parser.add_argument("--retention", type=float, default=20.0, help="seconds that are remembered")
    parser.add_argument("--width", type=int, default=256, help="of a frame, in pixels")
    parser.add_argument("--row", type=float, default=0.0, help="seconds to a row; 0: one question")
    parser.add_argument("--fresh", action="store_true", help="behind the last question, a fresh prompt")
    parser.add_argument(
        "--history", type=int, default=0, help="questions and answers that are there at first"
    )
    parser.add_argument("--talk", type=int, default=0, help="tokens of the conversation; 0: the context")
    parser.add_argument("--kv-memory", default="1GiB")
    parser.add_argument("--max-context", default="8192")
    options = parser.parse_args()
    options.row = options.row or options.every
    serve = [str(options.folder), "--max-context", options.max_context, "--kv-memory", options.kv_memory]
    with serving(serve) as (url, _), Client(url, timeout=300) as client:
        watch(client, options, client.models()[0].id)


if __name__ == "__main__":
    main()
