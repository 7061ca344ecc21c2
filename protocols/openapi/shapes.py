"""Shapes of the OpenAPI document that no struct says: multipart forms, a message and its parts.

Read next: `protocols/openapi/document.py`, which joins them with the structs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from ..responses.request import INCLUDES
from ..transcription.decoding_form import MAX_TEMPERATURE, MAX_TEMPERATURES, NUMBERS, Number
from ..transcription.form import ResponseFormat

Schema = dict[str, Any]
REF: Final = "#/components/schemas/{name}"
"""Where a named schema lies."""


def _number(known: Number) -> Schema:
    """A field of a form that holds one."""
    schema: Schema = {
        "type": "integer" if known.is_whole else "number",
        "exclusiveMinimum" if known.is_above else "minimum": known.low,
        "maximum": known.high,
    }
    said = {"default": known.usual, "description": known.description}
    return schema | {name: value for name, value in said.items() if value not in (None, "")}


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
MESSAGE: Final[Schema] = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {
            "anyOf": [
                {"type": ["string", "null"]},
                {"type": "array", "items": {"$ref": REF.format(name="ChatContentPart")}},
            ]
        },
        "name": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
        "tool_call_id": {"type": ["string", "null"]},
    },
}
_URL: Final[Schema] = {
    "type": "object",
    "required": ["url"],
    "properties": {"url": {"type": "string", "description": "A data: URI, or an http: or https: address."}},
}
_NUMBERS: Final[Schema] = {"type": "array", "items": {"type": "integer", "minimum": 1}}
_EMBEDS: Final[Schema] = {
    "type": "object",
    "required": ["data", "dtype", "shape"],
    "properties": {
        "data": {"type": "string", "contentEncoding": "base64"},
        "dtype": {"enum": ["float32", "bfloat16", "float16"]},
        "shape": _NUMBERS,
        "image_grid_thw": _NUMBERS,
    },
}
PART: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {
            "enum": [
                *("text", "refusal", "image_url", "video_url", "audio_url", "input_audio"),
                *("image_embeds", "audio_embeds"),
            ]
        },
        "text": {"type": "string"},
        "refusal": {"type": "string"},
        "image_url": _URL,
        "video_url": _URL,
        "audio_url": _URL,
        "image_embeds": _EMBEDS,
        "audio_embeds": _EMBEDS,
        "uuid": {
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
            "description": "A name for the file, by which it may be left out when it is sent again.",
        },
        "input_audio": {
            "type": "object",
            "required": ["data"],
            "properties": {
                "data": {"type": "string", "contentEncoding": "base64"},
                "format": {"type": "string"},
            },
        },
    },
}
INCLUDE: Final[Schema] = {
    "type": "array",
    "items": {"enum": list(INCLUDES)},
    "description": "Changes nothing: a response is told as it was made.",
}
RESPONSE_QUERY: Final[Mapping[str, Schema]] = {
    "stream": {
        "type": "boolean",
        "default": False,
        "description": "Its events instead, where it is made in the background with `stream`.",
    },
    "starting_after": {
        "type": "integer",
        "minimum": 0,
        "description": "With `stream`: those behind the event with this `sequence_number`.",
    },
    "include": INCLUDE,
}
ITEMS_QUERY: Final[Mapping[str, Schema]] = {
    "after": {"type": "string", "description": "Items behind the one with this id."},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 20,
        "description": "How many at most.",
    },
    "order": {"enum": ["asc", "desc"], "default": "desc", "description": "The last first, or the first."},
    "include": INCLUDE,
}
SPEECH_QUERY: Final[Mapping[str, Schema]] = {
    "dialect": {"enum": ["openai", "vllm"], "description": "Whose frames a stream has."},
}
TOKENIZER_QUERY: Final[Mapping[str, Schema]] = {
    "model": {"type": "string", "description": "Whose; without it the default model's."},
}
REALTIME_QUERY: Final[Mapping[str, Schema]] = {
    "model": {"type": "string", "description": "What transcribes, or answers."},
    "intent": {
        "enum": ["transcription", "realtime"],
        "description": "Whether the session transcribes, or answers; if it is not said, as the model can.",
    },
}


def _tagged(kind: str, **fields: Schema) -> Schema:
    """An object of that `type`, which needs all of these fields."""
    return {
        "type": "object",
        "required": ["type", *fields],
        "properties": {"type": {"const": kind}, **fields},
    }


_TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_ARGUMENTS: Final[Schema] = {"type": "string", "contentMediaType": "application/json", "examples": ["{}"]}
_IMAGE_URL: Final[Schema] = {"type": "string", "description": "A data: URI, or an http: or https: address."}


def _spoken(roles: list[str], parts: Schema) -> Schema:
    """A turn of those roles: a text, or a list of parts."""
    content: Schema = {"anyOf": [_TEXT, {"type": "array", "items": parts}]}
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": roles}, "content": content},
    }


BLOCK: Final[Schema] = {
    "anyOf": [
        _tagged("text", text=_TEXT),
        _tagged(
            "image",
            source={"anyOf": [_tagged("base64", media_type=_TEXT, data=_TEXT), _tagged("url", url=_TEXT)]},
        ),
        _tagged("tool_use", id=_TEXT, name=_TEXT, input=_OBJECT),
        _tagged("tool_result", tool_use_id=_TEXT, content=_TEXT),
        _tagged("thinking", thinking=_TEXT),
    ]
}
TURN: Final[Schema] = _spoken(["user", "assistant", "system"], {"$ref": REF.format(name="MessageBlock")})
"""A message of `/v1/messages`."""
INPUT_ITEM: Final[Schema] = {
    "anyOf": [
        _spoken(
            ["user"],
            {"anyOf": [_tagged("input_text", text=_TEXT), _tagged("input_image", image_url=_IMAGE_URL)]},
        ),
        _spoken(["system", "developer"], _tagged("input_text", text=_TEXT)),
        _spoken(["assistant"], _tagged("output_text", text=_TEXT)),
        _tagged("function_call", call_id=_TEXT, name=_TEXT, arguments=_ARGUMENTS),
        _tagged("function_call_output", call_id=_TEXT, output=_TEXT),
    ]
}
"""What `/v1/responses` takes as `input`, beside a text."""
