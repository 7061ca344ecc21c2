"""A runner without a model: tokens are a hash of what the KV blocks and encodings really hold.

It keeps "KV" per block and position, each a hash of the fed token, its media row, its rotary position, the
encoding listened to and all that its layers see before it (`support/fake_layers.py`), and reads a sequence's
past through its block tables and its state slot as the real runner does. So a wrong table, a stale or wrongly
shared block, a state of another prefix, an encoding freed too early, a wrong rotary position or a forgotten
token changes the answer or raises. Generated tokens it keeps itself, per sequence.
`answer_alone` says what a request must give. Passes `support/runner_conformance.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from sensorium.engine.models.whisper.info import WhisperInfo
from sensorium.engine.planning.plan import (
    ChunkOutcome,
    DraftHandle,
    Plan,
    Proposal,
    SequenceId,
    SequenceOutcome,
    SequenceStart,
    SequenceStep,
    Slot,
    StepResult,
    TransduceStep,
    WholeStep,
)
from sensorium.protocols.engine.messages import (
    Align,
    AnyRequest,
    ContentHash,
    EncoderItem,
    Fault,
    Features,
    Outcome,
    Pool,
    Pooled,
    PromptLogprobs,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    TaskFailed,
    TokensAligned,
    TokensSampled,
    TopLogprobs,
)
from support.fake_layers import PLAIN, FakeLayers, Kv, Past, axes_alone, cell_of, media_alone
from support.fake_tokens import (
    VOCAB_SIZE,
    key_value,
    likeliest,
    logprob,
    next_token,
    probability,
)
from support.fake_transducer import FakeState, frames_of, run_chunk
from support.fake_transfers import FakeTransfers
from support.toy_drafting import MAX_DRAFT, draft_cell, drafted_ids, seed_of

__all__ = ["VOCAB_SIZE", "key_value", "likeliest", "logprob", "next_token", "probability"]

STOP_ID = 7
NAN_ID = 49
"""A prompt with this token fails alone, as NaN logits do."""
CRASH_ID = 48
"""A prompt with this token breaks the runner."""
UNENCODABLE = b"unencodable"
BYTES_PER_SLOT = 1000

INFO = WhisperInfo(
    name="fake",
    folder=Path("fake"),
    family="whisper",
    window_s=8.0,
    num_mel_bins=4,
    num_positions=400,
    attended_shape=(4, 800),
    attended_tokens=400,
    position_s=0.02,
    max_context=128,
    vocab_size=VOCAB_SIZE,
    languages=("en",),
    tasks=("transcribe",),
)


def item(name: str, num_tokens: int = 0) -> EncoderItem:
    """An encoder item whose content is its name."""
    data = name.encode()
    return EncoderItem(ContentHash(name), Features(shape=(1, len(data)), data=data), num_tokens)


def decode(token_ids: Sequence[int]) -> str:
    """One letter per token."""
    return "".join(chr(ord("a") + token_id % 26) for token_id in token_ids)


def likeliest_alone(request: SampleRequest) -> TopLogprobs:
    """What may follow the prompt."""
    content = None if request.encoder_hash is None else request.encoder_hash.encode()
    past, _ = _past_alone(request, content)
    return likeliest(past.behind(len(past.tokens)), (), request.task.sampling)


def answer_alone(
    request: AnyRequest, content: bytes | None = None, layers: FakeLayers = PLAIN
) -> tuple[tuple[int, ...], str]:
    """Tokens and finish reason the request must end with, whatever else runs.

    `content` is what it listens to; items placed in the prompt hold their content hash.
    """
    assert isinstance(request.task, Sample)
    sampling = request.task.sampling
    if content is None and request.encoder_hash is not None:
        content = request.encoder_hash.encode()
    if fails_alone(request) or content == UNENCODABLE:
        return (), "error"
    past, generated = _past_alone(request, content, layers)[0], list[int]()
    while len(generated) < sampling.max_tokens:
        token = next_token(past.behind(len(past.tokens)), generated, sampling)
        if token in sampling.stop_token_ids:
            return tuple(generated), "stop"
        generated.append(token)
        axes = axes_alone(request, len(past.tokens))
        past.append(token, key_value(past.before_next(), token, axes, None, content))
    return tuple(generated), "length"


def fails_alone(request: AnyRequest) -> bool:
    """Whether it fails whatever else runs: by a token without numbers, or an item that cannot be encoded."""
    names = {span.content_hash for span in request.media} | {request.encoder_hash}
    return NAN_ID in request.prompt_token_ids or UNENCODABLE.decode() in names


def seeds_alone(request: AnyRequest, answer: Sequence[int], layers: FakeLayers) -> list[int]:
    """What drafts behind 0, 1, … tokens of the answer are made from, by the draft model's cells."""
    assert layers.draft_group is not None
    content = None if request.encoder_hash is None else request.encoder_hash.encode()
    past, rows = _past_alone(request, content, layers)
    for token in answer:
        axes = axes_alone(request, len(past.tokens))
        rows.append(key_value(past.before_next(), token, axes, None, content))
        past.append(token, rows[-1])
    cells = [draft_cell(row, token) for row, token in zip(rows, past.tokens[1:], strict=False)]
    first = layers.draft_group.spec.first_needed
    ends = range(len(request.prompt_token_ids) - 1, len(past.tokens))
    return [seed_of(cells[first(max(end - 1, 0)) : end]) for end in ends]


