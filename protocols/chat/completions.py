"""`/v1/completions` in OpenAI's shape, with vLLM's extra fields.

Requests become prompts and `SamplingParams`, token logprobs become OpenAI's four parallel lists. Knows no
tokenizer and no sockets. The shared fields are in `protocols/shared/generation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..engine.messages import SamplingParams
from ..errors import wrong
from ..shared.generation import (
    MAX_CHOICES,
    CompletionUsage,
    FinishedBy,
    GenerationRequest,
    PromptLogprobList,
    check_common,
    sampling_params,
)
from ..shared.json_body import Encoded, check_range, decoder, refuse, unsupported
from ..shared.sampling import MAX_INT, NO_SAMPLING_DEFAULTS, NumLogprobs, SamplingDefaults

DEFAULTMAX_INT: Final = 16

Prompt = str | tuple[int, ...]


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    """The body of `/v1/completions`."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: NumLogprobs | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None
    mm_processor_kwargs: dict[str, Any] | None = None

    @property
    def echoes(self) -> bool:
        """Whether the answers begin with the prompt."""
        return bool(self.echo)

    @property
    def num_generated(self) -> int:
        """Tokens to make; 0 asks for the prompt's echo alone."""
        return DEFAULTMAX_INT if self.max_tokens is None else self.max_tokens


_decode_request = decoder(CompletionRequest)


def parse_completion(body: Encoded) -> CompletionRequest:
    """Read and check a body, as far as that needs no model. Raises BadRequestError naming the field."""
    request = _decode_request(body, "")
    check_common(request)
    if request.suffix:
        raise unsupported("suffix", "is not supported by the models here")
    if request.mm_processor_kwargs:
        raise unsupported("mm_processor_kwargs", "is for images and videos, of which a prompt has none")
    if request.truncate_prompt_tokens == 0:
        raise refuse("truncate_prompt_tokens", 0, "-1, or 1 and more")
    check_range("truncate_prompt_tokens", request.truncate_prompt_tokens, -1, MAX_INT)
    check_range("max_tokens", request.max_tokens, 0 if request.echoes else 1, MAX_INT)
    if request.echoes and request.logprobs is not None and request.streams:
        raise unsupported("logprobs", "with `echo` is not served with `stream`")
    num_choices = len(prompts_of(request)) * request.num_choices
    if num_choices > MAX_CHOICES:
        raise wrong("prompt", f"and `n` ask for {num_choices} answers; allowed: up to {MAX_CHOICES}")
    return request


def prompts_of(request: CompletionRequest) -> tuple[Prompt, ...]:
    """The prompts in order: texts, or token ids. Raises BadRequestError for an empty or mixed list."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return (_prompt("prompt", prompt),)
    if not prompt:
        raise refuse("prompt", prompt, "a text, a list of texts, token ids, or lists of token ids")
    if isinstance(prompt[0], int):
        return (_prompt("prompt", prompt),)
    kind = type(prompt[0])
    for index, each in enumerate(prompt):
        if type(each) is not kind:
            raise refuse(f"prompt[{index}]", each, "the same kind as prompt[0]")
    return tuple(_prompt(f"prompt[{index}]", each) for index, each in enumerate(prompt))


def _prompt(param: str, prompt: object) -> Prompt:
    if isinstance(prompt, str):
        if not prompt:
            raise refuse(param, prompt, "a text that is not empty")
        return prompt
    assert isinstance(prompt, list)
    if not prompt:
        raise refuse(param, prompt, "at least one token id")
    for index, token_id in enumerate(prompt):
        if type(token_id) is not int or token_id < 0:
            raise refuse(f"{param}[{index}]", token_id, "token ids")
    return tuple(prompt)


def completion_params(
    request: CompletionRequest, *, vocab_size: int, defaults: SamplingDefaults = NO_SAMPLING_DEFAULTS
) -> SamplingParams:
    """How to sample. With `echo` and `logprobs` the prompt's log-probabilities are asked for too."""
    params = sampling_params(
        request,
        max_tokens=max(1, request.num_generated),
        vocab_size=vocab_size,
        logprobs=request.logprobs,
        defaults=defaults,
    )
    if request.echoes and request.logprobs is not None:
        wanted = max(request.logprobs, request.prompt_logprobs or 0)
        params = msgspec.structs.replace(params, prompt_logprobs=wanted)
    return params


# --- answers -------------------------------------------------------------------------------------------


class CompletionLogprobs(Struct, frozen=True):
    """Parallel lists, one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]
    """Where the token begins in the choice's text, in characters."""


class CompletionChoice(Struct, frozen=True, kw_only=True):
    """One answer, or a piece of one in a stream (`finish_reason` null until the last)."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishedBy | None = None
    stop_reason: str | int | None = None
    """The stop string that ended it."""
    token_ids: Sequence[int] | UnsetType | None = UNSET
    prompt_token_ids: Sequence[int] | UnsetType | None = UNSET
    prompt_logprobs: PromptLogprobList | UnsetType | None = UNSET


class Completion(Struct, frozen=True, kw_only=True):
    """The answer of `/v1/completions`, and every chunk of its stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    object: Literal["text_completion"] = "text_completion"
