"""The document describes every route there is, in OpenAPI 3.1, and refers to nothing that is not there."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from sensorium.actors.http.dialects import DIALECTS
from sensorium.protocols.anthropic.request import parse_message
from sensorium.protocols.errors import (
    ClientError,
    InternalError,
    OverloadedError,
    SensoriumError,
    UnavailableError,
)
from sensorium.protocols.openapi.document import document
from sensorium.protocols.responses.request import parse_response

PARTS = [dialect.operations for dialect in DIALECTS]
OPERATIONS = {path: each for part in PARTS for path, each in part.paths.items()}
WHOLE = document(PARTS, list(OPERATIONS), version="1.2", needs_key=True)


def values(tree: object, key: str) -> Iterator[str]:
    """Every value of `key` anywhere."""
    match tree:
        case dict():
            yield from (value for name, value in tree.items() if name == key and isinstance(value, str))
            for value in tree.values():
                yield from values(value, key)
        case list() | tuple():
            for value in tree:
                yield from values(value, key)


def test_references_resolve_and_nothing_is_left_over() -> None:
    referred = {reference.rsplit("/", 1)[1] for reference in values(WHOLE, "$ref")}
    assert referred == set(WHOLE["components"]["schemas"])
    names = list(values(WHOLE["paths"], "operationId"))
    assert len(names) == len(set(names)) == sum(map(len, OPERATIONS.values()))


def test_addresses_are_beside_the_document_also_below_a_path_that_a_proxy_takes_off() -> None:
    (server,) = WHOLE["servers"]
    for base in ("https://a.example/", "https://a.example/speech/"):
        assert urljoin(f"{base}openapi.json", server["url"]) == base


def test_each_operation_says_its_errors_and_whether_it_needs_a_key() -> None:
    for path, item in WHOLE["paths"].items():
        for operation in (each for name, each in item.items() if name != "parameters"):
            assert {"401", "404", "500", "503"} <= set(operation["responses"]), path
            success = {status for status in operation["responses"] if status < "4"}
            assert success == ({"101"} if path == "/v1/realtime" else {"200"}), path
            is_open = path in ("/health", "/live", "/ping") or path.startswith("/console")
            assert operation.get("security", WHOLE["security"]) == ([] if is_open else [{"key": []}]), path
    assert document(PARTS, ["/load"], version="1", needs_key=False)["security"] == []


def test_bodies_are_the_structs() -> None:
    schemas = WHOLE["components"]["schemas"]
    assert schemas["CompletionRequest"]["required"] == ["prompt"]
    assert "top_k" in schemas["ChatRequest"]["properties"]
    assert "guided_json" not in schemas["ChatRequest"]["properties"], "it is refused"
    assert "mcp_servers" not in schemas["MessageRequest"]["properties"], "it is refused"
    for name in ("MessageRequest", "MessageCountRequest"):
        assert schemas[name]["properties"]["messages"]["items"] == {
            "$ref": "#/components/schemas/MessageTurn"
        }
    stream = WHOLE["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert set(stream) == {"application/json", "text/event-stream"}
    form = WHOLE["paths"]["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
    assert form["multipart/form-data"]["schema"]["oneOf"] == [{"required": ["file"]}, {"required": ["url"]}]


def examples(schema: dict[str, Any]) -> Iterator[Any]:
    """A value for each of its alternatives, with all fields it needs."""
    schemas = WHOLE["components"]["schemas"]
    match schema:
        case {"$ref": reference}:
            yield from examples(schemas[reference.rsplit("/", 1)[1]])
        case {"anyOf": kinds}:
            for kind in kinds:
                yield from examples(kind)
        case {"const": value} | {"examples": [value]}:
            yield value
        case {"enum": values}:
            yield from values
        case {"type": "array", "items": item}:
            yield from ([each] for each in examples(item))
        case {"type": "object", "required": names, "properties": properties}:
            rows = [[{name: each} for each in examples(properties[name])] for name in names]
            for row in itertools.product(*rows):
                yield {name: value for each in row for name, value in each.items()}
        case {"type": "object"}:
            yield {}
        case _:
            yield "data:image/png;base64,AAAA" if "description" in schema else "AAAA"


def test_what_the_document_says_of_messages_and_items_is_read() -> None:
    """One of each kind, by whoever may say it; a tool's result stands behind its call."""
    schemas = WHOLE["components"]["schemas"]
    blocks = {block["type"]: block for block in examples(schemas["MessageBlock"])}
    assert set(blocks) == {"text", "image", "tool_use", "tool_result", "thinking"}
    blocks["image"]["source"] = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    turns = [
        {"role": "user", "content": [blocks["text"], blocks["image"]]},
        {"role": "assistant", "content": [blocks["thinking"], blocks["text"], blocks["tool_use"]]},
        {"role": "user", "content": [blocks["tool_result"]]},
    ]
    parse_message(json.dumps({"max_tokens": 1, "system": [blocks["text"]], "messages": turns}).encode())
    items = list(examples(schemas["InputItem"]))
    assert len(items) > 8
    parse_response(json.dumps({"input": items}).encode())


