"""The form of a transcription or translation request: its text fields become a `TranscriptionRequest`.

Which fields there are, and what one may be by itself, is declared in `protocols/transcription/options.py`;
here are the fields that are written in several ways, and the rules about two of them together. The `file`
part is the server's business; the answer is `protocols/transcription/rest.py`'s. Fields that nobody defines
are refused by name, so that a misspelt or foreign option is never silently lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from msgspec import Struct

from ..errors import BadRequestError, wrong
from ..shared.foreign_options import meant
from .form_defaults import is_done_anyway
from .hints import MAX_KEYWORDS, parse_keywords, parse_language, parse_languages, shown
from .numerals import parse_numerals
from .option_table import Option, options_of
from .options import FormOptions, ResponseFormat, StreamDialect, SubtitleOptions
from .transcript import CueLayout, Task, TranscriptionOptions
from .vad_form import parse_speech_filter

SUBTITLES: Final = ("srt", "vtt")
TIMED_TEXTS: Final = (*SUBTITLES, "tsv")
"""Documents with times, which come as a whole."""
MAX_TEMPERATURES: Final = 8
MAX_CLIPS: Final = 256
"""Each may take a window of the encoder, as half a minute does."""

FIELDS: Final[Mapping[str, Option]] = {
    name: option for name, option in options_of(FormOptions).items() if name != "task"
}
"""The task is the route."""
_DEFAULTS: Final = TranscriptionOptions()
_OBJECTS: Final = tuple(f"{name}[" for name, option in FIELDS.items() if option.base is Mapping)
"""Beginnings of the fields of an object that is not sent as JSON."""
_OF_BEAMS: Final = ("length_penalty", "patience")
_NOT_OF_BEAMS: Final = ("presence_penalty", "frequency_penalty")
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
    texts = _collect(fields, task)
    form = _values(texts)
    response_format = form.get("response_format") or "json"
    stream = bool(form.get("stream"))
    dialect, include_usage = _dialect(form)
    _check_stream(form, response_format, dialect)
    objects = {name: values[0] for name, values in texts.items()}
    return TranscriptionRequest(
        model=(form.get("model") or "").strip() or None,
        options=_options(form, objects, task, response_format),
        response_format=response_format,
        highlight_words=bool(form.get("highlight_words")),
        stream=stream,
        dialect=dialect,
        include_usage=include_usage,
        url=form.get("url") or "",
    )


def _collect(fields: Iterable[tuple[str, str]], task: Task) -> dict[str, list[str]]:
    """The texts of each field; of one that takes a single value there is one."""
    texts: dict[str, list[str]] = {}
    for name, value in fields:
        base = name.removesuffix("[]")
        if base in FIELDS and FIELDS[base].takes_several:
            texts.setdefault(base, []).append(value)
        elif name in FIELDS or name.startswith(_OBJECTS):
            if name in texts:
                raise wrong(name, "is given twice")
            texts[name] = [value]
        elif not is_done_anyway(base, value, task):
            raise _refused(base, value, task)
    return texts


def _values(texts: Mapping[str, list[str]]) -> FormOptions:
    """The fields that say something, each checked by itself. A blank one says nothing."""
    form: dict[str, Any] = {}
    for name, option in FIELDS.items():
        filled = [text for text in texts.get(name, ()) if text.strip()]
        if not filled or option.base is Mapping:
            continue
        if parse := _PARSERS.get(name):
            form[name] = parse(filled)
        elif option.takes_several:
            form[name] = tuple(option.parse(text) for text in filled)
        else:
            form[name] = option.parse(filled[0])
    return cast(FormOptions, form)


def _options(
    form: FormOptions, objects: Mapping[str, str], task: Task, response_format: ResponseFormat
) -> TranscriptionOptions:
    """What the server works with. Raises BadRequestError for fields that do not go together."""
    temperatures = tuple(cast("Sequence[float]", form.get("temperature", ()))) or (0.0,)
    speech_filter = parse_speech_filter(is_filtered=bool(form.get("vad_filter")), fields=objects)
    clips = tuple(cast("Sequence[float]", form.get("clip_timestamps", ())))
    if clips and speech_filter is not None:
        raise wrong("clip_timestamps", "cannot be combined with `vad_filter` or `chunking_strategy`")
    granularities = _granularities(form, response_format)
    same: dict[str, Any] = {
        name: value for name, value in form.items() if name in TranscriptionOptions.__struct_fields__
    }
    derived: dict[str, Any] = {
        "task": task,
        "keywords": _keywords(form),
        "temperature": temperatures[0],
        "fallback_temperatures": temperatures[1:],
        "beam_size": _checked_beam_size(form, temperatures),
        "top_k": max(0, form.get("top_k") or 0),
        "max_silence_s": form.get("hallucination_silence_threshold"),
        "clips": clips,
        "speech_filter": speech_filter,
        "segment_timestamps": response_format in TIMED_TEXTS or "segment" in granularities,
        "word_timestamps": "word" in granularities or bool(form.get("highlight_words")),
        "cue_layout": _cue_layout(form, response_format),
        "logprobs": bool(form.get("include")),
    }
    return TranscriptionOptions(**(same | derived))


def _dialect(form: FormOptions) -> tuple[StreamDialect, bool]:
    """Of a stream's frames, and whether usage is reported. vLLM's tools are recognized by its fields."""
    names = ("stream_include_usage", "stream_continuous_usage_stats")
    for name in names:
        if form.get(name) and not form.get("stream"):
            raise wrong(name, "needs `stream`")
    usual: StreamDialect = "vllm" if any(name in form for name in names) else "openai"
    return form.get("dialect") or usual, any(form.get(name) for name in names)


def _check_stream(form: FormOptions, response_format: ResponseFormat, dialect: StreamDialect) -> None:
    if form.get("include") and response_format != "json":
        raise wrong("include", "needs `response_format` json")
    for other in ("stream", "include"):
        if form.get("multichannel") and form.get(other):
            raise wrong("multichannel", f"cannot be combined with `{other}`")
    if form.get("stream") and response_format in TIMED_TEXTS:
        raise wrong(
            "stream", f"needs a `response_format` of json, text or `verbose_json`, not {response_format}"
        )
    if form.get("stream") and dialect == "vllm" and response_format == "verbose_json":
        raise wrong("stream", "in vLLM's frames has no segments: ask for json")


def _checked_beam_size(form: FormOptions, temperatures: Sequence[float]) -> int:
    """How many beams there are; with vLLM's `use_beam_search` it is `n`. Raises BadRequestError."""
    if (form.get("best_of") or 1) > 1 and not max(temperatures) > 0:
        raise wrong("best_of", "needs a `temperature` above 0")
    is_of_vllm = bool(form.get("use_beam_search"))
    if not is_of_vllm and (form.get("n") or 1) > 1:
        raise wrong("n", "is the number of beams, and needs `use_beam_search`")
    if is_of_vllm and "beam_size" in form:
        problem = "`beam_size` cannot be combined with `use_beam_search`, which has `n` beams"
        raise BadRequestError(problem, param="beam_size")
    beam_size = (form.get("n") if is_of_vllm else form.get("beam_size")) or 1
    if beam_size > 1 and min(temperatures) > 0:
        raise wrong("n" if is_of_vllm else "beam_size", "needs a `temperature` of 0")
    for name, value in form.items():
        if name in _OF_BEAMS and value != getattr(_DEFAULTS, name) and beam_size == 1:
            raise wrong(name, "needs a `beam_size` above 1")
        if name in _NOT_OF_BEAMS and value and beam_size > 1:
            raise wrong(name, "cannot be combined with `beam_size`")
    return beam_size


