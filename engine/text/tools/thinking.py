"""Reasoning in front of an answer, between two tags that the model writes, or whose first the prompt has.

Harmony has channels instead (`engine/text/tools/harmony.py`). Read next: `engine/text/tools/machine.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ....protocols.chat.answer_events import EventSink
from .json_calls import KIMI
from .source import Source, Steps, literal, skip_space, until

Thinking = Literal["open", "may", "closed"]
"""How an answer begins: inside of reasoning, perhaps with it, or behind it."""


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """What stands in front of reasoning and behind it."""

    start: str
    end: str
    other_ends: tuple[str, ...] = ()
    """What ends it, too, and is no part of it."""
    title: str = ""
    """What is written behind the start, and is no part of it."""

    def state_of(self, prompt: str) -> Thinking:
        """How an answer to a prompt that ends so begins."""
        begun = prompt.rstrip()
        if begun.endswith((self.start + self.title).rstrip()):
            return "open"
        return "closed" if begun.endswith(self.end) else "may"

    def state_after(self, text: str) -> Thinking:
        """How an answer that began with `text` goes on."""
        _, start, thought = text.rpartition(self.start)
        return "open" if start and self.end not in thought else "closed"


THINK: Final = ThinkTags("<think>", "</think>")
_BY_TEMPLATE: Final = (
    (("</think>", KIMI[0]), ThinkTags("<think>", "</think>", (KIMI[0],))),
    (("</think>",), THINK),
    (("[/THINK]",), ThinkTags("[THINK]", "[/THINK]")),
    (("<|channel>", "<channel|>"), ThinkTags("<|channel>", "<channel|>", ("<|tool_call>",), "thought\n")),
)


def tags_of(template: str) -> ThinkTags | None:
    """The tags a chat template writes around reasoning; None if it knows of none."""
    return next((tags for words, tags in _BY_TEMPLATE if all(word in template for word in words)), None)


def read_thinking(source: Source, sink: EventSink, tags: ThinkTags, state: Thinking) -> Steps[None]:
    """What the model thinks, if it does."""
    if state == "closed":
        return
    source.mark()
    if state == "may":
        yield from skip_space(source)
        if not (yield from literal(source, tags.start + tags.title)):
            source.go_back()
            return
    source.let_go()
    sink.begin_reasoning()
    mark = yield from until(source, (tags.end, *tags.other_ends), sink.reasoning)
    if mark is not None and mark != tags.end:
        source.at -= len(mark)
    sink.end_reasoning()
