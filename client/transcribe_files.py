"""`sensorium transcribe`: several files at a time, one document each, in the order given.

Read next: `client/client.py`.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal

import msgspec

from .client import Client
from .errors import SDKError
from .requests import FileOptions, TextDelta
from .terminal import fail, progress_bar

Format = Literal["text", "json", "srt", "vtt"]

_SUFFIXES: Final[dict[Format, str]] = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}
_AT_A_TIME: Final = 4
"""Files in flight: the server works on several at once."""


def transcribe_files(
    client: Client,
    files: list[Path],
    document: Format,
    options: FileOptions,
    output_dir: Path | None,
) -> int:
    """The exit code: 1 if any file failed, each with a line on standard error; the others are delivered."""

    is_line = len(files) > 1 and output_dir is None

    def one(file: Path) -> str | SDKError | OSError:
        try:
            return _document(client, file, document, options, is_line=is_line)
        except (SDKError, OSError) as error:
            return error

    failed = False
    with ThreadPoolExecutor(_AT_A_TIME) as threads, progress_bar("transcribing", len(files)) as advance:
        for file, outcome in zip(files, threads.map(one, files), strict=True):
            advance()
            if isinstance(outcome, SDKError | OSError):
                fail(f"{file}: {outcome}")
                failed = True
            else:
                titled = len(files) > 1 and document != "json"
                _deliver(file, outcome, output_dir, document, titled=titled)
    return 1 if failed else 0


def stream_files(client: Client, files: list[Path], options: FileOptions) -> int:
    """Print the text of one file after the other while it is being transcribed."""
    for file in files:
        for event in client.transcribe_stream(_content(file), **options):
            if isinstance(event, TextDelta):
                print(event.delta, end="", flush=True)
        print()
    return 0


def output_name(file: Path, document: Format) -> str:
    """The name of the document of `file` in an output folder."""
    return f"{'stdin' if str(file) == '-' else file.stem}{_SUFFIXES[document]}"


def _document(client: Client, file: Path, document: Format, options: FileOptions, *, is_line: bool) -> str:
    """`is_line`: JSON Lines, which name their file."""
    if document != "json":
        return client.transcribe(_content(file), response_format=document, **options)
    transcript = client.transcribe(_content(file), timestamp_granularities=["segment", "word"], **options)
    names = ("text", "language", "languages", "duration", "segments", "words")
    shown = {name: getattr(transcript, name) for name in names}
    if is_line:
        return msgspec.json.encode({"file": str(file)} | shown).decode()
    return msgspec.json.format(msgspec.json.encode(shown)).decode()


def _content(file: Path) -> Path | bytes:
    return sys.stdin.buffer.read() if str(file) == "-" else file


def _deliver(file: Path, text: str, output_dir: Path | None, document: Format, *, titled: bool) -> None:
    if output_dir is not None:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / output_name(file, document)).write_text(f"{text.rstrip()}\n", "utf-8")
        return
    title = f"== {file}\n" if titled else ""
    print(f"{title}{text.rstrip()}")