@pytest.mark.slow
def test_it_is_made_without_torch() -> None:
    code = "import sys, sensorium.protocols.openapi.document; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_may_stand_in_a_query_is_described() -> None:
    def names(path: str) -> list[str]:
        return [each["name"] for each in WHOLE["paths"][path]["get"]["parameters"]]

    assert names("/v1/responses/{id}") == ["stream", "starting_after", "include"]
    assert names("/v1/responses/{id}/input_items") == ["after", "limit", "order", "include"]
    assert names("/v1/realtime") == ["model", "intent"]
    for item in WHOLE["paths"].values():
        for each in item.get("get", {}).get("parameters", ()):
            assert each["in"] == "query"
            assert each["description"]
            assert "description" not in each["schema"]


def bodies(operation: dict[str, Any]) -> dict[str, str]:
    """The shapes of each error of a route, by its status."""
    return {
        status: " or ".join(
            reference.rsplit("/", 1)[1] for reference in values(answer["content"]["application/json"], "$ref")
        )
        for status, answer in operation["responses"].items()
        if status >= "4"
    }


def test_errors_are_described_in_the_dialect_of_their_route() -> None:
    paths = WHOLE["paths"]
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        assert set(bodies(paths[path]["post"]).values()) == {"MessageError"}, path
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/audio/transcriptions", "/tokenize"):
        assert set(bodies(paths[path]["post"]).values()) == {"Error"}, path
    for path in ("/v1/models", "/v1/models/{id}"):
        assert set(bodies(paths[path]["get"]).values()) == {"Error or MessageError"}, path
    for path in ("/health", "/live", "/ping"):
        assert bodies(paths[path]["get"])["503"] == "Status", path
        assert bodies(paths[path]["get"])["404"] == "Error", path


def statuses(kind: type[SensoriumError]) -> set[str]:
    """Those of an error and of all that derive from it."""
    return {str(kind.status)}.union(*map(statuses, kind.__subclasses__()))


def test_every_status_of_an_error_is_described() -> None:
    found = statuses(ClientError) | {
        str(each.status) for each in (OverloadedError, UnavailableError, InternalError)
    }
    described = set(bodies(WHOLE["paths"]["/v1/chat/completions"]["post"]))
    not_of_a_route = {"426", "505"}  # a WebSocket without an upgrade, another version of HTTP
    assert described | not_of_a_route >= found >= described


def test_a_websocket_without_an_upgrade_is_426() -> None:
    assert "426" in WHOLE["paths"]["/v1/realtime"]["get"]["responses"]
    assert "426" not in WHOLE["paths"]["/v1/models"]["get"]["responses"]


@pytest.mark.parametrize(
    ("path", "event", "fault"),
    [
        ("/v1/chat/completions", "ChatChunk", "Error"),
        ("/v1/completions", "Completion", "Error"),
        ("/v1/responses", "ResponseCreated", "Error"),
        ("/v1/messages", "MessageStart", "MessageError"),
        ("/v1/audio/transcriptions", "TranscriptTextDelta", "Error"),
    ],
)
def test_events_of_a_stream_are_objects_whose_data_is_json(path: str, event: str, fault: str) -> None:
    content = WHOLE["paths"][path]["post"]["responses"]["200"]["content"]
    schema = content["text/event-stream"]["schema"]
    assert schema["required"] == ["data"]
    done, data = schema["properties"]["data"]["anyOf"]
    assert done == {"const": "[DONE]"}
    kinds = [each["$ref"].rsplit("/", 1)[1] for each in data["contentSchema"]["anyOf"]]
    assert event in kinds
    assert kinds.count(fault) == 1
    assert {"Error", "MessageError"} & set(kinds) == {fault}
