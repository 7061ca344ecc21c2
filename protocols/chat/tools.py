"""Tools on the wire: what a request offers, which of them must be called, and calls and results in messages.

Checks shapes and the order of messages; schemas are checked as far as that needs no compiler. Knows no format
a model writes calls in: `engine/text/tools/`. Read next: `protocols/chat/request.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import BadRequestError, wrong
from ..shared.json_body import missing, refuse, unsupported
from .content import ROLES, ChatMessage

MAX_TOOLS: Final = 256
MAX_SCHEMA_DEPTH: Final = 64
MAX_SCHEMA_NODES: Final = 20_000
"""Of all tools of a request together."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_.:/-]{1,128}")
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_ALLOWED_NESTED: Final = "tool_choice.allowed_tools"
NO_ARGUMENTS: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says about calls."""

    tools: tuple[Tool, ...] = ()
    """Those that may be called; none: calls are not looked for."""
    is_forced: bool = False
    """The answer is calls and nothing else, after what the model thinks."""
    max_calls: int | None = None

    @property
    def may_call(self) -> bool:
        """Whether any call may come."""
        return bool(self.tools) and self.max_calls != 0

    @property
    def schemas(self) -> dict[str, dict[str, Any]] | None:
        """The tools' schemas by name; None where nothing may be called."""
        return {tool.name: tool.parameters for tool in self.tools} or None


NO_TOOLS: Final = ToolUse()


def read_tool_use(
    tools: list[dict[str, Any]] | None,
    choice: str | dict[str, Any] | None,
    *,
    is_parallel: bool = True,
    is_nested: bool = True,
) -> ToolUse:
    """Check `tools` and `tool_choice`; `is_nested` as in `read_functions`. Raises BadRequestError naming the
    field."""
    found = read_functions(tools, is_nested=is_nested)
    return choose_tools(found, choice, is_parallel=is_parallel, is_nested=is_nested)


def choose_tools(
    found: tuple[Tool, ...],
    choice: str | dict[str, Any] | None,
    *,
    is_parallel: bool = True,
    is_nested: bool = True,
) -> ToolUse:
    """What `tool_choice` says of these; `is_nested` as in `read_functions`. Raises BadRequestError naming the
    field."""
    most = None if is_parallel else 1
    match choice:
        case None | "auto":
            return ToolUse(found, max_calls=most)
        case "none":
            return ToolUse()
        case "required":
            if not found:
                raise wrong("tool_choice", "is required, but there are no `tools`")
            return ToolUse(found, is_forced=True, max_calls=most)
        case dict() as named if named.get("type") == "function":
            function = named.get("function") if is_nested else named
            name = function.get("name") if isinstance(function, dict) else None
            chosen = tuple(tool for tool in found if tool.name == name)
            if not chosen:
                where = "tool_choice.function.name" if is_nested else "tool_choice.name"
                raise refuse(where, name, ", ".join(tool.name for tool in found) or "the name of a tool")
            return ToolUse(chosen, is_forced=True, max_calls=1)
        case dict() as choice_fields if choice_fields.get("type") == "allowed_tools":
            allowed, mode = read_allowed(choice_fields, is_nested=is_nested)
            names = [_name_of(tool, is_nested=is_nested) for tool in allowed]
            chosen = tuple(tool for tool in found if tool.name in names)
            return allowed_use(chosen, mode, is_parallel=is_parallel, is_nested=is_nested)
        case _:
            raise refuse("tool_choice", choice, "none, auto, required, a function by name, or allowed_tools")


def read_allowed(choice: dict[str, Any], *, is_nested: bool) -> tuple[list[dict[str, Any]], str]:
    """What a `tool_choice` of type `allowed_tools` names, and its mode; `is_nested` as in `read_functions`.
    Raises BadRequestError naming the field."""
    choice_fields, where = (
        (choice.get("allowed_tools"), _ALLOWED_NESTED) if is_nested else (choice, "tool_choice")
    )
    if not isinstance(choice_fields, dict):
        raise missing(where)
    mode, tools = choice_fields.get("mode"), choice_fields.get("tools")
    if mode not in ("auto", "required"):
        raise refuse(f"{where}.mode", mode, "auto, required")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise refuse(f"{where}.tools", tools, "a list of tools by their names")
    if len(tools) > MAX_TOOLS:
        raise refuse(f"{where}.tools", f"a list of {len(tools):,}", f"up to {MAX_TOOLS}")
    return tools, mode


