"""What completions and chat share on the wire: how to sample, usage, stream options.

Translates to `SamplingParams`; knows no prompts and no tokenizer. Structured output is in
`protocols/shared/structured_outputs.py`; read next: `protocols/chat/completions.py` and
`protocols/chat/request.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..engine.messages import Replaced, SamplingParams
from ..errors import BadRequestError, wrong
from .json_body import check_range, refuse, shown, unsupported
from .sampling import MAX_INT, MAX_SEED, NO_SAMPLING_DEFAULTS, DecodingFields, SamplingDefaults
from .speculative import Drafted, check_drafts
from .structured_outputs import ResponseFormat, StructuredOutputs, grammar_of
from .unsupported_fields import check_unserved

MAX_CHOICES: Final = 128
"""Answers one request may ask for, all its prompts together."""
MAX_STOPS: Final = 16
MAX_STOP_CHARS: Final = 1024
_MAX_WRONG_KEYS: Final = 10
MAX_BIASES: Final = 4096
MAX_BAD_WORDS: Final = 1000
"""As many as vLLM takes."""
MAX_BAD_WORD_CHARS: Final = 128
MAX_TOKEN_IDS: Final = 16_384
"""Of one field, and never more than the vocabulary has: some milliseconds of the loop's time."""

FinishedBy = Literal["stop", "length"]


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a stream's chunks carry usage: in one more chunk at the end, or in every one."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None
    """Known, and refused where it is true: chunks are as long as their text."""


class GenerationRequest(Drafted, frozen=True, kw_only=True):
    """The fields both routes understand; how tokens are drawn is in `protocols/shared/sampling.py`."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: int | None = None
    max_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    """vLLM's: log-probabilities call token 5 `token_id:5`."""
    truncate_prompt_tokens: int | None = None
    """vLLM's: a longer prompt of completions is read without its beginning; -1: as long as fits."""
    skip_special_tokens: bool | None = None

    @property
    def num_choices(self) -> int:
        """Answers per prompt."""
        return 1 if self.n is None else self.n

    @property
    def numbers_tokens(self) -> bool:
        """Whether log-probabilities name tokens by their ids."""
        return bool(self.return_tokens_as_token_ids)

    @property
    def shows_special(self) -> bool:
        """Whether special tokens stand in the text by their names."""
        return self.skip_special_tokens is False

    @property
    def streams(self) -> bool:
        """Whether the answer is a stream."""
        return bool(self.stream)

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        """Whether every chunk has the usage so far."""
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)


def check_common(request: GenerationRequest) -> None:
    """Raise BadRequestError for the first field that is refused or out of range."""
    _check_refused(request)
    check_drafts(request)
    _check_texts("bad_words", request.bad_words or (), MAX_BAD_WORDS, MAX_BAD_WORD_CHARS)
    if request.stream_options is not None and not request.streams:
        raise wrong("stream_options", "needs `stream` true")
    if request.prompt_logprobs is not None and request.streams:
        raise unsupported("prompt_logprobs", "is not served with `stream`")


_SAME: Final = tuple(
    name
    for name in DecodingFields.__struct_fields__
    if name in SamplingParams.__struct_fields__ and name != "bad_words"
)
"""Fields that an engine has under the same name. It has words as tokens."""


def sampling_params(
    request: GenerationRequest,
    *,
    max_tokens: int,
    vocab_size: int,
    logprobs: int | None,
    defaults: SamplingDefaults = NO_SAMPLING_DEFAULTS,
    temperature: float = 1.0,
) -> SamplingParams:
    """How to sample one choice (`choice_params`: the further ones); `bad_words` are whoever's knows tokens.
    Raises BadRequestError.

    What the request does not say is as in `defaults`; `temperature` is for where neither says it.
    """
    check_common(request)
    check_range("max_tokens", max_tokens, 1, MAX_INT)
    min_tokens = request.min_tokens or 0
    if min_tokens > max_tokens:
        raise refuse("min_tokens", min_tokens, f"up to `max_tokens`, which is {max_tokens}")
    stated: dict[str, Any] = {"temperature": temperature}
    for source in (defaults, request):
        stated |= {name: value for name in _SAME if (value := getattr(source, name, None)) is not None}
    return SamplingParams(
        **stated
        | {
            "max_tokens": max_tokens,
            "top_k": max(0, int(stated.get("top_k", 0))),
            "stop": _stops(request.stop),
            "includes_stop": bool(request.include_stop_str_in_output),
            "stop_token_ids": _token_ids("stop_token_ids", request.stop_token_ids, vocab_size),
            "allowed_token_ids": _allowed(request.allowed_token_ids, vocab_size),
            "logit_bias": _logit_bias(request.logit_bias or {}, vocab_size),
            "grammar": grammar_of(request.response_format, request.structured_outputs),
            "logprobs": logprobs,
        }
    )


