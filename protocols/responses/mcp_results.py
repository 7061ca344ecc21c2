"""What calls of MCP servers' tools come to, as text for the model and as OpenAI's items tell it.

Asked for by `actors/mcp/`; read next: `protocols/responses/output_items.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What a call came to: a text, or an error in one of OpenAI's shapes."""

    output: str | None = None
    error: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """What the model is told."""
        return failure_text(self.error) if self.output is None else self.output


def http_error(code: int, message: str) -> CallOutcome:
    """The server could not be asked, or answered with a status."""
    return CallOutcome(error={"type": "http_error", "code": code, "message": message})


def protocol_error(code: int, message: str) -> CallOutcome:
    """The server refused the call, or does not speak the protocol."""
    return CallOutcome(error={"type": "mcp_protocol_error", "code": code, "message": message})


def tool_outcome(result: dict[str, Any]) -> CallOutcome:
    """What the result of MCP's `tools/call` says."""
    content = result.get("content")
    parts: list[Any] = content if isinstance(content, list) else []
    if result.get("isError") is True:
        return CallOutcome(error={"type": "mcp_tool_execution_error", "content": parts})
    text = "\n".join(_texts(parts))
    if not text and "structuredContent" in result:
        text = msgspec.json.encode(result["structuredContent"]).decode()
    return CallOutcome(output=text)


def failure_text(error: Any) -> str:  # noqa: ANN401 (any of the error's shapes, or what a client sent for one)
    """What the model is told of a call that failed."""
    if isinstance(error, dict) and error.get("type") == "mcp_tool_execution_error":
        content = error.get("content")
        message = "\n".join(_texts(content if isinstance(content, list) else []))
    else:
        message = str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
    return f"The call failed: {message}" if message else "The call failed."


def declined_text(reason: str) -> str:
    """What the model is told of a call that nobody agreed to."""
    return f"The user declined this call: {reason}" if reason else "The user declined this call."


def _texts(parts: Iterable[object]) -> Iterable[str]:
    """Each part of a result as text; what is none is named."""
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "resource", "resource": {"text": str(text)}}:
                yield text
            case {"type": "resource_link", "uri": str(uri)}:
                yield uri
            case {"type": str(kind)}:
                yield f"[{kind[:40]} left out]"
            case _:
                pass
