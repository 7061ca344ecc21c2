"""What a server's REST routes take and give, as an OpenAPI 3.1 document made of the structs themselves.

Bodies, answers and events are `msgspec` structs; what these do not state is in each dialect's `operations.py`
(`protocols/chat/operations.py` and its neighbours). `actors/http/openapi_routes.py` serves it at
`/openapi.json`, and as a page (`actors/http/openapi_page.py`) at `/docs`. Live sessions are no REST:
`protocols/realtime/events.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from .operation import REF, Operation, Operations, Schema

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


def document(
    dialects: Iterable[Operations], paths: Collection[str], *, version: str, needs_key: bool
) -> Schema:
    """The OpenAPI document of a server that answers `paths` of these dialects."""
    parts = [
        (dialect, {path: each for path, each in dialect.paths.items() if path in paths})
        for dialect in dialects
    ]
    kinds: dict[type[Struct], None] = {}
    for dialect, served in parts:
        for operation in (each for operations in served.values() for each in operations):
            body = (operation.body,) if isinstance(operation.body, type) else ()
            unready = () if operation.unready is None else (operation.unready,)
            faults = operation.faults or (dialect.error,)
            kinds |= dict.fromkeys((*body, *operation.answers, *operation.events, *faults, *unready))
    _, schemas = msgspec.json.schema_components(list(kinds), ref_template=REF)
    for dialect, served in parts:
        if served:
            dialect.amend(schemas)
    refused = {name for dialect, served in parts if served for name in dialect.refused}
    for schema in schemas.values():
        for name in refused & schema.get("properties", {}).keys():
            del schema["properties"][name]
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
            path: _parameters(path)
            | {
                each.method: _operation(path, each, each.faults or (dialect.error,), needs_key)
                for each in operations
            }
            for dialect, served in parts
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


def _operation(path: str, operation: Operation, faults: tuple[type[Struct], ...], needs_key: bool) -> Schema:
    made: Schema = {
        "summary": operation.summary,
        "operationId": f"{operation.method}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "responses": _successes(operation, faults)
        | {
            status: {"description": text, "content": {"application/json": {"schema": _any_of(faults)}}}
            for status, text in _ERRORS.items()
        },
    }
    if operation.query:
        made["parameters"] = [_query(name, schema) for name, schema in operation.query.items()]
    if operation.unready is not None:
        unready = {"application/json": {"schema": _ref(operation.unready)}}
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


def _successes(operation: Operation, faults: tuple[type[Struct], ...]) -> Schema:
    if not operation.is_websocket:
        return {"200": {"description": "What was asked for.", "content": _content(operation, faults)}}
    body = {"application/json": {"schema": _any_of(faults)}}
    return {
        "101": {"description": "The WebSocket is open."},
        "426": {"description": "The request has no `Upgrade: websocket`.", "content": body},
    }


def _query(name: str, schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key != "description"}
    return {"name": name, "in": "query", "description": schema["description"], "schema": plain}


def _content(operation: Operation, faults: tuple[type[Struct], ...]) -> Schema:
    content: Schema = {each: {"schema": {}} for each in operation.other_answers}
    if operation.answers:
        content["application/json"] = {"schema": _any_of(operation.answers)}
    if operation.events:
        kinds = tuple(dict.fromkeys((*operation.events, *faults)))
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
