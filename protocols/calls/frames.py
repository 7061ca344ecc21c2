"""Telephone calls on a WebSocket: the media-stream frames that the large providers share, and what we answer.

In: `connected`, `start` with what the call is and how it sounds, `media` with base64, `mark`, `dtmf`, `stop`;
names as `mediaFormat` or `media_format`, as each provider writes them, null for what there is not; what else
they tell is passed over. Other shapes are brought into this one by `protocols/calls/provider_shapes.py`.
Out: events of ours, told apart by `event`. Knows shapes; what happens when is `realtime/calls/call.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from ..errors import BadRequestError, wrong
from ..shared.audio_format import SUPPORTED_RATES, AudioFormat, Encoding
from ..shared.lenient_json import decode_frame
from .provider_shapes import as_media_stream

MAX_TRACKS: Final = 4
"""Of one call: the two sides, and what is played to them."""
_ENCODINGS: Final[dict[str, Encoding]] = {
    "audio/x-mulaw": "pcmu",
    "audio/mulaw": "pcmu",
    "pcmu": "pcmu",
    "mulaw": "pcmu",
    "audio/x-alaw": "pcma",
    "audio/alaw": "pcma",
    "pcma": "pcma",
    "alaw": "pcma",
    "audio/l16": "pcm16",
    "audio/x-l16": "pcm16",
    "l16": "pcm16",
    "linear16": "pcm16",
    "pcm16": "pcm16",
    "base64": "pcm16",  # of a provider that tells how it is packed
}
CallEventKind = Literal[
    "call.started",
    "speech.started",
    "speech.stopped",
    "transcript.delta",
    "transcript.completed",
    "transcript.failed",
    "utterance.ended",
    "dtmf",
    "mark",
    "call.summary",
    "error",
]
Name = Annotated[str, Meta(max_length=200)]
Number = Annotated[str, Meta(max_length=20)] | int
MAX_PARAMETERS: Final = 100
MAX_START_CHARS: Final = 64 * 1024
"""Of a frame with a `start`, in which parameters of the caller are."""
Parameters = Annotated[dict[Name, Annotated[str, Meta(max_length=500)]], Meta(max_length=MAX_PARAMETERS)]


class MediaFormat(Struct, frozen=True):
    """How a call sounds; telephones' mu-law if nothing is said. PCM is little-endian."""

    encoding: Name = "audio/x-mulaw"
    sampleRate: Number | None = None  # noqa: N815 (the wire's name)
    sample_rate: Number | None = None
    channels: Number | None = None


class Start(Struct, frozen=True):
    """What `start` says of the call. Its own names are of no matter to us, and are given back."""

    tracks: Annotated[list[Name], Meta(max_length=MAX_TRACKS)] | None = None
    mediaFormat: MediaFormat | None = None  # noqa: N815
    media_format: MediaFormat | None = None
    callSid: Name | None = None  # noqa: N815
    call_sid: Name | None = None
    callId: Name | None = None  # noqa: N815
    call_id: Name | None = None
    call_control_id: Name | None = None
    customParameters: Parameters | None = None  # noqa: N815
    custom_parameters: Parameters | None = None


class Media(Struct, frozen=True):
    """One piece of a track's audio."""

    payload: bytes
    track: Name = "inbound"
    timestamp: Number | None = None
    chunk: Number | None = None


class Mark(Struct, frozen=True):
    """A place that the other side wants to hear of again."""

    name: Name


class Dtmf(Struct, frozen=True):
    """A key was pressed."""

    digit: Annotated[str, Meta(max_length=4)]
    track: Name = "inbound"


class CallFrame(Struct, frozen=True):
    """Any frame of a provider; which field it has goes with `event`."""

    event: Name
    start: Start | None = None
    media: Media | None = None
    mark: Mark | None = None
    dtmf: Dtmf | Annotated[str, Meta(max_length=4)] | None = None
    """jambonz writes the key itself."""
    digit: Annotated[str, Meta(max_length=4)] | None = None
    """Where a key is told without a field of its own."""
    content_type: Name | None = msgspec.field(default=None, name="content-type")
    is_interleaved: bool = False
    """Binary frames hold a sample of each track in turn. No provider says so:
    `protocols/calls/provider_shapes.py`."""


