"""The layers of the fake model: what rows of each group of layers see, and the state they leave.

A row is a hash of exactly what its layers may look at: all cells of a group of full attention, those of the
window of another, and the state in front of it. Cells of different groups differ, so that a table in the
wrong place is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sensorium.engine.planning.kv.groups import ONE_GROUP, PagedGroup
from sensorium.protocols.engine.messages import AnyRequest

Kv = bytes


@dataclass(frozen=True, slots=True)
class FakeLayers:
    """What the model's layers keep."""

    groups: tuple[PagedGroup, ...] = ONE_GROUP
    has_state: bool = False
    draft: PagedGroup | None = None
    """That of a draft model (`support/toy_drafting.py`), if its layer shares no table with the model's. If it
    does, the first of `groups` looks ahead."""

    @property
    def draft_group(self) -> PagedGroup | None:
        """The one that the draft model's layer is in."""
        return self.groups[0] if self.groups[0].looks_ahead else self.draft

    @property
    def all_groups(self) -> tuple[PagedGroup, ...]:
        """Those that have a table."""
        return self.groups if self.draft is None else (*self.groups, self.draft)


PLAIN = FakeLayers()


def cell_of(group: int, row: Kv) -> Kv:
    """What a group's layers keep of a row."""
    return blake2b(row, digest_size=8, key=bytes((group,))).digest() if group else row


class Past:
    """The tokens of a sequence and what its layers hold of them: of each group's cells those in reach (empty:
    out of it), and the states behind `start` tokens and more."""

    def __init__(
        self,
        layers: FakeLayers,
        tokens: Sequence[int] = (),
        cells: Sequence[Sequence[Kv]] | None = None,
        state: Kv = b"",
    ) -> None:
        self._layers = layers
        self._start = len(tokens)
        self.tokens = list(tokens)
        self._cells = [list(each) for each in cells or [()] * len(layers.groups)]
        self._states = [state]

    @property
    def state(self) -> Kv:
        """That behind all tokens."""
        return self._states[-1]

    def before_next(self) -> list[Kv]:
        """What the next row sees but itself."""
        return self._seen(len(self.tokens), len(self.tokens))

    def behind(self, num_tokens: int) -> list[Kv]:
        """What the row of the last of so many tokens sees."""
        return self._seen(num_tokens - 1, num_tokens)

    def cut(self, num_tokens: int) -> Past:
        """As it was behind so many tokens."""
        cells = [column[:num_tokens] for column in self._cells]
        state = self._states[num_tokens - self._start]
        return Past(self._layers, self.tokens[:num_tokens], cells, state)

    def append(self, token: int, row: Kv) -> None:
        """One more token is fed, and this is its row."""
        self.tokens.append(token)
        for group, cells in enumerate(self._cells):
            cells.append(cell_of(group, row))
        self._states.append(blake2b(self.state + row, digest_size=8).digest())

    def _seen(self, position: int, end: int) -> list[Kv]:
        seen: list[Kv] = []
        for group, cells in zip(self._layers.groups, self._cells, strict=True):
            part = cells[group.spec.first_needed(position) : end]
            assert all(part), "a row looks at what is out of reach"
            seen += part
        if self._layers.has_state:
            seen.append(self._states[end - self._start])
        return seen


def axes_alone(request: AnyRequest, index: int) -> tuple[int, int, int]:
    """The rotary position of one token, by walking to it."""
    place = here = 0
    for span in request.media:
        if span.grid is None or span.start > index:
            continue
        place += span.start - here
        here = span.start + span.num_tokens
        _, height, width = span.grid
        if index < here:
            local = index - span.start
            return place, place + local // width, place + local % width
        place += max(height, width)
    return (place + index - here,) * 3


def media_alone(request: AnyRequest, index: int) -> tuple[bytes, int] | None:
    """The item that one token of its prompt stands for, and which row of it."""
    for span in request.media:
        if span.start <= index < span.start + span.num_tokens:
            return span.content_hash.encode(), index - span.start
    return None
