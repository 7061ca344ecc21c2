"""`sensorium bench` and `bench-text`: options → a plan, and its result on the terminal and in a file.

Plain functions that return an exit code, as those of `client/cli/commands.py`, which mounts them. Read next:
`client/bench/bench.py` and `client/bench/text.py`, which measure.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import anyio
import msgspec

from ...protocols.transcription.options import Delay
from ..terminal import guarded, usage, write
from .bench import BenchPlan, measure
from .realtime import Dialect
from .report import report
from .text import TextPlan, measure_text, text_report


def bench(
    recordings: list[Path],
    /,
    *,
    base_url: list[str] | None = None,
    streams: list[int] | None = None,
    seconds: float = 60.0,
    concurrency: list[int] | None = None,
    requests: int = 32,
    rounds: int = 3,
    model: str | None = None,
    language: str | None = None,
    delay: Delay | None = None,
    left_context_ms: int | None = None,
    dialect: Dialect = "sensorium",
    manual_turns: bool = False,
    json: Path | None = None,
    api_key: str | None = None,
) -> int:
    """Measure OpenAI-shaped servers, interleaved, with live sessions or whole files.

    Examples:

        sensorium bench talk.wav --streams 1 --streams 8
        sensorium bench anna.wav ben.wav carla.wav --streams 6
        sensorium bench talk.wav --concurrency 8 --base-url http://a:8000 --base-url http://b:8000

    Parameters
    ----------
    recordings
        WAV files; the spoken words are read from a .json of the same name if there is one (for WER).
    base_url
        Server to measure; repeat it to compare several in one run.
    streams
        Paced live sessions at a time; repeat it for several levels. Each speaks one of the recordings, the
        first one the first, and so on, over and over.
    seconds
        Audio per live session and round.
    concurrency
        Whole-file requests at a time; repeat it for several levels.
    requests
        Whole-file requests per round.
    rounds
        Rounds per server and level; the spread is taken over them.
    model
        One of the server's models; its default if not given.
    language
        Code, tag or name such as en, en-US or english; detected if not given.
    delay
        How long text waits in live sessions before it is shown; the server's default if not given.
    left_context_ms
        Milliseconds of earlier audio as context of live turns; none if not given.
    dialect
        Events of live sessions. openai: audio as JSON, for servers without binary frames; vllm: vLLM's own
        events, with manual turns.
    manual_turns
        Commit after each spoken turn instead of letting the server detect turns.
    json
        Also write everything measured to this file.
    api_key
        Key for the servers: SENSORIUM_CLIENT_API_KEY if not given.
    """
    if not recordings:
        return usage("name at least one WAV file")
    if min([rounds, requests, seconds, *(streams or []), *(concurrency or [])]) <= 0:
        return usage("--rounds, --requests, --streams, --concurrency and --seconds are above 0")
    if dialect == "vllm" and (delay is not None or left_context_ms is not None):
        return usage("vLLM's events know neither --delay nor --left-context-ms")
    plan = BenchPlan(
        recordings=recordings,
        base_urls=base_url or [],
        streams=streams or ([] if concurrency else [8]),
        seconds=seconds,
        concurrency=concurrency or [],
        num_requests=requests,
        num_rounds=rounds,
        model=model,
        language=language,
        delay=delay,
        left_context_ms=left_context_ms,
        dialect=dialect,
        manual_turns=manual_turns,
        api_key=api_key,
    )

    def run() -> int:
        result = anyio.run(measure, plan, backend="trio")
        return _report(report(result), result, json)

    return guarded(run)


def bench_text(
    *,
    base_url: list[str] | None = None,
    concurrency: list[int] | None = None,
    prompt_tokens: int = 128,
    output_tokens: int = 64,
    prefill_tokens: int = 1024,
    shared_prefix_tokens: int = 512,
    image_side: int = 0,
    max_token_id: int | None = None,
    rounds: int = 3,
    model: str | None = None,
    json: Path | None = None,
    api_key: str | None = None,
) -> int:
    """Measure text generation of OpenAI-shaped servers, interleaved.

    Examples:

        sensorium bench-text --base-url http://a:8000 --base-url http://b:8000
        sensorium bench-text --concurrency 1 --concurrency 16 --output-tokens 128

    Parameters
    ----------
    base_url
        Server to measure; repeat it to compare several in one run.
    concurrency
        Requests at a time; repeat it for several levels (1 and 16 if not given).
    prompt_tokens
        Length of the prompts in tokens when decoding is measured.
    output_tokens
        Tokens each request generates; end tokens are ignored.
    prefill_tokens
        Length of the prompt whose prefill is measured.
    shared_prefix_tokens
        Length of the prefix that two requests share, to measure the prefix cache.
    image_side
        Also show the same square image twice, this many pixels wide (vision models).
    max_token_id
        Random prompts are made of ids below this, at most the size of the models' vocabulary; the servers'
        own if not given (150,000 if they do not report it).
    rounds
        Rounds per server; the spread is taken over them.
    model
        One of the server's models; the first one listed if not given.
    json
        Also write everything measured to this file.
    api_key
        Key for the servers: SENSORIUM_CLIENT_API_KEY if not given.
    """
    if min([rounds, prompt_tokens, output_tokens - 1, prefill_tokens, *(concurrency or [])]) <= 0:
        return usage("--rounds, --concurrency and token counts are above 0, --output-tokens above 1")
    if image_side < 0:
        return usage(f"--image-side is {image_side}: expected 0 or more pixels")
    plan = TextPlan(
        base_urls=tuple(base_url or ()),
        model=model,
        concurrency=tuple(concurrency or (1, 16)),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        shared_prefix_tokens=shared_prefix_tokens,
        prefill_tokens=prefill_tokens,
        image_side=image_side,
        max_token_id=max_token_id,
        num_rounds=rounds,
        api_key=api_key,
    )

    def run() -> int:
        result = anyio.run(
            partial(measure_text, plan, lambda text: write(text, out=sys.stderr)), backend="trio"
        )
        return _report(text_report(result), result, json)

    return guarded(run)


def _report(text: str, result: msgspec.Struct, json: Path | None) -> int:
    """Print what was measured, and write all of it to a file that was asked for."""
    write(text)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return 0