def pooled_alone(request: AnyRequest, task: Pool, layers: FakeLayers = PLAIN) -> bytes:
    """The vector of the request's prompt."""
    content = None if request.encoder_hash is None else request.encoder_hash.encode()
    return pooled(_past_alone(request, content, layers)[1], task)


def _past_alone(
    request: AnyRequest, content: bytes | None, layers: FakeLayers = PLAIN
) -> tuple[Past, list[Kv]]:
    """What the layers hold of the prompt, and its rows."""
    past, rows = Past(layers), list[Kv]()
    for index, token in enumerate(request.prompt_token_ids):
        axes, media = axes_alone(request, index), media_alone(request, index)
        rows.append(key_value(past.before_next(), token, axes, media, content))
        past.append(token, rows[-1])
    return past, rows


def pooled(rows: Sequence[Kv], task: Pool) -> bytes:
    """The vector of a prompt with these rows."""
    taken = {"cls": rows[:1], "last": rows[-1:], "mean": rows}[task.pooling]
    return blake2b(b"".join(taken), digest_size=8).digest()


@dataclass(slots=True)
class _Cell:
    position: int
    token: int
    kv: Kv


@dataclass(slots=True)
class _Sequence:
    """What the runner keeps of a sequence between steps."""

    start: SequenceStart
    generated: list[int]
    is_over: bool = False
    num_fed: int = 0
    rows: list[Kv] = field(default_factory=list)
    """Those fed: all of the prompt's where a vector is made of more than the last."""

    @property
    def tokens(self) -> list[int]:
        """All that are known."""
        return [*self.start.prompt_token_ids, *self.generated]


