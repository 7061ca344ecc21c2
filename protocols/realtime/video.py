"""Live frames of a session that answers: how a client sends them, and what it is told of them.

All of this is an extension of OpenAI's dialect, named in `session.capabilities` (`input_image_buffer`, whose
name is Qwen's). What happens to frames is `realtime/dialogue/video.py`;
the session's settings about them are in `protocols/realtime/conversation_session.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from .lifecycle import NumberedEvent, SentEvent

TimestampMs = Annotated[int, Meta(ge=0, lt=2**53)]


class InputImageBufferAppend(SentEvent, frozen=True, tag="input_image_buffer.append"):
    """The next frame of live video, a JPEG, PNG or WebP file (base64 on the wire). Never acknowledged.

    Without `image` it is the next binary frame of the connection. `timestamp_ms` is on any clock that the
    client keeps to; without one it is when the frame arrives.
    """

    image: bytes | UnsetType = UNSET
    timestamp_ms: TimestampMs | UnsetType | None = UNSET


class InputImageBufferCommit(SentEvent, frozen=True, tag="input_image_buffer.commit"):
    """What was seen so far is one item; what comes next is another."""


class InputImageBufferClear(SentEvent, frozen=True, tag="input_image_buffer.clear"):
    """Forget the frames that are in no item that is complete."""


VideoClientEvent = InputImageBufferAppend | InputImageBufferCommit | InputImageBufferClear


class InputImageBufferDropped(NumberedEvent, frozen=True, kw_only=True, tag="input_image_buffer.dropped"):
    """A frame was not kept: it shows what the last kept one shows."""

    timestamp_ms: int
    change: float
    reason: Literal["duplicate"] = "duplicate"


class InputImageBufferCommitted(NumberedEvent, frozen=True, kw_only=True, tag="input_image_buffer.committed"):
    """The frames so far are item `item_id`; null if there were none. `num_frames` counts those that are still
    looked at, which may prove to be no pictures, or to show nothing new; where none is left the item is
    deleted."""

    item_id: str | None = None
    num_frames: int = 0


class InputImageBufferCleared(NumberedEvent, frozen=True, kw_only=True, tag="input_image_buffer.cleared"):
    """The frames that were in no complete item are gone."""


EvictionReason = Literal["retention_s", "retention_tokens", "max_media_bytes"]


class InputImageBufferEvicted(NumberedEvent, frozen=True, kw_only=True, tag="input_image_buffer.evicted"):
    """Frames of an item are remembered no longer. `is_gone`: it was the item's last, and so is the item."""

    item_id: str
    timestamps_ms: list[int]
    reason: EvictionReason
    is_gone: bool


VideoEvent = (
    InputImageBufferDropped | InputImageBufferCommitted | InputImageBufferCleared | InputImageBufferEvicted
)
