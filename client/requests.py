"""REST requests and answers as values, shared by the sync and the async client. Knows no sockets.

Read next: `client/client.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, TypeVar

import msgspec

from ..protocols.realtime_session import Granularity
from ..protocols.rest import ModelCard, ModelList, TranscriptTextDelta
from ..protocols.transcript import Segment, Transcript, Word
from .connection import status_error
from .errors import APIError

AudioFile: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO
TranscriptFormat: TypeAlias = Literal["json", "verbose_json"]
TextFormat: TypeAlias = Literal["text", "srt", "vtt"]

_T = TypeVar("_T")

Form: TypeAlias = dict[str, str | list[str]]
Part: TypeAlias = tuple[str, bytes | BinaryIO]

TRANSCRIPTIONS: Final = "/v1/audio/transcriptions"
TRANSLATIONS: Final = "/v1/audio/translations"


Model: TypeAlias = ModelCard
"""A model the server offers."""
TextDelta: TypeAlias = TranscriptTextDelta
"""More text of a streamed transcription: append its `delta` to what came before."""


class TextDone(msgspec.Struct, frozen=True, tag_field="type", tag="transcript.text.done"):
    """The whole text of a streamed transcription; the last event. What else servers add is ignored."""

    text: str


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


class _TranscriptBody(msgspec.Struct):
    text: str
    language: str | None = None
    duration: float | str | None = None
    segments: list[_Segment] | None = None
    words: list[Word] | None = None


def transcription_form(
    *,
    model: str | None,
    response_format: str,
    language: str | None = None,
    prompt: str | None = None,
    languages: Sequence[str] = (),
    keywords: Sequence[str] = (),
    temperature: float | None = None,
    timestamp_granularities: Sequence[Granularity] = (),
    stream: bool = False,
) -> Form:
    """Form fields of a transcription or translation; what is not given is left to the server.

    Raises ValueError for a text where several are expected.
    """
    form: Form = {"response_format": response_format}
    optional = {"model": model, "language": language, "prompt": prompt}
    form.update({name: value for name, value in optional.items() if value})
    if temperature is not None:
        form["temperature"] = str(temperature)
    lists = {
        "languages": words("languages", languages),
        "keywords": words("keywords", keywords),
        "timestamp_granularities": tuple(timestamp_granularities),
    }
    form.update({f"{name}[]": list(values) for name, values in lists.items() if values})
    if stream:
        form["stream"] = "true"
    return form


def words(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """The values of an argument that takes several texts. Raises ValueError for one text."""
    if isinstance(values, str):
        raise ValueError(f"{name} is {values!r}: expected several, as [{values!r}]")
    return tuple(values)


@contextlib.contextmanager
def open_part(file: AudioFile) -> Iterator[dict[str, Part]]:
    """The file part of a form, open for the duration of the request; paths are read piece by piece.

    Raises OSError for a path that cannot be read.
    """
    if isinstance(file, bytes):
        yield {"file": ("audio", file)}
    elif isinstance(file, str | os.PathLike):
        path = Path(file)
        with path.open("rb") as opened:
            yield {"file": (path.name, opened)}
    else:
        name = getattr(file, "name", None)
        yield {"file": (Path(name).name if isinstance(name, str) else "audio", file)}


def parse_transcript(body: bytes) -> Transcript:
    """The answer to a `json` or `verbose_json` request; `json` leaves all but the text empty."""
    answer = _decode(body, _TranscriptBody)
    return Transcript(
        text=answer.text,
        language=answer.language or "",
        duration=float(answer.duration or 0.0),
        segments=tuple(_segment(segment) for segment in answer.segments or ()),
        words=tuple(answer.words or ()),
    )


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


class StreamDecoder:
    """Lines of a server-sent event stream → text events. Comments (keep-alives) and `[DONE]` are silent."""

    def __init__(self) -> None:
        self._decoder: msgspec.json.Decoder[TextDelta | TextDone] = msgspec.json.Decoder(TextDelta | TextDone)

    def feed(self, line: str) -> TextDelta | TextDone | None:
        """The event in one line, without its line end. Raises APIError for an error the server streams."""
        if not line.startswith("data:"):
            return None
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return None
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError:
            self._check_error(data)
            return None  # an event of a type this version does not know

    def _check_error(self, data: str) -> None:
        try:
            payload = msgspec.json.decode(data)
        except msgspec.DecodeError:
            return
        if isinstance(payload, dict) and "error" in payload:
            raise status_error(500, data.encode())


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
    )


def _decode(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise APIError(200, None, None, f"the server's answer is not understood: {error}") from error
