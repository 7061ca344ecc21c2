"""What goes into the next step: who is fed how many tokens, who is admitted, who must make room.

Class by class, best first, each within its share (`engine/planning/service_classes.py`): every decoding
request its next token, then prompts their next chunks, then waiting requests, then those that run as a
whole. A request without blocks takes those of the worst that runs, which is recomputed later; a better class
takes slots in the same way. Nobody is put back who was fed in the same step, and never more are put back than
are admitted for it, or lacked their blocks. Read `engine/planning/scheduler.py` for what becomes of the plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from .activity import Presence
from .encoder.slots import SlotQueue
from .kv.space import Found, KvSpace
from .limits import SchedulerConfig
from .plan import SequenceId, SequenceStart, SequenceStep
from .queues import Queues
from .request import ScheduledRequest
from .service_classes import SERVICES, Lanes, Share

_LIVE: Final = SERVICES.index("live")


@dataclass(slots=True)
class Making:
    """The plan being made."""

    budget: int = 0
    """Tokens left for the class whose turn it is."""
    requests: list[ScheduledRequest] = field(default_factory=list)
    sequences: list[SequenceStep] = field(default_factory=list)
    wholes: list[ScheduledRequest] = field(default_factory=list)
    num_whole_tokens: int = 0
    reserve: int = 0  # of the budget that no draft may take
    num_lacking: int = 0
    """Of those that run, how many have no block for their next token: so many no draft may take."""
    is_short: bool = False
    """Whether somebody lacks blocks, or was put back for want of them: then nobody worse is admitted."""
    num_slots: list[int] = field(default_factory=lambda: [0] * len(SERVICES))


class Planner:
    """Fills steps from the queues; all state but the shares is theirs."""

    def __init__(
        self,
        config: SchedulerConfig,
        queues: Queues,
        kv: KvSpace,
        slots: SlotQueue,
        counts: Counter[str],
        presence: Presence | None = None,
    ) -> None:
        self._config = config
        self._queues = queues
        self._kv = kv
        self._slots = slots
        self._counts = counts
        self._lanes = Lanes(config, presence)
        self._overlapped_service = len(SERVICES)  # of what is encoded apart; none
        self._num_sequences = 0
        self._num_fed = 0

    @property
    def is_quiet(self) -> bool:
        """See `Presence.is_quiet`."""
        return self._lanes.is_quiet

    @property
    def stands_back(self) -> bool:
        """See `Lanes.stands_back`."""
        return self._lanes.stands_back(self._wanted())

    def plan(self) -> Making:
        """Everybody's share of one step; encodes are taken in their queue."""
        running = self._queues.running
        making = Making(num_lacking=sum(each.num_planned == each.capacity for each in running))
        if not self._slots.is_encoding:
            self._overlapped_service = len(SERVICES)
        shares = self._lanes.shares(self._wanted())
        self._slots.is_overlapped = self._config.overlap_encoder and not self.is_quiet
        for share in shares:
            making.num_slots[share.service] = share.num_slots
        for place, share in enumerate(shares):
            is_passed_on = place > 0 and shares[place - 1].is_low_priority
            making.budget = share.num_tokens + (making.budget if is_passed_on else 0)
            self._plan_class(making, share)
        return making

    def plan_encode(self) -> None:
        """Take what a live request waits to listen to, if it is its turn: it goes apart, beside a step in
        flight."""
        slots = self._slots
        is_busy = slots.is_encoding or not self._lanes.is_next(_LIVE)
        if is_busy or self.is_quiet or not self._config.overlap_encoder:
            return
        slots.is_overlapped = True
        slots.allow(1)
        for request in self._queues.waiting_of(_LIVE):
            if request.slot is not None:
                slots.demand(request.slot)
            if slots.is_encoding:
                self._begin_overlapped(_LIVE)
                return

    def _begin_overlapped(self, service: int) -> None:
        self._overlapped_service = service
        self._lanes.note_overlapped(service)

    def _wanted(self) -> list[int]:
        """How many requests of each class want something."""
        queues = self._queues
        return [
            queues.num_running[service] + queues.num_waiting(service) + queues.num_wholes[service]
            for service in range(len(SERVICES))
        ]

    def _plan_class(self, making: Making, share: Share) -> None:
        service = share.service
        num_before = self._slots.num_taken + len(making.wholes)
        is_slowing = share.is_low_priority and self._overlapped_service <= service
        is_alongside = bool(making.sequences or num_before or is_slowing)
        if not self._lanes.joins(share, is_alongside=is_alongside):
            making.budget = 0
            return
        most = self._lanes.num_heavy(share, is_alongside=is_alongside)
        is_overlapped, is_free = self._slots.is_overlapped, not self._slots.is_encoding
        may_go = is_free and self._lanes.may_overlap(share, is_alongside=is_alongside)
        num_fed = len(making.sequences)
        prompts = self._plan_decodes(making, service)
        num_decoding = len(making.sequences) - num_fed
        self._slots.allow(
            int(may_go) if is_overlapped else most,
            self._lanes.longest_encode(share, num_decoding=num_decoding),
        )
        self._plan_prompts(making, prompts, service)
        if not making.is_short:
            self._admit(making, service)
        self._take_wholes(making, service, most if share.is_low_priority else None)
        if not share.is_low_priority:
            self._lanes.note_held(is_held=self._slots.has_held)
        if is_overlapped and is_free and self._slots.is_encoding:
            self._begin_overlapped(service)
        elif is_overlapped:
            is_refused = share.is_low_priority and self._slots.has_refused
            self._lanes.note_not_overlapped(service, is_refused=is_refused, was_free=is_free)
        if self._slots.num_taken + len(making.wholes) > num_before:
            self._lanes.note_heavy(share)
        elif most and self._slots.has_refused and not is_overlapped:
            self._lanes.note_refused()

    def _plan_decodes(self, making: Making, service: int) -> list[ScheduledRequest]:
        """Give those past their prompt the next token, those who waited longest for theirs if not all can
        have one. Returns the others that run."""
        prompts: list[ScheduledRequest] = []
        decoding: list[ScheduledRequest] = []
        for request in self._queues.running_of(service):
            if request.num_planned < request.num_begun:
                prompts.append(request)
            elif request.num_left and not (request.drafters and request.num_sampling):
                decoding.append(request)
        room = making.budget - (making.budget // 4 if prompts else 0)
        if len(decoding) > room:
            able = [each for each in decoding if not self._lacks_room(each, making)]
            decoding = sorted(nsmallest(room, able, key=_turn), key=lambda each: each.order)
        others = len(prompts) + (making.budget // 2 if self._queues.num_waiting(service) else 0)
        num_before = len(making.sequences)
        for index, request in enumerate(decoding):
            making.reserve = len(decoding) - index - 1 + others
            if request.sequence_id is None:
                continue  # put back by a better one
            if request.num_planned == request.capacity:
                making.num_lacking -= 1
                if not self._make_room(request, making):
                    continue  # it keeps its blocks: better requests take them if they must
            self._feed(making, request, 1)
        making.reserve = 0
        self._counts["decode_tokens"] += len(making.sequences) - num_before
        return [request for request in prompts if request.sequence_id is not None]

    def _plan_prompts(self, making: Making, prompts: list[ScheduledRequest], service: int) -> None:
        """Feed chunks of the prompts of running requests, best first; they have blocks for them."""
        is_contended = self._queues.num_waiting(service) > 0
        for index, request in enumerate(prompts):
            wanted = self._chunk(making.budget, is_contended or index + 1 < len(prompts))
            wanted = min(request.num_missing, wanted)
            num_tokens = self._encoded_part(request, request.num_planned, wanted)
            if num_tokens:
                self._feed(making, request, num_tokens)

    def _admit(self, making: Making, service: int) -> None:
        """Let waiting requests run, best first; none overtakes one that lacks blocks."""
        queues = self._queues
        waiting = queues.waiting_of(service)
        has_admitted = False
        for index, request in enumerate(waiting):
            if not making.budget or not self._has_slot(making, service):
                break
            if self._kv.is_awaiting(request):
                continue
            found = self._kv.find(request)
            if self._kv.is_awaiting(request, found):
                continue
            if not self._kv.fits(request, found) and not self._may_put_back_for(request):
                making.is_short = True
                break
            wanted = self._chunk(making.budget, index + 1 < len(waiting))
            wanted = min(request.num_missing - found.num_tokens, wanted)
            num_tokens = self._encoded_part(request, found.num_tokens, wanted)
            if not num_tokens:
                continue
            if not self._make_fit(request, found, making):
                break
            if len(queues.running) >= self._config.max_running:
                victim = self._over_share(making, service)
                assert victim is not None, "there was a slot to take"
                self._put_back(victim)
            self._kv.enter(request, found, SequenceId(self._num_sequences))
            self._num_sequences += 1
            queues.run(request)
            has_admitted = True
            self._feed(making, request, num_tokens, begin=request.start())
        if has_admitted:
            queues.settle()

    def _take_wholes(self, making: Making, service: int, most: int | None) -> None:
        """Let requests run as a whole, best first: `most` of them, however long they are, or as many as their
        own budget of tokens allows, and at least the first, if its encoding can be had."""
        if most == 0:
            return
        for request in self._queues.wholes_of(service)[:most]:
            num_tokens = making.num_whole_tokens + request.num_prompt
            if making.wholes and most is None and num_tokens > self._config.max_tokens_per_step:
                break
            if request.slot is None or self._slots.demand(request.slot):
                making.num_whole_tokens = num_tokens
                making.wholes.append(request)
                self._queues.take_whole(request)

    def _has_slot(self, making: Making, service: int) -> bool:
        """Whether the class may have one more, free or by taking one."""
        if self._queues.num_running[service] >= making.num_slots[service]:
            return False
        if len(self._queues.running) < self._config.max_running:
            return True
        return self._over_share(making, service) is not None

    def _over_share(self, making: Making, service: int) -> ScheduledRequest | None:
        """The worst that runs of a class which is worse and has more than its share of slots."""
        queues = self._queues
        for worse in range(len(SERVICES) - 1, service, -1):
            if queues.num_running[worse] > making.num_slots[worse]:
                return queues.running_of(worse)[-1]
        return None

    def _make_fit(self, request: ScheduledRequest, found: Found, making: Making) -> bool:
        """Whether there are blocks for a waiting request, those of worse classes included."""
        while not self._kv.fits(request, found):
            making.is_short = True
            if not self._may_put_back_for(request):
                return False
            self._put_back(self._queues.running[-1])
        return True

    def _may_put_back_for(self, request: ScheduledRequest) -> bool:
        """Whether anybody of a worse class runs."""
        running = self._queues.running
        return bool(running) and running[-1].service > request.service

    def _make_room(self, request: ScheduledRequest, making: Making) -> bool:
        """Get a block for the next position, preempting worse requests (worst first)."""
        while not self._kv.grow(request, request.num_planned + 1):
            making.is_short = True
            victim = self._queues.running[-1]
            if victim is request:
                return False
            self._put_back(victim)
        return True

    def _lacks_room(self, request: ScheduledRequest, making: Making) -> bool:
        """Whether nothing can be had for its next position: it is the worst that runs, and would have its
        turn again and again while those wait who could take its blocks."""
        if request.num_planned < request.capacity or request is not self._queues.running[-1]:
            return False
        lacks = not self._kv.grow(request, request.num_planned + 1)
        making.is_short |= lacks
        return lacks

    def _put_back(self, victim: ScheduledRequest) -> None:
        """Preempt: the request waits again, and finds most of its tokens' KV in the prefix cache."""
        self._queues.leave(victim)
        self._kv.leave(victim)
        self._queues.wait(victim)
        self._counts[f"preemptions_{SERVICES[victim.service]}"] += 1

    def _chunk(self, budget: int, is_contended: bool) -> int:
        """How much of a prompt may be fed at once."""
        limit = self._config.max_prefill_chunk
        if limit is not None:
            return min(budget, limit)
        return max(budget // 2, min(budget, self._config.block_size)) if is_contended else budget

    def _encoded_part(self, request: ScheduledRequest, start: int, num_tokens: int) -> int:
        """How many of the tokens from `start` can be fed now: as far as their items are encoded by then."""
        if request.slot is not None and not self._slots.demand(request.slot):
            return 0
        for item in request.items[request.next_item :]:
            if item.start >= start + num_tokens:
                break
            if item.end > start and not self._slots.demand(item.slot, item.end - item.start):
                return max(item.start - start, 0)
        return num_tokens

    def _feed(
        self, making: Making, request: ScheduledRequest, num_known: int, begin: SequenceStart | None = None
    ) -> None:
        """Plan one request's next tokens. It has blocks for the known ones; the draft gets what is free and
        nobody that runs needs now."""
        draft: tuple[int, ...] = ()
        if request.drafters and num_known == request.num_missing:
            end = request.num_planned + num_known
            num_blocks = max(self._kv.pool.num_free - making.num_lacking, 0)
            room = request.capacity + num_blocks * self._config.block_size - end
            draft = request.draft(min(making.budget - num_known - making.reserve, room))
            self._kv.grow(request, end + len(draft))
            self._counts["draft_tokens"] += len(draft)
        if request.num_planned < request.num_begun:
            self._counts["prefill_tokens"] += num_known
        self._num_fed += 1
        request.last_fed = self._num_fed
        making.budget -= num_known + len(draft)
        making.requests.append(request)
        making.sequences.append(request.step(num_known, draft, begin))


def _turn(request: ScheduledRequest) -> tuple[int, int]:
    """Who is next where not everybody can be: by priority, then round."""
    return request.message.lane.priority, request.last_fed
