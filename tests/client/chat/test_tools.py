"""Functions as tools: what models are told of them, and what their calls become."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from sensorium.client.chat.tools import MAX_RESULT_CHARS, error_text, function_tool, result_text
from sensorium.protocols.chat.tools import read_tool_use


@dataclass
class Place:
    lat: float
    lon: float


class Node(msgspec.Struct):
    children: list[Node]


def weather(
    city: str,
    at: Place | None = None,
    *,
    days: Annotated[int, msgspec.Meta(ge=1, description="How many days.")] = 1,
    unit: Literal["c", "f"] = "c",
    when: dt.date = dt.date(2026, 1, 1),
) -> str:
    """The weather of a city.

    Args:
        city: Its name.
        unit: Of the temperature.
    """
    return f"{city} {at} {days} {unit} {when}"


def test_schema_and_description_come_from_the_function() -> None:
    tool = function_tool(weather)
    function = tool.wire["function"]
    assert (tool.name, function["description"]) == ("weather", "The weather of a city.")
    schema = function["parameters"]
    assert (schema["required"], schema["additionalProperties"]) == (["city"], False)
    assert schema["properties"]["city"] == {"type": "string", "description": "Its name."}
    days = {"type": "integer", "minimum": 1, "description": "How many days.", "default": 1}
    assert schema["properties"]["days"] == days
    unit = {"enum": ["c", "f"], "default": "c", "description": "Of the temperature."}
    assert schema["properties"]["unit"] == unit
    assert schema["properties"]["when"] == {"type": "string", "format": "date"}
    assert set(schema["$defs"]["Place"]["properties"]) == {"lat", "lon"}


def test_the_server_takes_what_is_told() -> None:
    def walk(node: Node) -> None: ...

    def nothing() -> None: ...

    tools = [function_tool(each).wire for each in (weather, walk, nothing)]
    assert [tool.name for tool in read_tool_use(tools, None).tools] == ["weather", "walk", "nothing"]


def test_arguments_arrive_as_the_types_declared() -> None:
    tool = function_tool(weather)
    bound = tool.bind('{"city": "Rome", "at": {"lat": 1, "lon": 2}, "days": "3", "when": "2026-02-03"}')
    assert bound == {"city": "Rome", "at": Place(1.0, 2.0), "days": 3, "when": dt.date(2026, 2, 3)}
    assert weather(**tool.bind('{"city": "Rome"}')) == "Rome None 1 c 2026-01-01"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{}", "missing required field `city`"),
        ('{"city": 3}', r"\$\.city"),
        ('{"city": "a", "days": 0}', r"\$\.days"),
        ('{"city": "a", "days": null}', r"\$\.days"),
        ('{"city": "a", "street": "b"}', "unknown field `street`"),
        ('{"city": "a"', "truncated"),
        ("[]", "Expected `object`"),
    ],
)
def test_what_does_not_fit_is_named(arguments: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function_tool(weather).bind(arguments)


def test_a_function_without_parameters_takes_an_empty_text() -> None:
    def now() -> str:
        return "now"

    assert function_tool(now).bind("") == {}


def starred(*names: str) -> None: ...
def untyped(city) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
def unsayable(what: Callable[[], None]) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda city: None, "has no name"),
        (functools.partial(weather, "Rome"), "has no name"),
        (starred, r"\*names.*only named ones"),
        (untyped, "'city' of the tool 'untyped' has no type"),
        (unsayable, "'unsayable' has a parameter that JSON cannot represent"),
    ],
)
def test_what_is_no_tool_says_why(function: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=message):
        function_tool(function)


def test_methods_are_tools() -> None:
    class Lamp:
        def dim(self, level: int) -> int:
            return level

    tool = function_tool(Lamp().dim)
    assert tool.function(**tool.bind('{"level": 3}')) == 3


def test_results_are_texts() -> None:
    assert result_text("as it is") == "as it is"
    assert result_text({"place": Place(1, 2), "path": {1j}}) == '{"place":{"lat":1,"lon":2},"path":["1j"]}'
    assert result_text(None) == "null"
    assert error_text(KeyError("x")) == "error: KeyError: 'x'"
    long = result_text("x" * (MAX_RESULT_CHARS + 1))
    assert long.endswith(f"\n(cut here: {MAX_RESULT_CHARS + 1:,} characters)")
