"""What a server's REST routes take and give, as an OpenAPI 3.1 document made of the structs themselves.

Bodies, answers and events are `msgspec` structs of this room; what they do not say (forms, a message's
parts) is written here. `actors/http/openapi_routes.py` serves it at `/openapi.json`, and as a page
(`actors/http/openapi_page.py`) at `/docs`. Live sessions are no REST: `protocols/realtime/events.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from ..anthropic.request import UNSERVED, MessageCountRequest, MessageRequest
from ..anthropic.response import MessageAnswer, MessageError, MessageEvent, MessageTokenCount
from ..chat.completions import Completion, CompletionRequest
from ..chat.request import ChatRequest
from ..chat.response import ChatChunk, ChatCompletion
from ..chat.tokenize import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse
from ..realtime.client_secrets import ClientSecret, ClientSecretRequest
from ..responses.output_items import DeletedResponse, InputItemList, InputTokenCount, ResponseObject
from ..responses.request import ResponsesRequest
from ..responses.stream_events import ResponseEvent
from ..server.models import ModelCard, ModelList
from ..transcription.rest import (
    TranscriptionBody,
    TranscriptTextDelta,
    TranscriptTextDone,
    TranscriptTextSegment,
    VerboseTranscriptionBody,
)
from ..transcription.vllm_chunks import TranscriptionChunk
from .shapes import (
    BLOCK,
    INPUT_ITEM,
    ITEMS_QUERY,
    MESSAGE,
    PART,
    REALTIME_QUERY,
    REF,
    RESPONSE_QUERY,
    SPEECH_FORM,
    SPEECH_QUERY,
    TOKENIZER_QUERY,
    TURN,
    Schema,
)

_ERRORS: Final = {
    "400": "Something in the request is wrong; `param` names it.",
    "401": "No API key, or one that is not accepted.",
    "403": "The origin of the page, or the name of the host, is not allowed.",
    "404": "No such route or model.",
    "405": "The route does not take this method.",
    "408": "The request did not arrive in time.",
    "413": "Too large.",
    "422": "A file could not be fetched from the address that was given.",
    "500": "The server failed on this request.",
    "503": "Too much is being done, or a model is not ready; `Retry-After` says when to try again.",
}
_GUIDED: Final = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_REFUSED: Final = (*_GUIDED, "use_beam_search", *UNSERVED)
"""Known only so that the refusal can say what to use instead."""


class Status(Struct, frozen=True):
    """Of the probes."""

    status: Literal["ok", "loading", "draining", "unavailable", "failed"]
    models: dict[str, str] | None = None


class Version(Struct, frozen=True):
    """`/version`."""

    version: str


class Load(Struct, frozen=True):
    """`/load`: requests and live sessions in hand."""

    server_load: int


class ErrorDetail(Struct, frozen=True):
    """What went wrong, and whose fault it is."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct, frozen=True):
    """The body of every answer that is not 2xx, but for those of Anthropic's dialect."""

    error: ErrorDetail


_EITHER: Final = (Error, MessageError)
"""Anthropic's where the request has an `anthropic-version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one route."""

    summary: str
    method: str = "get"
    body: type[Struct] | Schema | None = None
    """A struct is JSON, a schema a multipart form."""
    is_body_needed: bool = True
    answers: tuple[type[Struct], ...] = ()
    other_answers: tuple[str, ...] = ()
    """Content types of answers that are text."""
    events: tuple[type[Struct], ...] = ()
    """What `stream` gives instead."""
    faults: tuple[type[Struct], ...] = (Error,)
    """The bodies of its errors."""
    is_open: bool = False
    """Needs no key."""
    is_websocket: bool = False
    """Without an upgrade its only answer is 426."""
    query: Mapping[str, Schema] = field(default_factory=dict)
    """What may stand behind the path's `?`, with its `description`; none of it must."""


def _post(
    summary: str,
    body: type[Struct],
    answer: type[Struct],
    *,
    events: tuple[type[Struct], ...] = (),
    faults: tuple[type[Struct], ...] = (Error,),
) -> Operation:
    """JSON for JSON."""
    return Operation(
        summary=summary, method="post", body=body, answers=(answer,), events=events, faults=faults
    )


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