def _cue_layout(form: FormOptions, response_format: ResponseFormat) -> CueLayout:
    """How subtitles are laid out. With a number of words a cue is one line, unless more are given."""
    given = {name: value for name, value in form.items() if name in SubtitleOptions.__annotations__}
    for name, value in given.items():
        if value and response_format not in SUBTITLES:
            raise wrong(name, f"needs `response_format` {' or '.join(SUBTITLES)}")
    if "max_words_per_line" in given:
        given = {"max_line_count": 1} | given
    return CueLayout(**{name: cast(int, value) for name, value in given.items() if name != "highlight_words"})


def _granularities(form: FormOptions, response_format: ResponseFormat) -> Sequence[str]:
    given = form.get("timestamp_granularities", ())
    if response_format == "verbose_json":
        return given or ("segment",)
    if "word" in given:
        raise wrong("timestamp_granularities", "`word` needs a `response_format` of `verbose_json`")
    return ()  # `segment` costs nothing, and Vercel's AI SDK sends it with json


def _keywords(form: FormOptions) -> tuple[str, ...]:
    together = tuple(dict.fromkeys((*form.get("keywords", ()), *(form.get("hotwords") or ()))))
    if len(together) > MAX_KEYWORDS:
        raise wrong("hotwords", f"and `keywords` are more than {MAX_KEYWORDS}")
    return together


