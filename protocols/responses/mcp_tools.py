"""MCP servers that a request of `/v1/responses` names: who they are, which of their tools may be called, and
which calls somebody has to approve first.

Shapes only: whether an address may be asked says `actors/config/mcp.py`, who asks it is `actors/mcp/`. Read
next: `protocols/responses/request.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from ..chat.tools import (
    MAX_TOOLS,
    Tool,
    ToolUse,
    allowed_use,
    choose_tools,
    is_schema,
    is_tool_name,
    read_allowed,
)
from ..errors import BadRequestError, wrong
from ..shared.json_body import given, refuse, unsupported
from .output_items import McpListTools, McpTool

MAX_SERVERS: Final = 8
"""Of one request."""
_MAX_HEADERS: Final = 32
_MAX_HEADER_CHARS: Final = 8192
_MAX_DESCRIPTION: Final = 8192
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")
_OUR_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host"),
        *("keep-alive", "mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding"),
        *("upgrade", "user-agent"),
    }
)
"""Which the transport writes."""


class ToolFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Some of a server's tools: those named, and those that only read (`readOnlyHint`)."""

    tool_names: list[str] | None = None
    read_only: bool | None = None

    def has(self, tool: McpTool) -> bool:
        """Whether a tool is one of them."""
        is_named = self.tool_names is None or tool.name in self.tool_names
        return is_named and (self.read_only is None or self.read_only == tool.reads_only)


_ANY: Final = ToolFilter()


class _ApprovalFilter(Struct, frozen=True, forbid_unknown_fields=True):
    always: ToolFilter | None = None
    never: ToolFilter | None = None


