"""Realtime text frames ↔ events. Never raises on what a client sent; knows JSON, not sessions.

One msgspec decode in C handles every valid frame, base64 included (strict: standard alphabet, padded, no
white space). Only a frame that fails is looked at again, to say what is wrong with it and where. Binary
frames are raw audio and do not come here.

Two dialects share the socket. A connection's first `session.update`, or first commit with a `final`, tells
which one it is (`ClientDecoder`); until then, and for `decode_client_event`, it is OpenAI's.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from .errors import BadRequestError
from .faults import read_fault, shortened
from .flat import FlatClientEvent, FlatCommit, FlatControl, FlatInvalid, FlatServerEvent, FlatUpdate
from .realtime import (
    DIALOGUE_CLIENT_EVENTS,
    UNSUPPORTED_CLIENT_EVENTS,
    ClientEvent,
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InvalidEvent,
    ServerEvent,
    SessionResume,
    SessionUpdate,
)
from .realtime_dialogue import (
    ConversationItemCreate,
    ConversationItemDelete,
    ConversationItemRetrieve,
    ConversationItemTruncate,
)
from .realtime_dialogue_session import DialoguePatch
from .realtime_items import ClientItemId, read_input, read_item
from .realtime_lifecycle import MAX_EVENT_ID, ClientEventId
from .realtime_responses import ResponseCancel, ResponseCreate, ResponseWish
from .realtime_session import SessionPatch
from .realtime_video import VideoClientEvent


class OtherServerEvent(msgspec.Struct, frozen=True):
    """A server event of another type or shape than ours: its `type` and the whole object."""

    type: str
    data: dict[str, Any]


class _UpdateFrame(msgspec.Struct, frozen=True, tag_field="type", tag="session.update"):
    """`session.update` with the session still undecoded: its `type` decides how to read the rest.

    Of either dialect: fields that neither knows are for `_Update` or `FlatUpdate` to refuse.
    """

    session: msgspec.Raw | UnsetType = UNSET
    event_id: ClientEventId | UnsetType | None = UNSET
    model: msgspec.Raw | UnsetType = UNSET
    """Only in the flat dialect."""


class _Update(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="session.update"
):
    """The fields that `session.update` may have in OpenAI's dialect."""

    session: msgspec.Raw
    event_id: ClientEventId | UnsetType | None = UNSET
    model: msgspec.Raw | UnsetType = UNSET
    """Of a client that does not know yet which dialect is spoken here: the session says it."""


class _CommitFrame(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag="input_audio_buffer.commit",
):
    """`input_audio_buffer.commit` of either dialect."""

    event_id: ClientEventId | UnsetType | None = UNSET
    final: msgspec.Raw | UnsetType = UNSET
    """Only in the flat dialect."""


class _ItemCreateFrame(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="conversation.item.create"
):
    """`conversation.item.create` with the item still undecoded: it may hold megabytes of pictures."""

    item: msgspec.Raw
    previous_item_id: ClientItemId | None = None
    event_id: ClientEventId | UnsetType | None = UNSET


class _ResponseCreateFrame(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="response.create"
):
    """`response.create` with its input still undecoded."""

    response: ResponseWish | UnsetType | None = UNSET
    event_id: ClientEventId | UnsetType | None = UNSET


class _Head(msgspec.Struct, frozen=True):
    """What an explanation needs of a refused object. Still undecoded: 20 MB of `[],[],…` would become
    millions of lists, and hold the loop for seconds.
    """

    type: msgspec.Raw | UnsetType = UNSET
    event_id: msgspec.Raw | UnsetType = UNSET


_Frame = (
    _UpdateFrame
    | InputAudioBufferAppend
    | _CommitFrame
    | InputAudioBufferFlush
    | InputAudioBufferClear
    | SessionResume
)
_DialogueFrame = (
    _Frame
    | _ItemCreateFrame
    | ConversationItemRetrieve
    | ConversationItemDelete
    | ConversationItemTruncate
    | _ResponseCreateFrame
    | ResponseCancel
    | VideoClientEvent
)

_SERVED: Final = frozenset(
    {
        "input_audio_buffer.append",
        "input_audio_buffer.clear",
        "input_audio_buffer.commit",
        "input_audio_buffer.flush",
        "session.resume",
        "session.update",
    }
)
_FLAT_SERVED: Final = _SERVED - {"input_audio_buffer.clear", "input_audio_buffer.flush", "session.resume"}
_EXPECTED_UPDATE: Final = '{"type": "session.update", "session": {"type": "%s", "audio": {"input": {…}}}}'