OPERATIONS: Final[Mapping[str, tuple[Operation, ...]]] = {
    "/health": (Operation(summary="200 when every model can take work", answers=(Status,), is_open=True),),
    "/live": (
        Operation(summary="200 while the process answers and may yet serve", answers=(Status,), is_open=True),
    ),
    "/ping": (
        Operation(summary="As /live", answers=(Status,), is_open=True),
        Operation(summary="As /live", method="post", answers=(Status,), is_open=True),
    ),
    "/version": (Operation(summary="The package's version", answers=(Version,)),),
    "/load": (Operation(summary="Requests and sessions in hand", answers=(Load,)),),
    "/metrics": (Operation(summary="Prometheus' text format", other_answers=("text/plain",)),),
    "/openapi.json": (Operation(summary="This document", other_answers=("application/json",)),),
    "/docs": (Operation(summary="This document as a page for people", other_answers=("text/html",)),),
    "/v1/models": (Operation(summary="Every served model", answers=(ModelList,), faults=_EITHER),),
    "/v1/models/{id}": (Operation(summary="One served model", answers=(ModelCard,), faults=_EITHER),),
    "/v1/audio/transcriptions": (_speech("A file's text in its own language"),),
    "/v1/audio/translations": (_speech("A file's text in English"),),
    "/v1/realtime": (
        Operation(summary="A live session, over a WebSocket", query=REALTIME_QUERY, is_websocket=True),
    ),
    "/v1/realtime/client_secrets": (
        Operation(
            summary="A short-lived key for live sessions",
            method="post",
            body=ClientSecretRequest,
            is_body_needed=False,
            answers=(ClientSecret,),
        ),
    ),
    "/v1/completions": (_post("Continue a text", CompletionRequest, Completion, events=(Completion,)),),
    "/v1/chat/completions": (
        _post(
            "Answer a conversation, with images, videos or audio where the model takes them",
            ChatRequest,
            ChatCompletion,
            events=(ChatChunk,),
        ),
    ),
    "/v1/messages": (
        _post(
            "Answer a conversation, in Anthropic's shape (errors, too)",
            MessageRequest,
            MessageAnswer,
            events=get_args(MessageEvent),
            faults=(MessageError,),
        ),
    ),
    "/v1/messages/count_tokens": (
        _post("How long its prompt is", MessageCountRequest, MessageTokenCount, faults=(MessageError,)),
    ),
    "/v1/responses": (
        _post(
            "Answer input items, with the conversation they continue",
            ResponsesRequest,
            ResponseObject,
            events=get_args(ResponseEvent),
        ),
    ),
    "/v1/responses/input_tokens": (_post("How long its prompt is", ResponsesRequest, InputTokenCount),),
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
        Operation(summary="Give up a response in the background", method="post", answers=(ResponseObject,)),
    ),
    "/v1/responses/{id}/input_items": (
        Operation(summary="What a response was asked with", answers=(InputItemList,), query=ITEMS_QUERY),
    ),
    "/tokenize": (_post("A text's tokens", TokenizeRequest, TokenizeResponse),),
    "/detokenize": (_post("Tokens as text", DetokenizeRequest, DetokenizeResponse),),
    "/tokenizer_info": (
        Operation(
            summary="The checkpoint's tokenizer_config.json, with the chat template that is used",
            other_answers=("application/json",),
            query=TOKENIZER_QUERY,
        ),
    ),
}
"""Everything any server can answer, by path."""


