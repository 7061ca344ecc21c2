"""Which spoken turns are still to be answered, and when that begins.

Once all their words are there, unless somebody speaks again meanwhile: what is said then belongs to the
question. A turn whose item is gone, or that a response answers to already, is owed nothing; one whose
response was interrupted before it said anything is owed again. Used by `realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from .items import Item, Items


class OwedAnswers:
    """Turns in the order in which they ended."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._all: list[Item] = []
        self.is_postponed = False
        """Somebody speaks, and what they say is to be answered to, too."""

    @property
    def turns(self) -> list[Item]:
        """Those whose items are there."""
        self._all = [item for item in self._all if item in self._items]
        return self._all

    @property
    def are_due(self) -> bool:
        """It is known what was said."""
        turns = self.turns
        return bool(turns) and not self.is_postponed and not any(item.waits for item in turns)

    def turn_ended(self, item: Item, *, is_answered: bool, by_client: bool) -> None:
        """A turn has ended. A client that ends it asks for the answer itself, to all that was said."""
        self.is_postponed = False
        if by_client:
            self.clear()
        elif is_answered:
            self._all.append(item)

    def answered_by(self, context: Container[Item]) -> tuple[Item, ...]:
        """A response answers to these; the turns among them."""
        answered = tuple(item for item in self._all if item in context)
        self._all = [item for item in self._all if item not in context]
        return answered

    def again(self, turns: Sequence[Item]) -> None:
        """These were not answered after all."""
        self._all = [*turns, *self._all]

    def clear(self) -> None:
        """Owe nothing."""
        self._all = []
