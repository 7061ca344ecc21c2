"""What `/v1/messages` answers: a message of content blocks, the events of its stream, and errors.

In Anthropic's shapes. Requests are `protocols/anthropic/request.py`; these are made of an answer by
`protocols/anthropic/writer.py`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from ..errors import SensoriumError

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
_KINDS: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}
_THREAD: Final = "thread"
_NO_THREADS: Final = "thread_unsupported_request"
"""By this a client that would rather have its conversation kept by the server knows to send all of it."""


class TextBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """What is said. Without `citations`, of which there are none: some clients take no null for a list."""

    text: str


class ThinkingBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """What is thought; not signed."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """One call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(Struct, frozen=True, kw_only=True):
    """Tokens read and written; what was in the prefix cache is not among `input_tokens`."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessageAnswer(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The answer, finished or just begun."""

    id: str
    model: str
    content: list[Block]
    usage: MessageUsage
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    role: Literal["assistant"] = "assistant"


class MessageTokenCount(Struct, frozen=True):
    """How long a prompt is."""

    input_tokens: int


# --- events --------------------------------------------------------------------------------------------


class MessageStart(Struct, frozen=True, tag_field="type", tag="message_start"):
    """The first event."""

    message: MessageAnswer


class ContentBlockStart(Struct, frozen=True, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: Block


class TextDelta(Struct, frozen=True, tag_field="type", tag="text_delta"):
    """More of what is said."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    """More of what is thought."""

    thinking: str


class InputJsonDelta(Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    """More of a call's arguments."""

    partial_json: str


class ContentBlockDelta(Struct, frozen=True, tag_field="type", tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | InputJsonDelta


class ContentBlockStop(Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    """It is there."""

    index: int


class StopDelta(Struct, frozen=True):
    """How the answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageDelta(Struct, frozen=True, tag_field="type", tag="message_delta"):
    """The last but one, with all of the usage."""

    delta: StopDelta
    usage: MessageUsage


class MessageStop(Struct, frozen=True, tag_field="type", tag="message_stop"):
    """The last."""


class FaultDetails(Struct, frozen=True):
    """What a client acts on: which fields are not served."""

    error_code: str
    unsupported: list[str]


class MessageFault(Struct, frozen=True, omit_defaults=True):
    """What went wrong, and whose fault it is."""

    type: str
    message: str
    details: FaultDetails | None = None


class MessageError(Struct, frozen=True, tag_field="type", tag="error"):
    """The body of an answer that is not 2xx, and the last event of a stream that fails."""

    error: MessageFault


MessageEvent = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | MessageError
)


def message_error(error: SensoriumError) -> MessageError:
    """An error in this API's shape."""
    other = "invalid_request_error" if error.status < 500 else "api_error"
    details = FaultDetails(_NO_THREADS, [_THREAD]) if error.param == _THREAD else None
    return MessageError(MessageFault(_KINDS.get(error.status, other), error.message, details))
