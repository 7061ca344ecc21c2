"""`sensorium transcribe`: several files at a time, one document each, in the order given.

Read next: `client/client.py`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from ...protocols.shared.foreign_options import OF_SPEECH, meant
from ...protocols.transcription.options import Granularity
from ..client import Client
from ..errors import SDKError
from ..requests import FileOptions
from ..server_events import TextDelta, TextSegment
from ..terminal import fail, json_text, one_line, progress_bar, write
from ..upload import is_address, readable

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
Format = Literal["text", "json", "srt", "vtt", "tsv"]

_SUFFIXES: Final[dict[Format, str]] = {
    "text": ".txt",
    "json": ".json",
    "srt": ".srt",
    "vtt": ".vtt",
    "tsv": ".tsv",
}
_OPTIONS: Final = ("format", "output_dir", "stream", *FileOptions.__annotations__)
_SERVED: Final = "it is an option of sensorium serve"
_WORDS: Final = "words and their times are in `format` json"
_ALIGNED: Final = "no second model aligns words; their times are in `format` json"
_STREAMED: Final = "`stream` shows the text while it is transcribed"
_DETECTOR: Final = "there is one detector of speech, and `vad_filter` uses it"
_THRESHOLD: Final = "it is --vad-parameters.threshold here"
_OF_WHISPER: Final = OF_SPEECH | {
    **dict.fromkeys(("output_format", "f"), "it is called `format` here"),
    "o": "it is called `output_dir` here",
    **dict.fromkeys(("word_timestamps", "without_timestamps", "no_timestamps"), _WORDS),
    **dict.fromkeys(("device", "device_index", "model_dir", "model_directory", "local_files_only"), _SERVED),
    **dict.fromkeys(("model_cache_only", "hf_token"), "models are loaded by sensorium serve"),
    **dict.fromkeys(("fp16", "compute_type"), "it is --dtype of sensorium serve"),
    "threads": "it is --num-threads of sensorium serve",
    **dict.fromkeys(("verbose", "print_progress", "live_transcribe"), _STREAMED),
    **dict.fromkeys(("vad_onset", "vad_offset", "vad_threshold"), _THRESHOLD),
    "vad_method": _DETECTOR,
    "vad_min_speech_duration_ms": "it is --vad-parameters.min_speech_duration_ms here",
    "vad_min_silence_duration_ms": "it is --vad-parameters.min_silence_duration_ms here",
    "vad_speech_pad_ms": "it is --vad-parameters.speech_pad_ms here",
    **dict.fromkeys(("align_model", "no_align", "interpolate_method", "return_char_alignments"), _ALIGNED),
    "segment_resolution": "segments are those of the model",
    "diarize_model": OF_SPEECH["diarize"],
    "chunk_size": OF_SPEECH["chunk_length"],
    "suppress_tokens": "tokens that the model's generation_config.json names are suppressed",
    "prepend_punctuations": "punctuation belongs to the word it touches",
    "append_punctuations": "punctuation belongs to the word it touches",
}
_AT_A_TIME: Final = 4
"""Files in flight: the server works on several at once."""


def fault_of(file: str | Path) -> str | None:
    """What is wrong with a file before it is read; nothing of an address, or standard input."""
    if str(file) == "-" or is_address(file):
        return None
    if file == "" or not Path(file).exists():  # (Path makes the current folder of no name)
        if not str(file).startswith("-"):
            return f"no such file: {file or repr(file)}"
        name = str(file).lstrip("-").partition("=")[0].replace("-", "_")
        hint = re.sub(r"`(\w+)`", _as_option, meant(name, _OPTIONS, _OF_WHISPER))
        return f"there is no option {file}{hint}"
    return f"not a file: {file}" if Path(file).is_dir() else None


def _as_option(name: re.Match[str]) -> str:
    return f"--{name[1].replace('_', '-')}"


def transcribe_files(
    client: Client,
    files: Sequence[str | Path],
    document: Format,
    options: FileOptions,
    output_dir: Path | None,
) -> int:
    """The exit code: 1 if any file failed, each with a line on standard error; the others are delivered."""

    is_line = output_dir is None

    def one(file: str | Path) -> str | SDKError | OSError:
        try:
            return _document(client, file, document, options, is_line=is_line)
        except (SDKError, OSError) as error:
            return error

    failed = False
    with closing(side_by_side(one, files)) as outcomes, progress_bar(len(files)) as advance:
        for file, outcome in zip(files, outcomes, strict=True):
            advance()
            if isinstance(outcome, SDKError | OSError):
                fail(f"{file}: {outcome}")
                failed = True
            else:
                titled = len(files) > 1 and document != "json"
                _deliver(file, outcome, output_dir, document, titled=titled)
    return 1 if failed else 0


def side_by_side(work: Callable[[_Item], _Made], items: Sequence[_Item]) -> Generator[_Made, None, None]:
    """What `work` makes of each, in order, a few at a time.

    Whoever leaves early, as by Ctrl-C, waits for none: they begin nothing more, and end with the process.
    """
    outcomes: list[Future[_Made]] = [Future() for _ in items]
    waiting = deque(zip(items, outcomes, strict=True))

    def run() -> None:
        while True:
            try:
                item, outcome = waiting.popleft()
            except IndexError:
                return
            try:
                outcome.set_result(work(item))
            except BaseException as error:  # (`result` raises it)
                outcome.set_exception(error)

    try:
        for _ in range(min(_AT_A_TIME, len(items))):
            threading.Thread(target=run, name="sensorium-file", daemon=True).start()
        for outcome in outcomes:
            yield outcome.result()
    finally:
        waiting.clear()


def stream_files(client: Client, files: Sequence[str | Path], document: Format, options: FileOptions) -> int:
    """Print the text of one file after the other while it is being transcribed, or (json) a line for each
    segment; the exit code is that of `transcribe_files`."""
    failed = False
    for file in files:
        is_begun = False
        try:
            if document == "json":
                _stream_segments(client, file, options)
                continue
            for event in client.transcribe_stream(_content(file), **options):
                if isinstance(event, TextDelta):
                    write(event.delta, end="")
                    is_begun = True
            print()
        except BrokenPipeError:
            raise  # nobody reads what we print
        except (SDKError, OSError) as error:
            if is_begun:
                print()
            fail(f"{file}: {error}")
            failed = True
    return 1 if failed else 0


def _stream_segments(client: Client, file: str | Path, options: FileOptions) -> None:
    times: list[Granularity] = ["segment", "word"]
    for event in client.transcribe_stream(_content(file), timestamp_granularities=times, **options):
        if isinstance(event, TextSegment):
            shown = {name: getattr(event, name) for name in ("start", "end", "text", "language", "words")}
            write(json_text(msgspec.json.encode({"file": readable(file)} | shown)))


def output_name(file: str | Path, document: Format) -> str:
    """The name of the document of `file` in an output folder."""
    if str(file) == "-":
        stem = "stdin"
    elif is_address(file):
        stem = "data" if file.startswith("data:") else Path(re.split("[?#]", file)[0]).stem
    else:
        stem = Path(file).stem
    return f"{stem}{_SUFFIXES[document]}"


def _document(
    client: Client, file: str | Path, document: Format, options: FileOptions, *, is_line: bool
) -> str:
    """`is_line`: JSON Lines, which name their file."""
    if document != "json":
        return client.transcribe(_content(file), response_format=document, **options)
    transcript = client.transcribe(_content(file), timestamp_granularities=["segment", "word"], **options)
    names = ("text", "language", "languages", "duration", "segments", "words")
    shown = {name: getattr(transcript, name) for name in names}
    if transcript.channels:
        shown["channels"] = [{name: getattr(each, name) for name in names} for each in transcript.channels]
    if is_line:
        return json_text(msgspec.json.encode({"file": readable(file)} | shown))
    return json_text(msgspec.json.format(msgspec.json.encode(shown)))


def _content(file: str | Path) -> str | Path | bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file


def _deliver(file: str | Path, text: str, output_dir: Path | None, document: Format, *, titled: bool) -> None:
    if output_dir is not None:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / output_name(file, document)).write_text(f"{text.rstrip()}\n", "utf-8")
        return
    title = f"== {one_line(readable(file))}\n" if titled else ""
    write(f"{title}{text.rstrip()}")
