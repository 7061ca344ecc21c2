"""Counts reasoning tokens as they are generated, at a small, fixed cost for each.

A token that begins or ends the reasoning is one of them; that of a call that ends it is none. Tags are found
in the tokens' bytes, so that it does not matter which tokens spell them. Read next:
`actors/text/answer_reader.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...engine.models.prompts import PromptBuilder
from ...engine.text.tools.harmony import CHANNEL, END, MESSAGE
from ...engine.text.tools.thinking import Thinking, ThinkTags


class ReasoningCount:
    """Of one answer."""

    def __init__(self, builder: PromptBuilder, thinking: Thinking) -> None:
        self.num = 0
        """Tokens so far."""
        self._builder = builder
        self._tags = builder.answers.thinking
        tags = self._tags
        self._ends = () if tags is None else tuple(map(str.encode, (tags.end, *tags.other_ends)))
        self._longest = max(map(len, self._ends), default=0)
        self._lengths: deque[int] = deque(maxlen=self._longest)
        """Of the newest tokens, in bytes."""
        self._thinking: Thinking = thinking
        self._held = b""
        """The end of what came, which may be the beginning of a tag."""
        self._num_held = 0
        self._header: list[int] | None = None
        self._is_on_analysis = False
        names = (CHANNEL, MESSAGE, END) if builder.answers.has_channels else ()
        self._marks = tuple(map(builder.text.added_id, names))

    def push(self, token_ids: Sequence[int]) -> None:
        """More of the answer."""
        if self._marks:
            for token_id in token_ids:
                self._push_to_channel(token_id)
        elif self._tags is not None:
            for token_id in token_ids:
                if self._thinking == "closed":
                    return
                self._push_between(self._tags, self._builder.tokens.bytes_of(token_id))

    def _push_between(self, tags: ThinkTags, written: bytes) -> None:
        self._held += written
        self._lengths.append(len(written))
        if self._thinking == "may":
            start, head = tags.start.encode(), self._held.lstrip()
            self._num_held += 1
            if start.startswith(head) and head != start:
                return
            if not head.startswith(start):
                self._thinking = "closed"
                return
            self.num, self._thinking, self._held = self._num_held, "open", head[len(start) :]
        else:
            self.num += 1
        for mark in self._ends:
            place = self._held.find(mark)
            if place >= 0:
                self._thinking = "closed"
                if mark != self._ends[0]:
                    self._leave_out(len(self._held) - place)
        self._held = self._held[1 - self._longest :]

    def _leave_out(self, num_bytes: int) -> None:
        """The newest tokens are no reasoning, as far as they lie in so many bytes."""
        while self._lengths and self._lengths[-1] <= num_bytes:
            num_bytes -= self._lengths.pop()
            self.num -= 1

    def _push_to_channel(self, token_id: int) -> None:
        channel, message, end = self._marks
        if self._is_on_analysis:
            self.num += 1
            self._is_on_analysis = token_id != end
        elif token_id == channel:
            self._header = []
        elif self._header is not None and token_id == message:
            self._is_on_analysis = self._builder.text.decode(self._header).strip() == "analysis"
            self.num += len(self._header) + 2 if self._is_on_analysis else 0
            self._header = None
        elif self._header is not None:
            self._header.append(token_id)
