"""One step of device work as plain data: what the scheduler hands the runner, and what comes back.

Torch-free. The scheduler fills a `Plan`, the runner answers with a `StepResult`; neither knows the
other. Slots are encoder-cache slots (integers given out by `engine/planning/encoder/cache.py`), blocks are KV
blocks of the pool in `engine/planning/kv/blocks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NewType

import msgspec

from ...protocols.engine.messages import (
    AnyRequest,
    Features,
    InputChunk,
    Outcome,
    Pooled,
    ProbabilityProbe,
    RequestId,
    Task,
    TaskFailed,
    TokensSampled,
    Transduce,
    Transduced,
)

Slot = int  # names one encoding in the runner
SequenceId = NewType("SequenceId", int)
"""One stay of a request on the device; never used again. A preempted request comes back as another."""
DraftHandle = NewType("DraftHandle", int)
"""Names the distributions that a draft was drawn from, one for each of its tokens; the runner has them."""

TransferId = NewType("TransferId", int)
"""One transfer of blocks from another place; never used again."""


@dataclass(frozen=True, slots=True)
class EncodeStep:
    """Encode `features` and keep the result under `slot` until a later plan frees it."""

    slot: Slot
    features: Features
    adapter: str | None = None


class MediaRows(msgspec.Struct, frozen=True, gc=False):
    """Fed tokens `first_row` to `first_row + num_rows` of a step are placeholders: their embeddings are rows
    `offset` to `offset + num_rows` of the encoding in `slot`."""

    slot: Slot
    first_row: int
    num_rows: int
    offset: int


class Proposal(msgspec.Struct, frozen=True):
    """A draft: tokens that may come next. Without a `handle` each of them is certain for who proposes it, and
    the answer is what it would be without; with one each was drawn from a distribution."""

    ids: tuple[int, ...]
    handle: DraftHandle | None = None


NO_DRAFT: Final = Proposal(())


class SequenceStart(msgspec.Struct, frozen=True):
    """What the runner learns of a sequence once, in its first step. `generated` is not empty after a
    preemption or when a request resumes."""

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    generated: tuple[int, ...]
    task: Task
    adapter: str | None = None
    """The name of what its rows are computed with beside the model's own weights."""


class SequenceStep(msgspec.Struct, frozen=True):
    """Feed tokens at positions `start`, `start + 1`, … of one sequence; the last of them finish its task, or
    sample what follows them.

    The KV of positions < `start` is already in the blocks of `block_table` (or an earlier plan in flight
    puts it there); the KV of the fed tokens is written there. If `feeds_sampled`, one more token is fed in
    front of `token_ids`: the newest the runner itself sampled for this sequence, which the scheduler need
    not know yet. The last `num_draft` of `token_ids` are a draft to verify, drawn from what `draft_handle`
    names. Only a step with `answers` has an outcome (a chunk in the middle of a prompt has none).

    `start`, `positions` and the draft suppose that the drafts of this sequence in flight, `num_supposed`
    tokens, are accepted whole. Where fewer were, `from_position` is the step to run.

    `block_table` is that of the first group of layers, `more_tables` are those of the others. An entry is
    `HOLE` (`engine/planning/kv/groups.py`) where the group's rows need the block no more. Layers with states
    keep them in `state_slot`; of a sequence fed from position 0 on they are zero, whatever the slot holds.

    `positions` are the rows' rotary positions on each of the model's axes where those are not the token's
    position, else None. A sequence the runner has finished (it sampled a stop token, reached
    `max_tokens` or failed) may still be in the next plan; it is answered with an empty `TokensSampled`.
    """

    sequence_id: SequenceId
    token_ids: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    encoder_slot: Slot | None = None
    feeds_sampled: bool = False
    answers: bool = True
    num_draft: int = 0
    begin: SequenceStart | None = None
    media: tuple[MediaRows, ...] = ()
    positions: tuple[tuple[int, ...], ...] | None = None
    probe: ProbabilityProbe | None = None
    encoder_span: tuple[int, int] | None = None
    more_tables: tuple[tuple[int, ...], ...] = ()
    state_slot: int | None = None
    draft_handle: DraftHandle | None = None
    num_supposed: int = 0

    @property
    def num_rows(self) -> int:
        """Tokens fed."""
        return len(self.token_ids) + self.feeds_sampled

    def from_position(self, start: int) -> SequenceStep:
        """The step as it is if the newest sampled token is at `start`: without its draft, if that is behind
        tokens that were not accepted. A position that the plan did not allow for changes nothing."""
        num_rejected = self.start - start
        if not 0 < num_rejected <= self.num_supposed:
            return self
        positions = self.positions
        if positions is not None:
            positions = tuple((axis[0] - num_rejected,) for axis in positions)
        return msgspec.structs.replace(
            self, token_ids=(), start=start, num_draft=0, draft_handle=None, positions=positions
        )


