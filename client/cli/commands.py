"""The client's commands: plain functions that return an exit code, mounted by `actors/commands.py`.

0: done. 1: the server or a transcription failed, one line on standard error says why. 2: wrong usage. Read
next: `client/cli/transcribe.py`, `client/cli/listen.py` and `client/cli/watch.py`, which do the work, and
`client/bench/commands.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final, cast

from ...protocols.transcription.form import SUBTITLES, TIMED_TEXTS
from ...protocols.transcription.options import LiveSpeechOptions, RecordingOptions, SubtitleOptions
from ..bench.commands import bench, bench_text
from ..chat.machine import ChatOptions
from ..client import Client
from ..realtime.conversation_machine import DialogueOptions
from ..requests import FileOptions
from ..terminal import guarded, one_line, usage
from .chat import Files, answer_once, converse, read_question
from .embed import embed
from .listen import listen_to
from .option_group import option_group
from .transcribe import Format, fault_of, output_name, stream_files, transcribe_files
from .watch import watch_it

_NO_OPTIONS: Final = RecordingOptions()
_NO_LIVE_OPTIONS: Final = LiveSpeechOptions()
_PATIENCE_S: Final = 4 * 3600.0
"""For the text of hours of speech, which comes when all of it is there. Who will not wait presses Ctrl-C."""


def transcribe(
    files: list[str | Path],
    /,
    *,
    format: Format = "text",  # noqa: A002 (the option's name)
    model: str | None = None,
    output_dir: Path | None = None,
    stream: bool = False,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = _PATIENCE_S,
    options: RecordingOptions = _NO_OPTIONS,
) -> int:
    """Transcribe audio files of any kind.

    Examples:

        sensorium transcribe talk.mp3
        sensorium transcribe *.wav --format srt --output-dir subtitles
        cat talk.ogg | sensorium transcribe -

    Parameters
    ----------
    files
        Audio files, addresses that the server fetches if it may, or - for standard input.
    format
        text, json (with segments and words; a line for each file, JSON Lines, or a document in output_dir),
        srt, vtt, or tsv (segments and their milliseconds).
    model
        One of the server's models; its default if not given.
    output_dir
        Write one file per input there instead of standard output.
    stream
        Show the text while it is being transcribed; with format json a line for each segment.
    base_url
        Address of the server: SENSORIUM_BASE_URL, else http://127.0.0.1:8000, if not given.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    timeout
        Seconds to wait for an answer of the server at most.
    """
    if not files:
        return usage("name at least one audio file, or - for standard input")
    if stream and (format in TIMED_TEXTS or output_dir is not None or options.get("multichannel")):
        return usage("--stream is for --format text or json on standard output, of all channels mixed")
    layout = [name for name in options if name in SubtitleOptions.__annotations__]
    if layout and format not in SUBTITLES:
        return usage(f"--{layout[0].replace('_', '-')} is for --format srt or vtt")
    for fault in filter(None, map(fault_of, files)):
        return usage(fault)
    if output_dir is not None:
        names = [output_name(file, format) for file in files]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            return usage(f"two inputs would be written to {output_dir / repeated[0]}")

    given = {name: value for name, value in options.items() if value is not False}
    requested = cast(FileOptions, {**given, "model": model})
    if options.get("vad_parameters"):
        requested["vad_filter"] = True

    def run() -> int:
        with Client(base_url, api_key, timeout) as client:
            if stream:
                return stream_files(client, files, format, requested)
            return transcribe_files(client, files, format, requested, output_dir)

    return guarded(run)


def listen(
    source: Path | None = None,
    /,
    *,
    model: str | None = None,
    audio_format: str | None = None,
    json: bool = False,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    options: LiveSpeechOptions = _NO_LIVE_OPTIONS,
) -> int:
    """Transcribe the microphone live, or a WAV file at the pace it was spoken.

    Examples:

        sensorium listen
        sensorium listen recording.wav --language en --delay low
        ffmpeg -i rtsp://door -c:a libopus -f webm - | sensorium listen --audio-format audio/webm
        sensorium listen --languages de --languages en --keywords "Ada Lovelace"

    Parameters
    ----------
    source
        PCM16 WAV file to send at real-time pace, or - for standard input (see --audio-format); the microphone
        if not given.
    model
        One of the server's models; its default if not given.
    audio_format
        Send a container as it comes, from standard input or `source`: audio/webm, audio/ogg, audio/mp4,
        audio/mpeg, audio/flac, audio/aac, or auto.
    json
        Write the session's events, one JSON object per line: starts of speech, deltas, transcripts, ends of
        utterances, failures, lost connections.
    base_url
        Address of the server: SENSORIUM_BASE_URL, else http://127.0.0.1:8000, if not given.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    timeout
        Seconds to wait for the server at most: 120 if not given.
    """

    def run() -> int:
        with Client(base_url, api_key, timeout) as client:
            return listen_to(client, source, model, options, audio_format=audio_format, as_json=json)

    return guarded(run)


def chat(
    question: list[str] | None = None,
    /,
    *,
    image: list[str] | None = None,
    video: list[str] | None = None,
    audio: list[str] | None = None,
    model: str | None = None,
    system: str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    reasoning_effort: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> int:
    """Ask a model, or talk with it on a terminal.

    Without a question one is read from standard input; on a terminal that is a conversation, in which Ctrl-C
    ends an answer and Ctrl-D all of it.

    Examples:

        sensorium chat
        sensorium chat "What is in this picture?" --image kitchen.jpg
        git diff | sensorium chat "Write a commit message for this:" -

    Parameters
    ----------
    question
        Question to ask; - is standard input.
    image
        Picture to show with the first question, a file or an address; repeat it for several.
    video
        Clip to show with the first question; repeat it for several.
    audio
        Recording to play with the first question; repeat it for several.
    model
        One of the server's models; the first that answers questions if not given.
    system
        System message of the conversation.
    max_tokens
        The longest answer.
    temperature
        Sampling temperature, 0 to 2.
    reasoning_effort
        How much the model reasons before its answer: none, minimal, low, medium, high or xhigh.
    base_url
        Address of the server: SENSORIUM_BASE_URL, else http://127.0.0.1:8000, if not given.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    timeout
        Seconds to wait for the server at most: 120 if not given.
    """
    files = Files(image or [], video or [], audio or [])
    options: ChatOptions = {
        "model": model,
        "system": system,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "reasoning_effort": reasoning_effort,
    }

    def run() -> int:
        files.check()
        requested = read_question(question or [], sys.stdin)
        if requested == "":
            return usage("the question is empty")
        with Client(base_url, api_key, timeout) as client:
            if requested is None:
                return converse(client, files, options)
            return answer_once(client, requested, files, options)

    return guarded(run)


def watch(
    source: str,
    question: str = "What happens?",
    /,
    *,
    every: float = 10.0,
    model: str | None = None,
    instructions: str | None = None,
    max_output_tokens: int | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
) -> int:
    """Show a film, a camera or the screen to a model, and ask about it again and again.

    Enter sends the question at once; Ctrl-C ends. At the end of a film it is sent a last time.

    Examples:

        sensorium watch film.mp4 "What is the man doing?"
        sensorium watch camera "Is anybody at the door? Answer yes or no." --every 5
        sensorium watch screen "What has changed?" --every 0

    Parameters
    ----------
    source
        A film, camera, screen, or a device such as /dev/video1.
    question
        Question to ask.
    every
        Seconds between two questions; 0 asks on Enter only, and at the end.
    model
        One of the server's models; its default if not given.
    instructions
        System message of the session.
    max_output_tokens
        Longest answer.
    base_url
        Address of the server: SENSORIUM_BASE_URL, else http://127.0.0.1:8000, if not given.
    api_key
        Key for the server: SENSORIUM_CLIENT_API_KEY if not given.
    timeout
        Seconds to wait for the server at most: 120 if not given.
    """
    if every < 0:
        return usage(f"--every is {every:g}: expected 0 or more seconds")
    requested = DialogueOptions(instructions=instructions, max_output_tokens=max_output_tokens)

    def run() -> int:
        with Client(base_url, api_key, timeout) as client:
            return watch_it(client, source, question, model, every, requested)

    return guarded(run)


def models(base_url: str, api_key: str | None) -> int:
    """List the models of a server and what they can do."""

    def run() -> int:
        with Client(base_url, api_key) as client:
            for model in client.models():
                takes = f" · takes {', '.join(model.input_modalities)}" if model.input_modalities else ""
                count = len(model.languages or ())
                languages = f" · {count} language{'s' if count > 1 else ''}" if count else ""
                delays = ", ".join(map(str, model.delays_ms or ()))
                streams = f" · streams, {delays} ms" if delays else ""
                abilities = ", ".join(model.abilities) or "unknown"
                print(one_line(f"{model.id}: {abilities}{takes}{languages}{streams}"))
        return 0

    return guarded(run)


def mount(app: Any) -> None:  # noqa: ANN401 (cyclopts is not in the base install)
    """Register the commands with a cyclopts App."""
    from cyclopts import Parameter

    # No option of theirs is read from the environment but those that `client/options.py` reads.
    usual = Parameter(negative=(), show_env_var=False)
    # A lone hyphen is standard input, not an option.
    with_input = Parameter(negative=(), show_env_var=False, allow_leading_hyphen=True)
    source = Parameter(allow_leading_hyphen=True, validator=_check_source)
    listen.__annotations__["source"] = Annotated[Path | None, source]
    words = Parameter(allow_leading_hyphen=True, validator=_check_words)
    chat.__annotations__["question"] = Annotated[list[str] | None, words]
    transcribe.__annotations__["options"] = option_group(RecordingOptions)
    listen.__annotations__["options"] = option_group(LiveSpeechOptions)
    app.command(transcribe, default_parameter=with_input)
    app.command(listen, default_parameter=usual)
    app.command(chat, default_parameter=with_input)
    app.command(embed, default_parameter=with_input)
    app.command(watch, default_parameter=usual)
    app.command(bench, default_parameter=usual)
    app.command(bench_text, default_parameter=usual)


def _check_source(_: type, value: object) -> None:
    """A source that looks like an option is one that was misspelt."""
    if isinstance(value, Path) and str(value).startswith("-") and str(value) != "-":
        raise ValueError(f"there is no option {value}")


def _check_words(_: type, value: object) -> None:
    """So is a word of a question: nobody means to ask the model for `--temprature`."""
    for word in value if isinstance(value, list) else ():
        if re.fullmatch(r"-[a-z]|--[a-z][a-z0-9-]*(=.*)?", word, re.DOTALL | re.IGNORECASE):
            raise ValueError(f"there is no option {word} (quote the question)")