def document(paths: Collection[str], *, version: str, needs_key: bool) -> Schema:
    """The OpenAPI document of a server that answers `paths`."""
    served = {path: operations for path, operations in OPERATIONS.items() if path in paths}
    kinds: dict[type[Struct], None] = {Error: None}
    for operation in (each for operations in served.values() for each in operations):
        body = (operation.body,) if isinstance(operation.body, type) else ()
        kinds |= dict.fromkeys((*body, *operation.answers, *operation.events, *operation.faults))
    _, schemas = msgspec.json.schema_components(list(kinds), ref_template=REF)
    if "ChatRequest" in schemas:
        schemas["ChatRequest"]["properties"]["messages"]["items"] = {"$ref": REF.format(name="ChatMessage")}
        schemas |= {"ChatMessage": MESSAGE, "ChatContentPart": PART}
    if "ResponsesRequest" in schemas:
        items: Schema = {"type": "array", "items": {"$ref": REF.format(name="InputItem")}, "minItems": 1}
        schemas["ResponsesRequest"]["properties"]["input"] = {"anyOf": [{"type": "string"}, items]}
        schemas["InputItem"] = INPUT_ITEM
    for name in {"MessageRequest", "MessageCountRequest"} & set(schemas):
        turns: Schema = {"type": "array", "items": {"$ref": REF.format(name="MessageTurn")}, "minItems": 1}
        texts: Schema = {"type": "array", "items": {"$ref": REF.format(name="MessageBlock")}}
        schemas[name]["properties"] |= {
            "messages": turns,
            "system": {"anyOf": [{"type": ["string", "null"]}, texts]},
        }
        schemas |= {"MessageTurn": TURN, "MessageBlock": BLOCK}
    for schema in schemas.values():
        for name in _REFUSED:
            schema.get("properties", {}).pop(name, None)
    security: list[Schema] = [{"key": []}] if needs_key else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sensorium",
            "version": version,
            "description": "Audio and vision stream in, text streams out. Live sessions are a WebSocket at "
            "`/v1/realtime`. Every answer has an `X-Request-Id`.",
        },
        "servers": [{"url": "."}],  # beside this document, also below a path that a proxy takes off
        "paths": {
            path: _parameters(path) | {each.method: _operation(path, each, needs_key) for each in operations}
            for path, operations in served.items()
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": security,
    }


def _parameters(path: str) -> Schema:
    if "{id}" not in path:
        return {}
    return {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}


def _operation(path: str, operation: Operation, needs_key: bool) -> Schema:
    made: Schema = {
        "summary": operation.summary,
        "operationId": f"{operation.method}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "responses": _successes(operation)
        | {
            status: {
                "description": text,
                "content": {"application/json": {"schema": _any_of(operation.faults)}},
            }
            for status, text in _ERRORS.items()
        },
    }
    if operation.query:
        made["parameters"] = [_query(name, schema) for name, schema in operation.query.items()]
    if Status in operation.answers:
        unready = {"application/json": {"schema": _ref(Status)}}
        made["responses"]["503"] = {
            "description": "Not what was asked for: `status` says why.",
            "content": unready,
        }
    if needs_key and operation.is_open:
        made["security"] = []
    if operation.body is not None:
        is_json = isinstance(operation.body, type)
        schema = _ref(operation.body) if isinstance(operation.body, type) else operation.body
        content = {"application/json" if is_json else "multipart/form-data": {"schema": schema}}
        made["requestBody"] = {"required": operation.is_body_needed, "content": content}
    return made


def _successes(operation: Operation) -> Schema:
    if not operation.is_websocket:
        return {"200": {"description": "What was asked for.", "content": _content(operation)}}
    body = {"application/json": {"schema": _any_of(operation.faults)}}
    return {
        "101": {"description": "The WebSocket is open."},
        "426": {"description": "The request has no `Upgrade: websocket`.", "content": body},
    }


def _query(name: str, schema: Schema) -> Schema:
    said = {key: value for key, value in schema.items() if key != "description"}
    return {"name": name, "in": "query", "description": schema["description"], "schema": said}


def _content(operation: Operation) -> Schema:
    content: Schema = {each: {"schema": {}} for each in operation.other_answers}
    if operation.answers:
        content["application/json"] = {"schema": _any_of(operation.answers)}
    if operation.events:
        kinds = tuple(dict.fromkeys((*operation.events, *operation.faults)))
        data = {
            "type": "string",
            "description": "JSON, but for the last event of most routes: `[DONE]`.",
            "anyOf": [
                {"const": "[DONE]"},
                {"contentMediaType": "application/json", "contentSchema": _any_of(kinds)},
            ],
        }
        content["text/event-stream"] = {
            "schema": {
                "type": "object",
                "description": "Each event of the stream.",
                "properties": {"event": {"type": "string"}, "data": data},
                "required": ["data"],
            }
        }
    return content


def _any_of(kinds: tuple[type[Struct], ...]) -> Schema:
    return _ref(kinds[0]) if len(kinds) == 1 else {"anyOf": [_ref(kind) for kind in kinds]}


def _ref(kind: type[Struct]) -> Schema:
    return {"$ref": REF.format(name=kind.__name__)}
