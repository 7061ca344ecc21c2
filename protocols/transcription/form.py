"""The form of a transcription or translation request: its text fields become a `TranscriptionRequest`.

The `file` part is the server's business; the answer is `protocols/transcription/rest.py`'s. Fields that
nobody defines are refused by name, so that a misspelt or foreign option is never silently lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal, get_args

from msgspec import Struct

from ..errors import BadRequestError, wrong
from ..shared.foreign_options import meant
from .decoding_form import (
    NUMBERS,
    number_if_any,
    number_of,
    of_beams,
    of_one_answer,
    parse_beam_size,
    parse_best_of,
    parse_clips,
    parse_number,
    parse_temperatures,
    whole_if_any,
    whole_of,
)
from .form_defaults import is_done_anyway
from .hints import MAX_KEYWORDS, parse_keywords, parse_language, parse_languages, shown
from .numerals import parse_numerals
from .subtitle_form import SUBTITLES, check_subtitles, parse_cue_layout
from .transcript import Task, TranscriptionOptions
from .vad_form import parse_speech_filter

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "tsv"]
StreamDialect = Literal["openai", "vllm"]

TIMED_TEXTS: Final = (*SUBTITLES, "tsv")
"""Documents with times, which come as a whole."""
MAX_PROMPT_CHARS: Final = 10_000

_LISTS: Final = frozenset(
    {
        "timestamp_granularities",
        "include",
        "languages",
        "keywords",
        "hotwords",
        "temperature",
        "clip_timestamps",
    }
)
_BOOLEANS: Final = frozenset(
    {
        "use_beam_search",
        "stream",
        "stream_include_usage",
        "stream_continuous_usage_stats",
        "condition_on_previous_text",
        "multichannel",
        "vad_filter",
        "highlight_words",
    }
)
_CHOICES: Final = {
    "response_format": get_args(ResponseFormat),
    "dialect": get_args(StreamDialect),
    "numerals": ("words", "digits"),
    "timestamp_granularities": ("word", "segment"),
    "include": ("logprobs",),
}
_SCALARS: Final = frozenset(
    {
        "model",
        "language",
        "prompt",
        "response_format",
        "dialect",
        "chunking_strategy",
        "numerals",
        "url",
        "vad_parameters",
        *_BOOLEANS,
        *NUMBERS,
    }
)
_OBJECTS: Final = ("chunking_strategy[", "vad_parameters[")
"""Beginnings of the fields of an object that is not sent as JSON."""
_UNSUPPORTED: Final = frozenset({"known_speaker_names", "known_speaker_references"})
_TASKS: Final = frozenset({"task", "translate", "to_language", "target_language"})


class TranscriptionRequest(Struct, frozen=True, kw_only=True):
    """What a form asks for. `model` None: the client named none."""

    model: str | None
    options: TranscriptionOptions
    response_format: ResponseFormat = "json"
    highlight_words: bool = False
    """Subtitles underline each word while it is spoken."""
    stream: bool = False
    dialect: StreamDialect = "openai"
    """Of a stream's frames."""
    include_usage: bool = False
    """vLLM's: a last frame says what the transcript took."""
    url: str = ""
    """The address of the file, or a data: URI, where none is sent."""


