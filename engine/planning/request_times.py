"""How long requests wait, and how soon their tokens come: one clock for each, read into distributions.

Pure: the time is an argument. `actors/inference/scheduler.py` tells what happens; what the distributions mean
is said in `protocols/engine/messages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...protocols.engine.histograms import DRAFTS, SECONDS, TOKENS, Tally
from ...protocols.engine.messages import AnyRequest, Outcome, RequestId, TaskFailed, TokensSampled
from ...protocols.engine.statistics import RequestTimes
from .plan import Plan
from .service_classes import SERVICES


@dataclass(slots=True)
class _Clock:
    """One request."""

    tallies: _Tallies
    num_prompt_tokens: int
    submitted: float
    is_planned: bool = False
    last_token: float | None = None
    num_tokens: int = 0


@dataclass(slots=True)
class _Tallies:
    """The distributions of one class of service."""

    queue_s: Tally = field(default_factory=lambda: Tally(SECONDS))
    first_token_s: Tally = field(default_factory=lambda: Tally(SECONDS))
    between_tokens_s: Tally = field(default_factory=lambda: Tally(SECONDS))
    whole_s: Tally = field(default_factory=lambda: Tally(SECONDS))
    prompt_tokens: Tally = field(default_factory=lambda: Tally(TOKENS))
    output_tokens: Tally = field(default_factory=lambda: Tally(TOKENS))
    drafts_accepted: Tally = field(default_factory=lambda: Tally(DRAFTS))


class RequestClocks:
    """The clocks of all requests of one scheduler."""

    def __init__(self) -> None:
        self._clocks: dict[RequestId, _Clock] = {}
        self._tallies = {service: _Tallies() for service in SERVICES}

    def submitted(self, request: AnyRequest, *, now: float) -> None:
        """A request is in the queue."""
        tallies = self._tallies[request.lane.service]
        self._clocks[request.request_id] = _Clock(tallies, len(request.prompt_token_ids), now)

    def planned(self, plan: Plan, *, now: float) -> None:
        """The device gets a plan. A request that was put back to the queue has left it once already."""
        begun = [step.begin.request_id for step in plan.sequences if step.begin is not None]
        for request_id in (*begun, *(step.request.request_id for step in plan.wholes)):
            clock = self._clocks.get(request_id)
            if clock is not None and not clock.is_planned:
                clock.is_planned = True
                clock.tallies.queue_s.add(now - clock.submitted)

    def sampled(self, event: TokensSampled, *, now: float) -> None:
        """A request has new tokens, its last ones if there is a reason why it ends."""
        clock = self._clocks.get(event.request_id)
        if clock is None:
            return
        if event.num_draft:
            clock.tallies.drafts_accepted.add(event.num_draft_accepted)
        if num := len(event.token_ids):
            clock.num_tokens += num
            if clock.last_token is None:
                clock.tallies.first_token_s.add(now - clock.submitted)
            else:
                clock.tallies.between_tokens_s.add((now - clock.last_token) / num, num)
            clock.last_token = now
        if event.finish_reason in ("stop", "length"):
            self.answered(event.request_id, now=now)
        elif event.finish_reason is not None:
            self.aborted(event.request_id)

    def answered(self, request_id: RequestId, *, now: float) -> None:
        """A request has its last token, or its text has met a stop string."""
        clock = self._clocks.pop(request_id, None)
        if clock is not None:
            clock.tallies.whole_s.add(now - clock.submitted)
            clock.tallies.prompt_tokens.add(clock.num_prompt_tokens)
            clock.tallies.output_tokens.add(clock.num_tokens)

    def done(self, event: Outcome, *, now: float) -> None:
        """A request that does not sample has its answer."""
        if isinstance(event, TaskFailed):
            self.aborted(event.request_id)
        else:
            self.answered(event.request_id, now=now)

    def aborted(self, request_id: RequestId) -> None:
        """Nobody waits for the request any more."""
        self._clocks.pop(request_id, None)

    def times(self) -> dict[str, RequestTimes]:
        """By field of `EngineStatistics`."""
        return {
            f"times_{service}": RequestTimes(
                **{name: getattr(tallies, name).distribution() for name in RequestTimes.__struct_fields__}
            )
            for service, tallies in self._tallies.items()
        }
