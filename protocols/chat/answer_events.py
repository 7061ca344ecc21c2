"""What is found in an answer: text, reasoning, calls. The sink that formats write to, and what readers get.

White space around reasoning and calls is how formats are laid out, and is left out; inside of text every
character stays. Knows no format: read `engine/text/tools/formats.py` for those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct


class TextAdded(Struct, frozen=True, gc=False):
    """More of what the answer says."""

    text: str


class ReasoningAdded(Struct, frozen=True, gc=False):
    """More of what the model thinks before it answers."""

    text: str


class CallBegun(Struct, frozen=True, gc=False):
    """A call of a tool; calls are numbered from 0. `id` as the model wrote it, but if it wrote none, or that
    of another call: then a new one."""

    index: int
    id: str
    name: str


class ArgumentsAdded(Struct, frozen=True, gc=False):
    """More of a call's arguments; all of them together are a JSON object, if the model wrote one."""

    index: int
    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """There is no more of the call's arguments: it is complete, or the answer was cut."""

    index: int


Event = TextAdded | ReasoningAdded | CallBegun | ArgumentsAdded | CallEnded

Span = tuple[int, int]
"""Characters of an answer, as it came: from, and up to."""
MakeId = Callable[[int, str], str]
"""The id of a call (its index, its name) for which the model wrote none."""

_NOTHING: Final = "{}"