def parse_transcription_form(
    fields: Iterable[tuple[str, str]], *, task: Task = "transcribe"
) -> TranscriptionRequest:
    """Read the text fields of a transcription (or translation) form.

    `fields` are (name, value) in order, those of the address among them, the `file` part left out. Lists
    may be written `name[]` or `name`. Other servers' fields may state what is done anyway; else they are
    refused, and so is any other name.
    Raises `BadRequestError` whose `param` names the field.
    """
    scalars, lists = _collect(fields, task)
    response_format = _response_format(scalars.get("response_format", "").strip() or "json")
    granularities = _granularities(_filled(lists.get("timestamp_granularities", [])), response_format)
    stream = _boolean(scalars, "stream")
    if stream and response_format in TIMED_TEXTS:
        raise wrong(
            "stream", f"needs a `response_format` of json, text or `verbose_json`, not {response_format}"
        )
    if highlight_words := _boolean(scalars, "highlight_words"):
        check_subtitles("highlight_words", response_format)
    frames, include_usage = _dialect(scalars, stream=stream)
    if stream and frames == "vllm" and response_format == "verbose_json":
        raise wrong("stream", "in vLLM's frames has no segments: ask for json")
    prompt = scalars.get("prompt", "")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise wrong("prompt", f"is longer than {MAX_PROMPT_CHARS} characters")
    temperatures = parse_temperatures(lists.get("temperature", []))
    beam_size = parse_beam_size(scalars, temperatures, is_of_vllm=_boolean(scalars, "use_beam_search"))
    clips = parse_clips(lists.get("clip_timestamps", []))
    speech_filter = parse_speech_filter(is_filtered=_boolean(scalars, "vad_filter"), fields=scalars)
    if clips and speech_filter is not None:
        raise wrong("clip_timestamps", "cannot be combined with `vad_filter` or `chunking_strategy`")
    options = TranscriptionOptions(
        language=parse_language(scalars.get("language", ""), param="language"),
        languages=parse_languages(_filled(lists.get("languages", [])), param="languages"),
        keywords=_keywords(lists),
        keyword_boost=number_of(scalars, "keyword_boost"),
        prompt=prompt,
        task=task,
        numerals=parse_numerals(scalars.get("numerals", "")),
        temperature=temperatures[0],
        fallback_temperatures=temperatures[1:],
        best_of=parse_best_of(scalars, temperatures),
        beam_size=beam_size,
        length_penalty=of_beams(scalars, "length_penalty", beam_size),
        patience=of_beams(scalars, "patience", beam_size),
        top_p=number_of(scalars, "top_p"),
        top_k=max(0, whole_of(scalars, "top_k")),
        min_p=number_of(scalars, "min_p"),
        presence_penalty=of_one_answer(scalars, "presence_penalty", beam_size),
        frequency_penalty=of_one_answer(scalars, "frequency_penalty", beam_size),
        repetition_penalty=number_of(scalars, "repetition_penalty"),
        no_repeat_ngram_size=whole_of(scalars, "no_repeat_ngram_size"),
        seed=whole_if_any(scalars, "seed"),
        max_silence_s=number_if_any(scalars, "hallucination_silence_threshold"),
        condition_on_previous_text=_boolean(scalars, "condition_on_previous_text"),
        multichannel=_multichannel(scalars, lists, stream=stream),
        audio_track=whole_if_any(scalars, "audio_track"),
        clips=clips,
        speech_filter=speech_filter,
        segment_timestamps=response_format in TIMED_TEXTS or "segment" in granularities,
        word_timestamps="word" in granularities or highlight_words,
        cue_layout=parse_cue_layout(scalars, response_format),
        logprobs=_logprobs(_filled(lists.get("include", [])), response_format),
    )
    return TranscriptionRequest(
        model=scalars.get("model", "").strip() or None,
        options=options,
        response_format=response_format,
        highlight_words=highlight_words,
        stream=stream,
        dialect=frames,
        include_usage=include_usage,
        url=scalars.get("url", ""),
    )


def _dialect(scalars: Mapping[str, str], *, stream: bool) -> tuple[StreamDialect, bool]:
    """Of a stream's frames, and whether usage is told. vLLM's tools tell themselves by its fields."""
    requested = scalars.get("dialect", "").strip()
    if requested not in ("", "openai", "vllm"):
        raise wrong("dialect", f"is openai or vllm, not {shown(requested)}")
    names = ("stream_include_usage", "stream_continuous_usage_stats")
    include_usage, continuously = (_boolean(scalars, name) for name in names)
    for name, is_requested in zip(names, (include_usage, continuously), strict=True):
        if is_requested and not stream:
            raise wrong(name, "needs `stream`")
    is_vllm = requested == "vllm" or (not requested and any(scalars.get(name, "").strip() for name in names))
    return "vllm" if is_vllm else "openai", include_usage or continuously


def _collect(fields: Iterable[tuple[str, str]], task: Task) -> tuple[dict[str, str], dict[str, list[str]]]:
    scalars: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    for name, value in fields:
        base = name.removesuffix("[]")
        if base in _LISTS:
            lists.setdefault(base, []).append(value)
        elif name in _SCALARS or name.startswith(_OBJECTS):
            if name in scalars:
                raise wrong(name, "is given twice")
            scalars[name] = value
        elif not is_done_anyway(base, value, task):
            raise _refused(base, value, task)
    return scalars, lists


