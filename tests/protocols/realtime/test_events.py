"""Every server event validates strictly against the `openai` package's type of the same name."""

from __future__ import annotations

import json
import typing
from typing import Any

import msgspec
import pytest
from openai import BaseModel
from openai.types.realtime import RealtimeServerEvent
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from sensorium.protocols.realtime.codec import decode_server_event, encode_event
from sensorium.protocols.realtime.conversation_events import (
    ConversationItemDeleted,
    ConversationItemRetrieved,
    ConversationItemTruncated,
    ConversationTruncated,
)
from sensorium.protocols.realtime.events import (
    ConversationItemAdded,
    ConversationItemDone,
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    ConversationItemInputAudioTranscriptionSegment,
    Error,
    ErrorDetail,
    InputAudioBufferBackpressure,
    InputAudioBufferCleared,
    InputAudioBufferCommitted,
    InputAudioBufferFlushed,
    InputAudioBufferSpeechStarted,
    InputAudioBufferSpeechStopped,
    InputAudioBufferUtteranceEnded,
    ServerEvent,
    SessionCreated,
    SessionUpdated,
)
from sensorium.protocols.realtime.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputAudioContent,
    InputImageContent,
    InputTextContent,
    Message,
    OutputTextContent,
)
from sensorium.protocols.realtime.lifecycle import SessionExpiring, SessionResumed
from sensorium.protocols.realtime.responses import (
    CachedDetails,
    InputDetails,
    OutputDetails,
    RateLimitsUpdated,
    ResponseContentPartAdded,
    ResponseContentPartDone,
    ResponseCreated,
    ResponseDone,
    ResponseFault,
    ResponseFunctionCallArgumentsDelta,
    ResponseFunctionCallArgumentsDone,
    ResponseOutputItemAdded,
    ResponseOutputItemDone,
    ResponseOutputTextDelta,
    ResponseOutputTextDone,
    ResponseStatus,
    ResponseUsage,
    ResponseView,
    StatusDetails,
    TextContentPart,
)
from sensorium.protocols.realtime.session import (
    AudioView,
    FormatView,
    InputView,
    LimitsView,
    SemanticVadView,
    ServerVadView,
    SessionView,
    TranscriptionView,
    TurnDetectionView,
)
from sensorium.protocols.realtime.video import (
    InputImageBufferCleared,
    InputImageBufferCommitted,
    InputImageBufferDropped,
    InputImageBufferEvicted,
)
from sensorium.protocols.transcription.transcript import Word
from sensorium.protocols.transcription.view import (
    DetectedLanguage,
    DurationUsage,
    InputTokenDetails,
    LogProb,
    TokenUsage,
)
from support.dialogs import Dialog

ITEM = Message(id="item_1", role="user", content=[InputAudioContent()])
ANSWER = Message(id="item_2", role="assistant", content=[OutputTextContent("a")])
IDS: dict[str, Any] = {"event_id": "event_1", "server_event_seq": 1}

EXTENSIONS = {
    "session.created": {"id", "created"},
    "conversation.item.truncated": {"text_end"},
    "input_audio_buffer.committed": {"audio_start_ms", "audio_end_ms"},
    "conversation.item.input_audio_transcription.completed": {"words"},
}
"""Fields of ours beside `server_event_seq`."""


def session(turn_detection: TurnDetectionView | None, encoding: FormatView) -> SessionView:
    return SessionView(
        id="sess_1",
        expires_at=1_700_003_600,
        audio=AudioView(
            InputView(
                encoding,
                TranscriptionView(
                    model="small",
                    language="en",
                    prompt="Hello",
                    timestamp_granularities=["word"],
                    languages=["en", "de"],
                    keywords=["Kiel"],
                    delay="low",
                ),
                turn_detection,
            )
        ),
        include=["item.input_audio_transcription.logprobs"],
        limits=LimitsView(1, 2, 3.0, 4.0, 5.0),
        capabilities=["binary_audio"],
    )


def response(
    status: ResponseStatus, details: StatusDetails | None = None, usage: ResponseUsage | None = None
) -> ResponseView:
    return ResponseView(
        id="resp_1",
        status=status,
        status_details=details,
        output=[ANSWER],
        conversation_id="conv_1",
        output_modalities=["text"],
        metadata={"a": "b"},
        usage=usage,
    )


USAGE = ResponseUsage(
    total_tokens=9,
    input_tokens=7,
    output_tokens=2,
    input_token_details=InputDetails(3, 2, 2, 1, CachedDetails(1, 0, 0)),
    output_token_details=OutputDetails(2),
)

