"""OpenAI's REST shapes for transcription, models and errors. Knows forms and bodies, not sockets.

A multipart form becomes a `TranscriptionRequest` (the `file` part is the server's business); a
`Transcript` becomes one of five bodies, or a stream of server-sent events. Subtitles are in
`protocols/subtitles.py`, the error tree in `protocols/errors.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from . import subtitles
from .errors import BadRequestError, SensoriumError
from .hints import parse_keywords, parse_language, parse_languages, shown
from .transcript import Segment, Task, Transcript, TranscriptionOptions, Word
from .transcript_view import (
    DetectedLanguage,
    DurationUsage,
    LogProb,
    TokenUsage,
    detected_languages,
    log_probs,
    token_usage,
)

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]

MAX_PROMPT_CHARS: Final = 10_000
MAX_TEMPERATURE: Final = 1.0
MAX_SEED: Final = 2**63 - 1

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""SSE comment; clients ignore it."""
DONE: Final = b"data: [DONE]\n\n"
"""Ends every stream."""

_CONTENT_TYPES: Final[dict[ResponseFormat, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
_LISTS: Final = frozenset({"timestamp_granularities", "include", "languages", "keywords"})
_SCALARS: Final = frozenset(
    {"model", "language", "prompt", "response_format", "temperature", "stream", "chunking_strategy", "seed"}
)
_UNSUPPORTED: Final = frozenset({"known_speaker_names", "known_speaker_references"})


class TranscriptionRequest(Struct, frozen=True, kw_only=True):
    """What a form asks for. `model` None: the client named none."""

    model: str | None
    options: TranscriptionOptions
    response_format: ResponseFormat = "json"
    stream: bool = False


class ChunkingStrategy(Struct, frozen=True):
    """Checked, and without effect: long audio is always cut at quiet places."""

    type: Literal["server_vad"]
    prefix_padding_ms: int | None = None
    silence_duration_ms: int | None = None
    threshold: float | None = None


def parse_transcription_form(
    fields: Iterable[tuple[str, str]], *, task: Task = "transcribe"
) -> TranscriptionRequest:
    """Read the text fields of a transcription (or translation) form.

    `fields` are (name, value) in order, the `file` part left out. Lists may be written `name[]` or
    `name`. Fields nobody defines are ignored, as OpenAI does; those OpenAI defines and no model here
    supports are refused. Raises `BadRequestError` whose `param` names the field.
    """
    scalars, lists = _collect(fields)
    response_format = _response_format(scalars.get("response_format", "json"))
    granularities = _granularities(lists.get("timestamp_granularities", []), response_format)
    _check_chunking_strategy(scalars)
    stream = _boolean("stream", scalars.get("stream", "false"))
    if stream and response_format not in ("json", "text"):
        raise BadRequestError(
            f"`stream` needs `response_format` json or text, not {response_format}", param="stream"
        )
    prompt = scalars.get("prompt", "")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise BadRequestError(f"`prompt` is longer than {MAX_PROMPT_CHARS} characters", param="prompt")
    options = TranscriptionOptions(
        language=parse_language(scalars.get("language", ""), param="language"),
        languages=parse_languages(_filled(lists.get("languages", [])), param="languages"),
        keywords=parse_keywords(_filled(lists.get("keywords", [])), param="keywords"),
        prompt=prompt,
        task=task,
        temperature=_temperature(scalars.get("temperature", "")),
        seed=_seed(scalars.get("seed", "")),
        segment_timestamps=response_format in ("srt", "vtt") or "segment" in granularities,
        word_timestamps="word" in granularities,
        logprobs=_logprobs(lists.get("include", []), response_format),
    )
    return TranscriptionRequest(
        model=scalars.get("model", "").strip() or None,
        options=options,
        response_format=response_format,
        stream=stream,
    )


def _collect(fields: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    scalars: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    for name, value in fields:
        base = name.removesuffix("[]")
        if base in _UNSUPPORTED and value:
            raise BadRequestError(
                f"`{base}` is not supported by the models here", param=base, code="unsupported_parameter"
            )
        if base in _LISTS:
            lists.setdefault(base, []).append(value)
        elif name in _SCALARS or name.startswith("chunking_strategy["):
            if name in scalars:
                raise BadRequestError(f"`{name}` is given twice", param=name)
            scalars[name] = value
    return scalars, lists


def _filled(values: list[str]) -> list[str]:
    """The entries of a list that are not blank: a form sends an empty field for a list without any."""
    return [value for value in values if value.strip()]


def _response_format(value: str) -> ResponseFormat:
    for known in get_args(ResponseFormat):
        if value == known:
            return known  # type: ignore[no-any-return]
    allowed = ", ".join(get_args(ResponseFormat))
    raise BadRequestError(
        f"`response_format` must be one of {allowed}, not {shown(value)}", param="response_format"
    )


def _granularities(values: list[str], response_format: ResponseFormat) -> frozenset[str]:
    param = "timestamp_granularities"
    for value in values:
        if value not in ("word", "segment"):
            raise BadRequestError(f"`{param}` holds word or segment, not {shown(value)}", param=param)
    if response_format == "verbose_json":
        return frozenset(values or ["segment"])
    if values:
        raise BadRequestError(f"`{param}` needs `response_format` verbose_json", param=param)
    return frozenset()


def _logprobs(values: list[str], response_format: ResponseFormat) -> bool:
    for value in values:
        if value != "logprobs":
            raise BadRequestError(f"`include` holds logprobs, not {shown(value)}", param="include")
    if values and response_format != "json":
        raise BadRequestError("`include` needs `response_format` json", param="include")
    return bool(values)


def _check_chunking_strategy(scalars: Mapping[str, str]) -> None:
    """ "auto", a JSON object, or the same object as `chunking_strategy[field]` fields."""
    param = "chunking_strategy"
    nested = {
        name[len(param) + 1 : -1]: value for name, value in scalars.items() if name.startswith(param + "[")
    }
    text = scalars.get(param, "")
    try:
        if nested:
            msgspec.convert(nested, ChunkingStrategy, strict=False)
        elif text not in ("", "auto"):
            msgspec.json.decode(text, type=ChunkingStrategy)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequestError(
            f"`{param}` must be auto or an object with type server_vad", param=param
        ) from None


def _boolean(param: str, value: str) -> bool:
    match value.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0" | "":
            return False
    raise BadRequestError(f"`{param}` must be true or false, not {shown(value)}", param=param)


def _temperature(value: str) -> float:
    if not value.strip():
        return 0.0
    try:
        temperature = float(value)
    except ValueError:
        temperature = math.nan
    if not 0.0 <= temperature <= MAX_TEMPERATURE:
        raise BadRequestError(
            f"`temperature` must be a number from 0 to {MAX_TEMPERATURE:g}, not {shown(value)}",
            param="temperature",
        )
    return temperature


def _seed(value: str) -> int | None:
    text = value.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_SEED):
        raise BadRequestError(
            f"`seed` must be a whole number from 0 to 2^63 - 1, not {shown(value)}", param="seed"
        )
    return int(text)


# --- answers -------------------------------------------------------------------------------------------


class TranscriptionBody(Struct, frozen=True, kw_only=True):
    """`response_format=json`."""

    text: str
    languages: list[DetectedLanguage]
    usage: TokenUsage
    logprobs: list[LogProb] | UnsetType = UNSET


_Plain = TypeVar("_Plain", bound=TranscriptionBody)


class VerboseTranscriptionBody(Struct, frozen=True, kw_only=True):
    """`response_format=verbose_json`; `language` is the code. Segments and words where asked for."""

    task: Task
    language: str
    duration: float
    text: str
    segments: tuple[Segment, ...] | UnsetType = UNSET
    words: tuple[Word, ...] | UnsetType = UNSET
    usage: DurationUsage


class TranscriptTextDelta(Struct, frozen=True, tag_field="type", tag="transcript.text.delta"):
    """SSE: text that follows what was sent before."""

    delta: str


class TranscriptTextDone(
    TranscriptionBody, frozen=True, kw_only=True, tag_field="type", tag="transcript.text.done"
):
    """SSE: the whole text."""


class ModelCard(Struct, frozen=True):
    """One entry of `/v1/models`; `abilities`, `languages` (ISO codes of speech) and `vocab_size` (of models
    that answer prompts) are ours.
    """

    id: str
    created: int
    abilities: tuple[str, ...] = ()
    languages: tuple[str, ...] | UnsetType = UNSET
    vocab_size: int | UnsetType = UNSET
    owned_by: str = "sensorium"
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True):
    """`/v1/models`."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def render_transcript(transcript: Transcript, request: TranscriptionRequest) -> tuple[str, bytes]:
    """(content type, body) of the answer to `request`."""
    body: bytes
    match request.response_format:
        case "json":
            body = msgspec.json.encode(_plain(TranscriptionBody, transcript, request))
        case "verbose_json":
            body = msgspec.json.encode(
                VerboseTranscriptionBody(
                    task=request.options.task,
                    language=transcript.language,
                    duration=transcript.duration,
                    text=transcript.text,
                    segments=transcript.segments if request.options.segment_timestamps else UNSET,
                    words=transcript.words if request.options.word_timestamps else UNSET,
                    usage=DurationUsage(seconds=transcript.duration),
                )
            )
        case "text":
            body = (transcript.text + "\n").encode()
        case "srt":
            body = subtitles.srt(transcript).encode()
        case "vtt":
            body = subtitles.vtt(transcript).encode()
    return _CONTENT_TYPES[request.response_format], body


def _plain(kind: type[_Plain], transcript: Transcript, request: TranscriptionRequest) -> _Plain:
    return kind(
        text=transcript.text,
        languages=detected_languages(transcript),
        usage=token_usage(transcript),
        logprobs=log_probs(transcript) if request.options.logprobs else UNSET,
    )


def delta_event(delta: str) -> bytes:
    """One SSE frame with new text."""
    return _sse(TranscriptTextDelta(delta))


def done_event(transcript: Transcript, request: TranscriptionRequest) -> bytes:
    """The SSE frame with the whole text; `DONE` follows it."""
    return _sse(_plain(TranscriptTextDone, transcript, request))


def error_event(error: SensoriumError) -> bytes:
    """The SSE frame for a failure midway; the stream ends after it."""
    return b"data: " + error_body(error) + b"\n\n"


def error_body(error: SensoriumError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`; the HTTP status is `error.status`."""
    detail = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": detail})


def models_body(cards: Iterable[ModelCard]) -> bytes:
    """The body of `/v1/models`."""
    return msgspec.json.encode(ModelList(list(cards)))


def _sse(event: TranscriptTextDelta | TranscriptTextDone) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
