"""One answer, fed as it comes: pieces of text in, events out; the same events however it was cut.

Knows no tokens, no requests and no wire: it can stand behind any surface. What it finds is in
`protocols/chat/answer_events.py`; the formats are chosen by `engine/text/tools/formats.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ....protocols.chat.answer_events import Event, EventSink, Span, TextAdded
from .asides import Asides
from .formats import FORMATS, FormatName, ToolFormat, format_of
from .harmony import CHANNEL, ENDS, HARMONY
from .json_calls import Tools
from .source import Source, Steps
from .thinking import Thinking, ThinkTags, read_thinking, tags_of


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How one model writes its answers."""

    tools: ToolFormat | None = None
    """How it writes calls; None: it does not."""
    thinking: ThinkTags | None = None
    """What it writes around its reasoning; None: nothing (Harmony has channels)."""

    @property
    def has_channels(self) -> bool:
        """Whether every answer, with tools or without, is messages on channels."""
        return self.tools is not None and self.tools.name == "harmony"

    @property
    def reasons(self) -> bool:
        """Whether its answers may have reasoning in front."""
        return self.thinking is not None or self.has_channels

    def reasoning_marks(self) -> tuple[str, Sequence[str]]:
        """What begins its reasoning, and all that may end it, what does by itself first."""
        if self.thinking is None:
            return f"{CHANNEL}analysis", ENDS
        return self.thinking.start, (self.thinking.end, *self.thinking.other_ends)

    def marks(self, *, with_tools: bool) -> Sequence[str]:
        """What must show in an answer's text, be it special tokens."""
        if self.has_channels:
            return HARMONY
        of_tools = self.tools.marks if self.tools is not None and with_tools else ()
        of_thinking = () if self.thinking is None else (self.thinking.start, self.thinking.end)
        return (*of_thinking, *of_tools)


ToolParser = Literal["auto", "none"] | FormatName
"""Which format a model's calls are read in; auto: the one its chat template writes."""


def answer_format(template: str | None, parser: ToolParser = "auto") -> AnswerFormat:
    """How a model with this chat template writes its answers."""
    match parser:
        case "auto":
            tools = format_of(template or "")
        case "none":
            tools = None
        case _:
            tools = FORMATS[parser]
    has_channels = tools is not None and tools.name == "harmony"
    return AnswerFormat(tools, None if has_channels else tags_of(template or ""))


class AnswerMachine:
    """Reads one answer.

    `tools` are the request's (None: calls are not looked for and stay text, but for channels); `thinking` is
    how the answer begins; at most `max_calls` calls are told. Where `only_calls` can come behind what is
    thought, anything else is a piece of one that was cut, and is not told. `asides` are names of special
    tokens that show in its text: they are told where they come, but inside of calls, and are read by no
    format. One that `traces` knows where each text was; it takes no asides.
    """

    def __init__(
        self,
        kind: AnswerFormat,
        tools: Tools | None = None,
        *,
        thinking: Thinking = "may",
        max_calls: int | None = None,
        only_calls: bool = False,
        asides: Sequence[str] = (),
        traces: bool = False,
    ) -> None:
        assert not (traces and asides), "places are those of the whole answer"
        self._source = source = Source()
        self._asides = Asides(asides) if asides else None
        make_id = kind.tools.make_id if kind.tools is not None else _no_id
        num_read = (lambda: source.num_read) if traces else None
        self._sink = EventSink(make_id, max_calls=max_calls, only_calls=only_calls, num_read=num_read)
        self._steps: Steps[None] | None = self._read(kind, tools, thinking)
        self._advance()

    def push(self, text: str) -> list[Event]:
        """What is found with this text, perhaps nothing yet."""
        if self._asides is not None:
            self._read_with_asides(self._asides, text)
        elif text:
            self._feed(text)
        return self._sink.take()

    def finish(self) -> list[Event]:
        """What is left at the end of the answer. Nothing may be pushed after."""
        if self._asides is not None:
            self._read_with_asides(self._asides, "", is_last=True)
        self._source.is_ended = True
        self._advance()
        self._sink.finish()
        return self._sink.take()

    def take_spans(self) -> list[list[Span]]:
        """Where the text of each `TextAdded` was that was found since the last time, where it `traces`."""
        return self._sink.take_spans()

    def _read_with_asides(self, asides: Asides, text: str, *, is_last: bool = False) -> None:
        for plain, name in asides.split(text, is_last=is_last):
            if plain:
                self._feed(plain)
            if name:
                self._sink.aside(name)

    def _feed(self, text: str) -> None:
        self._source.feed(text)
        self._advance()

    def _advance(self) -> None:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        if self._steps is None:
            self._sink.text(self._source.rest())

    def _read(self, kind: AnswerFormat, tools: Tools | None, thinking: Thinking) -> Steps[None]:
        if kind.thinking is not None:
            yield from read_thinking(self._source, self._sink, kind.thinking, thinking)
        if kind.tools is not None and (tools is not None or kind.has_channels):
            yield from kind.tools.read(self._source, self._sink, tools or {})


def _no_id(_: int, __: str) -> str:
    raise AssertionError("no format, no calls")


def read_more(machine: AnswerMachine | None, text: str, *, is_last: bool) -> list[Event]:
    """What is found with more of an answer; without a machine all of it is text."""
    if machine is None:
        return [TextAdded(text)] if text else []
    return [*machine.push(text), *(machine.finish() if is_last else ())]


def read_whole(machine: AnswerMachine | None, text: str) -> list[Event]:
    """All of an answer at once."""
    return read_more(machine, text, is_last=True)