EVENTS: list[ServerEvent] = [
    SessionCreated(**IDS, session=session(None, FormatView("audio/pcmu")), id="sess_1", created=1),
    SessionCreated(**IDS, session=session(ServerVadView(0.5, 300, 500), FormatView("audio/pcm", 24_000))),
    SessionUpdated(**IDS, session=session(SemanticVadView("low"), FormatView("audio/pcma"))),
    InputAudioBufferCommitted(**IDS, item_id="item_1", audio_start_ms=0, audio_end_ms=9),
    InputAudioBufferCommitted(**IDS, item_id="item_2", previous_item_id="item_1"),
    InputAudioBufferCleared(**IDS),
    InputAudioBufferSpeechStarted(**IDS, audio_start_ms=0, item_id="item_1"),
    InputAudioBufferSpeechStopped(**IDS, audio_end_ms=0, item_id="item_1"),
    ConversationItemAdded(**IDS, item=ITEM),
    ConversationItemDone(**IDS, item=ITEM, previous_item_id="item_0"),
    ConversationItemInputAudioTranscriptionDelta(**IDS, item_id="item_1", delta=" word"),
    ConversationItemInputAudioTranscriptionCompleted(
        **IDS,
        item_id="item_1",
        transcript="",
        usage=TokenUsage(1, 2, 3, InputTokenDetails(1, 0)),
        languages=[DetectedLanguage("en")],
        logprobs=[LogProb("a", [97], -0.5)],
        words=[Word("a", 0.0, 0.5)],
    ),
    ConversationItemInputAudioTranscriptionCompleted(
        **IDS, item_id="item_1", transcript="a", usage=DurationUsage(1.5)
    ),
    ConversationItemInputAudioTranscriptionSegment(
        **IDS, id="seg_1", item_id="item_1", text="a", start=0.0, end=1.0
    ),
    ConversationItemInputAudioTranscriptionFailed(
        **IDS, item_id="item_1", error=ErrorDetail(type="server_error", code="x", message="no")
    ),
    ConversationItemAdded(**IDS, item=Message(id="item_1", role="system", content=[InputTextContent("a")])),
    ConversationItemDone(
        **IDS,
        item=Message(
            id="item_1", role="user", content=[InputTextContent("a"), InputImageContent(), ITEM.content[0]]
        ),
    ),
    ConversationItemAdded(
        **IDS, item=FunctionCallItem(id="item_3", call_id="call_1", name="now", arguments="{}")
    ),
    ConversationItemDone(**IDS, item=FunctionCallOutputItem(id="item_4", call_id="call_1", output="noon")),
    ResponseFunctionCallArgumentsDelta(
        **IDS, response_id="resp_1", item_id="item_3", call_id="call_1", delta="{"
    ),
    ResponseFunctionCallArgumentsDone(
        **IDS, response_id="resp_1", item_id="item_3", call_id="call_1", name="now", arguments="{}"
    ),
    ConversationItemRetrieved(**IDS, item=ANSWER),
    ConversationItemDeleted(**IDS, item_id="item_1"),
    ConversationItemTruncated(**IDS, item_id="item_1", content_index=0, audio_end_ms=0, text_end=3),
    ResponseCreated(**IDS, response=response("in_progress")),
    ResponseDone(**IDS, response=response("completed", usage=USAGE)),
    ResponseDone(
        **IDS, response=response("cancelled", StatusDetails(type="cancelled", reason="turn_detected"))
    ),
    ResponseDone(
        **IDS,
        response=response("failed", StatusDetails(type="failed", error=ResponseFault("a", "b", "c"))),
    ),
    ResponseOutputItemAdded(**IDS, response_id="resp_1", item=ANSWER),
    ResponseOutputItemDone(**IDS, response_id="resp_1", item=ANSWER),
    ResponseContentPartAdded(**IDS, response_id="resp_1", item_id="item_1", part=TextContentPart("")),
    ResponseContentPartDone(**IDS, response_id="resp_1", item_id="item_1", part=TextContentPart("a")),
    ResponseOutputTextDelta(**IDS, response_id="resp_1", item_id="item_1", delta="a"),
    ResponseOutputTextDone(**IDS, response_id="resp_1", item_id="item_1", text="a"),
    RateLimitsUpdated(**IDS, rate_limits=[]),
    Error(**IDS, error=ErrorDetail(type="server_error", message="no", event_id="mine")),
]


def openai_types() -> dict[str, type[BaseModel]]:
    found = {}
    for event in typing.get_args(typing.get_args(RealtimeServerEvent)[0]):
        (name,) = typing.get_args(event.model_fields["type"].annotation)
        found[name] = event
    return found


OPENAI = openai_types()


def validate(frame: str) -> BaseModel:
    """Parse strictly; unknown top-level fields must be announced extensions."""
    name = json.loads(frame)["type"]
    parsed = OPENAI[name].model_validate_json(frame, strict=True)
    assert set(parsed.model_extra or {}) <= {"server_event_seq"} | EXTENSIONS.get(name, set())
    return parsed


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_validate_and_come_back(event: ServerEvent) -> None:
    frame = encode_event(event)
    validate(frame)
    assert decode_server_event(frame) == event


def test_every_event_but_our_own_is_in_the_table() -> None:
    defined = set(typing.get_args(ServerEvent))
    assert defined - {type(event) for event in EVENTS} == {
        ConversationTruncated,
        InputAudioBufferBackpressure,
        InputAudioBufferFlushed,
        InputAudioBufferUtteranceEnded,
        InputImageBufferCleared,
        InputImageBufferCommitted,
        InputImageBufferDropped,
        InputImageBufferEvicted,
        SessionExpiring,
        SessionResumed,
    }


def test_classes_are_named_after_their_type() -> None:
    for event in typing.get_args(ServerEvent):
        tag = event.__struct_config__.tag
        assert event.__name__ == "".join(part.title() for part in tag.replace("_", ".").split("."))


def test_the_session_validates_as_a_transcription_session() -> None:
    view = session(ServerVadView(0.5, 300, 500), FormatView("audio/pcm", 24_000))
    parsed = RealtimeTranscriptionSessionCreateResponse.model_validate_json(
        msgspec.json.encode(view), strict=True
    )
    assert set(parsed.model_extra or {}) == {"limits", "capabilities"}


def test_a_whole_dialog_validates() -> None:
    dialog = Dialog()
    for _ in range(2):
        dialog.speak(2000, "one two three")
        dialog.silence(1000, "one two three")
    dialog.commit()
    dialog.clear()
    dialog.client("garbage")
    assert len(dialog.sent) > 20
    for event in dialog.sent:
        validate(json.dumps(event))
