"""The routes of text generation, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Final

from ..openapi.operation import REF, Operation, Operations, Schema, post
from .completions import Completion, CompletionRequest
from .request import ChatRequest
from .response import ChatChunk, ChatCompletion
from .tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse

_MESSAGE: Final[Schema] = {
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
_PART: Final[Schema] = {
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


def _amend(schemas: Schema) -> None:
    """The messages of a chat, whose parts are read by hand."""
    if "ChatRequest" in schemas:
        schemas["ChatRequest"]["properties"]["messages"]["items"] = {"$ref": REF.format(name="ChatMessage")}
        schemas.update({"ChatMessage": _MESSAGE, "ChatContentPart": _PART})


OPERATIONS: Final = Operations(
    paths={
        "/v1/completions": (post("Continue a text", CompletionRequest, Completion, events=(Completion,)),),
        "/v1/chat/completions": (
            post(
                "Answer a conversation, with images, videos or audio where the model takes them",
                ChatRequest,
                ChatCompletion,
                events=(ChatChunk,),
            ),
        ),
        "/tokenize": (post("A text's tokens", TokenizeRequest, TokenizeResponse),),
        "/detokenize": (post("Tokens as text", DetokenizeRequest, DetokenizeResponse),),
        "/tokenizer_info": (
            Operation(
                summary="The checkpoint's tokenizer_config.json, with the chat template that is used",
                other_answers=("application/json",),
                query={"model": {"type": "string", "description": "Whose; without it the default model's."}},
            ),
        ),
    },
    amend=_amend,
    refused=("guided_json", "guided_regex", "guided_choice", "guided_grammar", "use_beam_search"),
)
