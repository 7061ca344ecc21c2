"""The client's commands: plain functions that return an exit code, mounted by `actors/commands.py`.

0: done. 1: the server or a transcription failed, one line on standard error says why. 2: wrong usage. Read
next: `client/transcribe_files.py`, `client/listen.py` and `client/bench/bench.py`, which do the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec

from ..protocols.realtime_session import Delay
from .bench.bench import BenchPlan, measure
from .bench.realtime import Dialect
from .bench.report import report
from .bench.text import TextPlan, measure_text, text_report
from .client import Client
from .errors import AudioError, SDKError
from .listen import listen_to
from .requests import FileOptions, SpeechOptions
from .terminal import fail
from .transcribe_files import Format, output_name, stream_files, transcribe_files

_NONE: Final = SpeechOptions()


def transcribe(
    files: list[Path],
    /,
    *,
    format: Format = "text",  # noqa: A002 (the option's name)
    model: str | None = None,
    output_dir: Path | None = None,
    stream: bool = False,
    condition_on_previous_text: bool = False,
    vad_filter: bool = False,
    vad_parameters: dict[str, float] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    options: SpeechOptions = _NONE,
) -> int:
    """Transcribe audio files of any kind.

    Examples:

        sensorium transcribe talk.mp3
        sensorium transcribe *.wav --format srt --output-dir subtitles
        cat talk.ogg | sensorium transcribe -

    Parameters
    ----------
    files
        Audio files, or - for standard input.
    format
        text, json (with segments and words; of several files one line each, JSON Lines), srt or vtt.
    model
        One of the server's models; its default if not given.
    output_dir
        Write one file per input there instead of standard output.
    stream
        Show the text while it is being transcribed (format text only).
    condition_on_previous_text
        Answer each half minute of a long file with the text before it in mind: slower, and names and terms
        stay the same.
    vad_filter
        Leave out what is no speech.
    vad_parameters
        How, as --vad-parameters.threshold 0.6 and so on: threshold, min_speech_duration_ms,
        min_silence_duration_ms, speech_pad_ms.
    base_url
        Address of the server.
    api_key
        Key for the server.
    """
    if not files:
        return _usage("name at least one audio file, or - for standard input")
    if stream and (format != "text" or output_dir is not None):
        return _usage("--stream is for --format text on standard output")
    missing = [file for file in files if str(file) != "-" and not file.is_file()]
    if missing:
        return _usage(f"{'not a file' if missing[0].exists() else 'no such file'}: {missing[0]}")
    if output_dir is not None:
        names = [output_name(file, format) for file in files]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            return _usage(f"two inputs would be written to {output_dir / repeated[0]}")

    own = {
        "model": model,
        "condition_on_previous_text": condition_on_previous_text or None,
        "vad_filter": vad_filter or bool(vad_parameters) or None,
        "vad_parameters": vad_parameters,
    }
    asked = cast(FileOptions, {**options, **own})

    def run() -> int:
        with Client(base_url, api_key) as client:
            if stream:
                return stream_files(client, files, asked)
            return transcribe_files(client, files, format, asked, output_dir)

    return _guarded(run)


def listen(
    source: Path | None = None,
    /,
    *,
    model: str | None = None,
    delay: Delay | None = None,
    json: bool = False,
    base_url: str | None = None,
    api_key: str | None = None,
    options: SpeechOptions = _NONE,
) -> int:
    """Transcribe the microphone, or a WAV file at the pace it was spoken, while it goes on.

    Examples:

        sensorium listen
        sensorium listen recording.wav --language en --delay low
        sensorium listen --languages de --languages en --keywords "Ada Lovelace"

    Parameters
    ----------
    source
        PCM16 WAV file to send at real-time pace; the microphone if not given.
    model
        One of the server's models; its default if not given.
    delay
        How long text waits before it is shown: minimal, low, medium, high or xhigh. Less is sooner, more is
        corrected less often; the server's default if not given.
    json
        Write the session's own events, one JSON object a line: where speech starts, deltas, transcripts,
        failures, lost connections.
    base_url
        Address of the server.
    api_key
        Key for the server.
    """

    def run() -> int:
        with Client(base_url, api_key) as client:
            return listen_to(client, source, model, delay, options, as_json=json)

    return _guarded(run)


def models(base_url: str, api_key: str | None) -> int:
    """List the models of a server and what they can do."""

    def run() -> int:
        with Client(base_url, api_key) as client:
            for model in client.models():
                languages = f" · {len(model.languages)} languages" if model.languages else ""
                print(f"{model.id}: {', '.join(model.abilities) or 'unknown'}{languages}")
        return 0

    return _guarded(run)


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
    dialect: Dialect = "sensorium",
    manual_turns: bool = False,
    json: Path | None = None,
    api_key: str | None = None,
) -> int:
    """Measure one or more OpenAI-shaped servers, interleaved, with live sessions or whole files.

    Examples:

        sensorium bench talk.wav --streams 1 --streams 8
        sensorium bench talk.wav --concurrency 8 --base-url http://a:8000 --base-url http://b:8000

    Parameters
    ----------
    recordings
        WAV files; what is said is read from a .json of the same name if there is one (for WER).
    base_url
        Server to measure; repeat it to compare several in one run.
    streams
        Paced live sessions at a time; repeat it for several levels. The first recording is spoken.
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
    dialect
        openai sends live audio as JSON for servers that take no binary frames; vllm speaks vLLM's own
        realtime events, and ends each spoken turn itself as --manual-turns does.
    manual_turns
        Commit after each spoken turn instead of letting the server detect turns.
    json
        Also write everything measured to this file.
    api_key
        Key for the servers.
    """
    if not recordings:
        return _usage("name at least one WAV file")
    if min([rounds, requests, seconds, *(streams or []), *(concurrency or [])]) <= 0:
        return _usage("--rounds, --requests, --streams, --concurrency and --seconds are above 0")
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
        dialect=dialect,
        manual_turns=manual_turns,
        api_key=api_key,
    )

    def run() -> int:
        result = anyio.run(measure, plan, backend="trio")
        return _tell(report(result), result, json)

    return _guarded(run)


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
    """Measure text generation of one or more OpenAI-shaped servers, interleaved.

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
        Length of the prompts that are decoded from.
    output_tokens
        Tokens each request makes, whatever the model would rather do.
    prefill_tokens
        Length of the prompt whose prefill is measured.
    shared_prefix_tokens
        What two requests share, to measure the prefix cache.
    image_side
        Also show the same square image twice, this many pixels wide (vision models).
    max_token_id
        Random prompts are made of ids below this: at most the size of the models' vocabulary, which is asked
        of the servers if not given (150,000 where none tells it).
    rounds
        Rounds per server; the spread is taken over them.
    model
        One of the server's models; the first one listed if not given.
    json
        Also write everything measured to this file.
    api_key
        Key for the servers.
    """
    if min([rounds, prompt_tokens, output_tokens - 1, prefill_tokens, *(concurrency or [])]) <= 0:
        return _usage("--rounds, --concurrency and token counts are above 0, --output-tokens above 1")
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
            partial(measure_text, plan, lambda text: print(text, file=sys.stderr)), backend="trio"
        )
        return _tell(text_report(result), result, json)

    return _guarded(run)


def mount(app: Any) -> None:  # noqa: ANN401 (cyclopts is not in the base install)
    """Register the commands with a cyclopts App."""
    from cyclopts import Parameter

    Parameter(name="*")(SpeechOptions)  # its fields are options of their own
    # A lone hyphen is standard input, not an option.
    app.command(transcribe, default_parameter=Parameter(negative=(), allow_leading_hyphen=True))
    app.command(listen)
    app.command(bench)
    app.command(bench_text)


def _tell(text: str, result: msgspec.Struct, json: Path | None) -> int:
    """Print what was measured, and write all of it to a file that was asked for."""
    print(text)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return 0


def _guarded(command: Callable[[], int]) -> int:
    """Run a command; what a person can act on becomes one line and an exit code."""
    try:
        return command()
    except AudioError as error:
        fail(error)
        return 2
    except BrokenPipeError:
        raise  # nobody reads what we print
    except (SDKError, OSError) as error:
        fail(error)
        return 1
    except ValueError as error:
        return _usage(error)


def _usage(message: object) -> int:
    fail(message)
    return 2