def _refused(name: str, value: str, task: Task) -> BadRequestError:
    """The refusal of a field that is not served here, with the one that may have been meant."""
    if name in _UNSUPPORTED:
        return wrong(name, "is not supported by the models here", code="unsupported_parameter")
    if task == "translate" and name in _TASKS:
        return wrong(
            name,
            f"is {shown(value)}, and text is in English here; it is in the speaker's language at "
            "`/v1/audio/transcriptions`",
            code="unsupported_parameter",
        )
    hint = meant(name, _LISTS | _SCALARS, takes=lambda field: _takes(field, value))
    return wrong(name[:100], f"is not a field of this request{hint}", code="unknown_parameter")


def _takes(field: str, value: str) -> bool:
    """Whether a value that was given under another name may be one of this field."""
    stated = value.strip().lower()
    is_number = re.fullmatch(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?(,[-+0-9.e]*)*", stated) is not None
    if field in NUMBERS:
        with suppress(BadRequestError):
            parse_number(value.strip(), field, NUMBERS[field])
            return True
        return False
    if field in _BOOLEANS:
        return stated in ("true", "false", "0", "1")
    if field in _CHOICES:
        return stated in _CHOICES[field]
    if field == "temperature":
        return is_number and re.fullmatch(r"0?\.[0-9]*|[01](\.0*)?", stated) is not None
    return is_number if field == "clip_timestamps" else not is_number and stated not in ("true", "false")


def _keywords(lists: Mapping[str, list[str]]) -> tuple[str, ...]:
    """`keywords`, and `hotwords` as faster-whisper has them: one text, with commas between the words."""
    keywords = parse_keywords(_filled(lists.get("keywords", [])), param="keywords")
    words = [word for text in lists.get("hotwords", []) for word in text.split(",")]
    hotwords = parse_keywords(_filled(words), param="hotwords")
    together = tuple(dict.fromkeys((*keywords, *hotwords)))
    if len(together) > MAX_KEYWORDS:
        raise wrong("hotwords", f"and `keywords` are more than {MAX_KEYWORDS}")
    return together


def _filled(values: list[str]) -> list[str]:
    """The entries of a list that are not blank: a form sends an empty field for a list without any."""
    return [value for value in values if value.strip()]


def _response_format(value: str) -> ResponseFormat:
    for known in get_args(ResponseFormat):
        if value == known:
            return known  # type: ignore[no-any-return]
    allowed = ", ".join(get_args(ResponseFormat))
    raise wrong("response_format", f"must be one of {allowed}, not {shown(value)}")


def _granularities(values: list[str], response_format: ResponseFormat) -> frozenset[str]:
    param = "timestamp_granularities"
    for value in values:
        if value not in ("word", "segment"):
            raise wrong(param, f"holds word or segment, not {shown(value)}")
    if response_format == "verbose_json":
        return frozenset(values or ["segment"])
    if "word" in values:
        raise wrong(param, "`word` needs a `response_format` of `verbose_json`")
    return frozenset()  # `segment` costs nothing, and Vercel's AI SDK sends it with json


def _logprobs(values: list[str], response_format: ResponseFormat) -> bool:
    for value in values:
        if value != "logprobs":
            raise wrong("include", f"holds logprobs, not {shown(value)}")
    if values and response_format != "json":
        raise wrong("include", "needs `response_format` json")
    return bool(values)


def _multichannel(scalars: Mapping[str, str], lists: Mapping[str, list[str]], *, stream: bool) -> bool:
    is_requested = _boolean(scalars, "multichannel")
    if is_requested and (stream or _filled(lists.get("include", []))):
        other = "stream" if stream else "include"
        raise wrong("multichannel", f"cannot be combined with `{other}`")
    return is_requested


def _boolean(scalars: Mapping[str, str], param: str) -> bool:
    value = scalars.get(param, "")
    match value.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0" | "":
            return False
    raise wrong(param, f"must be true or false, not {shown(value)}")
