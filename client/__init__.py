"""The SDK: `Client` (sync) and `AsyncClient` (asyncio and trio), typed events, readable errors.

Start at `client/client.py`; live sessions are `client/realtime/transcription_machine.py` under two thin
shells.
"""

from __future__ import annotations

from .async_client import AsyncClient
from .chat.answer import ChatAnswer, ChatDelta, ChatUsage, ToolCall, ToolResult
from .client import Client
from .errors import (
    AnswerError,
    APIError,
    AudioError,
    PictureError,
    SDKError,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    SessionClosedError,
)
from .realtime.async_conversation import AsyncAnswer, AsyncDialogueSession
from .realtime.async_transcription import AsyncRealtimeSession
from .realtime.conversation import Answer, DialogueSession
from .realtime.events import (
    AnswerBegan,
    AnswerDelta,
    AnswerDone,
    ArgumentsDone,
    Backpressure,
    Cleared,
    Committed,
    Completed,
    ConversationTruncated,
    Delta,
    ErrorEvent,
    Event,
    Expiring,
    Failed,
    Flushed,
    FrameDropped,
    FramesEvicted,
    FunctionCall,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    Reopened,
    Resumed,
    SegmentEvent,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    UnknownEvent,
    UtteranceEnded,
)
from .realtime.transcription import RealtimeSession
from .server_events import TextDelta, TextDone, TextEvent, TextSegment

__all__ = [
    "APIError",
    "Answer",
    "AnswerBegan",
    "AnswerDelta",
    "AnswerDone",
    "AnswerError",
    "ArgumentsDone",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncDialogueSession",
    "AsyncRealtimeSession",
    "AudioError",
    "Backpressure",
    "ChatAnswer",
    "ChatDelta",
    "ChatUsage",
    "Cleared",
    "Client",
    "Committed",
    "Completed",
    "ConversationTruncated",
    "Delta",
    "DialogueSession",
    "ErrorEvent",
    "Event",
    "Expiring",
    "Failed",
    "Flushed",
    "FrameDropped",
    "FramesEvicted",
    "FunctionCall",
    "ItemAdded",
    "ItemDeleted",
    "ItemDone",
    "PictureError",
    "RealtimeSession",
    "Reopened",
    "Resumed",
    "SDKError",
    "SegmentEvent",
    "SensoriumConnectionError",
    "SensoriumTimeoutError",
    "SessionClosedError",
    "SessionCreated",
    "SessionUpdated",
    "SpeechStarted",
    "SpeechStopped",
    "TextDelta",
    "TextDone",
    "TextEvent",
    "TextSegment",
    "ToolCall",
    "ToolResult",
    "UnknownEvent",
    "UtteranceEnded",
]
