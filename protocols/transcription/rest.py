"""OpenAI's REST shapes for transcription, models and errors. Knows bodies, not sockets.

A `Transcript` becomes one of six bodies, or a stream of server-sent events. The client's form is read by
`protocols/transcription/form.py`; subtitles are in `protocols/transcription/subtitles.py`, the error tree in
`protocols/errors.py`.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..shared.generation import sse
from . import subtitles
from .form import TranscriptionRequest
from .options import ResponseFormat
from .transcript import Coverage, Retranscription, Segment, SpokenText, Task, TimedSegment, Transcript, Word
from .view import (
    DetectedLanguage,
    DurationUsage,
    LogProb,
    TokenUsage,
    detected_languages,
    log_probs,
    token_usage,
)

_CONTENT_TYPES: Final[dict[ResponseFormat, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
}


class ChannelBody(Struct, frozen=True, kw_only=True):
    """What one channel holds, where each is transcribed for itself. Segments and words where asked for."""

    channel: int
    language: str
    languages: list[DetectedLanguage]
    text: str
    segments: tuple[Segment, ...] | UnsetType = UNSET
    words: tuple[Word, ...] | UnsetType = UNSET


class TranscriptionBody(Struct, frozen=True, kw_only=True):
    """`response_format=json`."""

    text: str
    languages: list[DetectedLanguage]
    usage: TokenUsage
    logprobs: list[LogProb] | UnsetType = UNSET
    channels: list[ChannelBody] | UnsetType = UNSET


_Plain = TypeVar("_Plain", bound=TranscriptionBody)


class VerboseTranscriptionBody(Struct, frozen=True, kw_only=True):
    """`response_format=verbose_json`; `language` is the code of the main one, `language_probability` how sure
    the model was of it: of one that a client named it is asked only in doubt. Segments and words where asked
    for. `coverage` says how the words and the speech account for each other, where that is known,
    `retranscribed` what was transcribed again."""

    task: Task
    language: str
    language_probability: float
    languages: list[DetectedLanguage]
    duration: float
    text: str
    segments: tuple[Segment, ...] | UnsetType = UNSET
    words: tuple[Word, ...] | UnsetType = UNSET
    channels: list[ChannelBody] | UnsetType = UNSET
    coverage: Coverage | UnsetType = UNSET
    retranscribed: tuple[Retranscription, ...] | UnsetType = UNSET
    usage: DurationUsage


class TranscriptTextDelta(Struct, frozen=True, tag_field="type", tag="transcript.text.delta"):
    """SSE: text that follows what was sent before, and with `include[]=logprobs` its tokens."""

    delta: str
    logprobs: list[LogProb] | UnsetType = UNSET


class TranscriptTextSegment(
    TimedSegment,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="transcript.text.segment",
):
    """SSE: a segment of a streamed `verbose_json`, with its words where they are asked for. As in OpenAI's
    event `id` is a text (earlier servers': a number), and there is a `speaker`, empty where speakers are not
    distinguished."""

    id: str | int  # type: ignore[assignment]
    speaker: str | None = None


class TranscriptTextDone(
    TranscriptionBody, frozen=True, kw_only=True, tag_field="type", tag="transcript.text.done"
):
    """SSE: the whole text; behind segments also what else `verbose_json` has."""

    language: str | UnsetType = UNSET
    language_probability: float | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    coverage: Coverage | UnsetType = UNSET
    retranscribed: tuple[Retranscription, ...] | UnsetType = UNSET


def render_transcript(transcript: Transcript, request: TranscriptionRequest) -> tuple[str, bytes]:
    """(content type, body) of the answer to `request`."""
    body: bytes
    layout = request.options.cue_layout
    match request.response_format:
        case "json":
            body = msgspec.json.encode(_plain(TranscriptionBody, transcript, request))
        case "verbose_json":
            body = msgspec.json.encode(
                VerboseTranscriptionBody(
                    task=request.options.task,
                    language=transcript.language,
                    language_probability=round(transcript.language_probability, 4),
                    languages=detected_languages(transcript),
                    duration=transcript.duration,
                    text=transcript.text,
                    segments=transcript.segments if request.options.segment_timestamps else UNSET,
                    words=transcript.words if request.options.word_timestamps else UNSET,
                    channels=_channels(transcript, request),
                    coverage=_coverage(transcript),
                    retranscribed=transcript.retranscribed or UNSET,
                    usage=DurationUsage(seconds=transcript.duration),
                )
            )
        case "text":
            body = (transcript.text + "\n").encode()
        case "srt":
            body = subtitles.srt(transcript, layout, highlight_words=request.highlight_words).encode()
        case "vtt":
            body = subtitles.vtt(transcript, layout, highlight_words=request.highlight_words).encode()
        case "tsv":
            body = _table(transcript).encode()
    return _CONTENT_TYPES[request.response_format], body


def _table(transcript: Transcript) -> str:
    """Segments with their milliseconds, as openai-whisper's command line writes them."""
    rows = (
        f"{round(1000 * each.start)}\t{round(1000 * each.end)}\t{' '.join(each.text.split())}\n"
        for each in transcript.segments
    )
    return "".join(("start\tend\ttext\n", *rows))


def _plain(kind: type[_Plain], transcript: Transcript, request: TranscriptionRequest) -> _Plain:
    return kind(
        text=transcript.text,
        languages=detected_languages(transcript),
        usage=token_usage(transcript),
        logprobs=log_probs(transcript.tokens) if request.options.logprobs else UNSET,
        channels=_channels(transcript, request),
    )


def _coverage(transcript: Transcript) -> Coverage | UnsetType:
    """Known of what was looked at."""
    return transcript.coverage if transcript.coverage != Coverage() else UNSET


def _channels(transcript: Transcript, request: TranscriptionRequest) -> list[ChannelBody] | UnsetType:
    options = request.options
    if not options.multichannel:
        return UNSET
    return [
        ChannelBody(
            channel=number,
            language=channel.language,
            languages=detected_languages(channel),
            text=channel.text,
            segments=channel.segments if options.segment_timestamps else UNSET,
            words=channel.words if options.word_timestamps else UNSET,
        )
        for number, channel in enumerate(transcript.channels)
    ]


def delta_event(delta: str, *, has_logprobs: bool = False) -> bytes:
    """One SSE frame with new text, and its tokens where these are asked for."""
    tokens = delta.tokens if isinstance(delta, SpokenText) else ()
    return sse(TranscriptTextDelta(str(delta), log_probs(tokens) if has_logprobs else UNSET))


def segment_event(segment: TimedSegment) -> bytes:
    """One SSE frame with a segment."""
    fields = msgspec.structs.asdict(segment) | {"id": str(segment.id), "speaker": ""}
    return sse(TranscriptTextSegment(**fields))


def done_event(transcript: Transcript, request: TranscriptionRequest) -> bytes:
    """The SSE frame with the whole text; `DONE` follows it."""
    done = _plain(TranscriptTextDone, transcript, request)
    if request.response_format == "verbose_json":
        done = msgspec.structs.replace(
            done,
            language=transcript.language,
            language_probability=round(transcript.language_probability, 4),
            duration=transcript.duration,
            coverage=_coverage(transcript),
            retranscribed=transcript.retranscribed or UNSET,
        )
    return sse(done)
