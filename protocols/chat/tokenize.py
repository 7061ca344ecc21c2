"""`/tokenize` and `/detokenize`, with vLLM's fields: a text or a conversation as ids, and ids as text.

A text is read as `/v1/completions` would, a conversation as `/v1/chat/completions`. Knows no tokenizer. Read
next: `protocols/chat/request.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from ..errors import wrong
from ..shared.json_body import Encoded, decoder, unsupported
from .processor_options import RawProcessorKwargs
from .request import ChatRequest, Conversation, read_conversation

_OF_CHAT: Final = (
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
    "enable_thinking",
    "mm_processor_kwargs",
)


class TokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text, or messages with what their template is told."""

    prompt: str | None = None
    messages: list[Raw] | None = None
    model: str | None = None
    return_token_strs: bool | None = None
    add_special_tokens: bool | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    mm_processor_kwargs: RawProcessorKwargs = UNSET


class TokenizeResponse(Struct, frozen=True, kw_only=True):
    """Its ids."""

    count: int
    max_model_len: int
    tokens: Sequence[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ids to decode, special tokens left out."""

    tokens: list[int]
    model: str | None = None


class DetokenizeResponse(Struct, frozen=True):
    """Their text."""

    prompt: str


_decode_tokenize = decoder(TokenizeRequest)
_NULL: Final = Raw(b"null")


def parse_tokenize(body: Encoded) -> tuple[TokenizeRequest, str | Conversation]:
    """Read and check a body: it, and what is to be tokenized. Raises BadRequestError naming the field."""
    request = _decode_tokenize(body, "")
    if request.prompt is not None:
        if request.messages is not None:
            raise wrong("messages", "and `prompt` exclude each other")
        for name in _OF_CHAT:
            if getattr(request, name) not in (None, UNSET, _NULL):
                raise unsupported(name, "is for `messages`; here is a `prompt`")
        return request, request.prompt
    if request.messages is None:
        raise wrong("prompt", "is missing, and so is `messages`", code="missing_required_parameter")
    fields = {name: getattr(request, name) for name in (*_OF_CHAT, "add_special_tokens")}
    return request, read_conversation(ChatRequest(messages=request.messages, **fields))


parse_detokenize = decoder(DetokenizeRequest)
