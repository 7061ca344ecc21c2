"""Fills one step from the queues: the policy says which group is served next and with how much.

Within a group: every decoding request its next token, then prompts their next chunks, then waiting requests,
then those that run as a whole. A request that lacks a slot or blocks claims them from the policy, which may
have another put back; that one waits, and is recomputed later. None is put back that was fed in the same
step, and no more are put back than are admitted for it, or lacked their blocks. Read
`engine/planning/policies/policy.py` for the decisions, `engine/planning/scheduler.py` for what becomes of the
plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from .activity import Presence
from .encoder.slots import SlotQueue
from .kv.space import Found, KvSpace
from .limits import SchedulerConfig
from .plan import NO_DRAFT, SequenceId, SequenceStart, SequenceStep
from .policies.policy import Admission, Claim, Needs, Policy, PutBack, Served, Share, StepView
from .queues import Queues
from .request import ScheduledRequest
from .streaming_planner import ChunkPlan, StreamingPlanner


@dataclass(slots=True)
class Making:
    """The plan being made."""

    budget: int = 0
    """Tokens left for the group being served."""
    requests: list[ScheduledRequest] = field(default_factory=list)
    sequences: list[SequenceStep] = field(default_factory=list)
    wholes: list[ScheduledRequest] = field(default_factory=list)
    chunks: ChunkPlan | None = None
    """Of an engine whose requests are fed."""
    num_whole_tokens: int = 0
    reserve: int = 0  # of the budget that no draft may take
    num_lacking: int = 0
    """Of those that run, how many have no block for their next token: so many no draft may take."""
    is_short: bool = False
    """Whether a request lacks blocks, or was put back for want of them: then no worse one is admitted."""


class Planner:
    """Keeps the policy's state, and asks it; all other state is that of the queues."""

    def __init__(
        self,
        config: SchedulerConfig,
        policy: Policy[Any],
        queues: Queues,
        kv: KvSpace,
        slots: SlotQueue,
        counts: Counter[str],
        presence: Presence | None = None,
        streaming: StreamingPlanner | None = None,
    ) -> None:
        self._streaming = streaming
        self._config = config
        self._policy = policy
        self._state = policy.initial
        self._queues = queues
        self._kv = kv
        self._slots = slots
        self._counts = counts
        self._presence = presence or Presence()
        self._live = policy.groups.index("live") if "live" in policy.groups else None
        self._num_sequences = 0
        self._num_fed = self._num_fed_before = 0

    @property
    def is_quiet(self) -> bool:
        """See `Presence.is_quiet`."""
        return self._presence.is_quiet

    @property
    def stands_back(self) -> bool:
        """Whether live requests want something of another engine of the process and none of this one."""
        return not self._note_live(self._wanting()) and self._presence.is_elsewhere(self)

    def plan(self) -> Making:
        """Everybody's share of one step; encodes are taken in their queue."""
        queues, slots = self._queues, self._slots
        self._num_fed_before = self._num_fed
        making = Making(num_lacking=sum(each.num_planned == each.capacity for each in queues.running))
        wanting = self._wanting()
        self._note_live(wanting)
        if self._streaming is not None:
            making.chunks = self._streaming.begin_step()
        slots.is_overlapped = self._config.overlap_encoder and not self.is_quiet
        served: Served | None = None
        while True:
            has_work = bool(making.sequences or making.wholes or making.chunks or slots.num_taken)
            view = StepView(wanting, served, False, has_work, slots.is_overlapped, slots.is_encoding)
            share, self._state = self._policy.share(self._state, view)
            if share is None:
                return making
            served = self._serve(making, share)

    def plan_encode(self) -> None:
        """Take an encode that a request waits for, if the policy has one begin now: it runs alongside a step
        in flight."""
        slots = self._slots
        can_begin = self._config.overlap_encoder and not (slots.is_encoding or self.is_quiet)
        if not can_begin:
            return
        view = StepView(num_wanting=(), is_between_steps=True, overlaps=True)
        share, self._state = self._policy.share(self._state, view)
        if share is None:
            return
        slots.is_overlapped = True
        slots.allow(share.num_encodes)
        for request in self._queues.waiting_of(share.group):
            if request.slot is not None:
                slots.demand(request.slot)
            if slots.is_encoding:
                break
        served = Served(share, 0, slots.num_taken, 0, slots.has_refused, slots.has_held)
        view = StepView((), served, is_between_steps=True, overlaps=True, is_encoding=slots.is_encoding)
        _, self._state = self._policy.share(self._state, view)

    def _wanting(self) -> list[int]:
        """How many requests of each group want something."""
        queues = self._queues
        if self._streaming is not None:
            return self._streaming.wanting()
        return [
            running + queues.num_waiting(group) + queues.num_wholes[group]
            for group, running in enumerate(queues.num_running)
        ]

    def _note_live(self, wanting: list[int]) -> bool:
        """Whether live requests want something; the engines of the process learn of it."""
        is_live = self._live is not None and wanting[self._live] > 0
        self._presence.note(self, is_live=is_live)
        return is_live

    def _serve(self, making: Making, share: Share) -> Served:
        """Give a group its share."""
        slots, group = self._slots, share.group
        num_encodes, num_wholes, num_fed = slots.num_taken, len(making.wholes), len(making.sequences)
        making.budget = share.num_tokens
        prompts = self._plan_decodes(making, group)
        is_decoding = len(making.sequences) > num_fed
        slots.allow(share.num_encodes, share.max_rows_while_decoding if is_decoding else None)
        self._plan_prompts(making, prompts, group)
        if not making.is_short:
            self._admit(making, group)
        self._take_wholes(making, group, share.num_wholes)
        if self._streaming is not None and making.chunks is not None:
            making.budget = self._streaming.plan(making.chunks, group, making.budget, self._admits)
        return Served(
            share,
            making.budget,
            slots.num_taken - num_encodes,
            len(making.wholes) - num_wholes,
            slots.has_refused,
            slots.has_held,
        )

    def _plan_decodes(self, making: Making, group: int) -> list[ScheduledRequest]:
        """Give those past their prompt the next token, those who waited longest for theirs if not all can
        have one. Returns the others that run."""
        prompts: list[ScheduledRequest] = []
        decoding: list[ScheduledRequest] = []
        for request in self._queues.running_of(group):
            if request.num_planned < request.num_begun:
                prompts.append(request)
            elif request.num_left and not (request.is_alone and request.num_sampling):
                decoding.append(request)
        room = making.budget - (making.budget // 4 if prompts else 0)
        if len(decoding) > room:
            able = [each for each in decoding if not self._lacks_room(each, making)]
            decoding = sorted(nsmallest(room, able, key=_turn), key=lambda each: each.order)
        others = len(prompts) + (making.budget // 2 if self._queues.num_waiting(group) else 0)
        num_before = len(making.sequences)
        for index, request in enumerate(decoding):
            making.reserve = len(decoding) - index - 1 + others
            if request.sequence_id is None:
                continue  # put back by a better one
            if request.num_planned == request.capacity:
                making.num_lacking -= 1
                request.waits_for = "blocks"
                if not self._make_room(request, making):
                    continue  # it keeps its blocks: better requests take them if they must
            self._feed(making, request, 1)
        making.reserve = 0
        self._counts["decode_tokens"] += len(making.sequences) - num_before
        return [request for request in prompts if request.sequence_id is not None]

    def _plan_prompts(self, making: Making, prompts: list[ScheduledRequest], group: int) -> None:
        """Feed chunks of the prompts of running requests, best first; they have blocks for them, but for
        those of windows."""
        is_contended = self._queues.num_waiting(group) > 0
        for index, request in enumerate(prompts):
            if request.sequence_id is None:
                continue  # put back by a better one
            wanted = self._chunk(making.budget, is_contended or index + 1 < len(prompts))
            wanted = min(request.num_missing, wanted)
            num_tokens = self._encoded_part(request, request.num_planned, wanted)
            request.waits_for = "blocks" if num_tokens else "encoding" if wanted else "slot"
            if request.num_planned + num_tokens > request.capacity:
                num_tokens = self._part_with_room(making, request, num_tokens)
            if num_tokens:
                self._feed(making, request, num_tokens)

    def _admit(self, making: Making, group: int) -> None:
        """Let waiting requests run, best first; none overtakes one that lacks blocks."""
        queues = self._queues
        waiting = queues.waiting_of(group)
        has_admitted = False
        for index, request in enumerate(waiting):
            if not making.budget or self._decide(request, "slot") == "wait":
                request.waits_for = "slot"
                break
            request.waits_for = "prefix"
            is_transferring = request.transfer is not None and self._is_transferring(request)
            if is_transferring or self._kv.is_awaiting(request):
                continue
            found = self._kv.find(request)
            if self._kv.is_awaiting(request, found):
                continue
            request.waits_for = "blocks"
            if not self._kv.fits(request, found) and self._decide(request, "blocks") == "wait":
                making.is_short = True
                break
            if request.source is not None and not self._make_fit(request, found, making):
                break
            if request.source is not None and self._kv.fetch(request, found):
                request.waits_for = "transfer"
                continue
            wanted = self._chunk(making.budget, index + 1 < len(waiting))
            wanted = min(request.num_missing - found.num_tokens, wanted)
            num_tokens = self._encoded_part(request, found.num_tokens, wanted)
            if not num_tokens:
                request.waits_for = "encoding"
                continue
            if not self._make_fit(request, found, making):
                break
            if not self._gets(request, "slot"):
                request.waits_for = "slot"
                break
            self._kv.enter(request, found, SequenceId(self._num_sequences))
            self._num_sequences += 1
            queues.run(request)
            has_admitted = True
            self._feed(making, request, num_tokens, begin=request.start())
        if has_admitted:
            queues.settle()

    def _is_transferring(self, request: ScheduledRequest) -> bool:
        """Whether the blocks that it waits for have not come yet."""
        if request.transfer not in self._kv.transfers.open:
            return False
        request.waits_for = "transfer"
        return True

    def _take_wholes(self, making: Making, group: int, most: int | None) -> None:
        """Let requests run as a whole, best first: `most` of them, however long they are, or as many as their
        own budget of tokens allows, and at least the first, if its encoding can be had."""
        if most == 0:
            return
        for request in self._queues.wholes_of(group)[:most]:
            num_tokens = making.num_whole_tokens + request.num_prompt
            if making.wholes and most is None and num_tokens > self._config.max_tokens_per_step:
                break
            request.waits_for = "encoding"
            if request.slot is None or self._slots.demand(request.slot):
                making.num_whole_tokens = num_tokens
                making.wholes.append(request)
                request.waits_for = None
                self._queues.take_whole(request)

    def _make_fit(self, request: ScheduledRequest, found: Found, making: Making) -> bool:
        """Whether there are blocks for a waiting request, those that the policy takes for it included."""
        while not self._kv.fits(request, found):
            making.is_short = True
            if not self._gets(request, "blocks"):
                return False
        return True

    def _part_with_room(self, making: Making, request: ScheduledRequest, num_tokens: int) -> int:
        """How many tokens of a prompt there are blocks for, parked ones and at last another's included."""
        if self._kv.grow(request, request.num_planned + num_tokens):
            return num_tokens
        least = self._without_parts(request, request.num_planned, 1)
        if request.capacity < request.num_planned + least:
            self._make_room(request, making, least)
        room = min(num_tokens, request.capacity - request.num_planned)
        return min(self._without_parts(request, request.num_planned, room), room) if room >= least else 0

    def _make_room(self, request: ScheduledRequest, making: Making, number: int = 1) -> bool:
        """Whether there are blocks for the next positions, if need be another's."""
        while not self._kv.grow(request, request.num_planned + number):
            making.is_short = True
            if not self._gets(request, "next block"):
                return False
        return True

    def _gets(self, request: ScheduledRequest, needs: Needs) -> bool:
        """Do as the policy decides; False: the request waits."""
        decision = self._decide(request, needs)
        if isinstance(decision, PutBack):
            victim = self._queues.last_running_of(decision.group)
            if victim is request or victim.last_fed > self._num_fed_before:
                return False  # who is fed in this step keeps what it is fed into
            self._put_back(victim)
        return decision != "wait"

    def _decide(self, request: ScheduledRequest, needs: Needs) -> Admission:
        return self._policy.admit(self._state, Claim(request.group, needs, self._queues.num_running))

    def _admits(self, claim: Claim) -> Admission:
        return self._policy.admit(self._state, claim)

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
        self._counts[f"preemptions_{victim.message.lane.service}"] += 1

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
        if self._kv.states is not None:
            num_tokens = self._kv.states.cut(start, num_tokens)
        num_tokens = self._without_parts(request, start, num_tokens)
        for item in request.items[request.next_item :]:
            if item.start >= start + num_tokens:
                break
            if item.end > start and not self._slots.demand(item.slot, item.end - item.start):
                num_in_front = max(item.start - start, 0)
                return (
                    num_in_front if self._without_parts(request, start, num_in_front) == num_in_front else 0
                )
        return num_tokens

    def _without_parts(self, request: ScheduledRequest, start: int, num_tokens: int) -> int:
        """How many of the tokens from `start` to feed so that no span is cut whose rows see all of it: up to
        the one that would be, or as far as it reaches if it is the first."""
        config = self._config
        if not (num_tokens and (config.sees_whole_items or config.sees_whole_prompts)):
            return num_tokens
        end = start + num_tokens
        for span_start, span_end in config.undivided(request.message):
            if span_start < end < span_end:
                return span_start - start if span_start > start else span_end - start
        return num_tokens

    def _feed(
        self, making: Making, request: ScheduledRequest, num_known: int, begin: SequenceStart | None = None
    ) -> None:
        """Plan one request's next tokens. It has blocks for the known ones; the draft gets what is free and
        nobody that runs needs now."""
        draft = NO_DRAFT
        states = self._kv.states
        if (
            request.proposers
            and num_known == request.num_missing
            and (states is None or states.may_draft(num_known))
        ):
            end = request.num_planned + num_known
            room = self._kv.room_for_draft(request, making.num_lacking) - end
            draft = request.draft(min(making.budget - num_known - making.reserve, room))
            self._kv.grow(request, end + len(draft.ids))
            self._counts["draft_tokens"] += len(draft.ids)
        if states is not None:
            states.feed(request, num_known, len(draft.ids))
        if request.num_planned < request.num_begun:
            self._counts["prefill_tokens"] += num_known
        self._num_fed += 1
        request.last_fed = self._num_fed
        request.waits_for = None
        making.budget = max(making.budget - num_known - len(draft.ids), 0)  # an item may have been more
        making.requests.append(request)
        making.sequences.append(request.step(num_known, draft, begin))


def _turn(request: ScheduledRequest) -> tuple[int, int]:
    """Who is next where not everybody can be: by priority, then round."""
    return request.priority, request.last_fed
