"""The SDK: `Client` (sync) and `AsyncClient` (asyncio and trio), typed events, readable errors.

Start at `client/client.py`; live sessions are `client/session_core.py` under two thin shells.
"""

from __future__ import annotations

from .async_client import AsyncClient
from .async_realtime import AsyncRealtimeSession
from .client import Client
from .errors import (
    APIError,
    AudioError,
    SDKError,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    SessionClosedError,
)
from .events import (
    Backpressure,
    Cleared,
    Committed,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Expiring,
    Failed,
    Flushed,
    ItemAdded,
    ItemDone,
    Resumed,
    SegmentEvent,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    UnknownEvent,
)
from .realtime import RealtimeSession
from .requests import TextDelta, TextDone

__all__ = [
    "APIError",
    "AsyncClient",
    "AsyncRealtimeSession",
    "AudioError",
    "Backpressure",
    "Cleared",
    "Client",
    "Committed",
    "Completed",
    "Delta",
    "ErrorEvent",
    "Event",
    "Expiring",
    "Failed",
    "Flushed",
    "ItemAdded",
    "ItemDone",
    "RealtimeSession",
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
    "UnknownEvent",
]
