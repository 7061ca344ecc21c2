"""How the items of a conversation become what a model is asked: messages, as a chat has them.

What the model said and called in a row is one message; what it called knowing what another call gave is the
next one. What a call gave stands right behind it, wherever its item is; a call that has given nothing yet, or
was cut off, is left out, as if it had not been made. Used by `realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...protocols.chat import Conversation, thinking_kwargs
from ...protocols.chat_content import ChatMessage, TextPart, read_arguments
from ...protocols.errors import BadRequestError
from ...protocols.realtime_items import Call, CallOutput
from ...protocols.tools import nested
from .effects import ClipParts
from .items import Item
from .settings import AnswerSettings


def clip_parts(items: Iterable[Item], origin_ms: int, *, is_ahead: bool = False) -> tuple[ClipParts, ...]:
    """What the live video among some items consists of, as far as it is ready; `is_ahead`: and stays."""
    found: list[ClipParts] = []
    for item in items:
        pairs = [] if item.clip is None else item.clip.pairs
        pairs = [pair for pair in pairs if pair.num_tokens and not (is_ahead and pair.is_leaving)]
        if pairs:
            times = tuple(
                round((sum(pair.timestamps_ms) / len(pair.timestamps_ms) - origin_ms) / 1000, 3)
                for pair in pairs
            )
            found.append(ClipParts(f"{item.id}.content[0]", tuple(pair.id for pair in pairs), times))
    return tuple(found)


def conversation(items: Iterable[Item], settings: AnswerSettings) -> Conversation:
    """What a model is asked: the instructions, then the items; and what it may call."""
    items = list(items)
    outputs = {item.output.call_id: item.output for item in items if item.output is not None}
    talk = _Talk()
    if settings.instructions:
        system = (TextPart(settings.instructions),)
        talk.messages.append(
            ChatMessage(role="system", content=system, extra={}, param="session.instructions")
        )
    for item in items:
        if item.call is not None:
            talk.call(item, item.call, outputs.get(item.call.call_id))
        elif item.output is not None:
            talk.close()
        elif (message := item.message()) is not None:
            talk.say(message)
    talk.close()
    tools = settings.tools
    return Conversation(
        messages=tuple(talk.messages),
        tools=[nested(tool) for tool in tools.tools] if tools.use.tools else None,
        template_kwargs=thinking_kwargs(settings.reasoning.effort),
        tool_use=tools.use,
    )


@dataclass(slots=True)
class _Talk:
    """Messages so far, and the one of the model that may still call something."""

    messages: list[ChatMessage] = field(default_factory=list)
    _said: ChatMessage | None = None
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _outputs: list[ChatMessage] = field(default_factory=list)

    def say(self, message: ChatMessage) -> None:
        """The next message."""
        self.close()
        if message.role == "assistant":
            self._said = message
        else:
            self.messages.append(message)

    def call(self, item: Item, call: Call, output: CallOutput | None) -> None:
        """A call, and what it gave."""
        if output is None:
            return
        try:
            arguments = read_arguments(call.arguments, item.id)
        except BadRequestError:
            return  # cut off
        if self._said is None:
            self._said = ChatMessage(role="assistant", content="", extra={}, param=item.id)
        function = {"name": call.name, "arguments": arguments}
        self._calls.append({"id": call.call_id, "type": "function", "function": function})
        self._outputs.append(
            ChatMessage(
                role="tool", content=output.output, extra={"tool_call_id": call.call_id}, param=item.id
            )
        )

    def close(self) -> None:
        """What comes next is no part of the model's message."""
        said, self._said = self._said, None
        if said is None:
            return
        extra: dict[str, Any] = {"tool_calls": self._calls} if self._calls else {}
        self.messages.append(
            ChatMessage(role="assistant", content=said.content, extra=extra, param=said.param)
        )
        self.messages += self._outputs
        self._calls, self._outputs = [], []
