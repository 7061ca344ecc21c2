"""Responses of a live session that answers: how they are asked for, and every event of one.

OpenAI's GA events of text responses. Items are `protocols/realtime/items.py`; `protocols/realtime/events.py`
takes the events into its unions; what happens when is `realtime/dialogue/responses.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from .conversation_session import AnswerPatch, Modality
from .items import ConversationItem, ItemReference, NewItem
from .lifecycle import NumberedEvent, SentEvent

MAX_METADATA: Final = 16
MAX_INPUT: Final = 1024
"""Items that a response may bring instead of the conversation."""
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=MAX_METADATA),
]
ResponseStatus = Literal["completed", "cancelled", "failed", "incomplete", "in_progress"]
EndReason = Literal["turn_detected", "client_cancelled", "max_output_tokens"]


# --- from the client -----------------------------------------------------------------------------------


class ResponseOptions(AnswerPatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`response` of a `response.create`. What is not given is as in the session.

    `audio` would be about speech out, which there is none.
    """

    conversation: str | UnsetType | None = UNSET
    input: Annotated[list[Raw], Meta(max_length=MAX_INPUT)] | UnsetType | None = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    audio: Raw | UnsetType = UNSET

    @property
    def is_out_of_band(self) -> bool:
        """The answer is no part of the conversation."""
        return self.conversation == "none"


class ResponseCreate(Struct, frozen=True):
    """Answer now. One at a time in the conversation, and some beside it.

    `input` is what stands for the conversation, None for the conversation itself.
    """

    options: ResponseOptions = ResponseOptions()
    input: tuple[NewItem | ItemReference, ...] | None = None
    event_id: str | UnsetType | None = UNSET


class ResponseCancel(SentEvent, frozen=True, tag="response.cancel"):
    """Stop answering: that response, or the one in the conversation."""

    response_id: Annotated[str, Meta(max_length=128)] | UnsetType | None = UNSET


# --- from the server -----------------------------------------------------------------------------------


class CachedDetails(Struct, frozen=True):
    """Tokens of the input whose keys and values were there already, by what they stand for."""

    text_tokens: int = 0
    image_tokens: int = 0
    audio_tokens: int = 0


class InputDetails(Struct, frozen=True):
    """Tokens of the input, by what they stand for."""

    text_tokens: int = 0
    image_tokens: int = 0
    audio_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_details: CachedDetails = CachedDetails()


class OutputDetails(Struct, frozen=True):
    """Tokens of the answer."""

    text_tokens: int = 0
    audio_tokens: int = 0


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """What one response read and wrote."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputDetails
    output_token_details: OutputDetails


class ResponseFault(Struct, frozen=True):
    """Why a response failed. `message` is an extension."""

    type: str
    code: str
    message: str


class StatusDetails(Struct, frozen=True, kw_only=True):
    """How a response ended, where there is more to say than that it is complete."""

    type: Literal["cancelled", "failed", "incomplete"]
    reason: EndReason | UnsetType = UNSET
    error: ResponseFault | UnsetType = UNSET


class ResponseView(Struct, frozen=True, kw_only=True):
    """A response as its first and its last event show it."""

    id: str
    object: Literal["realtime.response"] = "realtime.response"
    status: ResponseStatus
    status_details: StatusDetails | None = None
    output: list[ConversationItem]
    conversation_id: str | None
    output_modalities: list[Modality]
    max_output_tokens: int | Literal["inf"] = "inf"
    metadata: dict[str, str] | None = None
    usage: ResponseUsage | None = None


class TextContentPart(Struct, frozen=True, tag_field="type", tag="text"):
    """The one part of an answer."""

    text: str


class ResponseCreated(NumberedEvent, frozen=True, kw_only=True, tag="response.created"):
    """A response begins; its prompt is being made."""

    response: ResponseView


class ResponseDone(NumberedEvent, frozen=True, kw_only=True, tag="response.done"):
    """A response is over, one way or another: always its last event."""

    response: ResponseView


class _OfResponse(NumberedEvent, frozen=True, kw_only=True):
    """Something of a response's output."""

    response_id: str
    output_index: int = 0


class _OfItem(_OfResponse, frozen=True, kw_only=True):
    item: ConversationItem


class _OfPart(_OfResponse, frozen=True, kw_only=True):
    item_id: str
    content_index: int = 0


class _OfCall(_OfResponse, frozen=True, kw_only=True):
    item_id: str
    call_id: str


class ResponseOutputItemAdded(_OfItem, frozen=True, kw_only=True, tag="response.output_item.added"):
    """The answer's item, still empty."""


class ResponseOutputItemDone(_OfItem, frozen=True, kw_only=True, tag="response.output_item.done"):
    """The answer's item as it remains."""


class ResponseContentPartAdded(_OfPart, frozen=True, kw_only=True, tag="response.content_part.added"):
    """The answer's text begins."""

    part: TextContentPart


class ResponseContentPartDone(_OfPart, frozen=True, kw_only=True, tag="response.content_part.done"):
    """The answer's text as it remains."""

    part: TextContentPart


class ResponseOutputTextDelta(_OfPart, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More of the answer."""

    delta: str


class ResponseOutputTextDone(_OfPart, frozen=True, kw_only=True, tag="response.output_text.done"):
    """All of the answer: the deltas joined."""

    text: str


class ResponseFunctionCallArgumentsDelta(
    _OfCall, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"
):
    """More of a call's arguments."""

    delta: str


class ResponseFunctionCallArgumentsDone(
    _OfCall, frozen=True, kw_only=True, tag="response.function_call_arguments.done"
):
    """All of a call's arguments: the deltas joined."""

    name: str
    arguments: str


class RateLimit(Struct, frozen=True, kw_only=True):
    """A limit of requests or tokens; this server sets none."""

    name: Literal["requests", "tokens"]
    limit: int
    remaining: int
    reset_seconds: float


class RateLimitsUpdated(NumberedEvent, frozen=True, kw_only=True, tag="rate_limits.updated"):
    """Sent as a response begins, as clients expect it: there are no limits."""

    rate_limits: list[RateLimit]


ResponseEvent = (
    ResponseCreated
    | ResponseDone
    | ResponseOutputItemAdded
    | ResponseOutputItemDone
    | ResponseContentPartAdded
    | ResponseContentPartDone
    | ResponseOutputTextDelta
    | ResponseOutputTextDone
    | ResponseFunctionCallArgumentsDelta
    | ResponseFunctionCallArgumentsDone
    | RateLimitsUpdated
)
