"""Realtime text frames ↔ events. Never raises on what a client sent; knows JSON, not sessions.

One msgspec decode in C handles every valid frame, base64 included (the standard alphabet, padded). Only a
frame that fails is looked at again (`protocols/shared/lenient_json.py`), to read it as meant or to say what
is wrong with it and where. Binary frames are raw audio, and come here only if they hold an event.

Two dialects share the socket. A connection's first `session.update`, or first commit with a `final`, tells
which one it is (`ClientDecoder`); until then, and for `decode_client_event`, it is OpenAI's.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import BadRequestError
from ..shared.lenient_json import decode_frame
from .conversation_events import (
    ConversationItemCreate,
    ConversationItemDelete,
    ConversationItemRetrieve,
    ConversationItemTruncate,
)
from .conversation_session import DialoguePatch
from .events import (
    ClientEvent,
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InvalidEvent,
    ServerEvent,
    SessionUpdate,
)
from .invalid_frames import MALFORMED, explain, invalid, type_of
from .items import ClientItemId, read_input, read_item
from .lifecycle import SentEvent, SessionResume
from .responses import ResponseCancel, ResponseCreate, ResponseOptions
from .session import SessionPatch
from .video import VideoClientEvent
from .vllm_events import FlatClientEvent, FlatCommit, FlatControl, FlatInvalid, FlatServerEvent, FlatUpdate


class OtherServerEvent(msgspec.Struct, frozen=True):
    """A server event of another type or shape than ours: its `type` and the whole object."""

    type: str
    data: dict[str, Any]


class _UpdateFrame(SentEvent, frozen=True, forbid_unknown_fields=False, tag="session.update"):
    """`session.update` with the session still undecoded: its `type` decides how to read the rest.

    Of either dialect: fields that neither knows are for `_Update` or `FlatUpdate` to refuse.
    """

    session: msgspec.Raw | UnsetType = UNSET
    model: msgspec.Raw | UnsetType = UNSET
    """Only in the flat dialect."""


class _Update(SentEvent, frozen=True, tag="session.update"):
    """The fields that `session.update` may have in OpenAI's dialect."""

    session: msgspec.Raw
    model: msgspec.Raw | UnsetType = UNSET
    """Of a client that does not know yet which dialect is spoken here: the session says it."""


class _CommitFrame(SentEvent, frozen=True, tag="input_audio_buffer.commit"):
    """`input_audio_buffer.commit` of either dialect."""

    final: msgspec.Raw | UnsetType = UNSET
    """Only in the flat dialect."""


class _ItemCreateFrame(SentEvent, frozen=True, tag="conversation.item.create"):
    """`conversation.item.create` with the item still undecoded: it may hold megabytes of pictures."""

    item: msgspec.Raw
    previous_item_id: ClientItemId | None = None


class _ResponseCreateFrame(SentEvent, frozen=True, tag="response.create"):
    """`response.create` with its input still undecoded."""

    response: ResponseOptions | UnsetType | None = UNSET


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

_EXPECTED_UPDATE: Final = '{"type": "session.update", "session": {"type": "%s", "audio": {"input": {…}}}}'

_frame_decoder: Final[msgspec.json.Decoder[_Frame]] = msgspec.json.Decoder(_Frame)
_dialogue_decoder: Final[msgspec.json.Decoder[_DialogueFrame]] = msgspec.json.Decoder(_DialogueFrame)
_flat_decoder: Final[msgspec.json.Decoder[FlatClientEvent]] = msgspec.json.Decoder(FlatClientEvent)
_update_decoder: Final = msgspec.json.Decoder(_Update)
_patch_decoder: Final[msgspec.json.Decoder[SessionPatch]] = msgspec.json.Decoder(SessionPatch)
_dialogue_patch_decoder: Final[msgspec.json.Decoder[DialoguePatch]] = msgspec.json.Decoder(DialoguePatch)
_server_decoder: Final[msgspec.json.Decoder[ServerEvent]] = msgspec.json.Decoder(ServerEvent)
_any_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


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
            event = decode_frame(_frame_decoder, frame)
        except MALFORMED as error:
            return explain(frame, error, _frame_decoder.type)
        self.is_flat = _dialect(event)
        if self.is_flat:
            return _decode_flat(frame)
        return _openai_event(event, frame)


def decode_client_event(frame: str | bytes, *, answers: bool = False) -> ClientEvent | InvalidEvent:
    """Read one text frame of OpenAI's dialect, of a session that `answers` or only transcribes; never
    raises."""
    event: _DialogueFrame
    decoder: msgspec.json.Decoder[Any] = _dialogue_decoder if answers else _frame_decoder
    try:
        event = decode_frame(decoder, frame)
    except MALFORMED as error:
        return explain(frame, error, decoder.type)
    return _openai_event(event, frame, answers=answers)


def decode_server_event(frame: str | bytes) -> ServerEvent | OtherServerEvent:
    """Read one server frame (for the SDK): ours as their class, anything else as `OtherServerEvent`.

    Raises ValueError if the frame is not a JSON object with a string `type`.
    """
    try:
        return _server_decoder.decode(frame)
    except MALFORMED:
        pass
    try:
        data = _any_decoder.decode(frame)
    except MALFORMED:
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
            return InputAudioBufferCommit(event_id=event.event_id)
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
    options = event.response or ResponseOptions()
    given = read_input(options.input) if isinstance(options.input, list) else None
    return ResponseCreate(msgspec.structs.replace(options, input=UNSET), given, event.event_id)


def _decode_flat(frame: str | bytes) -> InputAudioBufferAppend | FlatControl:
    try:
        event = decode_frame(_flat_decoder, frame)
    except MALFORMED as error:
        why = explain(frame, error, _flat_decoder.type, flat=True)
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
    decoder: msgspec.json.Decoder[Any] = _dialogue_patch_decoder if answers else _patch_decoder
    try:
        _update_decoder.decode(frame)
    except MALFORMED as error:
        return invalid(error, "", event_id, _update_decoder.type)
    try:
        if type_of(event.session) == other:
            return InvalidEvent(
                "unsupported_session_type",
                f"`session.type` is {ours} here, as the address of the connection says; for {other}, "
                f"connect with ?intent={other}, or with ?model= naming a model for it",
                "session.type",
                event_id,
            )
        patch = decode_frame(decoder, event.session)
    except MALFORMED as error:
        return invalid(error, "session", event_id, decoder.type)
    return SessionUpdate(patch, event_id=event.event_id)
