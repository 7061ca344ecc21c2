"""Streams of telephone providers that are shaped otherwise than most become frames of
`protocols/calls/frames.py`.

- Bandwidth: `eventType` for `event`; `start` has its tracks in `metadata`, `media` lies flat.
- jambonz: the first text has the call's attributes with `sampleRate` and `mixType`, then comes binary 16-bit
  PCM; of `stereo` the caller is the left channel.
- Asterisk (chan_websocket): `MEDIA_START` as JSON or as a line of text, then binary audio in its `format`.

Facts from the providers' public documents. Knows shapes; read next: `protocols/calls/frames.py`, which asks
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from ..errors import BadRequestError
from ..shared.lenient_json import decode_frame

READ_STREAMS: Final = (
    "read are frames with `event` (as Twilio, Telnyx, Plivo, SignalWire, Exotel and Vonage write them) or "
    "`eventType` (Bandwidth), a first text with `sampleRate` (jambonz), and MEDIA_START (Asterisk), each "
    "before its audio"
)
"""For messages: what a call may be."""

_Name = Annotated[str, Meta(max_length=200)]
_Object = dict[str, Any]
_MAX_PARAMETER_CHARS: Final = 500
_MAX_TEXT_CHARS: Final = 4_000
"""Of a line of text that is no JSON."""
_ASTERISK_RATES: Final = {
    "ulaw": ("pcmu", 8_000),
    "alaw": ("pcma", 8_000),
    "slin": ("l16", 8_000),
    "slin16": ("l16", 16_000),
    "slin24": ("l16", 24_000),
    "slin48": ("l16", 48_000),
}
_ASTERISK: Final = frozenset(
    {"MEDIA_START", "DTMF_END", "MEDIA_XON", "MEDIA_XOFF", "MEDIA_MARK_PROCESSED"}
    | {"MEDIA_BUFFERING_COMPLETED", "QUEUE_DRAINED", "STATUS"}
)


class _Track(Struct, frozen=True):
    name: _Name
    mediaFormat: Raw = Raw(b"null")  # noqa: N815 (the wire's name)


class _Metadata(Struct, frozen=True):
    tracks: list[_Track] = []
    callId: _Name | None = None  # noqa: N815


class _Bandwidth(Struct, frozen=True):
    eventType: _Name  # noqa: N815
    metadata: _Metadata | None = None
    streamParams: Raw = Raw(b"null")  # noqa: N815
    track: _Name = "inbound"
    payload: Raw = Raw(b"null")
    dtmf: Raw = Raw(b"null")


class _Jambonz(Struct, frozen=True):
    sampleRate: int | _Name  # noqa: N815
    callSid: _Name | None = None  # noqa: N815
    mixType: _Name = "mono"  # noqa: N815


_bandwidth: Final = msgspec.json.Decoder(_Bandwidth)
_jambonz: Final = msgspec.json.Decoder(_Jambonz)
_fields: Final = msgspec.json.Decoder(dict[str, Raw])
_any_text: Final = msgspec.json.Decoder(str)


def as_media_stream(frame: str | bytes) -> _Object | None:
    """The frame as most providers would write it, as an object to convert; None where it is no such shape.

    Raises BadRequestError where it is text of no stream that is read, and msgspec's errors where it is one
    and something is wrong with it.
    """
    text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
    if text[:20].split(" ", 1)[0].strip() in _ASTERISK:
        return _of_asterisk_line(text[:_MAX_TEXT_CHARS])
    fields = _fields.decode(frame)
    if "event" in fields:
        event = msgspec.json.decode(fields["event"])
        return _of_asterisk(fields, event) if isinstance(event, str) and event in _ASTERISK else None
    if "eventType" in fields:
        return _of_bandwidth(decode_frame(_bandwidth, frame))
    if "sampleRate" in fields:
        return _of_jambonz(decode_frame(_jambonz, frame), fields)
    shown = ", ".join(sorted(fields)[:8])[:200]
    raise BadRequestError(
        f"the stream begins with an object of {shown or 'nothing'}, and is none that is read; {READ_STREAMS}",
        code="unknown_stream",
        param="event",
    )


def _of_bandwidth(frame: _Bandwidth) -> _Object:
    metadata = frame.metadata or _Metadata()
    match frame.eventType:
        case "start":
            start: _Object = {
                "tracks": [track.name for track in metadata.tracks] or None,
                "mediaFormat": metadata.tracks[0].mediaFormat if metadata.tracks else None,
                "callId": metadata.callId,
                "customParameters": frame.streamParams,
            }
            return {"event": "start", "start": start}
        case "media":
            return {"event": "media", "media": {"track": frame.track, "payload": frame.payload}}
        case "dtmf":
            return {"event": "dtmf", "dtmf": frame.dtmf}
        case other:
            return {"event": other}


def _of_jambonz(first: _Jambonz, fields: Mapping[str, Raw]) -> _Object:
    start: _Object = {
        "tracks": ["inbound", "outbound"] if first.mixType == "stereo" else ["inbound"],
        "mediaFormat": {"encoding": "l16", "sampleRate": first.sampleRate},
        "callSid": first.callSid,
        "customParameters": _texts(fields),
    }
    return {"event": "start", "is_interleaved": first.mixType == "stereo", "start": start}


def _texts(fields: Mapping[str, Raw]) -> dict[str, str]:
    """Those of the fields, and of `metadata` in them, that are texts: an application's options are there."""
    found: dict[str, str] = {}
    for name, value in fields.items():
        if name == "metadata" and bytes(value)[:1] == b"{":
            found |= _texts(_fields.decode(value))
        elif bytes(value)[:1] == b'"' and len(text := _any_text.decode(value)) <= _MAX_PARAMETER_CHARS:
            found[name] = text
    return found


def _of_asterisk(fields: Mapping[str, Raw], event: str) -> _Object:
    values = {name: msgspec.json.decode(value) for name, value in fields.items()}
    variables = values.get("channel_variables")
    return _asterisk_event(event, values, variables if isinstance(variables, dict) else {})


def _of_asterisk_line(line: str) -> _Object:
    """`MEDIA_START connection_id:… channel:… format:ulaw optimal_frame_size:160`"""
    event, *pairs = line.split()
    return _asterisk_event(event, dict(pair.partition(":")[::2] for pair in pairs), {})


def _asterisk_event(event: str, values: Mapping[str, Any], variables: Mapping[str, Any]) -> _Object:
    match event:
        case "MEDIA_START":
            name = str(values.get("format", ""))
            if name not in _ASTERISK_RATES:
                raise BadRequestError(
                    f"`format` is {name[:40]!r}; {', '.join(_ASTERISK_RATES)} are served",
                    code="unsupported_media_format",
                    param="format",
                )
            encoding, rate = _ASTERISK_RATES[name]
            start: _Object = {
                "mediaFormat": {"encoding": encoding, "sampleRate": rate},
                "callId": str(values.get("channel_id") or values.get("connection_id") or "")[:200] or None,
                "customParameters": {
                    key: value
                    for key, value in variables.items()
                    if isinstance(value, str) and len(value) <= _MAX_PARAMETER_CHARS
                },
            }
            return {"event": "start", "start": start}
        case "DTMF_END":
            return {"event": "dtmf", "digit": str(values.get("digit", ""))[:4]}
        case _:
            return {"event": "connected"}  # nothing that a transcript needs