_frame_decoder: Final[msgspec.json.Decoder[_Frame]] = msgspec.json.Decoder(_Frame)
_dialogue_decoder: Final[msgspec.json.Decoder[_DialogueFrame]] = msgspec.json.Decoder(_DialogueFrame)
_flat_decoder: Final[msgspec.json.Decoder[FlatClientEvent]] = msgspec.json.Decoder(FlatClientEvent)
_raw_decoder: Final = msgspec.json.Decoder(msgspec.Raw)
_head_decoder: Final = msgspec.json.Decoder(_Head)
_text_decoder: Final = msgspec.json.Decoder(str)
_update_decoder: Final = msgspec.json.Decoder(_Update)
_patch_decoder: Final[msgspec.json.Decoder[SessionPatch]] = msgspec.json.Decoder(SessionPatch)
_dialogue_patch_decoder: Final[msgspec.json.Decoder[DialoguePatch]] = msgspec.json.Decoder(DialoguePatch)
_server_decoder: Final[msgspec.json.Decoder[ServerEvent]] = msgspec.json.Decoder(ServerEvent)
_any_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()

_MALFORMED = (msgspec.DecodeError, UnicodeError, RecursionError)


class ClientDecoder:
    """Reads the text frames of one connection, in the dialect it turns out to speak.

    `answers`: the session is of type `realtime`; those speak OpenAI's dialect only.
    """

    def __init__(self, *, answers: bool = False) -> None:
        self._answers = answers
        self.is_flat: bool | None = False if answers else None
        """None: the client has not shown it yet; frames are read as OpenAI's."""

    def decode(self, frame: str | bytes) -> ClientEvent | FlatControl | InvalidEvent:
        """Read one frame. Whatever is wrong with it comes back as an `InvalidEvent`; never raises."""
        if self.is_flat:
            return _decode_flat(frame)
        if self.is_flat is not None:
            return decode_client_event(frame, answers=self._answers)
        try:
            event = _frame_decoder.decode(frame)
        except _MALFORMED as error:
            return _explain(frame, error)
        self.is_flat = _dialect(event)
        if self.is_flat:
            return _decode_flat(frame)
        return _openai_event(event, frame)


def decode_client_event(frame: str | bytes, *, answers: bool = False) -> ClientEvent | InvalidEvent:
    """Read one text frame of OpenAI's dialect, of a session that `answers` or only transcribes; never
    raises."""
    event: _DialogueFrame
    try:
        event = (_dialogue_decoder if answers else _frame_decoder).decode(frame)
    except _MALFORMED as error:
        return _explain(frame, error, answers=answers)
    return _openai_event(event, frame, answers=answers)


