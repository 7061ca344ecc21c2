"""The routes of files to text, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from ..openapi.operation import Operation, Operations, Schema
from .decoding_form import MAX_TEMPERATURE, MAX_TEMPERATURES, NUMBERS, Number
from .form import ResponseFormat
from .rest import (
    TranscriptionBody,
    TranscriptTextDelta,
    TranscriptTextDone,
    TranscriptTextSegment,
    VerboseTranscriptionBody,
)
from .vllm_chunks import TranscriptionChunk


def _number(known: Number) -> Schema:
    """A field of a form that holds one."""
    schema: Schema = {
        "type": "integer" if known.is_whole else "number",
        "exclusiveMinimum" if known.is_above else "minimum": known.low,
        "maximum": known.high,
    }
    fields = {"default": known.usual, "description": known.description}
    return schema | {name: value for name, value in fields.items() if value not in (None, "")}


_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}}
SPEECH_FORM: Final[Schema] = {
    "type": "object",
    "oneOf": [{"required": ["file"]}, {"required": ["url"]}],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "Any audio or video container."},
        "url": {"type": "string", "description": "The file's http: or https: address, or a data: URI."},
        "model": {"type": "string"},
        "prompt": {"type": "string", "maxLength": 10_000},
        "response_format": {"enum": list(get_args(ResponseFormat)), "default": "json"},
        "temperature": {
            "type": "array",
            "items": {"type": "number", "minimum": 0, "maximum": MAX_TEMPERATURE},
            "maxItems": MAX_TEMPERATURES,
            "description": "One, or several, rising: tried while an answer repeats itself or is unlikely.",
        },
        **{name: _number(known) for name, known in NUMBERS.items()},
        "use_beam_search": {"type": "boolean", "description": "vLLM's: `n` is the `beam_size`."},
        "clip_timestamps": {
            "type": "string",
            "description": "Parts to transcribe, in seconds: start,end,start,…; the last end may be missing.",
        },
        "language": {"type": "string", "description": "A code as en or en-US, or an English name."},
        "languages": _TEXTS,
        "keywords": _TEXTS,
        "hotwords": {"type": "string"},
        "numerals": {
            "enum": ["words", "digits"],
            "description": "How numbers are written: in words by Whisper only, in digits by any model.",
        },
        "timestamp_granularities": {"type": "array", "items": {"enum": ["word", "segment"]}},
        "include": {"type": "array", "items": {"enum": ["logprobs"]}},
        "stream": {
            "type": "boolean",
            "description": "Events: text as it grows, with verbose_json segments; not with srt, vtt and tsv.",
        },
        "stream_include_usage": {
            "type": "boolean",
            "description": "vLLM's frames, and after the text one with what it took.",
        },
        "stream_continuous_usage_stats": {"type": "boolean", "description": "As stream_include_usage."},
        "chunking_strategy": {
            "type": "string",
            "description": "auto, or JSON: type, threshold, prefix_padding_ms, silence_duration_ms.",
        },
        "multichannel": {"type": "boolean", "description": "Each channel is transcribed for itself."},
        "vad_filter": {"type": "boolean", "description": "What is no speech is left out."},
        "vad_parameters": {
            "type": "string",
            "description": "JSON: threshold, min_speech_duration_ms, min_silence_duration_ms, speech_pad_ms.",
        },
        "highlight_words": {
            "type": "boolean",
            "description": "In srt and vtt each word is underlined while it is spoken.",
        },
        "condition_on_previous_text": {
            "type": "boolean",
            "description": "Windows one after the other, each with the text before it in mind.",
        },
    },
}
SPEECH_QUERY: Final[Mapping[str, Schema]] = {
    "dialect": {"enum": ["openai", "vllm"], "description": "Whose frames a stream has."},
}


def _speech(summary: str) -> Operation:
    """A file for its text."""
    return Operation(
        summary=summary,
        method="post",
        body=SPEECH_FORM,
        answers=(TranscriptionBody, VerboseTranscriptionBody),
        other_answers=("text/plain", "text/vtt", "application/x-subrip", "text/tab-separated-values"),
        events=(TranscriptTextDelta, TranscriptTextSegment, TranscriptTextDone, TranscriptionChunk),
        query=SPEECH_QUERY,
    )


OPERATIONS: Final = Operations(
    paths={
        "/v1/audio/transcriptions": (_speech("A file's text in its own language"),),
        "/v1/audio/translations": (_speech("A file's text in English"),),
    }
)
