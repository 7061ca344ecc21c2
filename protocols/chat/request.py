"""`/v1/chat/completions` in OpenAI's shape, with vLLM's extra fields. Knows no tokenizer and no sockets.

Messages are `protocols/chat/content.py`, tools `protocols/chat/tools.py`, the sampling fields
`protocols/shared/generation.py`; what is answered is `protocols/chat/response.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, structs

from ..engine.messages import SamplingParams
from ..errors import BadRequestError, wrong
from ..shared.generation import GenerationRequest, check_common, sampling_params
from ..shared.json_body import Encoded, check_range, decoder, refuse, unsupported
from ..shared.sampling import (
    MAX_INT,
    NO_SAMPLING_DEFAULTS,
    Count,
    NumLogprobs,
    SamplingDefaults,
    TokenLimit,
)
from ..shared.unsupported_fields import UNSERVED
from .content import ChatMessage, read_messages
from .processor_options import (
    NO_PROCESSOR_OPTIONS,
    ProcessorOptions,
    RawProcessorKwargs,
    parse_processor_options,
)
from .tools import NO_TOOLS, ToolUse, check_tool_messages, read_tool_use

MAX_TEMPLATE_KWARGS: Final = 32
MAX_DOCUMENTS: Final = 1024
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh")
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
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    include_reasoning: bool | None = None
    """False leaves out of the answer what the model thinks; it thinks all the same."""
    thinking_token_budget: Count | None = None
    """vLLM's: the model thinks with so many tokens at most."""
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    documents: list[dict[str, Any]] | None = None  # type: ignore[assignment]  # elsewhere not served
    """What a template that takes documents writes before the conversation."""
    modalities: list[str] | None = None
    add_special_tokens: bool | None = None
    mm_processor_kwargs: RawProcessorKwargs = UNSET

    @property
    def wanted_tokens(self) -> int | None:
        """The limit the client set, by either name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def shows_reasoning(self) -> bool:
        """Whether the answer has what the model thinks."""
        return self.include_reasoning is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a template renders."""

    messages: tuple[ChatMessage, ...]
    tools: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tool_use: ToolUse = NO_TOOLS
    """What may or must be called in the answer."""
    forms_text: bool = False
    """Whether the form that is asked for is that of text (`response_format`): calls have theirs."""
    thinking_budget: int | None = None
    """Tokens that the answer may think with."""
    is_budget_optional: bool = False
    """It was given because it has to be: where it cannot be kept, it is not."""
    documents: list[dict[str, Any]] | None = None
    """Texts that the template is given beside the messages."""
    adds_special_tokens: bool = False
    """What the tokenizer puts in front of a text stands in front of what the template writes."""
    processor_options: ProcessorOptions = NO_PROCESSOR_OPTIONS
    """How its media are to be looked at."""


_SHARED: Final = frozenset(ChatRequest.__struct_fields__) - {
    *UNSERVED,
    *("messages", "tools", "tool_choice", "parallel_tool_calls"),
}


def as_chat(request: Struct, **others: Any) -> ChatRequest:  # noqa: ANN401 (of any field)
    """What chat would have been asked by another API's request: the fields that are the same in both, and
    `others`. Messages and tools are not: each API has its own."""
    same = {name: getattr(request, name) for name in request.__struct_fields__ if name in _SHARED}
    return ChatRequest(messages=[], **{**same, **others})


_ALL_ROOM: Final = -1
"""`max_tokens` of llama.cpp's and LM Studio's clients: as many as fit, as without one."""
_decode_request = decoder(ChatRequest)


def parse_chat(body: Encoded) -> tuple[ChatRequest, Conversation]:
    """Read and check a body, as far as that needs no model. Raises BadRequestError naming the field."""
    request = _decode_request(body, "")
    if request.max_tokens == _ALL_ROOM:
        request = structs.replace(request, max_tokens=None)
    check_common(request)
    check_range("max_tokens", request.max_tokens, 1, MAX_INT)
    if request.top_logprobs is not None and not request.logprobs:
        raise wrong("top_logprobs", "needs `logprobs` true")
    return request, read_conversation(request)


