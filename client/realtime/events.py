"""Events of a live session as the caller sees them: the wire's own structs under short names.

An event this version does not know, or one whose shape is unexpected, arrives as `UnknownEvent` and never as
an error, so that newer servers stay usable. Read next: `client/realtime/transcription.py`.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from ...protocols.realtime import (
    conversation_events as realtime_dialogue,
)
from ...protocols.realtime import events as wire
from ...protocols.realtime import (
    items as realtime_items,
)
from ...protocols.realtime import (
    lifecycle as realtime_lifecycle,
)
from ...protocols.realtime import (
    responses as realtime_responses,
)
from ...protocols.realtime import (
    video as realtime_video,
)
from ...protocols.realtime.codec import OtherServerEvent
from ...protocols.realtime.conversation_session import DialogueView
from ...protocols.realtime.session import SessionView

SessionCreated: TypeAlias = wire.SessionCreated
SessionUpdated: TypeAlias = wire.SessionUpdated
SpeechStarted: TypeAlias = wire.InputAudioBufferSpeechStarted
"""Somebody began to speak: `item_id`, `audio_start_ms`."""
SpeechStopped: TypeAlias = wire.InputAudioBufferSpeechStopped
"""The turn is over: `item_id`, `audio_end_ms`."""
UtteranceEnded: TypeAlias = wire.InputAudioBufferUtteranceEnded
"""No word has followed for `utterance_end_ms`: `item_id` and `last_word_end_ms` of the last one."""
Committed: TypeAlias = wire.InputAudioBufferCommitted
"""The turn's audio is complete; exactly one `Completed` or `Failed` follows for its `item_id`."""
Cleared: TypeAlias = wire.InputAudioBufferCleared
Flushed: TypeAlias = wire.InputAudioBufferFlushed
"""The answer to `flush`: the `item_id` that it committed, None if there was nothing to transcribe."""
Resumed: TypeAlias = realtime_lifecycle.SessionResumed
"""The connection was lost, and the session goes on with another one; nothing is missing or repeated."""
Expiring: TypeAlias = realtime_lifecycle.SessionExpiring
"""The session will be closed in `seconds_left`; `reason` says why."""
Backpressure: TypeAlias = wire.InputAudioBufferBackpressure
"""Audio arrives faster than it is transcribed: `buffered_ms` of at most `limit_ms`."""
ItemAdded: TypeAlias = wire.ConversationItemAdded
ItemDone: TypeAlias = wire.ConversationItemDone
Delta: TypeAlias = wire.ConversationItemInputAudioTranscriptionDelta
"""More text of a turn, `delta`: append it to what came before."""
Completed: TypeAlias = wire.ConversationItemInputAudioTranscriptionCompleted
"""The exact `transcript` of a turn."""
Failed: TypeAlias = wire.ConversationItemInputAudioTranscriptionFailed
"""A turn could not be transcribed; `error` says why."""
AnswerBegan: TypeAlias = realtime_responses.ResponseCreated
"""An answer begins: its `response`, with `id` and `metadata`."""
AnswerDelta: TypeAlias = realtime_responses.ResponseOutputTextDelta
"""More text of an answer, `delta`."""
AnswerDone: TypeAlias = realtime_responses.ResponseDone
"""An answer is over: its `response`, with `status`, `output` and `usage`."""
FrameDropped: TypeAlias = realtime_video.InputImageBufferDropped
"""A frame shows what the last one showed, and was not kept."""
FramesEvicted: TypeAlias = realtime_video.InputImageBufferEvicted
"""Frames are remembered no longer; `reason` says why."""
ItemDeleted: TypeAlias = realtime_dialogue.ConversationItemDeleted
ConversationTruncated: TypeAlias = realtime_dialogue.ConversationTruncated
"""The oldest items were dropped, for the conversation had become too long."""
FunctionCall: TypeAlias = realtime_items.FunctionCallItem
"""A tool that the model calls: `call_id`, `name`, `arguments` (JSON)."""
ArgumentsDone: TypeAlias = realtime_responses.ResponseFunctionCallArgumentsDone
"""A call is over, while the answer may go on: `call_id`, `name`, `arguments`. Also one that was cut off,
whose arguments may be no JSON: its item, in the `ItemDone` that follows, is `incomplete`."""
SegmentEvent: TypeAlias = wire.ConversationItemInputAudioTranscriptionSegment
ErrorEvent: TypeAlias = wire.Error
"""The server refused one message; the session goes on."""


UnknownEvent: TypeAlias = OtherServerEvent
"""An event this version has no type for: its `type` and its whole JSON object as `data`."""


class Reopened(Struct, frozen=True):
    """The session's server is gone; another one has all audio that had no answer.

    The turns of `item_ids` come again under other ids: what was shown of them holds no longer. Times go on
    counting from the first audio; the new session has what was sent from `audio_start_ms` on.
    """

    session: SessionView | DialogueView
    item_ids: tuple[str, ...]
    audio_start_ms: int


Event: TypeAlias = wire.ServerEvent | OtherServerEvent | Reopened