def decode_server_event(frame: str | bytes) -> ServerEvent | OtherServerEvent:
    """Read one server frame (for the SDK): ours as their class, anything else as `OtherServerEvent`.

    Raises ValueError if the frame is not a JSON object with a string `type`.
    """
    try:
        return _server_decoder.decode(frame)
    except _MALFORMED:
        pass
    try:
        data = _any_decoder.decode(frame)
    except _MALFORMED:
        raise ValueError("the frame is not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError("the frame is not a JSON object with a `type`")
    return OtherServerEvent(data["type"], data)


def encode_event(event: ServerEvent | FlatServerEvent | ClientEvent | FlatUpdate | FlatCommit) -> str:
    """One JSON text frame; fields that are UNSET are left out."""
    return _encoder.encode(event).decode()


def _dialect(event: _Frame) -> bool | None:
    """Whether the event is the flat dialect's; None if both have it."""
    match event:
        case _UpdateFrame() if event.session is not UNSET:
            return False
        case _UpdateFrame() if event.model is not UNSET:
            return True
        case _CommitFrame() if event.final is not UNSET:
            return True
        case _:
            return None


def _openai_event(
    event: _DialogueFrame, frame: str | bytes, *, answers: bool = False
) -> ClientEvent | InvalidEvent:
    match event:
        case _UpdateFrame():
            return _session_update(event, frame, answers=answers)
        case _CommitFrame() if event.final is not UNSET:
            return InvalidEvent(
                "unknown_parameter",
                "`final`: not a known field of this dialect",
                "final",
                event.event_id or None,
            )
        case _CommitFrame():
            return InputAudioBufferCommit(event.event_id)
        case _ItemCreateFrame() | _ResponseCreateFrame():
            try:
                return _with_items(event)
            except BadRequestError as error:
                return InvalidEvent(error.code, error.message, error.param, event.event_id or None)
        case _:
            return event


def _with_items(event: _ItemCreateFrame | _ResponseCreateFrame) -> ClientEvent:
    """Decode the items in an event. Raises BadRequestError."""
    if isinstance(event, _ItemCreateFrame):
        return ConversationItemCreate(read_item(event.item), event.previous_item_id, event.event_id)
    wish = event.response or ResponseWish()
    given = read_input(wish.input) if isinstance(wish.input, list) else None
    return ResponseCreate(msgspec.structs.replace(wish, input=UNSET), given, event.event_id)


def _decode_flat(frame: str | bytes) -> InputAudioBufferAppend | FlatControl:
    try:
        event = _flat_decoder.decode(frame)
    except _MALFORMED as error:
        why = _explain(frame, error, flat=True)
        return FlatInvalid(why.code, why.message, why.param, why.event_id)
    if isinstance(event, FlatUpdate):
        for name in ("include", "timestamp_granularities"):
            if getattr(event, name):
                return FlatInvalid("invalid_event", f"`{name}`: not served in this dialect, but empty", name)
    return event


def _session_update(
    event: _UpdateFrame, frame: str | bytes, *, answers: bool
) -> SessionUpdate | InvalidEvent:
    """Decode the nested session, if its `type` is the one that this session has."""
    event_id = event.event_id or None
    ours, other = ("realtime", "transcription") if answers else ("transcription", "realtime")
    if event.session is UNSET:
        return InvalidEvent(
            "missing_required_parameter",
            f"`session` is missing; expected {_EXPECTED_UPDATE % ours}",
            "session",
            event_id,
        )
    patch: SessionPatch | DialoguePatch
    try:
        _update_decoder.decode(frame)
    except _MALFORMED as error:
        return _invalid(error, "", event_id)
    try:
        if _text(_head_decoder.decode(event.session).type) == other:
            return InvalidEvent(
                "unsupported_session_type",
                f"`session.type` is {ours} here, as the address of the connection says; for {other}, "
                f"connect with ?intent={other}, or with ?model= naming a model for it",
                "session.type",
                event_id,
            )
        patch = (_dialogue_patch_decoder if answers else _patch_decoder).decode(event.session)
    except _MALFORMED as error:
        return _invalid(error, "session", event_id)
    return SessionUpdate(patch, event.event_id)


def _explain(
    frame: str | bytes, error: Exception, *, flat: bool = False, answers: bool = False
) -> InvalidEvent:
    """Say why the frame was refused, naming its event where it has one."""
    try:
        data = _raw_decoder.decode(frame)
    except RecursionError:
        return InvalidEvent("invalid_json", "the frame is nested too deeply")
    except _MALFORMED:
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
    match _text(head.type):
        case str() as name if name in UNSUPPORTED_CLIENT_EVENTS and not flat:
            return InvalidEvent("unsupported_event", f"{name} is not served here", "type", event_id)
        case str() as name if name in DIALOGUE_CLIENT_EVENTS and not flat and not answers:
            return InvalidEvent(
                "unsupported_event", f"{name} is not served in a transcription session", "type", event_id
            )
        case str() as name if name not in _served(flat=flat, answers=answers):
            return InvalidEvent("unknown_event", f"{shortened(name)} is not an event", "type", event_id)
    explained = _invalid(error, "", event_id)
    if flat and explained.code != "invalid_audio":
        return msgspec.structs.replace(explained, code="invalid_event")
    return explained


def _served(*, flat: bool, answers: bool) -> frozenset[str]:
    if flat:
        return _FLAT_SERVED
    return _SERVED | DIALOGUE_CLIENT_EVENTS if answers else _SERVED


def _text(raw: msgspec.Raw | UnsetType) -> str | None:
    """The string that `raw` is; None for anything else."""
    if raw is UNSET:
        return None
    try:
        return _text_decoder.decode(raw)
    except _MALFORMED:
        return None


def _invalid(error: Exception, prefix: str, event_id: str | None) -> InvalidEvent:
    """Translate msgspec's message: `Expected `float` <= 1.0 - at `$.a.b`` → param `a.b`."""
    if isinstance(error, RecursionError):
        return InvalidEvent("invalid_json", "the frame is nested too deeply", prefix or None, event_id)
    fault = read_fault(str(error), prefix)
    param, code, problem = fault.param, "invalid_value", fault.problem
    match fault.kind:
        case "missing":
            code, problem = "missing_required_parameter", "required and missing"
        case "unknown":
            code, problem = "unknown_parameter", "not a known field"
        case "invalid" if param == "audio":
            code = "invalid_audio"
        case _:
            pass
    if "base64" in problem:
        problem += "; allowed: the standard alphabet, padded, without `data:` in front"
    message = f"`{param}`: {problem}" if param else problem
    return InvalidEvent(code, shortened(message, 300), param or None, event_id)
