"""The numbers of a form: which there are, what each may be, and how answers about a file are found by them.

The names are those of faster-whisper and OpenAI's own tool. `protocols/transcription/form.py` reads the rest
of the form; `actors/speech/retries/temperature_fallback.py` and `media/transcript/silence_filter.py` do what
is asked for here. `protocols/transcription/operations.py` makes the OpenAPI schema of the table here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ..errors import BadRequestError, wrong
from ..shared.generation import MAX_NGRAM_SIZE, MAX_REPETITION_PENALTY, MIN_REPETITION_PENALTY
from .hints import KEYWORD_BOOST, MAX_KEYWORD_BOOST, shown

MAX_TEMPERATURE: Final = 1.0
MAX_TEMPERATURES: Final = 8
MAX_CLIPS: Final = 256
"""Each may take a window of the encoder, as half a minute does."""
MAX_CLIP_S: Final = 7 * 24 * 3600.0
_MAX_ANSWERS: Final = 8
_LAYOUT: Final = "Of srt and vtt."


class Number(NamedTuple):
    """What a field may be, both ends included, and what it is where nothing is said."""

    low: float
    high: float
    usual: float | None
    is_whole: bool = False
    is_above: bool = False
    """All but `low` itself."""
    description: str = ""


MAX_AUDIO_TRACKS: Final = 64
"""As many streams as a file is opened with."""
NUMBERS: Final[Mapping[str, Number]] = {
    "best_of": Number(1, _MAX_ANSWERS, 1, is_whole=True),
    "beam_size": Number(1, _MAX_ANSWERS, 1, is_whole=True),
    "n": Number(1, _MAX_ANSWERS, 1, is_whole=True),
    "length_penalty": Number(0, 4, 1),
    "patience": Number(0, 4, 1, is_above=True),
    "top_p": Number(0, 1, 1, is_above=True),
    "top_k": Number(-1, 2**31 - 1, 0, is_whole=True),
    "min_p": Number(0, 1, 0),
    "presence_penalty": Number(-2, 2, 0),
    "frequency_penalty": Number(-2, 2, 0),
    "repetition_penalty": Number(MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY, 1),
    "no_repeat_ngram_size": Number(0, MAX_NGRAM_SIZE, 0, is_whole=True),
    "seed": Number(0, 2**63 - 1, None, is_whole=True),
    "keyword_boost": Number(
        0,
        MAX_KEYWORD_BOOST,
        KEYWORD_BOOST,
        description="How much likelier keywords are; 0: the model is told of them, no more.",
    ),
    "audio_track": Number(
        0,
        MAX_AUDIO_TRACKS - 1,
        None,
        is_whole=True,
        description="Which of a file's audio tracks, counted from 0; the default one if not given.",
    ),
    "hallucination_silence_threshold": Number(
        0,
        60,
        None,
        is_above=True,
        description="What is said while nobody is heard for so many seconds is left out.",
    ),
    "max_line_width": Number(1, 1000, None, is_whole=True, description=_LAYOUT),
    "max_line_count": Number(1, 4, None, is_whole=True, description=_LAYOUT),
    "max_words_per_line": Number(1, 20, None, is_whole=True, description=_LAYOUT),
}


def number_if_any(fields: Mapping[str, str], param: str) -> float | None:
    """What a field of the table says, or what it is where it says nothing. Raises BadRequestError."""
    known, text = NUMBERS[param], fields.get(param, "").strip()
    if not text:
        return known.usual
    number = parse_number(text, param, known)
    if known.is_above and number == known.low:
        raise wrong(param, f"must be above {known.low:g}")
    return number


def number_of(fields: Mapping[str, str], param: str) -> float:
    """The same of a field that has a usual value."""
    number = number_if_any(fields, param)
    assert number is not None, "it has a usual value"
    return number


def whole_if_any(fields: Mapping[str, str], param: str) -> int | None:
    """The same of a field that holds a whole number."""
    number = number_if_any(fields, param)
    return None if number is None else int(number)


def whole_of(fields: Mapping[str, str], param: str) -> int:
    """And of one that has a usual value, too."""
    return int(number_of(fields, param))


def parse_number(text: str, param: str, known: Number) -> float:
    """A number within its ends. Raises BadRequestError."""
    number: float = math.nan
    if not known.is_whole:
        with suppress(ValueError):
            number = float(text)
    elif whole := re.fullmatch(r"(-?[0-9]{1,20})(\.0*)?", text):
        number = int(whole[1])
    if not known.low <= number <= known.high:
        kind, ends = ("a whole number", "d") if known.is_whole else ("a number", "g")
        raise wrong(
            param, f"must be {kind} from {known.low:{ends}} to {known.high:{ends}}, not {shown(text)}"
        )
    return number


def parse_temperatures(values: Sequence[str]) -> tuple[float, ...]:
    """`temperature`: one, or those to be tried one after the other, rising. Raises BadRequestError."""
    param = "temperature"
    if len(values) > MAX_TEMPERATURES:
        raise wrong(param, f"holds more than {MAX_TEMPERATURES} values")
    if any(value.lstrip().startswith("[") for value in values):
        raise wrong(param, "is given once for each of several values, not as a list")
    known = Number(0, MAX_TEMPERATURE, None)
    temperatures = [parse_number(value, param, known) for value in values if value.strip()]
    for before, after in itertools.pairwise(temperatures):
        if after <= before:
            raise wrong(param, f"must rise from one value to the next: {after:g} follows {before:g}")
    return tuple(temperatures) or (0.0,)


def parse_best_of(fields: Mapping[str, str], temperatures: Sequence[float]) -> int:
    """`best_of`: how many answers are drawn at a temperature above 0. Raises BadRequestError."""
    best_of = whole_of(fields, "best_of")
    if best_of > 1 and not max(temperatures) > 0:
        raise wrong("best_of", "needs a `temperature` above 0")
    return best_of


def parse_beam_size(
    fields: Mapping[str, str], temperatures: Sequence[float], *, is_of_vllm: bool = False
) -> int:
    """`beam_size`: how many answers grow side by side at temperature 0; with vLLM's `use_beam_search` it is
    `n`. Raises BadRequestError."""
    param = "n" if is_of_vllm else "beam_size"
    if not is_of_vllm and whole_of(fields, "n") > 1:
        raise wrong("n", "is the number of beams, and needs `use_beam_search`")
    if is_of_vllm and fields.get("beam_size", "").strip():
        raise BadRequestError(
            "`beam_size` cannot be combined with `use_beam_search`, which has `n` beams", param="beam_size"
        )
    beam_size = whole_of(fields, param)
    if beam_size > 1 and min(temperatures) > 0:
        raise wrong(param, "needs a `temperature` of 0")
    return beam_size


def of_one_answer(fields: Mapping[str, str], param: str, beam_size: int) -> float:
    """A number that several beams go without. Raises BadRequestError."""
    number = number_of(fields, param)
    if number and beam_size > 1:
        raise wrong(param, "cannot be combined with `beam_size`")
    return number


def of_beams(fields: Mapping[str, str], param: str, beam_size: int) -> float:
    """A number that only several beams have. Raises BadRequestError."""
    number = number_of(fields, param)
    if number != NUMBERS[param].usual and beam_size == 1:
        raise wrong(param, "needs a `beam_size` above 1")
    return number


def parse_clips(values: Sequence[str]) -> tuple[float, ...]:
    """`clip_timestamps`: seconds, rising, with commas between them. Raises BadRequestError."""
    param = "clip_timestamps"
    parts = [part for value in values for part in value.split(",") if part.strip()]
    if len(parts) > 2 * MAX_CLIPS:
        raise wrong(param, f"names more than {MAX_CLIPS} clips")
    known = Number(0, MAX_CLIP_S, None)
    clips = tuple(parse_number(part, param, known) for part in parts)
    for index, (before, after) in enumerate(itertools.pairwise(clips)):
        if after < before or (after == before and index % 2 == 0):
            raise wrong(param, f"must rise, as start, end, start, end: {after:g} follows {before:g}")
    return clips
