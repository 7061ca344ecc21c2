"""How the items of a conversation become what a model is asked: messages, as a chat has them.

What the model said and called in a row is one message; what it called knowing what another call gave is the
next one. What a call gave stands right behind it, wherever its item is; a call that has given nothing yet, or
was cut off, is left out, as if it had not been made. Used by `realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...protocols.chat.assistant_turn import AssistantTurn, call_result
from ...protocols.chat.content import ChatMessage, TextPart, read_arguments
from ...protocols.chat.request import Conversation, thinking_kwargs
from ...protocols.chat.tools import nested
from ...protocols.errors import BadRequestError
from ...protocols.realtime.items import Call, CallOutput
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
            starts = tuple(round((pair.timestamps_ms[0] - origin_ms) / 1000, 3) for pair in pairs)
            names = tuple(pair.id for pair in pairs)
            found.append(ClipParts(f"{item.id}.content[0]", names, times, starts))
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
            talk.add(message)
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
    """Messages so far, and what the model says, which may still call something."""

    messages: list[ChatMessage] = field(default_factory=list)
    _turn: AssistantTurn | None = None

    def add(self, message: ChatMessage) -> None:
        """The next message."""
        self.close()
        if message.role == "assistant":
            assert isinstance(message.content, str), "what it says is text"
            self._turn = AssistantTurn(message.param, [message.content])
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
        self._turn = self._turn or AssistantTurn(item.id)
        self._turn.call(call.call_id, call.name, arguments)
        self._turn.results.append(call_result(call.call_id, output.output, item.id))

    def close(self) -> None:
        """What comes next is no part of the model's message."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self.messages += turn.messages()
