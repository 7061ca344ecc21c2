"""What an assistant says in a row, of whatever parts an API has for it, as the messages that templates take.

Parts are the blocks of `/v1/messages`, the items of `/v1/responses` and those of live sessions. Read next:
`protocols/chat/content.py`, whose messages these are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .content import ChatMessage, Part


@dataclass(slots=True)
class AssistantTurn:
    """As far as it goes; `param` is where it begins in the request."""

    param: str
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[ChatMessage] = field(default_factory=list)
    """What its calls gave, as far as that is known with them."""

    def call(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        """It calls a tool."""
        function = {"name": name, "arguments": arguments}
        self.calls.append({"id": call_id, "type": "function", "function": function})

    def messages(self) -> tuple[ChatMessage, ...]:
        """All that was said, thought and called, and behind it what the calls gave."""
        extra: dict[str, Any] = {}
        if self.reasoning:
            extra["reasoning_content"] = "\n\n".join(self.reasoning)
        if self.calls:
            extra["tool_calls"] = self.calls
        message = ChatMessage(role="assistant", content="".join(self.texts), extra=extra, param=self.param)
        return (message, *self.results)


def call_result(call_id: str, content: str | tuple[Part, ...], param: str) -> ChatMessage:
    """What a call gave."""
    return ChatMessage(role="tool", content=content, extra={"tool_call_id": call_id}, param=param)