def _hotwords(texts: Sequence[str]) -> tuple[str, ...]:
    """As faster-whisper has them: one text, with commas between the words."""
    words = [word for text in texts for word in text.split(",") if word.strip()]
    return parse_keywords(words, param="hotwords")


def _temperatures(texts: Sequence[str]) -> tuple[float, ...]:
    """One, or those to be tried one after the other, rising."""
    param = "temperature"
    if len(texts) > MAX_TEMPERATURES:
        raise wrong(param, f"holds more than {MAX_TEMPERATURES} values")
    if any(text.lstrip().startswith("[") for text in texts):
        raise wrong(param, "is given once for each of several values, not as a list")
    temperatures = tuple(FIELDS[param].parse(text) for text in texts)
    for before, after in itertools.pairwise(temperatures):
        if after <= before:
            raise wrong(param, f"must rise from one value to the next: {after:g} follows {before:g}")
    return temperatures


def _clips(texts: Sequence[str]) -> tuple[float, ...]:
    """Seconds, rising, with commas between them."""
    param = "clip_timestamps"
    parts = [part for text in texts for part in text.split(",") if part.strip()]
    if len(parts) > 2 * MAX_CLIPS:
        raise wrong(param, f"names more than {MAX_CLIPS} clips")
    clips = tuple(FIELDS[param].parse(part) for part in parts)
    for index, (before, after) in enumerate(itertools.pairwise(clips)):
        if after < before or (after == before and index % 2 == 0):
            raise wrong(param, f"must rise, as start, end, start, end: {after:g} follows {before:g}")
    return clips


_PARSERS: Final[Mapping[str, Callable[[Sequence[str]], Any]]] = {
    "language": lambda texts: parse_language(texts[0], param="language"),
    "languages": lambda texts: parse_languages(texts, param="languages"),
    "keywords": lambda texts: parse_keywords(texts, param="keywords"),
    "hotwords": _hotwords,
    "numerals": lambda texts: parse_numerals(texts[0]),
    "temperature": _temperatures,
    "clip_timestamps": _clips,
}
"""Fields whose text is more than one value of their type."""


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
    hint = meant(name, FIELDS, takes=lambda field: _takes(FIELDS[field], value))
    return wrong(name[:100], f"is not a field of this request{hint}", code="unknown_parameter")


def _takes(option: Option, text: str) -> bool:
    """Whether a value that was given under another name may be one of this field. A word takes anything but a
    number and a truth value, which belong elsewhere."""
    if option.base in (str, Mapping):
        return text.strip().lower() not in ("true", "false") and not _is_number(text)
    with suppress(BadRequestError):
        for part in text.split(",") if option.takes_text else [text]:
            option.parse(part)
        return True
    return False


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False