class EventSink:
    """Collects events. At most `max_calls` are told, None: all; with `only_calls` no text is. With
    `num_read`, which says how much of the answer is read, it knows where each text was."""

    def __init__(
        self,
        make_id: MakeId,
        *,
        max_calls: int | None = None,
        only_calls: bool = False,
        num_read: Callable[[], int] | None = None,
    ) -> None:
        self._make_id = make_id
        self._max_calls = max_calls
        self._only_calls = only_calls
        self._events: list[Event] = []
        self._pieces: list[str] = []
        """Of one event in the making, and what kind that is."""
        self._kind: type[TextAdded | ReasoningAdded | ArgumentsAdded] = TextAdded
        self._num_calls = 0
        self._emits = max_calls is None or max_calls > 0
        """Whether the call that is next, or open, is told."""
        self._ids: set[str] = set()
        self._has_arguments = False
        self._is_open = False
        self._is_fresh = False
        """Something that is no text was before: white space says nothing yet."""
        self._space = ""
        """White space behind text, which says nothing in front of a call."""
        self._is_thinking = False
        self._is_fresh_reasoning = True
        self._reasoning_space = ""
        """The same two of reasoning."""
        self._num_read = num_read
        self._spans: list[Span] = []
        """Of the text in the making; of the white space behind it; and of each text that was told."""
        self._space_spans: list[Span] = []
        self._emitted_spans: list[list[Span]] = []

    def text(self, text: str, *, num_after: int = 0) -> None:
        """What is no part of anything else; it was just read, but for `num_after` characters behind it."""
        if self._only_calls:
            return
        if self._num_read is not None:
            self._note(text, self._num_read() - num_after)
        if self._is_fresh:
            text = text.lstrip()
        if not text:
            return
        self._is_fresh = False
        stripped = text.rstrip()
        if stripped:
            self._add(TextAdded, self._space + stripped)
            self._space = ""
        self._space += text[len(stripped) :]

    def reasoning(self, text: str) -> None:
        """What stands between the marks of reasoning."""
        if self._is_fresh_reasoning:
            text = text.lstrip()
        if not text:
            return
        self._is_fresh_reasoning = False
        stripped = text.rstrip()
        if stripped:
            self._add(ReasoningAdded, self._reasoning_space + stripped)
            self._reasoning_space = ""
        self._reasoning_space += text[len(stripped) :]

    def begin_reasoning(self) -> None:
        """What comes is reasoning, until `end_reasoning`."""
        self._is_thinking = True

    def end_reasoning(self) -> None:
        """It is over, and something else follows. More of it later is a paragraph of its own."""
        self._is_thinking = False
        self._is_fresh = True
        if not self._is_fresh_reasoning:
            self._is_fresh_reasoning, self._reasoning_space = True, "\n\n"

    def aside(self, name: str) -> None:
        """The name of a special token, which belongs to nothing: it stands where it comes."""
        if self._is_open:
            return
        if self._is_thinking:
            self._add(ReasoningAdded, self._reasoning_space + name)
            self._reasoning_space, self._is_fresh_reasoning = "", False
        else:
            self._add(TextAdded, self._space + name)
            self._space = ""

    def begin_call(self, name: str, call_id: str | None = None) -> None:
        """A call of `name`, until `end_call`."""
        self._space, self._is_fresh = "", True
        self._space_spans.clear()
        self._has_arguments, self._is_open = False, True
        if self._emits:
            call_id = call_id or self._make_id(self._num_calls, name)
            while call_id in self._ids:  # results name their call by it
                call_id = f"{call_id}-{self._num_calls}"
            self._ids.add(call_id)
            self._emit(CallBegun(self._num_calls, call_id, name))

    def arguments(self, text: str) -> None:
        """More of the call's arguments."""
        if text and self._emits:
            self._has_arguments = True
            self._add(ArgumentsAdded, text)

    def end_call(self) -> None:
        """The call is over; one without arguments has an empty object of them."""
        if self._emits:
            if not self._has_arguments:
                self._add(ArgumentsAdded, _NOTHING)
            self._emit(CallEnded(self._num_calls))
        self._num_calls += 1
        self._emits = self._max_calls is None or self._num_calls < self._max_calls
        self._is_open = False

    def finish(self) -> None:
        """Nothing more comes: white space at the end of a text is text, and a call that was cut stays so."""
        if self._is_open and self._emits:
            self._emit(CallEnded(self._num_calls))
        if self._space:
            self._add(TextAdded, self._space)
            self._space = ""
            self._spans += self._space_spans

    def take_spans(self) -> list[list[Span]]:
        """Where each text was that `take` gave since the last time; they are in order."""
        spans, self._emitted_spans = self._emitted_spans, []
        return spans

    def take(self) -> list[Event]:
        """The events since the last time."""
        self._flush()
        events, self._events = self._events, []
        return events

    def _note(self, text: str, end: int) -> None:
        """Where the text is that `text` is about to tell, as far as it does."""
        start = end - len(text)
        if self._is_fresh:
            start += len(text) - len(text.lstrip())
        text_end = max(start, end - len(text) + len(text.rstrip()))
        if text_end > start:
            self._spans += (*self._space_spans, (start, text_end))
            self._space_spans.clear()
        if end > text_end:
            self._space_spans.append((text_end, end))

    def _emit(self, event: Event) -> None:
        self._flush()
        self._events.append(event)

    def _add(self, kind: type[TextAdded | ReasoningAdded | ArgumentsAdded], text: str) -> None:
        if kind is not self._kind:
            self._flush()
            self._kind = kind
        self._pieces.append(text)

    def _flush(self) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._kind is ArgumentsAdded:
            self._events.append(ArgumentsAdded(self._num_calls, text))
        elif self._kind is TextAdded:
            self._events.append(TextAdded(text))
            if self._num_read is not None:
                self._emitted_spans.append(self._spans)
                self._spans = []
        else:
            self._events.append(ReasoningAdded(text))


def merged(events: Iterable[Event]) -> list[Event]:
    """The same with neighbours of one kind as one: how an answer was cut into pieces does not show."""
    several = list(events)
    if len(several) < 2:
        return several
    found: list[Event] = []
    for event in several:
        match event, found[-1] if found else None:
            case TextAdded(text=more), TextAdded(text=text):
                found[-1] = TextAdded(text + more)
            case ReasoningAdded(text=more), ReasoningAdded(text=text):
                found[-1] = ReasoningAdded(text + more)
            case ArgumentsAdded(index=index, text=more), ArgumentsAdded(text=text):
                found[-1] = ArgumentsAdded(index, text + more)
            case _:
                found.append(event)
    return found