def allowed_use(chosen: tuple[Tool, ...], mode: str, *, is_parallel: bool, is_nested: bool) -> ToolUse:
    """Of those that a `tool_choice` of type `allowed_tools` names; all are shown to the model. Raises
    BadRequestError where there are none of them."""
    if not chosen:
        where = _ALLOWED_NESTED if is_nested else "tool_choice"
        raise wrong(f"{where}.tools", "names none of the `tools`")
    return ToolUse(chosen, is_forced=mode == "required", max_calls=None if is_parallel else 1)


def _name_of(tool: dict[str, Any], *, is_nested: bool) -> object:
    """Of a function by its name; None where it is none."""
    if tool.get("type") != "function":
        return None
    function = tool.get("function") if is_nested else tool
    return function.get("name") if isinstance(function, dict) else None


def read_functions(
    tools: Sequence[dict[str, Any]] | None, *, is_nested: bool = True, other_types: Collection[str] = ()
) -> tuple[Tool, ...]:
    """The functions among `tools`; types named in `other_types` are passed over. `is_nested`: names lie in
    `function`, as chat has them and neither `/v1/responses` nor live sessions. Raises BadRequestError naming
    the field."""
    tools = tools or ()
    if len(tools) > MAX_TOOLS:
        raise wrong("tools", f"has {len(tools):,} entries; allowed: up to {MAX_TOOLS}")
    walk = _SchemaWalk()
    found: dict[str, Tool] = {}
    served = ", ".join(("function", *other_types))
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.get("type") in other_types:
            continue
        if tool.get("type") != "function":
            if "type" not in tool:
                raise missing(f"{param}.type")
            raise unsupported(f"{param}.type", f"is {str(tool['type'])[:40]!r}; served are {served}")
        function, where = (tool.get("function"), f"{param}.function") if is_nested else (tool, param)
        if not isinstance(function, dict):
            raise missing(where)
        name = function.get("name")
        if not isinstance(name, str):
            raise missing(f"{where}.name")
        if not _NAME.fullmatch(name):
            raise refuse(f"{where}.name", name, "1 to 128 letters, digits and any of _ . : / -")
        if name in found:
            raise wrong(f"{where}.name", f"is {name!r} again")
        if not isinstance(function.get("description", ""), str | None):
            raise refuse(f"{where}.description", function["description"], "a string")
        schema = function.get("parameters")
        if schema is None:
            schema = NO_ARGUMENTS
        walk.check(schema, f"{where}.parameters")
        found[name] = Tool(name, schema)
    return tuple(found.values())


def is_tool_name(name: object) -> bool:
    """Whether a tool may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_schema(schema: object) -> bool:
    """Whether it is the JSON schema of an object, within bounds."""
    try:
        _SchemaWalk().check(schema, "")
    except BadRequestError:
        return False
    return True


def nested(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as templates take it, of one whose name lies beside its type."""
    function = {key: value for key, value in tool.items() if key not in ("type", "strict")}
    return {"type": "function", "function": function}


