"""Classes of service: how much of a step, and of the slots, each class may take beside the others.

Live requests come in bursts and each waits for a few short steps, so what delays them is a slot that somebody
else has, and the length of the steps they share or arrive in. The rule is one for tokens and for slots: where
several classes want something, the worse ones together get `num_low_priority_tokens` (or as many slots) and
the better one the rest; what they get is divided by the same rule again. That is a bound and a promise: no
step beside a better class has more of the worse ones, and one in `low_priority_interval` such steps has no
less if they want it; in the others they stand back. Live is taken to be there for `LINGER_STEPS` after its
last request, since the next one is on its way. Batch has `max_batch_tokens_per_step` even where it is alone:
nobody waits for it, and somebody may come.

Engines of one process share its cores. What holds for steps of one engine holds between them: while live
requests want something of another one, an engine that has none pauses after each step for as long as
`low_priority_interval` - 1 such steps take (`actors/inference/scheduler.py`).

Encoding and aligning cannot be divided. A worse class does one such piece in a step, and beside a better one
only after it took part in `HEAVY_PATIENCE` steps without. If there is no place left for it then, the better
one has one less in the next step, unless it has but one.

Where encodes go apart, there is one at a time: one of a worse class, beside a better one, after it stood
back `HEAVY_PATIENCE` times, in a step while nothing was encoded or for an encode of a better one, and then
before those of the better one. While something of theirs or of a better class is encoded, worse ones count
as beside a better one: their tokens would take cores from it, and who speaks waits for its end. They go
apart only while somebody speaks. A step of many sequences reads the weights once for all, and files whose
encodings are in the steps come together in it; where those go beside, each file is nearly done when the next
one comes. Of live requests there are few at a time anyway.

Live answers are a few tokens each, and every encoding that begins among them keeps all of them waiting. So
where live requests decode, a long encoding of theirs waits until they have their answers, for at most
`LIVE_PATIENCE` steps. Whoever is next is answered sooner that way, and who comes after that, no later.

Blocks are not shared out: who lacks some takes them from the worst. With fewer than two slots or tokens (four
for three classes) there is nothing to share, and the better class has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

from ...protocols.engine.messages import Service
from .activity import LINGER_STEPS, Presence
from .limits import SchedulerConfig

SERVICES: Final[tuple[Service, ...]] = get_args(Service)
"""Best first; a class is its place here."""
HEAVY_PATIENCE: Final = 4
LIVE_PATIENCE: Final = 8
"""An update of a live answer has about four new tokens."""
_LIVE: Final = SERVICES.index("live")
_BATCH: Final = SERVICES.index("batch")


@dataclass(frozen=True, slots=True)
class Share:
    """What one class may have in the step being planned."""

    service: int
    num_tokens: int
    num_slots: int
    """Above that many running nobody more of the class is admitted, and better ones may take its slots."""
    is_low_priority: bool
    """Whether a better class is there."""


class Lanes:
    """The shares of one step after the other."""

    def __init__(self, config: SchedulerConfig, presence: Presence | None = None) -> None:
        self._config = config
        self._presence = presence or Presence()
        self._since_live = LINGER_STEPS
        self._num_passed = [0] * len(SERVICES)
        self._patience = [0] * len(SERVICES)
        self._num_refused = [0] * len(SERVICES)
        self._num_held = 0
        self._is_owed = False  # a place for a piece of a worse class, in the next step it takes part in

    @property
    def is_quiet(self) -> bool:
        """See `Presence.is_quiet`."""
        return self._presence.is_quiet

    def stands_back(self, wanted: Sequence[int]) -> bool:
        """Whether live requests want something of another engine of the process and none of this one.
        `wanted` counts each class' requests and alignments."""
        self._presence.note(self, is_live=wanted[_LIVE] > 0)
        return not wanted[_LIVE] and self._presence.is_elsewhere(self)

    def shares(self, wanted: Sequence[int]) -> list[Share]:
        """Of every class that wants something, best first. `wanted` counts its requests and alignments."""
        self._presence.note(self, is_live=wanted[_LIVE] > 0)
        self._since_live = 0 if wanted[_LIVE] else self._since_live + 1
        lingers = 0 < self._since_live <= LINGER_STEPS
        classes = [service for service, count in enumerate(wanted) if count or (service == _LIVE and lingers)]
        num_low_priority = self._config.num_low_priority_tokens
        self._num_refused = [num if wanted[i] else 0 for i, num in enumerate(self._num_refused)]
        self._is_owed &= len(classes) > 1
        tokens = _divided(self._config.max_tokens_per_step, num_low_priority, len(classes))
        if _BATCH in classes and self._config.max_batch_tokens_per_step is not None:
            tokens[-1] = min(tokens[-1], self._config.max_batch_tokens_per_step)
        slots = _divided(self._config.max_running, num_low_priority, len(classes))
        return [
            # Where nobody better wants anything now, somebody must get on however little there is.
            Share(service, max(tokens[i], int(lingers)), max(slots[i], int(lingers)), is_low_priority=i > 0)
            for i, service in enumerate(classes)
            if wanted[service]
        ]

    def joins(self, share: Share, *, is_alongside: bool) -> bool:
        """Whether the class takes part in this step; `is_alongside`: it serves a better class already."""
        if not is_alongside or self._is_due(share.service):
            return True
        self._num_passed[share.service] += 1
        if self._num_passed[share.service] < self._config.low_priority_interval:
            return False
        self._num_passed[share.service] = 0
        return True

    def num_heavy(self, share: Share, *, is_alongside: bool) -> int:
        """Encodings that the class may have begun in this step, and alignments, if it joins."""
        if not share.is_low_priority:
            return max(self._config.max_encodes_per_step - self._is_owed, 1)
        self._is_owed = False
        if not is_alongside:
            return 1
        self._patience[share.service] += 1
        return int(self._patience[share.service] > HEAVY_PATIENCE)

    def may_overlap(self, share: Share, *, is_alongside: bool) -> bool:
        """Whether the class may have something encoded apart while nothing is, if it joins."""
        return (
            self._is_due(share.service)
            if share.is_low_priority and is_alongside
            else self.is_next(share.service)
        )

    def is_next(self, service: int) -> bool:
        """Whether no worse class goes before it."""
        return not any(map(self._is_due, range(service + 1, len(SERVICES))))

    def note_overlapped(self, service: int) -> None:
        """Something of the class goes apart: worse ones that would have liked to stand back once more."""
        self._num_refused[service] = 0
        for worse in range(service + 1, len(SERVICES)):
            self._num_refused[worse] += self._num_refused[worse] > 0

    def note_not_overlapped(self, service: int, *, is_refused: bool, was_free: bool) -> None:
        """The class took part and nothing of it went apart. `is_refused`: it would have, beside a better one;
        `was_free`: nothing else had."""
        self._num_refused[service] = max(self._num_refused[service] + was_free, 1) if is_refused else 0

    def _is_due(self, service: int) -> bool:
        return self._num_refused[service] > HEAVY_PATIENCE

    def longest_encode(self, share: Share, *, num_decoding: int) -> int | None:
        """Rows of the longest encoding that the class may begin beside its own requests that decode; None:
        any."""
        is_held = share.service == _LIVE and num_decoding > 0 and self._num_held < LIVE_PATIENCE
        return self._config.max_rows_during_live if is_held else None

    def note_held(self, *, is_held: bool) -> None:
        """Whether a long encoding of a live request waited in this step."""
        self._num_held = self._num_held + 1 if is_held else 0

    def note_refused(self) -> None:
        """A worse class might have encoded something in this step, and found no place left."""
        self._is_owed = True

    def note_heavy(self, share: Share) -> None:
        """The class encoded or aligned something in this step."""
        self._patience[share.service] = 0


def _divided(total: int, num_low_priority: int, num_classes: int) -> list[int]:
    """Parts for classes, best first; their sum is `total`."""
    parts = []
    for _ in range(num_classes - 1):
        rest = min(num_low_priority, total // 2)
        parts.append(total - rest)
        total = rest
    return [*parts, total]