class _Server(Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    server_label: str | None = None
    server_url: str | None = None
    server_description: str | None = None
    headers: dict[str, str] | None = None
    authorization: str | None = None
    allowed_tools: list[str] | ToolFilter | None = None
    require_approval: str | _ApprovalFilter | None = None
    allowed_callers: list[str] | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    defer_loading: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """One server, as a request names it; `param` is where. What it is sent in `fields` is never shown."""

    label: str
    url: str
    param: str
    fields: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    allowed: ToolFilter = _ANY
    always: ToolFilter | None = None
    """Calls of these need approval, whatever `never` says; None: of none."""
    never: ToolFilter | None = None
    """Of the others all but these; None: all of them."""

    def needs_approval(self, tool: McpTool) -> bool:
        """Whether somebody has to agree to a call."""
        if self.always is not None and self.always.has(tool):
            return True
        return self.never is None or not self.never.has(tool)


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool that the server calls itself: whose, and what it is called there."""

    server: McpServer
    tool: McpTool

    @property
    def needs_approval(self) -> bool:
        """Whether somebody has to agree to a call."""
        return self.server.needs_approval(self.tool)


def read_mcp_servers(tools: Sequence[dict[str, Any]] | None) -> tuple[McpServer, ...]:
    """The MCP servers among a request's `tools`. Raises BadRequestError naming the field."""
    found: dict[str, McpServer] = {}
    for index, tool in enumerate(tools or ()):
        if tool.get("type") != "mcp":
            continue
        param = f"tools[{index}]"
        server = _read(tool, param)
        if server.label in found:
            raise wrong(f"{param}.server_label", f"is {server.label!r} again")
        found[server.label] = server
        if len(found) > MAX_SERVERS:
            raise wrong("tools", f"has more than {MAX_SERVERS} MCP servers")
    return tuple(found.values())


def shown_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as a response says it again: without what opens doors."""
    if tool.get("type") != "mcp":
        return {"description": None, "strict": None, "parameters": None, **tool}
    shown = {key: value for key, value in tool.items() if key not in ("authorization", "headers")}
    return shown | {"server_url": str(tool.get("server_url", "")).partition("?")[0]}


def _read(tool: dict[str, Any], param: str) -> McpServer:
    try:
        server = msgspec.convert(tool, _Server)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        where = f"{param}{place.rstrip('`')}"
        raise BadRequestError(f"`{where}`: {text}", param=where) from None
    for name in ("connector_id", "tunnel_id"):
        if getattr(server, name) is not None:
            raise unsupported(f"{param}.{name}", "is not served; name the server by `server_url`")
    if server.defer_loading or server.allowed_callers not in (None, ["direct"]):
        name = "defer_loading" if server.defer_loading else "allowed_callers"
        raise unsupported(f"{param}.{name}", "is not served")
    label = given(server.server_label, f"{param}.server_label")
    url = given(server.server_url, f"{param}.server_url")
    if not _LABEL.fullmatch(label):
        raise refuse(f"{param}.server_label", label, "1 to 64 letters, digits, _ and -")
    always, never = _approval(server.require_approval, param)
    allowed = (
        ToolFilter(server.allowed_tools) if isinstance(server.allowed_tools, list) else server.allowed_tools
    )
    return McpServer(
        label=label,
        url=url,
        param=f"{param}.server_url",
        fields=_fields(server, param),
        allowed=allowed or _ANY,
        always=always,
        never=never,
    )


def _approval(
    approval: str | _ApprovalFilter | None, param: str
) -> tuple[ToolFilter | None, ToolFilter | None]:
    match approval:
        case None | "always":
            return _ANY, None
        case "never":
            return None, _ANY
        case _ApprovalFilter():
            return approval.always, approval.never
    raise refuse(f"{param}.require_approval", approval, "always, never, or an object of those")


def _fields(server: _Server, param: str) -> tuple[tuple[str, str], ...]:
    where = f"{param}.headers"
    headers = server.headers or {}
    if len(headers) > _MAX_HEADERS:
        raise wrong(where, f"has more than {_MAX_HEADERS} entries")
    for name, value in headers.items():
        # What is wrong with a value is not shown: it may be a secret.
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OUR_HEADERS:
            raise refuse(where, name, "names of header fields that the transport does not write itself")
        if len(value) > _MAX_HEADER_CHARS or not _HEADER_VALUE.fullmatch(value):
            raise wrong(
                f"{where}.{name}",
                "is not a value of a header field; allowed: printable ASCII, up to "
                f"{_MAX_HEADER_CHARS:,} characters",
            )
    if server.authorization is None:
        return tuple(headers.items())
    token = server.authorization
    if len(token) > _MAX_HEADER_CHARS or not token or not _HEADER_VALUE.fullmatch(token):
        where = f"{param}.authorization"
        raise wrong(where, "is not a token; allowed: printable ASCII")
    if any(name.lower() == "authorization" for name in headers):
        raise wrong(where, "and the header `Authorization` exclude each other")
    return (*headers.items(), ("Authorization", f"Bearer {token}"))


def read_listed(server: McpServer, tools: Iterable[object]) -> list[McpTool]:
    """Of the tools that a server tells of (MCP's `tools/list`) those that the request allows, but none that
    no model could be shown."""
    found: list[McpTool] = []
    for entry in tools:
        if not isinstance(entry, dict):
            continue
        schema = entry.get("inputSchema") or {"type": "object", "properties": {}}
        description, annotations = entry.get("description"), entry.get("annotations")
        if not is_tool_name(entry.get("name")) or not is_schema(schema):
            continue
        tool = McpTool(
            name=entry["name"],
            input_schema=schema,
            description=description[:_MAX_DESCRIPTION] if isinstance(description, str) else None,
            annotations=annotations if isinstance(annotations, dict) else None,
        )
        if server.allowed.has(tool):
            found.append(tool)
    return found


def hosted_tools(
    servers: Sequence[McpServer], listed: Iterable[McpListTools], taken: Collection[str]
) -> dict[str, HostedTool]:
    """What a model may call, by the name it is shown: a tool's own, or with its server's label in front where
    that is `taken` already. `MAX_TOOLS` with those at most."""
    lists = {each.server_label: each for each in listed if each.error is None}
    found: dict[str, HostedTool] = {}
    for server in servers:
        for tool in lists[server.label].tools if server.label in lists else ():
            name = tool.name
            if name in taken or name in found:
                name = f"{server.label}.{name}"
            is_free = name not in taken and name not in found
            has_room = len(found) + len(taken) < MAX_TOOLS
            if is_tool_name(name) and is_free and has_room and server.allowed.has(tool):
                found[name] = HostedTool(server, tool)
    return found


def shown_hosted(name: str, hosted: HostedTool) -> dict[str, Any]:
    """A tool as templates take it."""
    function: dict[str, Any] = {"name": name, "parameters": hosted.tool.input_schema}
    if hosted.tool.description is not None:
        function["description"] = hosted.tool.description
    return {"type": "function", "function": function}


def choose_among(
    functions: tuple[Tool, ...],
    hosted: Mapping[str, HostedTool],
    choice: str | dict[str, Any] | None,
    *,
    is_parallel: bool,
) -> ToolUse:
    """What `tool_choice` says, which may name a server (type `mcp`), of functions and hosted tools together.
    Raises BadRequestError naming the field."""
    every = (*functions, *(Tool(name, each.tool.input_schema) for name, each in hosted.items()))
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed, mode = read_allowed(choice, is_nested=False)
        chosen = tuple(tool for tool in every if any(_is_named(tool, hosted, each) for each in allowed))
        return allowed_use(chosen, mode, is_parallel=is_parallel, is_nested=False)
    if not isinstance(choice, dict) or choice.get("type") != "mcp":
        return choose_tools(every, choice, is_parallel=is_parallel, is_nested=False)
    named = choice.get("name")
    chosen = tuple(tool for tool in every if _is_named(tool, hosted, choice))
    if not chosen:
        where = "tool_choice.server_label" if named is None else "tool_choice.name"
        raise BadRequestError(f"`{where}`: the MCP server has no such tool that is allowed", param=where)
    return ToolUse(chosen, is_forced=True, max_calls=1 if named is not None or not is_parallel else None)


def _is_named(tool: Tool, hosted: Mapping[str, HostedTool], choice: Mapping[str, Any]) -> bool:
    """Whether it is the function, or of the MCP server, that is named."""
    found = hosted.get(tool.name)
    if found is None:
        return choice.get("type") == "function" and choice.get("name") == tool.name
    is_there = choice.get("type") == "mcp" and choice.get("server_label") == found.server.label
    return is_there and choice.get("name") in (None, found.tool.name)


def check_choice(
    functions: tuple[Tool, ...], servers: Sequence[McpServer], choice: str | dict[str, Any] | None
) -> None:
    """As far as `tool_choice` can be checked before any server was asked. Raises BadRequestError naming the
    field."""
    if isinstance(choice, dict) and choice.get("type") == "mcp":
        labels = [server.label for server in servers]
        if choice.get("server_label") not in labels:
            allowed = ", ".join(labels) or "the label of an MCP server in `tools`"
            raise refuse("tool_choice.server_label", choice.get("server_label"), allowed)
        if not isinstance(choice.get("name"), str | None):
            raise refuse("tool_choice.name", choice["name"], "the name of a tool")
    elif servers and isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        read_allowed(
            choice, is_nested=False
        )  # whether there are any of them is known with the servers' lists
    elif not servers or isinstance(choice, dict):
        choose_tools(functions, choice, is_nested=False)
    elif choice not in (None, "auto", "none", "required"):
        raise refuse("tool_choice", choice, "none, auto, required, a function by name, or an MCP server")
