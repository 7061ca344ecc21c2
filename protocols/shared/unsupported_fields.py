"""Fields of OpenAI's and vLLM's requests that are known here and not served.

None of them is passed over: it may say what is done anyway, or nothing, and else is refused by its name. What
no API defines is refused by the decoder. A few only mark a request for its sender's own books, and are read
by nobody. Inherited by `protocols/shared/generation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import wrong
from .foreign_options import OF_TEXT
from .sampling import DecodingFields

_Field = Raw | UnsetType

SERVICE_TIERS: Final = ('"auto"', '"default"', '"flex"', '"priority"', '"scale"')
"""All are served alike, and the answer says which one it was: the default."""

VERBOSITIES: Final = ("low", "medium", "high")
"""All pass: agents of OpenAI's send one beside all else, and no model here was taught to heed it."""

DONE_ANYWAY: Final[dict[str, tuple[str, ...]]] = {
    "detokenize": ("true",),
    "early_stopping": ("false",),
    "length_penalty": ("1", "1.0"),
    "service_tier": SERVICE_TIERS,
    "spaces_between_special_tokens": ("true",),
    "store": ("false", "true"),
    "use_beam_search": ("false",),
    "verbosity": tuple(f'"{each}"' for each in VERBOSITIES),
}
"""What a field may say, as JSON, because it is so, or changes no answer (nothing is stored); null may be
said of every field."""

MARKS: Final = frozenset(
    {"metadata", "request_id", "safety_identifier", "session_id", "user"}
    | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
)
"""Read by nobody: they change no answer. Whatever fits is cached; whose cache is whose is told by the API key
and `cache_salt`."""


NEUTRAL: Final[dict[str, tuple[str, ...]]] = {
    "cache_prompt": ("true",),
    "do_sample": ("true",),
    "dry_multiplier": ("0",),
    "dynatemp_range": ("0",),
    "guidance_scale": ("1",),
    "id_slot": ("-1",),
    "lora_path": (),
    "mirostat": ("0",),
    "n_keep": ("0",),
    "n_predict": ("-1",),
    "n_probs": ("0",),
    "no_stop_trim": ("false",),
    "num_beams": ("1",),
    "num_return_sequences": ("1",),
    "post_sampling_probs": ("false",),
    "reasoning_format": ('"auto"', '"deepseek"'),
    "repeat_penalty": ("1",),
    "return_hidden_states": ("false",),
    "return_progress": ("false",),
    "separate_reasoning": ("true",),
    "stream_reasoning": ("true",),
    "tfs_z": ("1",),
    "timings_per_token": ("false",),
    "top_n_sigma": ("-1", "0"),
    "typical_p": ("1",),
    "xtc_probability": ("0",),
}
"""What fields of llama.cpp, SGLang and transformers may state, because it is so here; their clients send
these unasked. Any other value is refused as an unknown field, with what there is instead."""


def is_neutral(name: str, value: Raw) -> bool:
    """Whether a field that no struct has asks for nothing but what is done here; null asks for nothing."""
    stated = bytes(value).decode(errors="replace").strip()
    if stated == "null":
        return name in NEUTRAL or name in OF_TEXT
    return any(
        stated == each or _number(stated) == _number(each) is not None for each in NEUTRAL.get(name, ())
    )


def _number(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None


class Unserved(DecodingFields, frozen=True, kw_only=True):
    """The fields, not decoded further, after those that are served: a struct has one base."""

    detokenize: _Field = UNSET
    early_stopping: _Field = UNSET
    length_penalty: _Field = UNSET
    service_tier: _Field = UNSET
    spaces_between_special_tokens: _Field = UNSET
    store: _Field = UNSET
    use_beam_search: _Field = UNSET
    verbosity: _Field = UNSET
    metadata: _Field = UNSET
    prompt_cache_key: _Field = UNSET
    prompt_cache_options: _Field = UNSET
    prompt_cache_retention: _Field = UNSET
    request_id: _Field = UNSET
    safety_identifier: _Field = UNSET
    session_id: _Field = UNSET
    user: _Field = UNSET
    audio: _Field = UNSET
    documents: _Field = UNSET
    function_call: _Field = UNSET
    functions: _Field = UNSET
    guided_choice: _Field = UNSET
    guided_decoding_backend: _Field = UNSET
    guided_grammar: _Field = UNSET
    guided_json: _Field = UNSET
    guided_regex: _Field = UNSET
    kv_transfer_params: _Field = UNSET
    logits_processors: _Field = UNSET
    moderation: _Field = UNSET
    vllm_xargs: _Field = UNSET
    web_search_options: _Field = UNSET


UNSERVED: Final = tuple(Unserved.__annotations__)
_INSTEAD: Final = {
    "functions": "describe them in `tools`",
    "function_call": "choose by `tool_choice`",
    "logits_processors": "`logit_bias`, `bad_words` and `structured_outputs` bound what is drawn",
}
_FIELDS: Final = {name: DONE_ANYWAY.get(name, ()) for name in UNSERVED if name not in MARKS}


def answered_tier(value: _Field) -> Literal["default"] | UnsetType:
    """What an answer says of `service_tier`: nothing, unless it was asked for."""
    return UNSET if isinstance(value, UnsetType) or bytes(value) == b"null" else "default"


def check_unserved(request: Struct, fields: Mapping[str, tuple[str, ...]] = _FIELDS) -> None:
    """Raise BadRequestError for the first of these `fields` that asks for what is not done; with each is what
    it may say as JSON, beside null."""
    for name, allowed in fields.items():
        value = getattr(request, name)
        if not isinstance(value, Raw):
            continue
        text = bytes(value).decode(errors="replace").strip()
        if text == "null" or text in allowed:
            continue
        reason = "is not served"
        if allowed:
            reason = f"is not served here, but as {allowed[0]}"
        elif name.startswith("guided_") and name != "guided_decoding_backend":
            reason = f"is not served; use `structured_outputs.{name.removeprefix('guided_')}`"
        elif name in _INSTEAD:
            reason = f"is not served; {_INSTEAD[name]}"
        raise wrong(name, f"{reason}.", code="unsupported_parameter")
