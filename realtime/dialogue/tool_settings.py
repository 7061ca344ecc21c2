"""The tools of a session or a response: merging a client's `tools`, `tool_choice` and `parallel_tool_calls`.

Shapes are checked as `/v1/responses` checks them (`protocols/tools.py`). Which of the settings a patch is
about is `realtime/dialogue/settings.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...protocols.errors import BadRequestError
from ...protocols.tools import NO_TOOLS, ToolUse, read_tool_use
from ..wishes import either

MAX_TOOL_BYTES: Final = 256 * 1024
"""Of the tools of a session together, as they came."""
_MAX_CHOICE_BYTES: Final = 1024


class ToolSettings(msgspec.Struct, frozen=True):
    """What may be called, as the client said it, and what that means."""

    tools: tuple[dict[str, Any], ...] = ()
    choice: str | dict[str, Any] = "auto"
    is_parallel: bool = True
    use: ToolUse = NO_TOOLS


def merge_tools(
    current: ToolSettings,
    default: ToolSettings,
    tools: Raw | UnsetType,
    choice: Raw | UnsetType,
    is_parallel: bool | UnsetType | None,
    *,
    param: str,
    calls_tools: bool,
) -> ToolSettings:
    """The settings after a patch; UNSET keeps, null is the default. Raises BadRequestError naming a field."""
    if tools is UNSET and choice is UNSET and is_parallel is UNSET:
        return current
    given = _decoded(tools, f"{param}.tools", MAX_TOOL_BYTES, list, current.tools, default.tools)
    chosen = _decoded(
        choice, f"{param}.tool_choice", _MAX_CHOICE_BYTES, str | dict, current.choice, default.choice
    )
    is_parallel = either(is_parallel, current.is_parallel, default.is_parallel)
    if given and not calls_tools:
        raise BadRequestError(
            f"`{param}.tools`: the model calls no tools: its chat template writes no calls",
            code="unsupported_parameter",
            param=f"{param}.tools",
        )
    for index, tool in enumerate(given):
        if not isinstance(tool, dict):
            where = f"{param}.tools[{index}]"
            raise BadRequestError(f"`{where}` is no object", param=where)
    try:
        use = read_tool_use(list(given), chosen, is_parallel=is_parallel, is_nested=False)
    except BadRequestError as error:
        raise _prefixed(error, param) from None
    return ToolSettings(tuple(given), chosen, is_parallel, use)


def _decoded(
    raw: Raw | UnsetType,
    param: str,
    most: int,
    kind: Any,  # noqa: ANN401 (a type, or a union of types)
    current: Any,  # noqa: ANN401
    default: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 (a `kind`)
    if raw is UNSET:
        return current
    size = len(bytes(memoryview(raw)))
    if size > most:
        raise BadRequestError(f"`{param}` has {size} bytes; the limit is {most}", param=param)
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise BadRequestError(f"`{param}` is nested too deeply", param=param) from None
    if found is None:
        return default
    if not isinstance(found, kind):
        raise BadRequestError(
            f"`{param}` is {type(found).__name__}; see the types of OpenAI's sessions", param=param
        )
    return found


def _prefixed(error: BadRequestError, param: str) -> BadRequestError:
    """The same about a field that lies in `param`."""
    where = error.param or ""
    message = error.message.replace(f"`{where}`", f"`{param}.{where}`", 1)
    return BadRequestError(message, code=error.code, param=f"{param}.{where}" if where else param)
