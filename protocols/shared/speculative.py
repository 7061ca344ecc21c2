"""Drafts a request brings or asks for: `prediction` (OpenAI's) and `speculative`. They change no token.

Guesses are verified by the model, so an answer is the same with any of them, sooner where they are right.
Knows no tokenizer. Inherited by `protocols/shared/generation.py`; `engine/planning/proposers.py` proposes.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from ..engine.messages import NgramDraft
from ..errors import wrong
from .json_body import check_range, refuse
from .unsupported_fields import Unserved

MAX_DRAFTS: Final = 64
MAX_MATCH: Final = 16
MAX_PREDICTION_CHARS: Final = 1_000_000
_MAX_PARTS: Final = 256


class PredictionPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a predicted answer."""

    type: str
    text: str


class Prediction(Struct, frozen=True, forbid_unknown_fields=True):
    """What the answer will mostly be, as a file that is to be changed in one place."""

    type: str
    content: str | list[PredictionPart]


class Speculative(Struct, frozen=True, forbid_unknown_fields=True):
    """How to guess ahead, by the names vLLM has for it; 0 tokens: not at all."""

    method: str = "ngram"
    num_speculative_tokens: Annotated[int, Meta(ge=0, le=MAX_DRAFTS)] | None = None
    prompt_lookup_max: Annotated[int, Meta(ge=1, le=MAX_MATCH)] | None = None
    prompt_lookup_min: int | None = None


class Drafted(Unserved, frozen=True, kw_only=True):
    """The fields."""

    prediction: Prediction | None = None
    speculative: Speculative | None = None


def check_drafts(request: Drafted) -> None:
    """Raise BadRequestError naming the field."""
    if request.prediction is not None:
        predicted_text(request.prediction)
    options = request.speculative
    if options is None:
        return
    if options.method != "ngram":
        raise refuse("speculative.method", options.method, "ngram")
    most = options.prompt_lookup_max or MAX_MATCH
    check_range("speculative.prompt_lookup_min", options.prompt_lookup_min, 1, most)


def predicted_text(prediction: Prediction) -> str:
    """The text predicted. Raises BadRequestError naming the field."""
    if prediction.type != "content":
        raise refuse("prediction.type", prediction.type, "content")
    if isinstance(prediction.content, str):
        text = prediction.content
    else:
        if len(prediction.content) > _MAX_PARTS:
            raise refuse("prediction.content", f"{len(prediction.content)} parts", f"up to {_MAX_PARTS}")
        for index, part in enumerate(prediction.content):
            if part.type != "text":
                raise refuse(f"prediction.content[{index}].type", part.type, "text")
        text = "".join(part.text for part in prediction.content)
    if len(text) > MAX_PREDICTION_CHARS:
        raise wrong(
            "prediction.content", f"has {len(text):,} characters; allowed: up to {MAX_PREDICTION_CHARS:,}"
        )
    return text


def ngram_draft(options: Speculative | None, num_default: int) -> NgramDraft | None:
    """Prompt lookup as a checked request asks for it; `num_default` tokens where it says nothing."""
    requested = None if options is None else options.num_speculative_tokens
    num = num_default if requested is None else requested
    if options is not None and requested is None and not num_default:
        num = NgramDraft().num_tokens
    if not num:
        return None
    usual, options = NgramDraft(), options or Speculative()
    most = options.prompt_lookup_max or max(usual.max_match, options.prompt_lookup_min or 0)
    return NgramDraft(num, most, options.prompt_lookup_min or min(usual.min_match, most))
