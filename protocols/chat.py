"""`/v1/chat/completions` in OpenAI's shape, with vLLM's extra fields. Knows no tokenizer and no sockets.

Messages are `protocols/chat_content.py`, the sampling fields `protocols/generation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from .body import Encoded, check_range, decoder, refuse, unsupported
from .chat_content import ChatMessage, read_messages
from .errors import BadRequestError
from .generation import (
    MAX_LOGPROBS,
    NOTHING_SAID,
    CompletionUsage,
    FinishedBy,
    GenerationRequest,
    PromptLogprobList,
    SamplingDefaults,
    check_common,
    sampling_params,
)
from .messages import SamplingParams

MAX_TEMPLATE_KWARGS: Final = 32
_MAX_TOKENS: Final = 2**31 - 1
_TEMPLATE_NAMES: Final = frozenset(
    {
        "messages",
        "conversations",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
    }
    | {"tokenize", "return_assistant_tokens_mask", "bos_token", "eos_token", "pad_token", "unk_token"}
)
"""What a client's `chat_template_kwargs` may not set: given elsewhere, or control tokens."""


class ChatRequest(GenerationRequest, frozen=True, kw_only=True):
    """The body of `/v1/chat/completions`, its messages not yet read."""

    messages: list[Raw]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    modalities: list[str] | None = None
    add_special_tokens: bool | None = None

    @property
    def wanted_tokens(self) -> int | None:
        """The limit the client set, by either name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a template renders."""

    messages: tuple[ChatMessage, ...]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any]
    add_generation_prompt: bool = True
    continue_final_message: bool = False


_decode_request = decoder(ChatRequest)


def parse_chat(body: Encoded) -> tuple[ChatRequest, Conversation]:
    """Read and check a body, as far as that needs no model. Raises BadRequestError naming the field."""
    request = _decode_request(body, "")
    check_common(request)
    _check_refused(request)
    check_range("max_tokens", request.max_tokens, 1, _MAX_TOKENS)
    check_range("max_completion_tokens", request.max_completion_tokens, 1, _MAX_TOKENS)
    check_range("top_logprobs", request.top_logprobs, 0, MAX_LOGPROBS)
    if request.top_logprobs is not None and not request.logprobs:
        raise BadRequestError("`top_logprobs` needs `logprobs` true.", param="top_logprobs")
    return request, _conversation(request)


def _check_refused(request: ChatRequest) -> None:
    if request.chat_template is not None:
        raise unsupported("chat_template", "is the model's own; a request cannot bring another")
    if request.modalities is not None and request.modalities != ["text"]:
        raise refuse("modalities", request.modalities, '["text"]')
    if request.add_special_tokens:
        raise unsupported("add_special_tokens", "is not served; the template writes them")
    if request.tool_choice not in (None, "none", "auto"):
        raise refuse("tool_choice", request.tool_choice, "none, auto")


def _conversation(request: ChatRequest) -> Conversation:
    kwargs = request.chat_template_kwargs or {}
    if len(kwargs) > MAX_TEMPLATE_KWARGS:
        raise refuse("chat_template_kwargs", sorted(kwargs), f"up to {MAX_TEMPLATE_KWARGS} entries")
    for name in kwargs:
        if name in _TEMPLATE_NAMES or not name.isidentifier() or name.startswith("_"):
            raise BadRequestError(
                f"`chat_template_kwargs` may not set {name[:40]!r}.",
                param=f"chat_template_kwargs.{name[:40]}",
            )
    continues = bool(request.continue_final_message)
    adds = not continues if request.add_generation_prompt is None else request.add_generation_prompt
    if continues and adds:
        raise BadRequestError(
            "`continue_final_message` and `add_generation_prompt` exclude each other.",
            param="continue_final_message",
        )
    messages = read_messages(request.messages)
    if continues and (messages[-1].role != "assistant" or not messages[-1].content):
        raise BadRequestError(
            "`continue_final_message` needs an assistant message with content at the end.",
            param="continue_final_message",
        )
    return Conversation(
        messages=messages,
        tools=request.tools if request.tools and request.tool_choice != "none" else None,
        template_kwargs=kwargs,
        add_generation_prompt=adds,
        continue_final_message=continues,
    )


def chat_params(
    request: ChatRequest, *, num_room: int, vocab_size: int, defaults: SamplingDefaults = NOTHING_SAID
) -> SamplingParams:
    """How to sample; `num_room` is what the prompt leaves of the context, the limit where none is named."""
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    wanted = num_room if request.wanted_tokens is None else request.wanted_tokens
    return sampling_params(
        request, max_tokens=max(1, wanted), vocab_size=vocab_size, logprobs=logprobs, defaults=defaults
    )


# --- answers -------------------------------------------------------------------------------------------


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


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """The assistant's message."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: FinishedBy
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | None = None
    token_ids: Sequence[int] | UnsetType = UNSET


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The answer of `/v1/chat/completions`."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    object: Literal["chat.completion"] = "chat.completion"
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobList | UnsetType = UNSET


class Delta(Struct, frozen=True, kw_only=True):
    """What a chunk adds to a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    """A piece of one answer."""

    index: int
    delta: Delta
    finish_reason: FinishedBy | None = None
    logprobs: ChoiceLogprobs | None = None
    stop_reason: str | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET


class ChatChunk(Struct, frozen=True, kw_only=True):
    """One chunk of a stream; the one with the usage has no choices."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
