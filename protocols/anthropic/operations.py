"""The routes of Anthropic's messages, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Final, get_args

from ..openapi.operation import REF, Operations, Schema, post
from ..openapi.schemas import OBJECT, TEXT, message_of, tagged
from .request import UNSERVED, MessageCountRequest, MessageRequest
from .response import MessageAnswer, MessageError, MessageEvent, MessageTokenCount

_BLOCK: Final[Schema] = {
    "anyOf": [
        tagged("text", text=TEXT),
        tagged(
            "image",
            source={"anyOf": [tagged("base64", media_type=TEXT, data=TEXT), tagged("url", url=TEXT)]},
        ),
        tagged("tool_use", id=TEXT, name=TEXT, input=OBJECT),
        tagged("tool_result", tool_use_id=TEXT, content=TEXT),
        tagged("thinking", thinking=TEXT),
    ]
}
_TURN: Final[Schema] = message_of(["user", "assistant", "system"], {"$ref": REF.format(name="MessageBlock")})


def _amend(schemas: Schema) -> None:
    """Messages and system texts, whose blocks are read by hand."""
    for name in {"MessageRequest", "MessageCountRequest"} & set(schemas):
        turns: Schema = {"type": "array", "items": {"$ref": REF.format(name="MessageTurn")}, "minItems": 1}
        texts: Schema = {"type": "array", "items": {"$ref": REF.format(name="MessageBlock")}}
        schemas[name]["properties"] |= {
            "messages": turns,
            "system": {"anyOf": [{"type": ["string", "null"]}, texts]},
        }
        schemas.update({"MessageTurn": _TURN, "MessageBlock": _BLOCK})


OPERATIONS: Final = Operations(
    paths={
        "/v1/messages": (
            post(
                "Answer a conversation, in Anthropic's shape (errors, too)",
                MessageRequest,
                MessageAnswer,
                events=get_args(MessageEvent),
            ),
        ),
        "/v1/messages/count_tokens": (
            post("How long its prompt is", MessageCountRequest, MessageTokenCount),
        ),
    },
    amend=_amend,
    refused=UNSERVED,
    error=MessageError,
)