@dataclass(frozen=True, slots=True)
class WholeStep:
    """Run all of `request` in one forward of its own, without the cache of keys and values: an alignment, or
    a prompt of a model whose tokens attend to what follows them, too."""

    request: AnyRequest
    encoder_slot: Slot | None = None


class TransduceStep(msgspec.Struct, frozen=True):
    """Run the next chunk of a request that is fed. Its states are in `slot`, of those behind all chunks
    before; if `is_first`, they are zero, whatever the slot holds. A step has one chunk of a request."""

    sequence_id: SequenceId
    request_id: RequestId
    task: Transduce
    slot: int
    chunk: InputChunk
    is_first: bool = False


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Make the states in slot `target` those in slot `source`."""

    source: int
    target: int


class TransferStep(msgspec.Struct, frozen=True):
    """Begin to fill `blocks` with the blocks of those `names` that `place` has. A name says all that its
    content depends on. It begins behind the plans before, and ends in the result of any later one."""

    transfer_id: TransferId
    place: str
    names: tuple[bytes, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything the device does in one step: ends and frees first, then copies in their order, encodes,
    sequences, chunks of fed requests, wholes."""

    step: int
    ends: tuple[SequenceId, ...] = ()
    """Sequences the runner can forget: finished, aborted, preempted or revised."""
    frees: tuple[Slot, ...] = ()
    copies: tuple[Copy, ...] = ()
    encodes: tuple[EncodeStep, ...] = ()
    sequences: tuple[SequenceStep, ...] = ()
    transduces: tuple[TransduceStep, ...] = ()
    wholes: tuple[WholeStep, ...] = ()
    transfers: tuple[TransferStep, ...] = ()
    awaits_transfers: bool = False
    """Some have not ended: without other work the step waits for one of them."""
    is_overlapped: bool = False
    """Nothing but encodes, which are done while later plans are; those that need them come behind."""
    is_quiet: bool = False
    """Nobody speaks to an engine of this process, or did lately: other cores have less to do."""

    def __bool__(self) -> bool:
        work = self.encodes or self.sequences or self.transduces or self.wholes
        return bool(self.ends or self.frees or work or self.awaits_transfers)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The runner's answer to one plan. `encode_errors` maps a slot to a message for the client.

    A chunk that feeds prompt position i reports the log-probability of prompt token i + 1, if there is one
    and the request wants it: a chunk from `start` reports those of tokens `start + 1` onwards. Nothing is
    reported of what came from the prefix cache, so a request for these must be fed its whole prompt. The keys
    and values of what a failed sequence fed are not to be trusted.
    """

    step: int
    outcomes: tuple[SequenceOutcome, ...] = ()
    """One for each of the plan's sequences, in order; empty ones where nothing is to be answered."""
    transduced: tuple[ChunkOutcome, ...] = ()
    """One for each of the plan's chunks, in order."""
    wholes: dict[RequestId, Outcome] = field(default_factory=dict)
    encode_errors: dict[Slot, str] = field(default_factory=dict)
    encoder_bytes: dict[Slot, int] = field(default_factory=dict)
    proposals: dict[SequenceId, Proposal] = field(default_factory=dict)
    """What the runner's own draft model proposes behind the newest tokens of sequences. A handle is good for
    the sequence's next step that answers."""
    transfers_finished: tuple[TransferId, ...] = ()
    """Of this plan or of earlier ones, each once. All that was asked for is in the blocks."""
    transfers_failed: tuple[TransferId, ...] = ()
    """Nothing writes to their blocks any more, whatever is in them."""
    busy_s: float = 0.0


SequenceOutcome = TokensSampled | Pooled
"""Of a step of one sequence. A failure and the end of a prefill are `TokensSampled`, too."""

ChunkOutcome = Transduced | TaskFailed
"""Of a chunk of a fed request."""
