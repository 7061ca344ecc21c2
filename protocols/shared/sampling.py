"""The sampling options: how tokens are drawn, each option declared once, with its range and description.

`SamplingFields` are the fields of every dialect that generates text, `DecodingFields` those that only chat,
completions and `LocalEngine` have besides. A request inherits them; msgspec checks the ranges when it decodes
a body, and puts them into the OpenAPI document; `check_ranges` of `protocols/shared/json_body.py` is for
requests that were not decoded.
`protocols/shared/generation.py` makes `SamplingParams` of them. Transcriptions have some of these options,
too, and take their types from here (`protocols/transcription/options.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Annotated, Final, get_args

from msgspec import Meta, Struct, structs

MAX_TEMPERATURE: Final = 2.0
MIN_REPETITION_PENALTY: Final = 0.01
"""Logits are divided by it, and must stay finite."""
MAX_REPETITION_PENALTY: Final = 10.0
MAX_NGRAM_SIZE: Final = 128
MAX_LOGPROBS: Final = 20
MAX_SEED: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1

Temperature = Annotated[
    float, Meta(ge=0, le=MAX_TEMPERATURE, description="How freely tokens are drawn; 0: always the likeliest.")
]
TopP = Annotated[
    float, Meta(gt=0, le=1, description="Draw from the likeliest tokens up to this total probability.")
]
TopK = Annotated[
    int,
    Meta(ge=-1, le=MAX_INT, description="Draw from this many of the likeliest tokens; 0 or -1: all."),
]
MinP = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Draw from tokens of at least this share of the likeliest's probability.",
    ),
]
Seed = Annotated[int, Meta(ge=-MAX_SEED - 1, le=MAX_SEED, description="The same seed draws the same answer.")]
PresencePenalty = Annotated[
    float,
    Meta(ge=-2, le=2, description="Make tokens of the answer so far less likely, once for each token."),
]
FrequencyPenalty = Annotated[
    float,
    Meta(ge=-2, le=2, description="Make tokens of the answer so far less likely, each time they come."),
]
RepetitionPenalty = Annotated[
    float,
    Meta(
        ge=MIN_REPETITION_PENALTY,
        le=MAX_REPETITION_PENALTY,
        description="Make tokens that came before less likely, those of the prompt too; 1: off.",
    ),
]
NgramSize = Annotated[
    int, Meta(ge=0, le=MAX_NGRAM_SIZE, description="Let no sequence of this many tokens come twice; 0: off.")
]
Priority = Annotated[int, Meta(ge=-1000, le=1000, description="Lower runs first, within a class of service.")]
CacheSalt = Annotated[
    str,
    Meta(min_length=1, max_length=256, description="Only requests with the same salt share cached prefixes."),
]
Count = Annotated[int, Meta(ge=0, le=MAX_INT)]
TokenLimit = Annotated[int, Meta(ge=1, le=MAX_INT)]
NumLogprobs = Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)]


class SamplingFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of chat, completions and responses. Null means the default, as OpenAI's clients send it."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    stop: str | Sequence[str] | None = None
    presence_penalty: PresencePenalty | None = None
    frequency_penalty: FrequencyPenalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    ignore_eos: bool | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None


class DecodingFields(SamplingFields, frozen=True, kw_only=True):
    """Of chat and completions only."""

    min_tokens: Count | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool | None = None
    """The stop string that ends the answer is its last text."""
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    """Words that do not come, as the model writes them at a beginning and after a space."""
    no_repeat_ngram_size: NgramSize | None = None
    """transformers': of prompt and answer together."""
    prompt_logprobs: NumLogprobs | None = None


class SamplingDefaults(Struct, frozen=True, kw_only=True):
    """What a model's checkpoint states about sampling; None where it states nothing."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None


NO_SAMPLING_DEFAULTS: Final = SamplingDefaults()


def range_of(hint: object) -> Meta | None:
    """The declared range of a type, or of one of a union."""
    for part in (hint, *get_args(hint)):
        for note in getattr(part, "__metadata__", ()):
            if (note.le, note.max_length) != (None, None):
                found: Meta = note
                return found
    return None


@lru_cache
def ranges_of(kind: type[Struct]) -> Mapping[str, Meta]:
    """The declared range of each field that has one."""
    ranges = {field.name: range_of(field.type) for field in structs.fields(kind)}
    return {name: limits for name, limits in ranges.items() if limits is not None}


def is_outside(value: object, meta: Meta) -> bool:
    """Whether a number, or the length of a text, is out of its declared range."""
    if isinstance(value, str):
        return not (meta.min_length or 0) <= len(value) <= (meta.max_length or math.inf)
    low, high = (meta.gt if meta.ge is None else meta.ge), meta.le
    if low is None or high is None or not isinstance(value, Real):
        return False
    return not low <= float(value) <= high or value == meta.gt


def allowed_range(meta: Meta) -> str:
    """A declared range, in words."""
    if meta.max_length is not None:
        return f"{meta.min_length or 0} to {meta.max_length} characters"
    low, high = (f"{end:g}" if isinstance(end, float) else str(end) for end in (meta.ge, meta.le))
    return f"{low} to {high}" if meta.gt is None else f"above {meta.gt} up to {high}"
