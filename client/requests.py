"""REST requests and answers as values, shared by the sync and the async client. Knows no sockets.

Read next: `client/client.py`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, Unpack, get_args

import msgspec
from msgspec import UNSET

from ..protocols.embeddings.embeddings import EmbeddingList, floats_of
from ..protocols.realtime.invalid_frames import MALFORMED
from ..protocols.server.models import ModelCard, ModelList
from ..protocols.shared.foreign_options import meant
from ..protocols.transcription.option_table import options_of
from ..protocols.transcription.options import Granularity, RecordingOptions
from ..protocols.transcription.transcript import (
    Coverage,
    Retranscription,
    Segment,
    Task,
    Transcript,
    Word,
    with_words,
)
from ..protocols.transcription.view import DetectedLanguage
from .connection import status_error
from .errors import APIError
from .metrics import parse_metrics
from .options import ClientOptions
from .upload import AudioFile, Part, can_open_again, checked

TranscriptFormat: TypeAlias = Literal["json", "verbose_json"]
TextFormat: TypeAlias = Literal["text", "srt", "vtt", "tsv"]

_T = TypeVar("_T")

Form: TypeAlias = dict[str, str | list[str]]


class FileOptions(RecordingOptions, total=False):
    """What can be asked about a file, streamed or not."""

    model: str | None


class TranscriptOptions(FileOptions, total=False):
    """What can be asked about a whole file. Words and segments have times as far as they are asked for."""

    timestamp_granularities: Sequence[Granularity]


Model: TypeAlias = ModelCard
"""A model the server offers."""


class _Version(msgspec.Struct):
    version: str


class _Segment(msgspec.Struct):
    """A segment as any OpenAI-shaped server may send it: fields can be missing or null."""

    text: str
    start: float = 0.0
    end: float = 0.0
    id: int = 0
    seek: int = 0
    tokens: tuple[int, ...] | None = None
    temperature: float | None = None
    avg_logprob: float | None = None
    compression_ratio: float | None = None
    no_speech_prob: float | None = None
    language: str | None = None
    channel: int | None = None


class _ChannelBody(msgspec.Struct):
    text: str
    language: str | None = None
    languages: list[DetectedLanguage | str] | None = None
    segments: list[_Segment] | None = None
    words: list[Word] | None = None


class _TranscriptBody(_ChannelBody):
    duration: float | str | None = None
    language_probability: float = 1.0
    channels: list[_ChannelBody] | None = None
    coverage: Coverage | None = None
    retranscribed: tuple[Retranscription, ...] = ()


def transcription_form(
    response_format: str, *, stream: bool = False, **options: Unpack[TranscriptOptions]
) -> Form:
    """Form fields of a transcription or translation; what is not given is left to the server.

    Raises ValueError for a text where several are expected, TypeError for an option that does not exist.
    """
    form: Form = {"response_format": response_format}
    for name, value in given(options, TranscriptOptions).items():
        if name == "task":
            continue  # it is the address
        if isinstance(value, tuple):
            form[f"{name}[]"] = [str(each) for each in value]
        elif isinstance(value, Mapping):
            form[name] = msgspec.json.encode(value).decode()
        else:
            form[name] = str(value)
    if stream:
        form["stream"] = "true"
    return form


def given(options: Mapping[str, object], known: type) -> dict[str, object]:
    """The options that say something; those that take several values as tuples.

    Raises ValueError for a text where several are expected, TypeError for a name that `known` has not.
    """
    found: dict[str, object] = {}
    names = options_of(known)
    for name, value in options.items():
        if name not in names:
            hint = meant(name, names) or f"; there are: {', '.join(names)}"
            raise TypeError(f"{name!r} is not an option{hint}")
        if isinstance(value, str) and not names[name].takes_one:
            raise ValueError(f"{name} is {value!r}: expected several, as [{value!r}]")
        if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
            value = tuple(value)
        if value is not None and value not in ("", ()):
            found[name] = value
    return found


def parse_transcript(body: bytes) -> Transcript:
    """The answer to a `json` or `verbose_json` request; `json` leaves all but text and languages empty."""
    answer = _decode(body, _TranscriptBody)
    duration_s = _seconds(answer.duration)
    channels = tuple(_transcript(channel, duration_s) for channel in answer.channels or ())
    transcript = _transcript(answer, duration_s)
    transcript = msgspec.structs.replace(
        transcript,
        channels=channels,
        language_probability=answer.language_probability,
        coverage=answer.coverage or Coverage(),
        retranscribed=answer.retranscribed,
    )
    return with_words(transcript)


def _seconds(duration: float | str | None) -> float:
    """OpenAI has sent it as a text. Raises ValueError for what is no length of time."""
    seconds = float(duration or 0.0)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"`duration` is {duration!r}: expected seconds")
    return seconds


def _transcript(answer: _ChannelBody, duration_s: float) -> Transcript:
    return Transcript(
        text=answer.text,
        language=answer.language or "",
        duration=duration_s,
        languages=tuple(each if isinstance(each, str) else each.code for each in answer.languages or ()),
        segments=tuple(_segment(segment) for segment in answer.segments or ()),
        words=tuple(answer.words or ()),
    )


def parse_embeddings(body: bytes) -> list[list[float]]:
    """The vectors of an answer of `/v1/embeddings`, in order."""
    data = sorted(_decode(body, EmbeddingList).data, key=lambda each: each.index)
    return [
        floats_of(base64.b64decode(each.embedding)) if isinstance(each.embedding, str) else each.embedding
        for each in data
    ]


def parse_models(body: bytes) -> list[Model]:
    """The answer to `/v1/models`."""
    return _decode(body, ModelList).data


def parse_version(body: bytes) -> str:
    """The answer to `/version`."""
    return _decode(body, _Version).version


def check_status(status: int, body: bytes) -> None:
    """Raises APIError for anything but success."""
    if status >= 300:
        raise status_error(status, body)


@dataclass(frozen=True, slots=True)
class Call(Generic[_T]):
    """One request, and how its answer is read: a POST of a form with a file, or of JSON, or a GET."""

    path: str
    parse: Callable[[bytes], _T]
    form: Form | None = None
    file: AudioFile | None = None
    json: bytes | None = None

    @property
    def method(self) -> str:
        """HTTP's word."""
        return "GET" if self.form is None and self.json is None else "POST"

    def to_send(self, options: ClientOptions, part: dict[str, Part] | None) -> dict[str, Any]:
        """Keyword arguments of both of httpx's clients; `part` is the open file."""
        return {
            "method": self.method,
            "url": f"{options.root_url}{self.path}",
            "headers": {"Accept-Encoding": "identity"}
            | options.headers
            | ({} if self.json is None else {"Content-Type": "application/json"}),
            "data": self.form,
            "files": part,
            "content": self.json,
            "timeout": options.timeout_s,
        }

    @property
    def is_repeatable(self) -> bool:
        """It can be sent again: a file object or a pipe has been read by then, and readiness is asked for
        now."""
        return self.path != "/health" and (self.file is None or can_open_again(self.file))

    def result(self, status: int, body: bytes) -> _T:
        """The answer as a value. Raises APIError for anything but success, and what is not understood."""
        check_status(status, body)
        try:
            return self.parse(body)
        except (*MALFORMED, ValueError) as error:
            raise APIError(status, None, None, f"the server's answer is not understood: {error}") from error