class TrackSummary(Struct, frozen=True, kw_only=True):
    """One track of a call that has ended (in `call.started`: as it begins)."""

    track: str
    audio_s: float = 0.0
    num_frames: int = 0
    num_missing: int = 0
    """Frames whose numbers never came."""
    num_turns: int = 0
    num_failed: int = 0
    transcript: str = ""
    """Its turns in order, a line each."""
    digits: str = ""


class CallEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What we tell of a call. `seq` counts the call's events from 1; `at_ms` is time on the track."""

    event: CallEventKind
    call: str
    seq: int
    track: str | None = None
    item: str | None = None
    at_ms: int | None = None
    text: str | None = None
    name: str | None = None
    digit: str | None = None
    code: str | None = None
    message: str | None = None
    param: str | None = None
    parameters: dict[str, str] | None = None
    tracks: list[TrackSummary] | None = None
    duration_s: float | None = None
    reason: str | None = None


class _Head(Struct, frozen=True):
    """What is looked at of a large frame first: its `start`, not built yet."""

    start: msgspec.Raw | UnsetType = UNSET


_decoder: Final = msgspec.json.Decoder(CallFrame)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_encoder: Final = msgspec.json.Encoder()


def decode_call_frame(frame: str | bytes) -> CallFrame:
    """Read one text frame. Raises BadRequestError naming the field."""
    try:
        if len(frame) > MAX_START_CHARS and _head_decoder.decode(frame).start is not UNSET:
            raise BadRequestError(
                f"the frame with `start` has {len(frame)} characters; the limit is {MAX_START_CHARS}",
                code="invalid_frame",
                param="start",
            )
        try:
            found = decode_frame(_decoder, frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            if (other := as_media_stream(frame)) is None:
                raise
        else:
            other = as_media_stream(frame) if found.event.isupper() else None
            if other is None:
                return structs.replace(found, is_interleaved=False) if found.is_interleaved else found
        return _decoder.decode(_encoder.encode(other))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        text = str(error)[:200]
        param = text.rpartition("$.")[2].rstrip("`") if "$." in text else None
        raise BadRequestError(
            f"the frame is not a media-stream frame: {text}", code="invalid_frame", param=param
        ) from error


def encode_call_event(event: CallEvent) -> str:
    """One event as a text frame."""
    return _encoder.encode(event).decode()


def audio_format(given: MediaFormat, *, param: str) -> AudioFormat:
    """The format that a call says it has. Raises BadRequestError for one that is not served."""
    encoding = _ENCODINGS.get(given.encoding.lower())
    if encoding is None:
        raise wrong(
            f"{param}.encoding",
            f"is {given.encoding[:60]!r}; mu-law, A-law and 16-bit PCM are served",
            code="unsupported_media_format",
        )
    rate = _number(given.sampleRate, given.sample_rate, default=8_000, param=f"{param}.sampleRate")
    num_channels = _number(given.channels, default=1, param=f"{param}.channels")
    allowed = SUPPORTED_RATES if encoding == "pcm16" else (8_000,)
    if rate not in allowed or num_channels != 1:
        raise BadRequestError(
            f"`{param}` has {rate} samples per second and {num_channels} channels; of {encoding} one "
            f"channel of {', '.join(map(str, allowed))} is served, and each side of a call is a track",
            code="unsupported_media_format",
            param=f"{param}.channels" if num_channels != 1 else f"{param}.sampleRate",
        )
    return AudioFormat(encoding, rate)


def _number(*given: str | int | None, default: int, param: str) -> int:
    """The first that is told; some providers write numbers as text."""
    found = next((each for each in given if each is not None), default)
    try:
        return int(found)
    except ValueError:
        raise wrong(param, "is not a number", code="unsupported_media_format") from None


def content_format(content_type: str) -> AudioFormat:
    """The format of a stream of binary frames, as `audio/l16;rate=16000`."""
    name, *parameters = (part.strip() for part in content_type.split(";"))
    values = dict(parameter.partition("=")[::2] for parameter in parameters)
    rate = values.get("rate", "16000" if "l16" in name.lower() else "8000")
    if not rate.isdecimal() or len(rate) > 6:
        raise BadRequestError("the rate in `content-type` is not a number", param="content-type")
    return audio_format(MediaFormat(encoding=name, sample_rate=int(rate)), param="content-type")
