"""Python functions as tools: their schema from signature and docstring, arguments checked, results as text.

Whatever goes wrong in a call becomes a text for the model, which may try again. Knows no server. Read next:
`client/chat/machine.py`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from .docstrings import read_docstring

Tool: TypeAlias = Callable[..., Any] | Mapping[str, Any]
"""A function, or a tool in OpenAI's shape, whose calls are the caller's to answer."""

MAX_RESULT_CHARS: Final = 100_000
"""Longest result a model is told; what is longer is cut, and says so."""
_PLAIN: Final = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function that models may call. `wire` is what they are told of it, in OpenAI's shape."""

    name: str
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    wire: dict[str, Any]

    def bind(self, arguments: str) -> dict[str, Any]:
        """The function's keyword arguments, of the types it declares, from a call's JSON.

        Numbers and booleans in quotes are taken as such. Raises ValueError naming what does not fit.
        """
        try:
            read = msgspec.json.decode(arguments or "{}", type=self.arguments, strict=False)
        except msgspec.DecodeError as error:  # a ValidationError is one
            raise ValueError(str(error)) from None
        names = self.arguments.__struct_fields__
        return {name: value for name in names if (value := getattr(read, name)) is not UNSET}


def function_tool(function: Callable[..., Any]) -> FunctionTool:
    """The tool that a function is. Raises TypeError for a function that cannot be one, saying why."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise TypeError(f"{function!r} has no name that a model could call it by; write a function with def")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"the types of the tool {name!r} cannot be looked up: {error}") from None
    description, descriptions = read_docstring(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"the tool {name!r} has the parameter {parameter}: only named ones can be called")
        if parameter.name not in hints:
            raise TypeError(f"the parameter {parameter.name!r} of the tool {name!r} has no type")
        hint = hints[parameter.name]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:  # left to the function, also where it is nothing that JSON could say
            defaults[parameter.name] = parameter.default
            fields.append((parameter.name, hint | UnsetType, UNSET))
    try:
        arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        schema = json_schema(arguments)
    except (TypeError, NotImplementedError) as error:
        raise TypeError(f"the tool {name!r} has a parameter that JSON cannot represent: {error}") from None
    properties = schema.setdefault("properties", {})
    for each, text in descriptions.items():
        if each in properties:
            properties[each].setdefault("description", text)
    for each, value in defaults.items():
        if isinstance(value, _PLAIN):
            properties[each]["default"] = value
    schema.pop("title", None)
    declared = {"name": name, "description": description, "parameters": schema}
    return FunctionTool(name, function, arguments, {"type": "function", "function": declared})


def json_schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (any type that JSON can say)
    """The JSON schema of a type, without a reference at its root. Raises TypeError."""
    (schema,), others = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/") and f'"{reference}"' not in msgspec.json.encode(others).decode():
        schema = others.pop(reference.removeprefix("#/$defs/"))
    return {**schema, **({"$defs": others} if others else {})}


def result_text(value: object) -> str:
    """What a tool gave, as the model reads it: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    if len(text) > MAX_RESULT_CHARS:
        return f"{text[:MAX_RESULT_CHARS]}\n(cut here: {len(text):,} characters)"
    return text


def error_text(error: Exception) -> str:
    """What the model is told of a call that failed."""
    return f"error: {type(error).__name__}: {error}"[:MAX_RESULT_CHARS]