@dataclass(slots=True)
class _SchemaWalk:
    """Looks through schemas, and refuses what is none."""

    num_nodes: int = 0
    _left: list[tuple[object, str, int]] = field(default_factory=list)

    def check(self, schema: object, param: str) -> None:
        """Raise BadRequestError naming the place."""
        if not isinstance(schema, dict):
            raise refuse(param, schema, "a JSON schema, which is an object")
        if schema.get("type", "object") != "object":
            raise refuse(f"{param}.type", schema["type"], '"object"')
        self._left.append((schema, param, 0))
        while self._left:
            self._check_one(*self._left.pop(), root=schema)

    def _check_one(self, schema: object, param: str, depth: int, *, root: dict[str, Any]) -> None:
        self.num_nodes += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise wrong(param[:200], f"is nested more than {MAX_SCHEMA_DEPTH} deep")
        if self.num_nodes > MAX_SCHEMA_NODES:
            raise wrong("tools", f"have more than {MAX_SCHEMA_NODES:,} schemas")
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise refuse(param, schema, "a JSON schema, which is an object")
        kinds = schema.get("type", [])
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if not isinstance(kind, str) or kind not in _TYPES:
                raise refuse(f"{param}.type", kind, ", ".join(sorted(_TYPES)))
        for name in ("required", "enum"):
            if not isinstance(schema.get(name, []), list):
                raise refuse(f"{param}.{name}", schema[name], "a list")
        reference = schema.get("$ref")
        if reference is not None and not (isinstance(reference, str) and _leads_somewhere(reference, root)):
            raise refuse(
                f"{param}.$ref", reference, "the place of a schema in the same tool, as #/$defs/name"
            )
        self._left += ((inner, f"{param}.{name}", depth + 1) for name, inner in _inner_schemas(schema, param))


def _inner_schemas(schema: dict[str, Any], param: str) -> Iterable[tuple[str, object]]:
    for name in _MAPS:
        inner = schema.get(name, {})
        if not isinstance(inner, dict):
            raise refuse(f"{param}.{name}", inner, "an object of schemas")
        yield from ((f"{name}.{key[:64]}", each) for key, each in inner.items())
    for name in _LISTS:
        inner = schema.get(name, [])
        if not isinstance(inner, list):
            raise refuse(f"{param}.{name}", inner, "a list of schemas")
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(inner))
    yield from ((name, schema[name]) for name in _SINGLE if name in schema)


def _leads_somewhere(reference: str, root: dict[str, Any]) -> bool:
    found: object = root
    if not reference.startswith("#"):
        return False
    for part in reference[1:].strip("/").split("/") if len(reference) > 1 else ():
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return isinstance(found, dict | bool)


# --- messages ------------------------------------------------------------------------------------------


def check_tool_messages(messages: Sequence[ChatMessage]) -> None:
    """Raise BadRequestError for results without their call, calls without their result, and ids used twice.

    Calls that have no id are answered in order, by messages that name none.
    """
    calls: dict[str | int, str] = {}
    """Where each call lies that waits for its result, by its id, or its place if it has none."""
    answered: set[str | int] = set()
    for message in messages:
        if message.role == "tool":
            _check_result(message, calls, answered)
            continue
        if message.role not in ROLES:  # a template's own (`ipython`) has results, too
            calls.clear()
        if calls:
            param = next(iter(calls.values()))
            raise wrong(param, f"is not answered by a tool message before `{message.param}`")
        answered = set()
        for index, call in enumerate(message.extra.get("tool_calls", ())):
            where = f"{message.param}.tool_calls[{index}]"
            call_id = call.get("id")
            if call_id is not None and not isinstance(call_id, str):
                raise refuse(f"{where}.id", call_id, "a string")
            if call_id in calls:
                raise wrong(f"{where}.id", f"is {call_id[:64]!r} again")
            calls[index if call_id is None else call_id] = where
    if calls:
        param = next(iter(calls.values()))
        raise wrong(param, "is not answered by a tool message")


def _check_result(message: ChatMessage, calls: dict[str | int, str], answered: set[str | int]) -> None:
    where = f"{message.param}.tool_call_id"
    call_id = message.extra.get("tool_call_id")
    if not calls and not answered:
        raise BadRequestError(
            f"`{message.param}` is a tool's result, but no call is before it", param=f"{message.param}.role"
        )
    key = next((each for each in calls if isinstance(each, int)), None) if call_id is None else call_id
    if key is None:
        raise missing(where)
    if key in answered:
        raise wrong(where, f"is {str(key)[:64]!r}, which is answered already")
    if key not in calls:
        allowed = ", ".join(each[:64] for each in calls if isinstance(each, str)) or "no call is open"
        raise refuse(where, key, allowed)
    del calls[key]
    answered.add(key)
