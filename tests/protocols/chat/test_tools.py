"""What requests say of tools, and the order of calls and results in messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from sensorium.protocols.chat.content import read_messages
from sensorium.protocols.chat.tools import (
    MAX_SCHEMA_DEPTH,
    MAX_TOOLS,
    NO_ARGUMENTS,
    Tool,
    ToolUse,
    check_tool_messages,
    read_tool_use,
)
from sensorium.protocols.errors import BadRequestError

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def tool(name: str = "f", **more: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    return {"type": "function", "function": {"name": name, **more}}


def with_schema(schema: object) -> list[dict[str, Any]]:
    return [tool(parameters=schema)]


def test_what_may_be_called() -> None:
    f, g = Tool("f", SCHEMA), Tool("g", NO_ARGUMENTS)
    tools = [tool(parameters=SCHEMA), tool("g")]
    assert read_tool_use(None, None) == ToolUse()
    assert read_tool_use(tools, None) == ToolUse((f, g))
    assert read_tool_use(tools, "auto", is_parallel=False) == ToolUse((f, g), max_calls=1)
    assert read_tool_use(tools, "none") == ToolUse()
    assert read_tool_use(tools, "required") == ToolUse((f, g), is_forced=True)
    named = {"type": "function", "function": {"name": "g"}}
    assert read_tool_use(tools, named) == ToolUse((g,), is_forced=True, max_calls=1)
    assert read_tool_use(tools, None).schemas == {"f": SCHEMA, "g": NO_ARGUMENTS}
    assert read_tool_use(tools, "none").schemas is None


def test_some_of_them_may_be_called() -> None:
    f, g = Tool("f", NO_ARGUMENTS), Tool("g", NO_ARGUMENTS)
    tools = [tool(), tool("g"), tool("h")]
    assert read_tool_use(tools, allowed("g", "f")) == ToolUse((f, g))
    assert read_tool_use(tools, allowed("g", "nothing", mode="required"), is_parallel=False) == ToolUse(
        (g,), is_forced=True, max_calls=1
    )
    flat = [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": flat[1:]}
    assert read_tool_use(flat, choice, is_nested=False) == ToolUse((g,))


def test_names_that_lie_flat() -> None:
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}]
    assert read_tool_use(tools, {"type": "function", "name": "f"}, is_nested=False).tools == (
        Tool("f", SCHEMA),
    )


def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool(name) for name in names]}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {
            "type": "object",
            "properties": {"a": True, "b": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"$ref": "#"}},
        },
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "items": {"anyOf": [{}]}}}},
        deep(MAX_SCHEMA_DEPTH // 2),
    ],
)
def test_schemas_that_are_some(schema: dict[str, Any]) -> None:
    assert read_tool_use(with_schema(schema), None).tools == (Tool("f", schema),)


FUNCTION = "tools[0].function"
ALLOWED = "tool_choice.allowed_tools"


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([{}], None, "tools[0].type"),
        ([{"type": "custom"}], None, "tools[0].type"),
        ([{"type": "function"}], None, FUNCTION),
        ([{"type": "function", "function": {}}], None, f"{FUNCTION}.name"),
        ([tool("a b")], None, f"{FUNCTION}.name"),
        ([tool(), tool()], None, "tools[1].function.name"),
        ([tool(description=3)], None, f"{FUNCTION}.description"),
        ([tool(f"f{index}") for index in range(MAX_TOOLS + 1)], None, "tools"),
        ([tool()], "any", "tool_choice"),
        ([tool()], {"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        ([tool()], allowed("f", mode="none"), "tool_choice.allowed_tools.mode"),
        ([tool()], {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, f"{ALLOWED}.tools"),
        ([tool()], allowed("g"), f"{ALLOWED}.tools"),
        ([tool()], allowed(*["f"] * (MAX_TOOLS + 1)), f"{ALLOWED}.tools"),
        ([tool()], {"type": "grammar"}, "tool_choice"),
        ([tool()], {"type": "function", "function": {"name": "g"}}, "tool_choice.function.name"),
        ([tool()], {"type": "function"}, "tool_choice.function.name"),
        (None, "required", "tool_choice"),
        (with_schema([]), None, f"{FUNCTION}.parameters"),
        (with_schema({"type": "array"}), None, f"{FUNCTION}.parameters.type"),
        (
            with_schema({"type": "object", "properties": {"a": {"type": [{}]}}}),
            None,
            f"{FUNCTION}.parameters.properties.a.type",
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": {}}}}),
            None,
            f"{FUNCTION}.parameters.properties.a.type",
        ),
        (with_schema({"properties": []}), None, f"{FUNCTION}.parameters.properties"),
        (with_schema({"properties": {"a": 3}}), None, f"{FUNCTION}.parameters.properties.a"),
        (
            with_schema({"properties": {"a": {"type": "text"}}}),
            None,
            f"{FUNCTION}.parameters.properties.a.type",
        ),
        (with_schema({"required": "a"}), None, f"{FUNCTION}.parameters.required"),
        (with_schema({"anyOf": {}}), None, f"{FUNCTION}.parameters.anyOf"),
        (with_schema({"$ref": "#/$defs/x"}), None, f"{FUNCTION}.parameters.$ref"),
        (with_schema({"$ref": "http://a.example/b"}), None, f"{FUNCTION}.parameters.$ref"),
        (with_schema({"anyOf": [{}] * 20_001}), None, "tools"),
    ],
)
def test_what_is_wrong_is_named(tools: list[dict[str, Any]] | None, choice: Any, param: str) -> None:  # noqa: ANN401
    with pytest.raises(BadRequestError) as caught:
        read_tool_use(tools, choice)
    assert caught.value.param == param


def test_what_is_nested_too_deeply_is_named() -> None:
    with pytest.raises(BadRequestError, match="deep") as caught:
        read_tool_use(with_schema(deep(MAX_SCHEMA_DEPTH + 1)), None)
    assert (caught.value.param or "").startswith(f"{FUNCTION}.parameters.properties.a")


USER = {"role": "user", "content": "Hi"}


def calling(*ids: str | None) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}} for _ in ids]
    named = [call if name is None else {**call, "id": name} for call, name in zip(calls, ids, strict=True)]
    return {"role": "assistant", "tool_calls": named}


def result(call_id: str | None = None) -> dict[str, Any]:
    named = {} if call_id is None else {"tool_call_id": call_id}
    return {"role": "tool", "content": "1", **named}


def check(*messages: dict[str, Any]) -> None:
    check_tool_messages(read_messages([msgspec.Raw(json.dumps(each).encode()) for each in messages]))


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, calling("a", "b"), result("b"), result("a"), USER],
        [USER, calling("a"), result("a"), calling("a"), result("a")],
        [USER, calling(None, None), result(), result()],
        [USER, calling("#1", None), result("#1"), result()],
    ],
)
def test_orders_that_make_sense(messages: list[dict[str, Any]]) -> None:
    check(*messages)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([USER, result("a")], "messages[1].role"),
        ([USER, calling("a"), result("a"), USER, result("a")], "messages[4].role"),
        ([USER, calling("a"), result("b")], "messages[2].tool_call_id"),
        ([USER, calling("a"), result()], "messages[2].tool_call_id"),
        ([USER, calling("#a"), result()], "messages[2].tool_call_id"),
        ([USER, calling(None), result("#0")], "messages[2].tool_call_id"),
        ([USER, calling("a"), result("a"), result("a")], "messages[3].tool_call_id"),
        ([USER, calling("a", "a"), result("a")], "messages[1].tool_calls[1].id"),
        ([USER, calling("a", "b"), result("a"), USER], "messages[1].tool_calls[1]"),
        ([USER, calling("a")], "messages[1].tool_calls[0]"),
    ],
)
def test_orders_that_make_none(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        check(*messages)
    assert caught.value.param == param


def test_an_id_is_a_string() -> None:
    with pytest.raises(BadRequestError) as caught:
        check(USER, {**calling("a"), "tool_calls": [{**calling("a")["tool_calls"][0], "id": 3}]})
    assert caught.value.param == "messages[1].tool_calls[0].id"
