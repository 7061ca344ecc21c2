"""How answers about a file are found: what a form says of temperatures, attempts, numbers and silence.

The names are those of faster-whisper and OpenAI's own tool. `protocols/transcription_form.py` reads the rest
of the form; `actors/speech/attempts.py` and `actors/speech/unheard.py` do what is asked for here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from .errors import BadRequestError
from .generation import MAX_NGRAM_SIZE, MAX_REPETITION_PENALTY, MIN_REPETITION_PENALTY
from .hints import KEYWORD_BOOST, MAX_KEYWORD_BOOST, shown

MAX_TEMPERATURE: Final = 1.0
MAX_TEMPERATURES: Final = 8
MAX_ANSWERS: Final = 8
MAX_LENGTH_PENALTY: Final = 4.0
MAX_PATIENCE: Final = 4.0
MAX_SILENCE_S: Final = 60.0
MAX_CLIPS: Final = 256
"""Each may take a window of the encoder, as half a minute does."""
MAX_CLIP_S: Final = 7 * 24 * 3600.0
MAX_SEED: Final = 2**63 - 1
_MAX_TOP_K: Final = 2**31 - 1


def parse_temperatures(values: Sequence[str]) -> tuple[float, ...]:
    """`temperature`: one, or those to be tried one after the other, rising. Raises BadRequestError."""
    param = "temperature"
    if len(values) > MAX_TEMPERATURES:
        raise BadRequestError(f"`{param}` holds more than {MAX_TEMPERATURES} values", param=param)
    if any(value.lstrip().startswith("[") for value in values):
        raise BadRequestError(
            f"`{param}` is said once for each of several values, not as a list", param=param
        )
    temperatures = [_number(value, param, MAX_TEMPERATURE) for value in values if value.strip()]
    for before, after in itertools.pairwise(temperatures):
        if after <= before:
            raise BadRequestError(
                f"`{param}` must rise from one value to the next: {after:g} follows {before:g}", param=param
            )
    return tuple(temperatures) or (0.0,)


def parse_best_of(fields: Mapping[str, str], temperatures: Sequence[float]) -> int:
    """`best_of`: how many answers are drawn at a temperature above 0. Raises BadRequestError."""
    best_of = _count(fields, "best_of")
    if best_of > 1 and not max(temperatures) > 0:
        raise BadRequestError("`best_of` needs a `temperature` above 0", param="best_of")
    return best_of


def parse_beam_size(
    fields: Mapping[str, str], temperatures: Sequence[float], *, is_of_vllm: bool = False
) -> int:
    """`beam_size`: how many answers grow side by side at temperature 0; with vLLM's `use_beam_search` it is
    `n`. Raises BadRequestError."""
    param = "n" if is_of_vllm else "beam_size"
    if not is_of_vllm and _count(fields, "n") > 1:
        raise BadRequestError("`n` is the number of beams, and needs `use_beam_search`", param="n")
    if is_of_vllm and fields.get("beam_size", "").strip():
        raise BadRequestError(
            "`use_beam_search` has `n` beams: it goes without `beam_size`", param="beam_size"
        )
    beam_size = _count(fields, param)
    if beam_size > 1 and min(temperatures) > 0:
        raise BadRequestError(f"`{param}` needs a `temperature` of 0", param=param)
    return beam_size


def parse_penalty(fields: Mapping[str, str], param: str, beam_size: int) -> float:
    """`presence_penalty` or `frequency_penalty`, which several beams go without. Raises BadRequestError."""
    penalty = parse_within(fields, param, -2, 2, usual=0)
    if penalty and beam_size > 1:
        raise BadRequestError(f"`{param}` goes without `beam_size`", param=param)
    return penalty


def parse_repetition_penalty(fields: Mapping[str, str]) -> float:
    """`repetition_penalty`: what was said is less likely above 1. Raises BadRequestError."""
    low, high = MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY
    return parse_within(fields, "repetition_penalty", low, high, usual=1)


def parse_top_p(fields: Mapping[str, str]) -> float:
    """`top_p`: of what is drawn the likeliest up to so much probability. Raises BadRequestError."""
    top_p = parse_within(fields, "top_p", 0, 1, usual=1)
    if not top_p:
        raise BadRequestError("`top_p` must be above 0", param="top_p")
    return top_p


def parse_top_k(fields: Mapping[str, str]) -> int:
    """`top_k`: of what is drawn the so many likeliest; 0 and -1: all. Raises BadRequestError."""
    return max(0, _whole(fields, "top_k", -1, _MAX_TOP_K, usual=0))


def parse_within(fields: Mapping[str, str], param: str, low: float, high: float, *, usual: float) -> float:
    """A number; `usual` where none is given. Raises BadRequestError."""
    text = fields.get(param, "").strip()
    if not text:
        return usual
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise BadRequestError(
            f"`{param}` must be a number from {low:g} to {high:g}, not {shown(text)}", param=param
        )
    return number


def parse_ngram_size(fields: Mapping[str, str]) -> int:
    """`no_repeat_ngram_size`: no so many tokens in a row come twice; 0: they may. Raises BadRequestError."""
    return _whole(fields, "no_repeat_ngram_size", 0, MAX_NGRAM_SIZE, usual=0)


def parse_length_penalty(fields: Mapping[str, str], beam_size: int) -> float:
    """`length_penalty`: how much several beams favour longer answers. Raises BadRequestError."""
    return _of_beams(fields, "length_penalty", MAX_LENGTH_PENALTY, beam_size)


def parse_patience(fields: Mapping[str, str], beam_size: int) -> float:
    """`patience`: how long several beams look for a better answer. Raises BadRequestError."""
    patience = _of_beams(fields, "patience", MAX_PATIENCE, beam_size)
    if not patience:
        raise BadRequestError("`patience` must be above 0", param="patience")
    return patience


def parse_keyword_boost(fields: Mapping[str, str]) -> float:
    """`keyword_boost`: how much likelier keywords are. Raises BadRequestError."""
    return parse_within(fields, "keyword_boost", 0, MAX_KEYWORD_BOOST, usual=KEYWORD_BOOST)


def parse_silence_s(fields: Mapping[str, str]) -> float | None:
    """`hallucination_silence_threshold`: seconds. Raises BadRequestError."""
    param = "hallucination_silence_threshold"
    value = fields.get(param, "")
    if not value.strip():
        return None
    seconds = _number(value, param, MAX_SILENCE_S)
    if not seconds:
        raise BadRequestError(f"`{param}` must be above 0 seconds", param=param)
    return seconds


def parse_clips(values: Sequence[str]) -> tuple[float, ...]:
    """`clip_timestamps`: seconds, rising, with commas between them. Raises BadRequestError."""
    param = "clip_timestamps"
    said = [part for value in values for part in value.split(",") if part.strip()]
    if len(said) > 2 * MAX_CLIPS:
        raise BadRequestError(f"`{param}` names more than {MAX_CLIPS} clips", param=param)
    clips = tuple(_number(part, param, MAX_CLIP_S) for part in said)
    for index, (before, after) in enumerate(itertools.pairwise(clips)):
        if after < before or (after == before and index % 2 == 0):
            raise BadRequestError(
                f"`{param}` must rise, as start, end, start, end: {after:g} follows {before:g}", param=param
            )
    return clips


def parse_seed(value: str) -> int | None:
    """`seed`; None if it is empty. Raises BadRequestError."""
    return _whole({"seed": value}, "seed", 0, MAX_SEED, usual=0) if value.strip() else None


def _number(value: str, param: str, most: float) -> float:
    return parse_within({param: value}, param, 0, most, usual=math.nan)


def _of_beams(fields: Mapping[str, str], param: str, most: float, beam_size: int) -> float:
    value = parse_within(fields, param, 0, most, usual=1)
    if value != 1 and beam_size == 1:
        raise BadRequestError(f"`{param}` needs a `beam_size` above 1", param=param)
    return value


def _count(fields: Mapping[str, str], param: str) -> int:
    return _whole(fields, param, 1, MAX_ANSWERS, usual=1)


def _whole(fields: Mapping[str, str], param: str, low: int, high: int, *, usual: int) -> int:
    text = fields.get(param, "").strip()
    if not text:
        return usual
    if not (re.fullmatch("-?[0-9]{1,20}", text) and low <= int(text) <= high):
        raise BadRequestError(
            f"`{param}` must be a whole number from {low} to {high}, not {shown(text)}", param=param
        )
    return int(text)
