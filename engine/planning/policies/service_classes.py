"""Classes of service: live before interactive before batch, with a bounded and promised share for the worse.

In a step each class has one role:

    role       when                                       tokens     encodes, or requests run as a whole
    first      no better class is present                 the rest   as many as fit, or one less (see owed)
    alone      a better class is present, but idle        low share  1
    alongside  a better class is served, and it joins     low share  1 after `HEAVY_PATIENCE` steps without
    due        as alongside, and has the next encode      low share  as alongside
    (none)     as alongside, and sits the step out        none       none

- Present: the class wants something. Live is present for `LINGER_STEPS` more: its next request is on the way.
- Low share: all worse classes together get `num_low_priority_tokens`, and as many slots; half of what there
  is at most. Those below the best of them get their part of that by the same rule. Tokens that a worse class
  leaves are for the next one. Batch has at most `max_batch_tokens_per_step`: a step cannot be interrupted.
- Joins: in one step of `low_priority_interval`.
- Owed: if a worse class may begin an encode and finds no room in the step, it gets a place in the next one.
- Next encode: where encodes run alongside the steps, there is one at a time. A class alongside begins one
  only if it is due, which it is after it stood back more than `HEAVY_PATIENCE` times: in a step while nothing
  was being encoded, or for an encode of a better class. While an encode of its own or of a better class runs,
  a worse class is never alone: its tokens would take cores from that encode.
- Long encodes: while live requests decode, one of another live request waits, for `LIVE_PATIENCE` steps at
  most. It would delay all their answers, which are a few tokens long.
- Slots are taken from the worst class that has more than its share of them. Blocks are not shared out: they
  are taken from the worst class that runs.

`_role` says which role a class has, `_grant` what a role gets, `_after` what is remembered of a turn.
"""

from __future__ import annotations

from typing import Final, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ....protocols.engine.messages import Lane
from ..activity import LINGER_STEPS
from ..limits import SchedulerConfig
from ..service_classes import SERVICES
from .policy import Admission, Claim, Place, PutBack, Served, Share, StepView

HEAVY_PATIENCE: Final = 4
"""Steps without an encode or a whole before a class alongside a better one has one: a live request seldom has
more than four encodes."""
LIVE_PATIENCE: Final = 8
"""Steps: an update of a live answer has about four new tokens."""
_LIVE: Final = SERVICES.index("live")
_BATCH: Final = SERVICES.index("batch")
_NONE: Final = len(SERVICES)

Role = Literal["first", "alone", "alongside", "due"]


class Turn(Struct, frozen=True):
    """A class in the step being planned."""

    group: int
    num_tokens: int
    num_slots: int
    """With so many running, no more of the class are admitted; better ones may take those beyond."""
    is_low_priority: bool
    """Whether a better class is present."""


_BETWEEN_STEPS: Final = (Turn(_LIVE, 0, 0, is_low_priority=False),)
"""An encode that a live request waits for begins at once."""


class Waits(Struct, frozen=True):
    """What one class went without, in steps."""

    num_skipped: int = 0
    """Sat out since it last joined."""
    num_light: int = 0
    """Alongside a better class, since it last began an encode or a whole."""
    num_refused: int = 0
    """With an encode that could not begin alongside the steps."""

    @property
    def is_due(self) -> bool:
        """Whether the next encode alongside the steps is this class's."""
        return self.num_refused > HEAVY_PATIENCE


class State(Struct, frozen=True):
    """What is remembered from one decision to the next."""

    turns: tuple[Turn, ...] = ()
    """Classes that are still to be served in this step; the first is being served."""
    waits: tuple[Waits, ...] = (Waits(),) * len(SERVICES)
    num_since_live: int = LINGER_STEPS + 1
    num_held: int = 0
    """Steps in a row in which a long encode waited for live answers."""
    is_owed: bool = False
    encoding: int = _NONE
    """The class whose encode runs alongside the steps."""