def choice_params(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters of choice `index`: seeded choices differ from each other, and each can be had again."""
    if params.seed is None or index == 0:
        return params
    return msgspec.structs.replace(params, seed=(params.seed + index) & MAX_SEED)


def _check_refused(request: GenerationRequest) -> None:
    if request.best_of is not None and request.best_of != request.num_choices:
        raise unsupported("best_of", f"is {request.best_of}; only `n` answers are made, and all are returned")
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        raise unsupported("stream_options.include_obfuscation", "is not supported; allowed: false")
    if request.include_stop_str_in_output and request.stop_token_ids:
        raise unsupported(
            "include_stop_str_in_output",
            "cannot be combined with `stop_token_ids`, whose text is not returned",
        )
    check_unserved(request)


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    _check_texts("stop", stops, MAX_STOPS, MAX_STOP_CHARS, is_one=isinstance(stop, str))
    return tuple(stops)


def _check_texts(
    param: str, texts: Sequence[str], most: int, most_chars: int, *, is_one: bool = False
) -> None:
    if len(texts) > most:
        raise refuse(param, texts, f"up to {most} strings")
    for index, each in enumerate(texts):
        if not 0 < len(each) <= most_chars:
            raise refuse(param if is_one else f"{param}[{index}]", each, f"1 to {most_chars} characters")


def _token_ids(param: str, ids: Sequence[int] | None, vocab_size: int) -> tuple[int, ...]:
    """Each id once, in rising order, so that equal sets are equal to whoever keeps them."""
    if not ids:
        return ()
    most = min(vocab_size, MAX_TOKEN_IDS)
    if len(ids) > most:
        raise wrong(param, f"has {len(ids)} entries; allowed: up to {most}")
    found = sorted(set(ids))
    if found[0] < 0 or found[-1] >= vocab_size:
        outside = found[0] if found[0] < 0 else found[-1]
        raise refuse(f"{param}[{ids.index(outside)}]", outside, f"token ids from 0 to {vocab_size - 1}")
    return tuple(found)


def _allowed(ids: Sequence[int] | None, vocab_size: int) -> tuple[int, ...] | None:
    if ids is None:
        return None
    if not ids:
        raise refuse("allowed_token_ids", ids, "at least one token id")
    return _token_ids("allowed_token_ids", ids, vocab_size)


def _logit_bias(biases: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    if len(biases) > MAX_BIASES:
        raise wrong("logit_bias", f"has {len(biases)} entries; allowed: up to {MAX_BIASES}")
    found: dict[int, float] = {}
    wrong_keys = [key for key in biases if not 0 <= _token_id(key) < vocab_size]
    if wrong_keys:
        keys = ", ".join(map(shown, wrong_keys[:_MAX_WRONG_KEYS]))
        more = f" and {len(wrong_keys) - _MAX_WRONG_KEYS} more" if len(wrong_keys) > _MAX_WRONG_KEYS else ""
        named = "key" if len(wrong_keys) == 1 else "keys"
        raise BadRequestError(
            f"`logit_bias` has the {named} {keys}{more}; allowed: token ids from 0 to {vocab_size - 1}",
            param=f"logit_bias.{wrong_keys[0][:40]}",
        )
    for key, bias in biases.items():
        check_range(f"logit_bias.{key}", bias, -100, 100)
        found[_token_id(key)] = bias  # "7" and "07" are one
    return tuple(found.items())


def _token_id(key: str) -> int:
    """-1 for what is none."""
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else -1


# --- answers -------------------------------------------------------------------------------------------


class PromptTokensDetails(Struct, frozen=True):
    """Of the prompt's tokens, those that were in the prefix cache; those of media, where there are any."""

    cached_tokens: int = 0
    image_tokens: int | UnsetType = UNSET
    """Of images and embeddings of them."""
    video_tokens: int | UnsetType = UNSET
    """An extension: of videos, without the text that says when a frame is."""
    audio_tokens: int | UnsetType = UNSET
    replaced_frames: list[Replaced] | UnsetType = UNSET
    """An extension: what was shown for the damaged frames of videos."""


class CompletionTokensDetails(Struct, frozen=True, kw_only=True):
    """Of the answers' tokens, those of what the model thinks; and how much of a prediction came true."""

    reasoning_tokens: int | UnsetType = UNSET
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET


class CompletionUsage(Struct, frozen=True, kw_only=True):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    """Of models that think, and where a `prediction` was made."""


class PromptLogprob(Struct, frozen=True, kw_only=True, gc=False):
    """vLLM's entry for one candidate of one prompt position."""

    logprob: float
    decoded_token: str
    rank: int


PromptLogprobList = list[dict[str, PromptLogprob] | None]
"""By token id (as a string); None for the first token, which nothing predicts."""


def stopped_by(
    stop: str | None, stop_token_id: int | None, requested: Sequence[int] | None
) -> str | int | None:
    """vLLM's `stop_reason`: the stop string that ended the answer, or the token, if it is one of those that
    the request stops at (`requested`)."""
    if stop is None and stop_token_id is not None and stop_token_id in (requested or ()):
        return stop_token_id
    return stop


def finished_by(reason: str | None) -> FinishedBy | None:
    """The wire's word for an engine's reason; None while there is none. Failures are errors, not reasons."""
    return "stop" if reason == "stop" else "length" if reason == "length" else None


def fitted(params: SamplingParams, room: int) -> SamplingParams:
    """`params` with no more tokens than the context leaves room for."""
    if params.max_tokens <= room:
        return params
    return msgspec.structs.replace(params, max_tokens=room, min_tokens=min(params.min_tokens, room))


def usage(
    num_prompt: int,
    num_completion: int,
    num_cached: int,
    *,
    num_image: int = 0,
    num_video: int = 0,
    num_audio: int = 0,
    replaced: Sequence[Replaced] = (),
) -> CompletionUsage:
    """Usage in OpenAI's shape."""
    return CompletionUsage(
        prompt_tokens=num_prompt,
        completion_tokens=num_completion,
        total_tokens=num_prompt + num_completion,
        prompt_tokens_details=PromptTokensDetails(
            num_cached, num_image or UNSET, num_video or UNSET, num_audio or UNSET, list(replaced) or UNSET
        ),
    )


def sse(chunk: Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def named_sse(*events: Struct) -> bytes:
    """Server-sent events, each named by its type."""
    return b"".join(
        b"event: %s\n%s" % (str(each.__struct_config__.tag).encode(), sse(each)) for each in events
    )
