"""Why a frame of a live session was refused: an `InvalidEvent` that names the field.

`protocols/realtime/codec.py` asks about frames that its decoders did not take.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ..shared.decode_errors import read_fault, shortened
from .events import DIALOGUE_CLIENT_EVENTS, UNSUPPORTED_CLIENT_EVENTS, InvalidEvent
from .lifecycle import MAX_EVENT_ID

MALFORMED: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What a decoder raises."""
_INSTEAD: Final = {
    "transcription_session.update": "use session.update with `session.type` transcription",
    "session.modalities": "it is `session.output_modalities` now, in sessions that answer",
    "session.max_response_output_tokens": "it is `session.max_output_tokens` now, in sessions that answer",
    "session.turn_detection": "it is `session.audio.input.turn_detection` now",
    "session.input_audio_format": 'it is `session.audio.input.format` now, as {"type": "audio/pcm"}',
    "session.input_audio_transcription": "it is `session.audio.input.transcription` now",
    "session.input_audio_noise_reduction": "it is `session.audio.input.noise_reduction` now",
}
"""Of OpenAI's beta: an event, and fields of both kinds of sessions, which lay flat."""


class _Head(msgspec.Struct, frozen=True):
    """What an explanation needs of a refused object. Still undecoded: 20 MB of `[],[],…` would become
    millions of lists, and hold the loop for seconds.
    """

    type: msgspec.Raw | UnsetType = UNSET
    event_id: msgspec.Raw | UnsetType = UNSET


_raw_decoder: Final = msgspec.json.Decoder(msgspec.Raw)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_text_decoder: Final = msgspec.json.Decoder(str)


def explain(frame: str | bytes, error: Exception, kind: object, *, flat: bool = False) -> InvalidEvent:
    """Say why the frame was refused as one of the union `kind`, naming its event where it has one."""
    try:
        data = _raw_decoder.decode(frame)
    except RecursionError:
        return InvalidEvent("invalid_json", "the frame is nested too deeply")
    except MALFORMED:
        return InvalidEvent("invalid_json", "the frame is not valid JSON")
    try:
        head = _head_decoder.decode(data)
    except msgspec.ValidationError:
        return InvalidEvent("invalid_event", "the frame is not a JSON object")
    event_id = _text(head.event_id)
    if event_id is not None and len(event_id) > MAX_EVENT_ID:
        event_id = None  # too long to be echoed
    if head.type is UNSET or bytes(head.type) == b"null":
        code = "unknown_event" if flat else "missing_required_parameter"
        return InvalidEvent(code, "`type` is missing", "type", event_id)
    name = _text(head.type)
    if name is not None and name not in {each.__struct_config__.tag for each in get_args(kind)}:
        code, problem = "unknown_event", f"{shortened(name)} is not an event"
        if name in UNSUPPORTED_CLIENT_EVENTS and not flat:
            hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
            code, problem = "unsupported_event", f"{name} is not served here{hint}"
        elif name in DIALOGUE_CLIENT_EVENTS and not flat:
            code, problem = "unsupported_event", f"{name} is not served in a transcription session"
        return InvalidEvent(code, problem, "type", event_id)
    explained = invalid(error, "", event_id, kind)
    if flat and explained.code != "invalid_audio":
        return msgspec.structs.replace(explained, code="invalid_event")
    return explained


def invalid(error: Exception, prefix: str, event_id: str | None, kind: object) -> InvalidEvent:
    """Translate msgspec's message about a `kind`: `Expected `float` <= 1.0 - at `$.a.b`` → param `a.b`."""
    if isinstance(error, RecursionError):
        return InvalidEvent("invalid_json", "the frame is nested too deeply", prefix or None, event_id)
    fault = read_fault(str(error), prefix, kind)
    param, code, problem = fault.param, "invalid_value", fault.problem
    match fault.kind:
        case "missing":
            code, problem = "missing_required_parameter", "required and missing"
        case "unknown":
            code, problem = "unknown_parameter", "not a known field"
            if param in _INSTEAD:
                problem += f"; {_INSTEAD[param]}"
        case "invalid" if param == "audio":
            code = "invalid_audio"
        case _:
            pass
    if "base64" in problem:
        problem += "; allowed: the standard alphabet, padded, without `data:` in front"
    message = f"`{param}`: {problem}" if param else problem
    return InvalidEvent(code, shortened(message, 300), param or None, event_id)


def type_of(data: msgspec.Raw) -> str | None:
    """The `type` of an object, if it is a string. Raises one of MALFORMED if it is no object."""
    return _text(_head_decoder.decode(data).type)


def _text(raw: msgspec.Raw | UnsetType) -> str | None:
    """The string that `raw` is; None for anything else."""
    if raw is UNSET:
        return None
    try:
        return _text_decoder.decode(raw)
    except MALFORMED:
        return None
