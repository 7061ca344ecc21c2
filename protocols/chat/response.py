"""What `/v1/chat/completions` answers, whole and as chunks of a stream, in OpenAI's shapes.

Reasoning has the two names that clients of other servers read. The requests are `protocols/chat/request.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from ..shared.generation import CompletionUsage, PromptLogprobList

ChatFinishedBy = Literal["stop", "length", "tool_calls"]


class TopLogprob(Struct, frozen=True, gc=False):
    """One candidate of one position."""

    token: str
    logprob: float
    bytes: Sequence[int]


class TokenLogprob(Struct, frozen=True, gc=False):
    """One token of the answer, and the likeliest candidates for its place."""

    token: str
    logprob: float
    bytes: Sequence[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(Struct, frozen=True):
    """Log-probabilities of a choice, or of a chunk's piece of it."""

    content: list[TokenLogprob]
    refusal: None = None


class CalledFunction(Struct, frozen=True):
    """Which function, and its arguments as JSON."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """The assistant's message."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    """What the model thought first; the same by both names that clients read."""
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: ChatFinishedBy
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | int | None = None
    token_ids: Sequence[int] | None = None


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The answer of `/v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"
    service_tier: Literal["default"] | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | None = None
    prompt_logprobs: PromptLogprobList | None = None


class FunctionDelta(Struct, frozen=True, kw_only=True, gc=False):
    """The name with the first one of a call; arguments join."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Struct, frozen=True, kw_only=True, gc=False):
    """What a chunk adds to call `index`; id and type with the first."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(Struct, frozen=True, kw_only=True, gc=False):
    """What a chunk adds to a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True, gc=False):
    """A piece of one answer."""

    index: int
    delta: Delta
    finish_reason: ChatFinishedBy | None = None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET


class ChatChunk(Struct, frozen=True, kw_only=True, gc=False):
    """One chunk of a stream; the one with the usage has no choices."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    service_tier: Literal["default"] | UnsetType = UNSET