class FakeRunner:
    """A request whose id is in `failing` fails in its next step."""

    info = INFO
    nan_id, crash_id = NAN_ID, CRASH_ID

    def __init__(
        self, *, num_blocks: int, block_size: int = 4, layers: FakeLayers = PLAIN, num_state_slots: int = 0
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_steps = 0
        self.num_encodes = 0
        self.failing: set[RequestId] = set()
        self._cells: list[list[_Cell | None]] = [[None] * block_size for _ in range(num_blocks)]
        self._draft_cells: list[list[_Cell | None]] = [[None] * block_size for _ in range(num_blocks)]
        self._layers = layers
        # Of each slot the tokens its state is behind, and the state.
        self._states: list[tuple[int, Kv] | None] = [None] * num_state_slots
        self._fed_states: list[FakeState | None] = [None] * num_state_slots
        self._slots: dict[Slot, bytes | None] = {}  # None: its encode failed
        self._sequences: dict[SequenceId, _Sequence] = {}
        self._drafted: dict[SequenceId, Proposal] = {}
        self.seeds: dict[tuple[RequestId, int], int] = {}
        """Of each request, behind so many tokens of its answer, what the draft was made from."""
        self._last_begun = -1
        self.transfers = FakeTransfers(self._cells)

    @property
    def num_sequences(self) -> int:
        """Sequences it was not told to forget."""
        return len(self._sequences)

    @property
    def num_slots(self) -> int:
        """Encodings it was not told to free."""
        return sum(content is not None for content in self._slots.values())

    def warm_up(self) -> None:
        """Nothing to warm."""

    def execute(self, plan: Plan) -> StepResult:
        """Do everything in `plan`, in its order."""
        self.num_steps += 1
        for sequence_id in plan.ends:
            del self._sequences[sequence_id]
            self._drafted.pop(sequence_id, None)
        for slot in plan.frees:
            assert self._slots.pop(slot) is not None
        for copy in plan.copies:
            state, fed_state = self._states[copy.source], self._fed_states[copy.source]
            assert state is not None or fed_state is not None, "a copy of no state"
            self._states[copy.target] = state
            self._fed_states[copy.target] = None if fed_state is None else replace(fed_state, owner=None)
        encode_errors: dict[Slot, str] = {}
        for encode in plan.encodes:
            assert encode.slot not in self._slots, f"slot {encode.slot} was used before"
            self.num_encodes += 1
            is_good = encode.features.data != UNENCODABLE
            self._slots[encode.slot] = encode.features.data if is_good else None
            if not is_good:
                encode_errors[encode.slot] = "these features cannot be encoded"
        outcomes = [self._run(step) for step in plan.sequences]
        wholes = [self._run_whole(step) for step in plan.wholes]
        finished, failed = self.transfers.step(plan.transfers)
        return StepResult(
            step=plan.step,
            outcomes=tuple(outcomes),
            transduced=tuple([self._run_chunk(step) for step in plan.transduces]),
            wholes={each.request_id: each for each in wholes},
            encode_errors=encode_errors,
            encoder_bytes={encode.slot: BYTES_PER_SLOT for encode in plan.encodes},
            proposals={
                step.sequence_id: self._drafted[step.sequence_id]
                for step in plan.sequences
                if step.sequence_id in self._drafted
            },
            transfers_finished=finished,
            transfers_failed=failed,
        )

    def cells_of(self, block: int) -> list[_Cell | None]:
        """What lies in a block, for another place to have."""
        return self._cells[block]

    def _run_chunk(self, step: TransduceStep) -> ChunkOutcome:
        state = FakeState(owner=step.sequence_id) if step.is_first else self._fed_states[step.slot]
        assert state is not None, "a chunk without the state in front of it"
        assert state.owner in (None, step.sequence_id), "two requests write one state"
        outcome, state = run_chunk(step.request_id, step.task, state, step.chunk)
        self._fed_states[step.slot] = replace(state, owner=step.sequence_id)
        failure: tuple[str, Fault] | None = None
        if any(map(math.isnan, frames_of(step.chunk))):
            failure = ("the rows are not numbers", "not_finite")
        if step.request_id in self.failing:
            self.failing.remove(step.request_id)
            failure = ("the device hiccups", "defect")
        if failure is None:
            return outcome
        self._fed_states[step.slot] = FakeState(b"rubbish!", owner=step.sequence_id)
        return TaskFailed(step.request_id, *failure)

    def _run_whole(self, step: WholeStep) -> Outcome:
        request, task = step.request, step.request.task
        content = None if step.encoder_slot is None else self._slots[step.encoder_slot]
        if self.nan_id in request.prompt_token_ids:
            return TaskFailed(request.request_id, "the alignment has no path")
        if isinstance(task, Pool):
            return Pooled(request.request_id, pooled(_past_alone(request, content, self._layers)[1], task))
        assert isinstance(task, Align)
        if content is None:
            return TaskFailed(request.request_id, "its window could not be encoded")
        first = content[0] % 10
        boundaries = range(first, first + task.text_end - task.text_start + 1)
        return TokensAligned(request.request_id, tuple(boundaries))

    def _run(self, step: SequenceStep) -> SequenceOutcome:
        if step.begin is not None:
            assert step.sequence_id > self._last_begun, "a sequence id was used before"
            self._last_begun = step.sequence_id
            self._sequences[step.sequence_id] = _Sequence(step.begin, list(step.begin.generated))
        sequence = self._sequences[step.sequence_id]
        if sequence.is_over:
            return TokensSampled(sequence.start.request_id)
        step = self._corrected(step, sequence)
        past, failure = self._feed(step, sequence)
        self._count_rows(step, sequence)
        if failure is None and sequence.start.request_id in self.failing:
            self.failing.remove(sequence.start.request_id)
            failure = ("the device hiccups", "defect")
        if failure is not None:
            sequence.is_over = True
            for position in range(step.start, step.start + step.num_rows):
                self._write(step, position, 0, b"rubbish!")
            if step.state_slot is not None:
                self._states[step.state_slot] = (step.start + step.num_rows, b"rubbish!")
            return TokensSampled(sequence.start.request_id, error=failure[0], fault=failure[1])
        num_known = len(past.tokens) - step.num_draft
        probe = None if step.probe is None else probability(step.probe, past.tokens[:num_known])
        prompt_logprobs = _prompt_logprobs(sequence.start, step)
        task = sequence.start.task
        if not step.answers:
            assert step.num_draft == 0
            self._draft(step, sequence, past, None)
            return TokensSampled(
                sequence.start.request_id, probe_probability=probe, prompt_logprobs=prompt_logprobs
            )
        assert past.tokens[:num_known] == sequence.tokens, "its KV is not that of what is known"
        if isinstance(task, Sample):
            sampled = _sample(step, sequence, past, probe, prompt_logprobs)
            self._draft(step, sequence, past, task.sampling)
            return sampled
        self._draft(step, sequence, past, None)
        sequence.is_over = True
        if isinstance(task, Pool):
            return Pooled(sequence.start.request_id, pooled(sequence.rows, task))
        return TokensSampled(sequence.start.request_id, finish_reason="stop")

    def _count_rows(self, step: SequenceStep, sequence: _Sequence) -> None:
        """A vector of all tokens needs all rows, so that none may come from elsewhere."""
        task = sequence.start.task
        if isinstance(task, Pool) and task.pooling != "last":
            assert step.start == sequence.num_fed, "a row of the mean was not fed"
        sequence.num_fed = step.start + step.num_rows

    def _feed(self, step: SequenceStep, sequence: _Sequence) -> tuple[Past, tuple[str, Fault] | None]:
        """Write KV of the fed tokens; the sequence with them, and why that failed."""
        past = self._past(step, sequence)
        content = None if step.encoder_slot is None else self._slots[step.encoder_slot]
        rows = {}
        for media in step.media:
            encoding = self._slots[media.slot]
            if encoding is None:
                return past, ("its item could not be encoded", "not_encoded")
            for row in range(media.num_rows):
                rows[media.first_row + row] = (encoding, media.offset + row)
        if step.encoder_slot is not None and content is None:
            return past, ("its window could not be encoded", "not_encoded")
        fed = [*sequence.generated[-1:], *step.token_ids] if step.feeds_sampled else [*step.token_ids]
        assert len(fed) == step.num_rows
        for row, token in enumerate(fed):
            position = step.start + row
            axes = (position,) * 3 if step.positions is None else tuple(each[row] for each in step.positions)
            seen = past.before_next()
            kv = key_value(seen, token, (axes[0], axes[1], axes[2]), rows.get(row), content)
            self._write(step, position, token, kv)
            past.append(token, kv)
            sequence.rows.append(kv)
        if step.state_slot is not None:
            self._states[step.state_slot] = (len(past.tokens), past.state)
        known = fed[: len(fed) - step.num_draft]
        assert self.crash_id not in known, "the device is on fire"
        return past, ("the logits are not numbers", "not_finite") if self.nan_id in known else None

    def _past(self, step: SequenceStep, sequence: _Sequence) -> Past:
        """What its tables and its state slot hold of the tokens before `start`."""
        tokens = sequence.tokens[: step.start]
        tables = self._tables(step)
        cells = [[b""] * step.start for _ in tables]
        read: dict[int, int] = {}
        for group, table, column in zip(self._layers.groups, tables, cells, strict=True):
            for position in range(group.spec.first_needed(step.start), step.start):
                cell = self._read(step, table, position)
                column[position] = cell.kv
                read[position] = cell.token
        assert len(tokens) == step.start, "more is in front of the step than is known"
        assert all(tokens[position] == token for position, token in read.items()), "KV of other tokens"
        if not self._layers.has_state:
            return Past(self._layers, tokens, cells)
        assert step.state_slot is not None, "a step without its state"
        state = self._states[step.state_slot] if step.start else (0, b"")
        assert state is not None, "a state was never written"
        assert state[0] == step.start, "the state is not that of what precedes"
        return Past(self._layers, tokens, cells, state[1])

    def _read(
        self,
        step: SequenceStep,
        table: Sequence[int],
        position: int,
        cells: Sequence[Sequence[_Cell | None]] | None = None,
    ) -> _Cell:
        block = table[position // self.block_size]
        assert block >= 0, f"position {position} of {step.sequence_id} slid out, and is read"
        cell = (cells or self._cells)[block][position % self.block_size]
        assert cell is not None, f"position {position} of {step.sequence_id} was never written"
        assert cell.position == position, f"position {position} of {step.sequence_id} was overwritten"
        return cell

    def _tables(self, step: SequenceStep) -> tuple[tuple[int, ...], ...]:
        """Those of the model's own layers."""
        tables = (step.block_table, *step.more_tables)
        assert len(tables) == len(self._layers.all_groups)
        return tables[: len(self._layers.groups)]

    def _write(self, step: SequenceStep, position: int, token: int, row: Kv) -> None:
        for group, table in enumerate(self._tables(step)):
            block = table[position // self.block_size]
            assert block >= 0, f"position {position} of {step.sequence_id} is written to a hole"
            self._cells[block][position % self.block_size] = _Cell(position, token, cell_of(group, row))

    def _corrected(self, step: SequenceStep, sequence: _Sequence) -> SequenceStep:
        """The step where the sequence really is; a handle must be that of the newest draft."""
        if step.num_supposed:
            step = step.from_position(len(sequence.tokens) - 1)
        drafted = self._drafted.pop(step.sequence_id, None) if step.answers else None
        if step.draft_handle is not None:
            assert drafted is not None, "a handle of nothing"
            used = Proposal(step.token_ids[-step.num_draft :], step.draft_handle)
            assert used == Proposal(drafted.ids[: step.num_draft], drafted.handle), "a stale handle"
        return step

    def _draft(
        self, step: SequenceStep, sequence: _Sequence, past: Past, sampling: SamplingParams | None
    ) -> None:
        """Keep what the draft model's layer does of the fed tokens, and draft behind the newest one."""
        group = self._layers.draft_group
        if group is None:
            return
        table = step.block_table if self._layers.draft is None else step.more_tables[-1]
        for position, row in enumerate(sequence.rows[-step.num_rows :], step.start):
            following = [*sequence.tokens[position + 1 : position + 2], -1][0]
            block = self._draft_cells[table[position // self.block_size]]
            block[position % self.block_size] = _Cell(position, following, draft_cell(row, following))
        if sampling is None or sequence.is_over:
            return
        newest = len(sequence.tokens) - 1
        first = group.spec.first_needed(newest - 1)
        cells = [self._read(step, table, position, self._draft_cells) for position in range(first, newest)]
        assert [cell.token for cell in cells] == sequence.tokens[first + 1 :], "cells of other tokens"
        seed = seed_of([cell.kv for cell in cells])
        self.seeds[sequence.start.request_id, len(sequence.generated)] = seed
        ids = drafted_ids(seed, self._continuation(step, sequence, past.cut(newest), sampling))
        self._drafted[step.sequence_id] = Proposal(ids, DraftHandle(self.num_steps))

    def _continuation(
        self, step: SequenceStep, sequence: _Sequence, past: Past, sampling: SamplingParams
    ) -> list[int]:
        """What the model will mostly answer next."""
        right = sequence.generated[-1:]
        content = None if step.encoder_slot is None else self._slots[step.encoder_slot]
        shift = 0 if step.positions is None else step.start + step.num_rows - 1 - step.positions[0][-1]
        while len(right) <= MAX_DRAFT:
            axes = (len(past.tokens) - shift,) * 3
            past.append(right[-1], key_value(past.before_next(), right[-1], axes, None, content))
            right.append(next_token(past.behind(len(past.tokens)), sequence.generated + right[1:], sampling))
        return right[1:]


def _sample(
    step: SequenceStep,
    sequence: _Sequence,
    past: Past,
    probe: float | None,
    prompt_logprobs: PromptLogprobs | None,
) -> TokensSampled:
    assert isinstance(sequence.start.task, Sample)
    sampling = sequence.start.task.sampling
    num_known = len(past.tokens) - step.num_draft
    new: list[int] = []
    logprobs: list[float] = []
    tops: list[TopLogprobs] = []
    reason = None
    num_accepted = 0
    for guess in [*past.tokens[num_known:], None]:
        known = past.behind(num_known + num_accepted)
        token = next_token(known, sequence.generated, sampling)
        if token in sampling.stop_token_ids:
            reason = "stop"
            break
        if sampling.logprobs:
            tops.append(likeliest(known, sequence.generated, sampling)[: sampling.logprobs])
        sequence.generated.append(token)
        new.append(token)
        logprobs.append(logprob(past.tokens[: num_known + len(new)]))
        if len(sequence.generated) >= sampling.max_tokens:
            reason = "length"
            break
        if token != guess:
            break
        num_accepted += 1
    sequence.is_over = reason is not None
    return TokensSampled(
        sequence.start.request_id,
        token_ids=tuple(new),
        logprobs=tuple(logprobs) if sampling.logprobs is not None else (),
        top_logprobs=tuple(tops),
        num_draft=step.num_draft,
        num_draft_accepted=num_accepted,
        probe_probability=probe,
        prompt_logprobs=prompt_logprobs,
        finish_reason="stop" if reason == "stop" else "length" if reason else None,
    )


def _prompt_logprobs(start: SequenceStart, step: SequenceStep) -> PromptLogprobs | None:
    """For each prompt token that a fed prompt token predicts."""
    if not isinstance(start.task, Sample) or start.task.sampling.prompt_logprobs is None:
        return None
    last = min(step.start + step.num_rows, len(start.prompt_token_ids) - 1)
    values = tuple(-float(start.prompt_token_ids[index + 1]) for index in range(step.start, last))
    return PromptLogprobs(values, tuple(() for _ in values), tuple(1 for _ in values))
