"""What a scheduling policy is: two pure functions, and the place in the queues of each request.

The planner (`engine/planning/planner.py`) has the queues, the blocks and the encodes; the policy sees numbers
and decides. Its state is a value that the planner keeps: the same state and view give the same decision.
`engine/planning/policies/first_come.py` is the smallest policy; read it next.

Rules within a group are the planner's and hold for every policy: decodes before prompts, prompts before
admissions, none overtakes a request that lacks blocks, and none is preempted that was fed in the same step
for a waiting one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ....protocols.engine.messages import Lane

S = TypeVar("S")


class Place(NamedTuple):
    """Where a request stands in the queues: by group, then priority, smallest first. In one group and
    priority callers take turns, and the requests of one caller keep their order."""

    group: int
    priority: int
    caller: str


class Share(Struct, frozen=True):
    """What one group may have of a step."""

    group: int
    num_tokens: int
    num_encodes: int
    """Encodes that may begin."""
    num_wholes: int | None = None
    """Requests that may run as a whole; None: as many as fit in the step, and at least one."""
    max_rows_while_decoding: int | None = None
    """Rows of the longest encode that may begin if requests of the group decode; None: any."""


class Served(Struct, frozen=True):
    """What a group did with its share."""

    share: Share
    num_tokens_left: int
    num_encodes: int
    num_wholes: int
    has_refused: bool
    """Whether an encode found no room in the share, or in the step."""
    has_held: bool
    """Whether an encode was longer than `Share.max_rows_while_decoding`."""


class StepView(Struct, frozen=True):
    """The step being planned, before the next group is served."""

    num_wanting: Sequence[int]
    """Requests of each group, waiting and running."""
    served: Served | None = None
    """Of the last share in this step; None: no group was served yet."""
    is_between_steps: bool = False
    """No tokens are shared out: only an encode can begin, alongside a step in flight."""
    has_work: bool = False
    """Whether the step has any work yet."""
    overlaps: bool = False
    """Whether encodes run alongside the steps, one at a time, and not in them."""
    is_encoding: bool = False
    """Whether one runs alongside, or begins with this step."""


Needs = Literal["slot", "blocks", "next block"]


class Claim(Struct, frozen=True):
    """A request that needs what is not free."""

    group: int
    needs: Needs
    """A waiting request needs a slot, then blocks for its prompt. A running one needs its next block."""
    num_running: Sequence[int]
    """Requests of each group that have a slot."""


class PutBack(Struct, frozen=True):
    """Preempt the last running request of this group, then decide again. If the claimant itself is that
    request, it keeps its blocks and waits for a later step."""

    group: int


Admission = Literal["enter", "wait"] | PutBack


class Policy(Protocol[S]):
    """`S` is the type of its state."""

    @property
    def groups(self) -> Sequence[str]:
        """Names of the groups, best first. Live requests are those of a group named "live"."""

    @property
    def initial(self) -> S:
        """The state before the first step."""

    def place(self, lane: Lane, /) -> Place:
        """Where a request of `lane` stands."""

    def share(self, state: S, view: StepView, /) -> tuple[Share | None, S]:
        """Which group is served next in this step, and with how much; None: the step is complete.

        The planner calls it until it gives None, each time with what came of the share before.
        """

    def admit(self, state: S, claim: Claim, /) -> Admission:
        """Whether a request of the group being served gets what it needs, and who is put back for it."""
