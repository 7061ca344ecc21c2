"""The routes of `/v1/responses`, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from ..openapi.operation import REF, Operation, Operations, Schema, post
from ..openapi.schemas import TEXT, message_of, tagged
from .output_items import DeletedResponse, InputItemList, InputTokenCount, ResponseObject
from .request import INCLUDES, ResponsesRequest
from .stream_events import ResponseEvent

_ARGUMENTS: Final[Schema] = {"type": "string", "contentMediaType": "application/json", "examples": ["{}"]}
_IMAGE_URL: Final[Schema] = {"type": "string", "description": "A data: URI, or an http: or https: address."}
_INPUT_ITEM: Final[Schema] = {
    "anyOf": [
        message_of(
            ["user"],
            {"anyOf": [tagged("input_text", text=TEXT), tagged("input_image", image_url=_IMAGE_URL)]},
        ),
        message_of(["system", "developer"], tagged("input_text", text=TEXT)),
        message_of(["assistant"], tagged("output_text", text=TEXT)),
        tagged("function_call", call_id=TEXT, name=TEXT, arguments=_ARGUMENTS),
        tagged("function_call_output", call_id=TEXT, output=TEXT),
    ]
}
"""What `/v1/responses` takes as `input`, beside a text."""
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


def _amend(schemas: Schema) -> None:
    """Input items, which are read by hand."""
    if "ResponsesRequest" in schemas:
        items: Schema = {"type": "array", "items": {"$ref": REF.format(name="InputItem")}, "minItems": 1}
        schemas["ResponsesRequest"]["properties"]["input"] = {"anyOf": [{"type": "string"}, items]}
        schemas["InputItem"] = _INPUT_ITEM


OPERATIONS: Final = Operations(
    paths={
        "/v1/responses": (
            post(
                "Answer input items, with the conversation they continue",
                ResponsesRequest,
                ResponseObject,
                events=get_args(ResponseEvent),
            ),
        ),
        "/v1/responses/input_tokens": (post("How long its prompt is", ResponsesRequest, InputTokenCount),),
        "/v1/responses/{id}": (
            Operation(
                summary="A response that is kept, as far as it is there, or its events",
                answers=(ResponseObject,),
                events=get_args(ResponseEvent),
                query=RESPONSE_QUERY,
            ),
            Operation(summary="Forget it", method="delete", answers=(DeletedResponse,)),
        ),
        "/v1/responses/{id}/cancel": (
            Operation(
                summary="Give up a response in the background", method="post", answers=(ResponseObject,)
            ),
        ),
        "/v1/responses/{id}/input_items": (
            Operation(summary="What a response was asked with", answers=(InputItemList,), query=ITEMS_QUERY),
        ),
    },
    amend=_amend,
)
