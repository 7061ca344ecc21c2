"""One request while the scheduler has it: its tokens, its blocks, how far its KV reaches and is planned.

Knows no other request and no pool. Read `engine/planning/scheduler.py` next.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...protocols.engine.messages import (
    AnyRequest,
    FinishReason,
    KvSource,
    Pool,
    Pooled,
    Prefill,
    Prefilled,
    PromptLogprobs,
    Sample,
    TaskFailed,
    TokensSampled,
)
from .kv.blocks import Block
from .kv.held_state import HeldState
from .kv.names import BlockHash, BlockHasher
from .plan import (
    NO_DRAFT,
    MediaRows,
    Proposal,
    SequenceId,
    SequenceOutcome,
    SequenceStart,
    SequenceStep,
    Slot,
    TransferId,
    WholeStep,
)
from .policies.policy import Place
from .positions import TokenPositions
from .proposers import DraftModel, Proposer, make_proposers
from .waits import Wait


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """Tokens `start` to `end` of the prompt stand for the rows of the encoding in `slot`."""

    slot: Slot
    start: int
    end: int


class ScheduledRequest:
    """Mutable state of one request.

    `tokens` are known: the prompt, then what results brought. KV of positions < `num_computed` is in
    `blocks`, because the results of those steps are in; positions < `num_planned` are computed, or will be
    by plans in flight, `num_sampling` of which sample one token each, and as many more as are accepted of
    `num_drafted`, the tokens of drafts in flight: `num_planned` supposes all. A stay on the device begins
    with the tokens known then, `num_begun`; later ones the runner feeds itself. While a request `is_alone`,
    none of its steps is planned before the result of the one before. Without `sequence_id` the request is not
    on the device: it waits, or it is over.

    Where layers keep different things, `blocks` is the table of the first group of layers, `more_tables` are
    those of the others, and `state` has the slots of states.

    What does not sample is fed its prompt and ends with the step that feeds the last of it, as if it sampled
    one token. What `is_whole` has neither sequence nor blocks: one step runs all of it.
    """

    __slots__ = (
        "arrival",
        "awaited",
        "blocks",
        "capacity",
        "group",
        "has_run",
        "hasher",
        "is_admitted",
        "is_alone",
        "is_first",
        "is_in_flight",
        "is_whole",
        "items",
        "last_fed",
        "line",
        "max_length",
        "message",
        "more_tables",
        "next_full",
        "next_item",
        "num_begun",
        "num_cached",
        "num_computed",
        "num_drafted",
        "num_left",
        "num_planned",
        "num_prompt",
        "num_registered",
        "num_sampling",
        "order",
        "place",
        "priority",
        "probe_probability",
        "prompt_logprobs",
        "proposed",
        "proposers",
        "request_id",
        "rotary",
        "sample",
        "sequence_id",
        "slot",
        "source",
        "state",
        "tokens",
        "transfer",
        "waits_for",
    )

    def __init__(
        self,
        message: AnyRequest,
        slot: Slot | None,
        media_slots: tuple[Slot, ...],
        place: Place,
        arrival: int,
        block_size: int,
        *,
        fingerprint: str = "",
        positions: TokenPositions | None = None,
        draft_model: DraftModel | None = None,
        drafts_ahead: bool = False,
        is_admitted: bool = False,
        is_whole: bool = False,
        by_whole_prompt: bool = False,
    ) -> None:
        self.is_admitted = is_admitted  # as a part of another, and so not counted among those that wait
        self.is_whole = is_whole
        self.is_in_flight = False  # as a whole
        self.message = message
        self.request_id = message.request_id
        self.sample = message.task if isinstance(message.task, Sample) else None
        self.slot = slot
        self.items = tuple(
            PlacedItem(each, span.start, span.start + span.num_tokens)
            for each, span in zip(media_slots, message.media, strict=True)
        )
        self.rotary = positions
        self.arrival = arrival
        self.place = place
        self.group, self.priority, _ = place
        self.line = (self.group, self.priority)
        self.order = (*self.line, arrival)
        self.last_fed = 0  # rises with every feeding of anybody
        self.num_prompt = len(message.prompt_token_ids)
        self.max_length = self.num_prompt + (1 if self.sample is None else self.sample.sampling.max_tokens)
        self.tokens = list(message.prompt_token_ids)
        self.proposers: tuple[Proposer, ...] = ()
        if self.sample is not None:
            self.proposers = make_proposers(self.sample, self.num_prompt, draft_model)
        self.is_alone = bool(self.proposers) and not (
            drafts_ahead and all(each.proposes_ahead for each in self.proposers)
        )
        self.hasher = BlockHasher(message, block_size, fingerprint, by_whole_prompt=by_whole_prompt)
        self.awaited: BlockHash | None = None  # the block that a running request is computing for us
        self.source: KvSource | None = message.kv_from  # where blocks are asked for, once
        self.transfer: TransferId | None = None  # which brings them, or has
        self.num_cached = 0
        self.has_run = False  # on the device, now or before
        self.is_first = True  # nothing was reported yet
        self.probe_probability: float | None = None
        self.prompt_logprobs: PromptLogprobs | None = None
        self.leave()

    @property
    def num_missing(self) -> int:
        """Tokens that are still to be planned: one while decoding, all that lacks KV after a preemption."""
        return len(self.tokens) + self.num_sampling + self.num_drafted - self.num_planned

    @property
    def max_reused(self) -> int:
        """How many tokens' KV may be taken from elsewhere: what is sampled behind or asked about is fed."""
        sample, task = self.sample, self.message.task
        if sample is not None:
            if self.is_first and sample.sampling.prompt_logprobs is not None:
                return 0
            if sample.probe is not None and self.probe_probability is None:
                return sample.probe.position
        elif isinstance(task, Pool) and task.pooling != "last":
            return 0
        return len(self.tokens) - 1

    def uses(self, slot: Slot) -> bool:
        """Whether it cross-attends to `slot` or has its rows in the prompt."""
        return self.slot == slot or any(item.slot == slot for item in self.items)

    def leave(self) -> None:
        """Be on the device no longer: all known tokens are to be planned again."""
        self.sequence_id: SequenceId | None = None
        self.waits_for: Wait | None = "slot"  # when a step was planned last; None: nothing
        self.blocks: tuple[Block, ...] = ()
        self.more_tables: tuple[tuple[Block, ...], ...] = ()
        self.state: HeldState | None = None
        self.capacity = 0  # positions that all tables hold
        self.num_computed = self.num_planned = 0
        self.num_sampling = self.num_drafted = 0
        self.num_begun = 0
        self.num_left = 0  # tokens that may yet be sampled by further plans
        self.num_registered = 0  # blocks
        self.next_full = 0  # computed positions at which the next block is full
        self.next_item = 0  # the first of `items` that ends behind `num_planned`
        self.proposed: list[tuple[Proposer, Proposal]] = []  # drafts in flight, and whose they are
        for proposer in self.proposers:
            proposer.drafted(None)
        if self.is_first:
            self.prompt_logprobs = None

    def enter(self, sequence_id: SequenceId, blocks: tuple[Block, ...], num_computed: int) -> None:
        """Begin a stay on the device with `blocks`, which hold KV of the first `num_computed` tokens."""
        self.sequence_id = sequence_id
        self.has_run = True
        self.blocks = blocks
        self.num_computed = self.num_planned = num_computed
        self.num_begun = len(self.tokens)
        self.num_left = self.max_length - self.num_begun
        self.awaited = None

    def rewind(self, position: int) -> None:
        """Feed the known tokens from `position` on again: what states held behind it was not accepted."""
        self.num_computed = self.num_planned = position
        self.num_begun = len(self.tokens)
        self.next_item = sum(item.end <= position for item in self.items)

    def draft(self, limit: int) -> Proposal:
        """A draft of what follows the tokens that are known or in flight, at most `limit` and one less than
        may be sampled."""
        limit = min(limit, self.num_left - 1)
        if limit < 1:
            return NO_DRAFT
        for proposer in self.proposers:
            proposal = proposer.propose(self.tokens, limit, self.num_sampling + self.num_drafted)
            if proposal is not None:
                self.proposed.append((proposer, proposal))
                return proposal
        return NO_DRAFT

    def step(
        self, num_known: int, draft: Proposal = NO_DRAFT, begin: SequenceStart | None = None
    ) -> SequenceStep:
        """Plan the next `num_known` tokens and a draft; `begin` comes with the first step of a stay."""
        assert self.sequence_id is not None
        start = self.num_planned
        end = start + num_known
        num_draft = len(draft.ids)
        is_decode = start >= self.num_begun
        answers = is_decode or end == self.num_begun
        probe = None if self.sample is None else self.sample.probe
        if probe is not None and (self.probe_probability is not None or not start <= probe.position < end):
            probe = None  # it is asked once, also where its position is fed again
        step = SequenceStep(
            self.sequence_id,
            draft.ids if is_decode else (*self.tokens[start:end], *draft.ids),
            start,
            self.blocks,
            self.slot,
            encoder_span=self.message.encoder_span,
            feeds_sampled=is_decode,
            answers=answers,
            num_draft=num_draft,
            begin=begin,
            media=self._media_rows(start, end) if self.items else (),
            positions=None if self.rotary is None else self.rotary.rows(start, num_known + num_draft),
            probe=probe,
            more_tables=self.more_tables,
            state_slot=None if self.state is None else self.state.slot,
            draft_handle=draft.handle,
            num_supposed=self.num_drafted,
        )
        self.num_planned = end + num_draft
        if answers:
            self.num_sampling += 1
            self.num_left -= 1
        if num_draft:
            self.num_left -= num_draft
            self.num_drafted += num_draft
        return step

    def start(self) -> SequenceStart:
        """What the runner is told with the first step of a stay."""
        return SequenceStart(
            self.request_id,
            self.message.prompt_token_ids,
            tuple(self.tokens[self.num_prompt :]),
            self.message.task,
        )

    @property
    def whole_step(self) -> WholeStep:
        """The plan's line of one that `is_whole`."""
        return WholeStep(self.message, self.slot)

    def take(self, step: SequenceStep, outcome: SequenceOutcome) -> None:
        """Grow by what a step did."""
        num_accepted = 0
        if isinstance(outcome, TokensSampled):
            if outcome.probe_probability is not None:
                self.probe_probability = outcome.probe_probability
            if outcome.prompt_logprobs is not None and self.is_first:
                self.prompt_logprobs = _joined(self.prompt_logprobs, outcome.prompt_logprobs)
            num_accepted = outcome.num_draft_accepted
            self.tokens += outcome.token_ids
        self.num_computed += len(step.token_ids) + step.feeds_sampled - step.num_draft + num_accepted
        if not step.answers:
            return
        self.num_sampling -= 1
        if step.num_draft:
            num_rejected = step.num_draft - num_accepted
            self.num_planned -= num_rejected
            self.num_left += num_rejected
            self.num_drafted -= step.num_draft

    def tell_proposers(self, step: SequenceStep, num_accepted: int, drafted: Proposal | None) -> None:
        """What became of a step's draft, and what the runner drafted behind it; those that are over go."""
        if step.num_draft:
            proposer, proposal = self.proposed.pop(0)
            proposer.accepted(proposal, num_accepted)
        for each in self.proposers:
            each.drafted(drafted)
        self.proposers = tuple(each for each in self.proposers if not each.is_over(self.tokens))
        self.is_alone = self.is_alone and bool(self.proposers)

    def report(
        self, outcome: SequenceOutcome, reason: FinishReason | None
    ) -> TokensSampled | Pooled | Prefilled | TaskFailed:
        """The event for what a step answered; the first one says what is said once."""
        is_first, self.is_first = self.is_first, False
        if isinstance(outcome, Pooled):
            return msgspec.structs.replace(outcome, num_cached=self.num_cached)
        if self.sample is None:
            return self._report_prompt(outcome, reason)
        if is_first:
            return msgspec.structs.replace(
                outcome,
                finish_reason=reason,
                prompt_logprobs=self.prompt_logprobs,
                num_cached=self.num_cached,
                probe_probability=self.probe_probability,
            )
        # What was reported with the first tokens comes again when a preempted request is computed again.
        is_again = outcome.prompt_logprobs is not None or outcome.probe_probability is not None
        if outcome.finish_reason == reason and not is_again:
            return outcome
        return msgspec.structs.replace(
            outcome, finish_reason=reason, prompt_logprobs=None, probe_probability=None
        )

    def _report_prompt(self, outcome: TokensSampled, reason: FinishReason | None) -> Prefilled | TaskFailed:
        """How a request ends that does not sample and has made no vector."""
        if reason == "stop" and isinstance(self.message.task, Prefill):
            return Prefilled(self.request_id, self.num_cached)
        if reason == "abort":
            return TaskFailed(self.request_id, "a newer request of its session took its place")
        return TaskFailed(self.request_id, outcome.error or "it has no outcome", outcome.fault or "defect")

    def _media_rows(self, start: int, end: int) -> tuple[MediaRows, ...]:
        """Rows of items among tokens `start` to `end`. Call once per chunk, in order."""
        rows: list[MediaRows] = []
        while self.next_item < len(self.items):
            item = self.items[self.next_item]
            first, last = max(item.start, start), min(item.end, end)
            if first < last:
                rows.append(MediaRows(item.slot, first - start, last - first, first - item.start))
            if item.end > end:
                break
            self.next_item += 1
        return tuple(rows)


def _joined(first: PromptLogprobs | None, second: PromptLogprobs) -> PromptLogprobs:
    if first is None:
        return second
    return PromptLogprobs(
        first.logprobs + second.logprobs, first.top + second.top, first.ranks + second.ranks
    )
