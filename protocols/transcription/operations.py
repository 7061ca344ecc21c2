"""The routes of files to text, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import structs

from ..openapi.operation import Operation, Operations, Schema
from .form import FIELDS, MAX_TEMPERATURES
from .option_table import Option
from .rest import (
    TranscriptionBody,
    TranscriptTextDelta,
    TranscriptTextDone,
    TranscriptTextSegment,
    VerboseTranscriptionBody,
)
from .transcript import TranscriptionOptions
from .vllm_chunks import TranscriptionChunk

_IN_ADDRESS: Final = frozenset({"dialect"})
"""Fields that are described as options of the address."""
_DEFAULTS: Final = structs.asdict(TranscriptionOptions()) | {"n": 1, "response_format": "json"}


def _schema(option: Option) -> Schema:
    """A field of the form."""
    schema: Schema = {"type": "string"}
    if not option.takes_text and option.base is not Mapping:
        schema = msgspec.json.schema(option.item)
    schema["description"] = option.description
    default = _DEFAULTS.get(option.name)
    if option.takes_several and not option.takes_text:
        schema = {"type": "array", "items": schema, "description": schema.pop("description")}
    elif default is not False:
        schema["default"] = default
    return {name: value for name, value in schema.items() if value not in (None, "", ())}


SPEECH_FORM: Final[Schema] = {
    "type": "object",
    "oneOf": [{"required": ["file"]}, {"required": ["url"]}],
    "additionalProperties": False,
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "Any audio or video container."},
        **{name: _schema(option) for name, option in FIELDS.items() if name not in _IN_ADDRESS},
    },
}
SPEECH_FORM["properties"]["temperature"]["maxItems"] = MAX_TEMPERATURES
SPEECH_QUERY: Final = {name: _schema(FIELDS[name]) for name in sorted(_IN_ADDRESS)}


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
