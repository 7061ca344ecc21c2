"""First come, first served: one group, in order of arrival, whatever the request.

A request runs until it is answered. Only if blocks run out in the middle of answers is the last that came put
back, so that those before it can go on. Classes of service, priorities and callers change nothing: a file of
an hour that came first delays live speech. A request whose prefix a running one is computing waits for that,
and may be overtaken meanwhile. For a server with one kind of request.
"""

from __future__ import annotations

from ....protocols.engine.messages import Lane
from ..limits import SchedulerConfig
from .policy import Admission, Claim, Place, PutBack, Share, StepView

_EVERYBODY = Place(group=0, priority=0, caller="")


class FirstCome:
    """Has no state: what is to be known of the past is the order of the queue."""

    groups = ("all",)
    initial = None

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._whole_step = Share(0, config.max_tokens_per_step, config.max_encodes_per_step)

    def place(self, _lane: Lane) -> Place:
        """All stand in one line."""
        return _EVERYBODY

    def share(self, _state: None, view: StepView) -> tuple[Share | None, None]:
        """One share, which is the whole step."""
        return (self._whole_step if view.served is None else None), None

    def admit(self, _state: None, claim: Claim) -> Admission:
        """A free slot and free blocks, or none; running requests take blocks from the last that came."""
        match claim.needs:
            case "slot":
                return "enter" if claim.num_running[0] < self._config.max_running else "wait"
            case "blocks":
                return "wait"
            case "next block":
                return PutBack(0)
