"""How much of a conversation is remembered: what a prompt of it takes, and which items are the next to go.

A prompt may fill the context but for the room of an answer, or as many tokens as the client says
(`session.truncation`). Whatever follows an item that goes must be computed anew, so items go many at a time:
near the bound, the oldest are *leaving* until a share of it is left (half, unless the client says otherwise).
They are forgotten once what stays has been read without them (`let_go`), so that a question finds one or the
other computed, or at the bound itself. A conversation that proves too long when it is asked about is
shortened then and there. What goes is said.

What items take is estimated: media are known, text is measured by its characters, and each prompt that is
built tells how many tokens those were. Live video has bounds of its own (`realtime/dialogue/retention.py`).
Used by `realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from ...protocols.realtime.conversation_session import RetentionRatio
from .config import DialogueConfig
from .items import Item, Items
from .settings import AnswerSettings, DialogueSettings

_KEPT: Final = 0.5
"""Of the bound, unless the client says otherwise."""
_NEAR: Final = 3 / 4
"""Of the way from what is kept to the bound: from there on the oldest are leaving."""
_MAX_ROOM: Final = 1024
"""Tokens for an answer without a longest length; an answer has a quarter of the context at most."""
_MARKS: Final = 16
"""Characters: what a message or the time of a pair takes beside its words, about."""


class Size(NamedTuple):
    """What a part of a prompt consists of."""

    media_tokens: int = 0
    chars: int = 0

    @classmethod
    def of(cls, items: Iterable[Item]) -> Size:
        """Of items."""
        tokens, chars = 0, 0
        for item in items:
            pairs = [] if item.clip is None else [pair for pair in item.clip.pairs if pair.num_tokens]
            tokens += item.num_media_tokens + sum(pair.num_tokens for pair in pairs)
            chars += item.num_chars + _MARKS * (1 + len(pairs))
        return cls(tokens, chars)

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.media_tokens + other.media_tokens, self.chars + other.chars)

    @classmethod
    def of_instructions(cls, settings: AnswerSettings) -> Size:
        """Of what stands before the items."""
        tools = settings.tools.tools
        num_tools = len(msgspec.json.encode(tools)) if tools else 0
        return cls(0, len(settings.instructions) + num_tools)


def answer_room(wanted: int | None, max_context: int) -> int:
    """Tokens that a prompt which may be shortened leaves for an answer of `wanted` tokens; None: of any."""
    return min(_MAX_ROOM if wanted is None else wanted, max_context // 4)


class Truncator:
    """Forgets the oldest of `items`; `drop` does it, and tells the client."""

    def __init__(self, config: DialogueConfig, items: Items, drop: Callable[[Sequence[Item]], None]) -> None:
        self.plan = 0
        """Another one whenever other items are leaving."""
        self._config = config
        self._items = items
        self._drop = drop
        self._tokens_of_char = 0.0
        """0: not known yet."""

    @property
    def is_leaving(self) -> bool:
        """Some items are."""
        return any(item.is_leaving for item in self._items)

    def bound(self, settings: DialogueSettings, answers: AnswerSettings) -> int | None:
        """Tokens of a prompt; None where only the model's context bounds it."""
        if settings.truncation == "disabled":
            return None
        most = self._config.max_context
        wanted = answers.max_output_tokens
        bound = most - answer_room(None if wanted == "inf" else wanted, most)
        configured = settings.truncation
        if isinstance(configured, RetentionRatio) and configured.most_tokens is not None:
            bound = min(bound, configured.most_tokens + self._tokens(Size.of_instructions(answers)))
        return bound

    def learn(self, size: Size, num_tokens: int) -> None:
        """A prompt of that size has so many tokens."""
        if num_tokens and size.chars:
            self._tokens_of_char = max(0, num_tokens - size.media_tokens) / size.chars

    def settle(self, settings: DialogueSettings) -> bool:
        """Forget what is beyond the bound, and settle what is leaving near it. Whether anything changed."""
        bound = self.bound(settings, settings.answers)
        if bound is None:
            return False
        num_tokens, most_items = self._all_tokens(self._items, settings.answers), self._config.max_items
        kept = _kept(settings)
        near = kept + _NEAR * (1 - kept)
        if self.is_leaving:
            return num_tokens > bound and self.let_go()
        if num_tokens <= near * bound and len(self._items) < near * most_items:
            return False
        leaving = self._oldest(self._items, settings.answers, kept * bound, kept * most_items)
        for item in leaving:
            item.is_leaving = True
        self.plan += 1
        if num_tokens > bound:
            self.let_go()
        return bool(leaving)

    def let_go(self) -> bool:
        """Forget those that are leaving. Whether there are any."""
        leaving = [item for item in self._items if item.is_leaving]
        if leaving:
            self.plan += 1
            self._drop(leaving)
        return bool(leaving)

    def shorten(self, context: Iterable[Item], settings: DialogueSettings, answers: AnswerSettings) -> bool:
        """A prompt of these items is too long; False if nothing of them can go."""
        bound = self.bound(settings, answers)
        if bound is None:
            return False
        if self.is_leaving:
            return self.let_go()
        there = [item for item in context if item in self._items]
        if self._all_tokens(there, answers) < bound:
            self.learn(Size.of(there).plus(Size.of_instructions(answers)), bound)
        most = min(_kept(settings) * bound, self._all_tokens(there, answers) - 1)
        gone = self._oldest(there, answers, most, len(there))
        self._drop(gone)
        return bool(gone)

    def _oldest(
        self, items: Iterable[Item], answers: AnswerSettings, most_tokens: float, most_items: float
    ) -> list[Item]:
        """Those that go until no more is left than that, but never the newest; up to behind an answer."""
        items = list(items)
        newest = set(_newest(items))
        free = [
            item for item in items if item.status != "in_progress" and not item.waits and item not in newest
        ]
        num_tokens, num_items = self._all_tokens(items, answers), len(items)
        end = 0
        while end < len(free) and (num_tokens > most_tokens or num_items > most_items):
            num_tokens -= self._tokens(Size.of([free[end]]))
            num_items -= 1
            end += 1
        for index in range(max(end, 1), len(free)):
            if _begins_turn(free[index - 1], free[index]):
                return free[:index]
        return free[:end]

    def _all_tokens(self, items: Iterable[Item], answers: AnswerSettings) -> int:
        return self._tokens(Size.of(items).plus(Size.of_instructions(answers)))

    def _tokens(self, size: Size) -> int:
        return size.media_tokens + round(size.chars * self._tokens_of_char)


def _kept(settings: DialogueSettings) -> float:
    configured = settings.truncation
    return configured.retention_ratio if isinstance(configured, RetentionRatio) else _KEPT


def _newest(items: Sequence[Item]) -> Sequence[Item]:
    """The last item; or calls made together, with what they gave, and the question they were made for."""
    start = len(items) - 1
    while start > 0 and items[start].output is not None:
        start -= 1
    while start > 0 and items[start].call is not None and items[start - 1].call is not None:
        start -= 1
    if not items or items[start].call is None:
        return items[-1:]
    questions = [item for item in items[:start] if item.role == "user" and item.output is None]
    return [*questions[-1:], *items[start:]]


def _begins_turn(before: Item, item: Item) -> bool:
    """Somebody asks, behind an answer."""
    return (
        item.role == "user" and item.output is None and (before.role != "user" or before.output is not None)
    )