class ServiceClasses:
    """The rules of the module."""

    groups = SERVICES
    initial = State()

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._turns: dict[tuple[bool, ...], tuple[Turn, ...]] = {}  # by who lingers and wants something

    def place(self, lane: Lane) -> Place:
        """By class, then priority; callers take turns."""
        return Place(SERVICES.index(lane.service), lane.priority, lane.caller)

    def share(self, state: State, view: StepView) -> tuple[Share | None, State]:
        """See `Policy.share`."""
        spare = 0
        if view.served is None:
            state = (
                replace(state, turns=_BETWEEN_STEPS) if view.is_between_steps else self._begin(state, view)
            )
        else:
            spare = view.served.num_tokens_left if state.turns[0].is_low_priority else 0
            state = self._after(state, view, view.served)
        while state.turns:
            role = self._role(state, view)
            if role is not None:
                return self._grant(state, view, role, spare)
            spare, group = 0, state.turns[0].group
            num_skipped = state.waits[group].num_skipped + 1
            waits = _changed(state.waits, group, num_skipped=num_skipped)
            state = replace(state, turns=state.turns[1:], waits=waits)
        return None, state

    def admit(self, state: State, claim: Claim) -> Admission:
        """See `Policy.admit`."""
        running = claim.num_running
        if claim.needs != "slot":
            worst = max((group for group, count in enumerate(running) if count), default=claim.group)
            return PutBack(worst) if worst > claim.group or claim.needs == "next block" else "wait"
        own, *worse = state.turns
        if running[own.group] >= own.num_slots:
            return "wait"
        if sum(running) < self._config.max_running:
            return "enter"
        over = (turn.group for turn in reversed(worse) if running[turn.group] > turn.num_slots)
        group = next(over, None)
        return "wait" if group is None else PutBack(group)

    def _begin(self, state: State, view: StepView) -> State:
        """The turns of a new step."""
        wanting = view.num_wanting
        num_since_live = 0 if wanting[_LIVE] else min(state.num_since_live + 1, LINGER_STEPS + 1)
        key = (0 < num_since_live <= LINGER_STEPS, *map(bool, wanting))
        if key not in self._turns:
            self._turns[key] = self._divide(*key)
        waits = state.waits
        for group, each in enumerate(waits):
            if each.num_refused and not wanting[group]:
                waits = _changed(waits, group, num_refused=0)
        is_owed = state.is_owed and sum(key) > 1
        encoding = state.encoding if view.is_encoding else _NONE
        return State(self._turns[key], waits, num_since_live, state.num_held, is_owed, encoding)

    def _divide(self, lingers: bool, *wanting: bool) -> tuple[Turn, ...]:
        """The turns of classes that want something; `lingers`: live does not, and is present."""
        config = self._config
        present = [group for group, wants in enumerate(wanting) if wants or (group == _LIVE and lingers)]
        tokens = _divided(config.max_tokens_per_step, config.num_low_priority_tokens, len(present))
        slots = _divided(config.max_running, config.num_low_priority_tokens, len(present))
        if wanting[_BATCH] and config.max_batch_tokens_per_step is not None:
            tokens[-1] = min(tokens[-1], config.max_batch_tokens_per_step)
        least = int(lingers)  # while no better class wants anything, the worse ones must make progress
        return tuple(
            Turn(group, max(tokens[index], least), max(slots[index], least), index > 0)
            for index, group in enumerate(present)
            if wanting[group]
        )

    def _role(self, state: State, view: StepView) -> Role | None:
        """Of the class whose turn it is; None: it sits this step out."""
        turn = state.turns[0]
        if not turn.is_low_priority:
            return "first"
        if not view.has_work and state.encoding > turn.group:
            return "alone"
        waits = state.waits[turn.group]
        if waits.is_due:
            return "due"
        return "alongside" if waits.num_skipped + 1 >= self._config.low_priority_interval else None

    def _grant(self, state: State, view: StepView, role: Role, spare: int) -> tuple[Share, State]:
        """What a class may have in its role; `spare` are tokens that the class before it left."""
        turn, waits = state.turns[0], state.waits
        own = waits[turn.group]
        is_next = not (view.overlaps and any(each.is_due for each in waits[turn.group + 1 :]))
        match role:
            case "first":
                num_encodes, may_overlap = max(self._config.max_encodes_per_step - state.is_owed, 1), is_next
            case "alone":
                num_encodes, may_overlap = 1, is_next
            case "alongside" | "due":
                num_encodes, may_overlap = int(own.num_light >= HEAVY_PATIENCE), role == "due"
                num_skipped = own.num_skipped if may_overlap else 0
                waits = _changed(waits, turn.group, num_skipped=num_skipped, num_light=own.num_light + 1)
            case _:
                assert_never(role)
        is_held = turn.group == _LIVE and state.num_held < LIVE_PATIENCE
        share = Share(
            turn.group,
            turn.num_tokens + spare,
            int(may_overlap and not view.is_encoding) if view.overlaps else num_encodes,
            num_encodes if turn.is_low_priority else None,
            self._config.max_rows_during_live if is_held else None,
        )
        if turn.is_low_priority:
            state = replace(state, waits=waits, is_owed=False)
        return share, state

    def _after(self, state: State, view: StepView, served: Served) -> State:
        """The turn is over: what became of it."""
        turn, rest = state.turns[0], state.turns[1:]
        group, waits, encoding = turn.group, state.waits, state.encoding
        num_held, is_owed = state.num_held, state.is_owed
        if not turn.is_low_priority and not view.is_between_steps:
            num_held = num_held + 1 if served.has_held else 0
        if view.overlaps and served.num_encodes:
            waits, encoding = _overlapped(waits, group), group
        elif view.overlaps:
            is_refused = turn.is_low_priority and served.has_refused
            num_refused = max(waits[group].num_refused + (not view.is_encoding), 1) if is_refused else 0
            if num_refused != waits[group].num_refused:
                waits = _changed(waits, group, num_refused=num_refused)
        if served.num_encodes or served.num_wholes:
            waits = _changed(waits, group, num_light=0)
        elif served.has_refused and not view.overlaps:
            is_owed = is_owed or served.share.num_encodes > 0
        return State(rest, waits, state.num_since_live, num_held, is_owed, encoding)


def _overlapped(waits: tuple[Waits, ...], group: int) -> tuple[Waits, ...]:
    """An encode of `group` begins alongside the steps: worse classes that wanted to, waited once more."""
    return tuple(
        each
        if place < group or not each.num_refused
        else replace(each, num_refused=0 if place == group else each.num_refused + 1)
        for place, each in enumerate(waits)
    )


def _changed(waits: tuple[Waits, ...], group: int, **counts: int) -> tuple[Waits, ...]:
    """With other counts for one class."""
    return (*waits[:group], replace(waits[group], **counts), *waits[group + 1 :])


def _divided(total: int, num_low_priority: int, num_classes: int) -> list[int]:
    """Parts for classes, best first; their sum is `total`."""
    parts = []
    for _ in range(num_classes - 1):
        rest = min(num_low_priority, total // 2)
        parts.append(total - rest)
        total = rest
    return [*parts, total]
