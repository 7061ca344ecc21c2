"""Harmony, gpt-oss' format: an answer is messages on channels, each with a header and a body.

`analysis` is reasoning, a message to a recipient is a call, everything else is text. Source: OpenAI's
document of the response format.
"""

from __future__ import annotations

import re
from typing import Final

from ....protocols.chat.answer_events import EventSink
from .json_calls import Tools
from .source import Source, Steps, collect, peek, until

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
CONSTRAIN, END, CALL, RETURN = "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"
HARMONY: Final = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)
ENDS: Final = (END, CALL, RETURN, START, CHANNEL)
_HEADS: Final = (START, CHANNEL, MESSAGE, " to=")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT: Final = re.compile(r"\bto=([\w.:/-]+)")
_ROLES: Final = ("assistant", "user", "all")
_MAX_HEADER: Final = 256
"""Characters; a longer one that leads to no message is text."""


def read_harmony(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """Messages until the end; the prompt has begun the first."""
    mark: str | None = None
    while (yield from peek(source)):
        header = CHANNEL if mark == CHANNEL else ""
        if mark not in (CHANNEL, START) and not (yield from _is_header(source)):
            mark = yield from until(source, ENDS, sink.text)
            continue
        more, mark = yield from collect(source, (MESSAGE, *ENDS[:3]))
        if mark != MESSAGE:
            if len(more) > _MAX_HEADER:  # whatever it is, it is no header
                sink.text(more, num_after=len(mark or ""))
            continue
        mark = yield from _read_body(source, sink, header + more)


def _is_header(source: Source) -> Steps[bool]:
    ahead = yield from peek(source, 1)
    while any(head.startswith(ahead) for head in _HEADS):
        if ahead in _HEADS:
            return True
        longer = yield from peek(source, len(ahead) + 1)
        if longer == ahead:
            return False
        ahead = longer
    return False


def _read_body(source: Source, sink: EventSink, header: str) -> Steps[str | None]:
    """One message up to the mark behind it, which is given back."""
    recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
    if recipient is not None and recipient[1] not in _ROLES:
        sink.begin_call(recipient[1].removeprefix("functions."))
        mark = yield from until(source, ENDS, sink.arguments)
        if mark is not None or not source.is_ended:
            sink.end_call()
        return mark
    if channel is not None and channel[1] == "analysis":
        sink.begin_reasoning()
        mark = yield from until(source, ENDS, sink.reasoning)
        sink.end_reasoning()
        return mark
    return (yield from until(source, ENDS, sink.text))
