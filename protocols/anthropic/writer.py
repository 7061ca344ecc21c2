"""An answer's events → the content blocks of a message, and on the way the events of its stream.

The same writer makes a whole message and a streamed one. Shapes are `protocols/anthropic/response.py`, what
is written comes from `protocols/chat/answer_events.py`. Read next: `actors/http/anthropic/routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..chat.answer_events import ArgumentsAdded, CallBegun, CallEnded, Event, ReasoningAdded, TextAdded
from ..chat.content import read_object
from .response import (
    Block,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageAnswer,
    MessageDelta,
    MessageEvent,
    MessageStart,
    MessageStop,
    MessageUsage,
    StopDelta,
    StopReason,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
)


class MessageWriter:
    """Writes one message. Every method gives the events of the stream; who wants the whole only leaves them,
    and takes `message`."""

    def __init__(self, message: MessageAnswer) -> None:
        self.message = message
        """As far as it is written."""
        self._blocks: list[Block] = []
        self._open: Block | None = None
        self._texts: list[str] = []
        self._has_calls = False

    def begin(self, num_prompt: int) -> list[MessageEvent]:
        """It is being worked on; `num_prompt` tokens are read, some of which may be cached."""
        usage = MessageUsage(input_tokens=num_prompt, output_tokens=0)
        self.message = msgspec.structs.replace(self.message, usage=usage)
        return [MessageStart(self.message)]

    def add(self, events: Iterable[Event]) -> list[MessageEvent]:
        """More of the answer."""
        sent: list[MessageEvent] = []
        for event in events:
            match event:
                case TextAdded(text):
                    if not isinstance(self._open, TextBlock):
                        sent += self._begin(TextBlock(text=""))
                    sent.append(self._more(TextDelta(text), text))
                case ReasoningAdded(text):
                    if not isinstance(self._open, ThinkingBlock):
                        sent += self._begin(ThinkingBlock(thinking=""))
                    sent.append(self._more(ThinkingDelta(text), text))
                case CallBegun():
                    self._has_calls = True
                    sent += self._begin(ToolUseBlock(id=event.id, name=event.name, input={}))
                case ArgumentsAdded(text=text):
                    sent.append(self._more(InputJsonDelta(text), text))
                case CallEnded():
                    sent += self._close()
        return sent

    def finish(self, usage: MessageUsage, reason: str | None, stop: str | None) -> list[MessageEvent]:
        """There is no more; it ended as the engine says, at the stop string `stop` if there was one."""
        sent = self._close()
        why = self._why(reason, stop)
        self.message = msgspec.structs.replace(
            self.message, content=self._blocks, usage=usage, stop_reason=why, stop_sequence=stop
        )
        return [*sent, MessageDelta(StopDelta(why, stop), usage), MessageStop()]

    def _why(self, reason: str | None, stop: str | None) -> StopReason:
        if reason == "length":
            return "max_tokens"
        if stop is not None:
            return "stop_sequence"
        return "tool_use" if self._has_calls else "end_turn"

    def _begin(self, block: Block) -> list[MessageEvent]:
        sent = self._close()
        self._open = block
        return [*sent, ContentBlockStart(len(self._blocks), block)]

    def _more(self, delta: TextDelta | ThinkingDelta | InputJsonDelta, text: str) -> MessageEvent:
        self._texts.append(text)
        return ContentBlockDelta(len(self._blocks), delta)

    def _close(self) -> list[MessageEvent]:
        if self._open is None:
            return []
        text = "".join(self._texts)
        match self._open:
            case TextBlock():
                self._blocks.append(TextBlock(text=text))
            case ThinkingBlock():
                self._blocks.append(ThinkingBlock(thinking=text))
            case ToolUseBlock(id=call_id, name=name):
                self._blocks.append(ToolUseBlock(id=call_id, name=name, input=read_object(text) or {}))
        self._open = None
        self._texts.clear()
        return [ContentBlockStop(len(self._blocks) - 1)]