MODELS: Final = Call("/v1/models", parse_models)
VERSION: Final = Call("/version", parse_version)
METRICS: Final = Call("/metrics", lambda body: parse_metrics(body.decode()))
HEALTH: Final = Call("/health", bytes)


def embedding(
    texts: str | Sequence[str], model: str | None, dimensions: int | None
) -> Call[list[list[float]]]:
    """The vectors of texts; they come as base64, which is a fifth of what numbers take."""
    fields = {
        "input": texts if isinstance(texts, str) else list(texts),
        "model": model,
        "dimensions": dimensions,
        "encoding_format": "base64",
    }
    return Call("/v1/embeddings", parse_embeddings, json=msgspec.json.encode(fields))


def transcription(
    file: AudioFile, response_format: TranscriptFormat | TextFormat, **options: Unpack[TranscriptOptions]
) -> Call[Transcript | str]:
    """The text of a file: a Transcript, or the document itself for a text format."""
    parse: Callable[[bytes], Transcript | str]
    parse = parse_transcript if response_format.endswith("json") else bytes.decode
    return Call(_route(options), parse, transcription_form(response_format, **options), checked(file))


def streamed_transcription(file: AudioFile, **options: Unpack[TranscriptOptions]) -> Call[None]:
    """The text of a file as events, with segments if times are asked for; their lines are for a
    `StreamDecoder`."""
    response_format = "verbose_json" if options.get("timestamp_granularities") else "json"
    form = transcription_form(response_format, stream=True, **options)
    return Call(_route(options), lambda _: None, form, checked(file))


def _route(options: TranscriptOptions) -> str:
    task = options.get("task") or "transcribe"
    if task not in get_args(Task):
        raise ValueError(f"task is {task!r}: expected {' or '.join(get_args(Task))}")
    return f"/v1/audio/{'translations' if task == 'translate' else 'transcriptions'}"


def _segment(segment: _Segment) -> Segment:
    return Segment(
        id=segment.id,
        seek=segment.seek,
        start=segment.start,
        end=segment.end,
        text=segment.text,
        tokens=segment.tokens or (),
        temperature=segment.temperature or 0.0,
        avg_logprob=segment.avg_logprob or 0.0,
        compression_ratio=segment.compression_ratio or 0.0,
        no_speech_prob=segment.no_speech_prob or 0.0,
        language=segment.language or UNSET,
        channel=UNSET if segment.channel is None else segment.channel,
    )


def _decode(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise APIError(200, None, None, f"the server's answer is not understood: {error}") from error