def read_conversation(request: ChatRequest) -> Conversation:
    """What the template renders, of a request. Raises BadRequestError naming the field."""
    _check_refused(request)
    use = read_tool_use(
        request.tools, request.tool_choice, is_parallel=request.parallel_tool_calls is not False
    )
    check_forced(request, is_forced=use.is_forced)
    tools = request.tools if request.tools and request.tool_choice != "none" else None
    return chat_conversation(request, read_messages(request.messages), tools, use)


def _check_refused(request: ChatRequest) -> None:
    if request.chat_template is not None:
        raise unsupported("chat_template", "is the model's own; a request cannot bring another")
    if request.truncate_prompt_tokens is not None:
        raise unsupported(
            "truncate_prompt_tokens", "would cut the template, too; `/v1/responses` has `truncation`"
        )
    if request.modalities is not None and request.modalities != ["text"]:
        raise refuse("modalities", request.modalities, '["text"]')
    if request.reasoning_effort not in (None, *EFFORTS):
        raise refuse("reasoning_effort", request.reasoning_effort, ", ".join(EFFORTS))


def check_forced(request: ChatRequest, *, is_forced: bool) -> None:
    """Raise BadRequestError where the answer has to be calls, and of another form."""
    if is_forced and request.structured_outputs is not None:
        raise wrong("structured_outputs", "and a `tool_choice` that forces calls exclude each other")


def chat_conversation(
    request: ChatRequest,
    messages: tuple[ChatMessage, ...],
    tools: list[dict[str, Any]] | None,
    use: ToolUse,
) -> Conversation:
    """What the template renders, `tools` as it takes them. Raises BadRequestError naming the field."""
    kwargs = request.chat_template_kwargs or {}
    check_template_kwargs(kwargs)
    continues = bool(request.continue_final_message)
    adds = not continues if request.add_generation_prompt is None else request.add_generation_prompt
    if continues and adds:
        raise wrong("continue_final_message", "and `add_generation_prompt` exclude each other")
    check_tool_messages(messages)
    if continues and (messages[-1].role != "assistant" or not messages[-1].content):
        raise wrong("continue_final_message", "needs an assistant message with content at the end")
    return Conversation(
        messages=messages,
        tools=tools,
        template_kwargs={**thinking_kwargs(request.reasoning_effort, request.enable_thinking), **kwargs},
        add_generation_prompt=adds,
        continue_final_message=continues,
        tool_use=use,
        forms_text=request.response_format is not None,
        thinking_budget=request.thinking_token_budget,
        documents=_documents(request.documents),
        adds_special_tokens=bool(request.add_special_tokens),
        processor_options=parse_processor_options(request.mm_processor_kwargs),
    )


def _documents(documents: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if documents is not None and len(documents) > MAX_DOCUMENTS:
        raise wrong("documents", f"has {len(documents):,} entries; allowed: up to {MAX_DOCUMENTS}")
    return documents or None


def check_template_kwargs(kwargs: Mapping[str, object]) -> None:
    """Raise BadRequestError for names that are not a template's."""
    if len(kwargs) > MAX_TEMPLATE_KWARGS:
        raise refuse("chat_template_kwargs", sorted(kwargs), f"up to {MAX_TEMPLATE_KWARGS} entries")
    for name in kwargs:
        if name in _TEMPLATE_NAMES or not name.isidentifier() or name.startswith("_"):
            raise BadRequestError(
                f"`chat_template_kwargs` may not set {name[:40]!r}",
                param=f"chat_template_kwargs.{name[:40]}",
            )


def thinking_kwargs(effort: str | None, enable_thinking: bool | None = None) -> dict[str, Any]:
    """What templates know `reasoning_effort` and `enable_thinking` by; one that does not passes over it."""
    found: dict[str, Any] = {}
    if effort == "none":
        found |= {"enable_thinking": False, "thinking": False}
    elif effort is not None:
        found["reasoning_effort"] = effort
    if enable_thinking is not None:
        found |= {"enable_thinking": enable_thinking, "thinking": enable_thinking}
    return found


def chat_params(
    request: ChatRequest, *, num_room: int, vocab_size: int, defaults: SamplingDefaults = NO_SAMPLING_DEFAULTS
) -> SamplingParams:
    """How to sample; `num_room` is what the prompt leaves of the context, the limit where none is named."""
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    wanted = num_room if request.wanted_tokens is None else request.wanted_tokens
    return sampling_params(
        request, max_tokens=max(1, wanted), vocab_size=vocab_size, logprobs=logprobs, defaults=defaults
    )
