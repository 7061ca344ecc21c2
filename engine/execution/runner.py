"""Executes plans on one device: encodes items, runs one ragged step, has tasks make their outcomes of it.

Owns the paged KV cache, the encodings by slot and what is remembered of each sequence. It drives any `Model`
(`engine/models/base.py`) and knows no requests beyond the plan at hand, no tasks and no clocks (whoever calls
`execute` measures it). `engine/planning/plan.py` is the boundary; next: `step.py`, `tasks/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import torch

from ...kernels.host_memory import Ahead, lazy_zeros
from ...kernels.linear.row_adapters import ALL_ROWS, AdaptedRows, Adapter, adapting
from ...kernels.transfer import to_device
from ...protocols.engine.messages import (
    Align,
    Fault,
    Features,
    Grammar,
    Outcome,
    Pool,
    Prefill,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    Task,
    TaskFailed,
    TokensSampled,
    Transduce,
)
from ...protocols.errors import ModelLoadError
from ...protocols.shared.panics import native_call
from ..models.base import BidirectionalModel, EncoderOutput, Model, TransducingModel
from ..planning.plan import (
    ChunkOutcome,
    DraftHandle,
    EncodeStep,
    Plan,
    SequenceId,
    SequenceOutcome,
    SequenceStart,
    SequenceStep,
    Slot,
    StepResult,
    TransduceStep,
    WholeStep,
)
from .faults import naming_device_loss, out_of_memory
from .grammar import GrammarError, GrammarMatcher
from .grammar_store import GrammarStore
from .graphs import DecodeGraphs, GraphBackend
from .oom_split import BatchSplitter, run_in_halves
from .sampler import NOT_FINITE
from .sequence import SequenceState
from .states import StateMemory
from .step import FedSequence, Limits, fault_of, step_batch
from .tasks.align import align
from .tasks.base import Rows, SequenceTask
from .tasks.pool import PoolTask, WholePrompt, pool_whole
from .tasks.prefill import PrefillTask
from .tasks.sample import MAX_LOGITS, SampleTask
from .tasks.transduce import TransduceTask
from .threads import StepThreads
from .token_rules import RuleBook


class Runner:
    """Runs one model. Everything is synchronous; call it from one thread, and for plans that are apart
    `execute` from one more."""

    def __init__(
        self,
        model: Model,
        *,
        num_blocks: int,
        block_size: int = 16,
        num_threads: int | None = None,
        grammars: GrammarStore | None = None,
        cuda_graphs: bool | GraphBackend = False,
        max_running: int = 256,
        kv_dtype: torch.dtype | None = None,
        num_state_slots: int = 0,
        adapters: Mapping[str, Adapter] | None = None,
        draft_probabilities: Mapping[DraftHandle, torch.Tensor] | None = None,
    ) -> None:
        """`num_threads` is the most torch may use (None: leave torch as it is). Keys and values are kept as
        `kv_dtype`: the model's (None) or `kernels.kv_codes.CODED`. With `cuda_graphs` decode
        steps of up to `max_running` sequences are replayed (ValueError where they cannot be). A model with
        states has `num_state_slots` of them. `adapters` are those of a model opened as adaptable, by their
        names; there may be more or fewer of them later. So with `draft_probabilities`: float32
        [tokens, vocabulary] of each draft in a plan that names what it was drawn from. Raises ModelLoadError
        for `adapters` of a model that takes none."""
        if adapters is not None and not model.info.is_adaptable:
            raise ModelLoadError(
                f"{model.info.name}: this {model.info.family} model takes no adapters; allowed: a model of a "
                "family that takes them, opened as adaptable"
            )
        if num_blocks < 1 or block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        self.info = model.info
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._model = model
        self._grammars = grammars
        self._adapters: Mapping[str, Adapter] = {} if adapters is None else adapters
        self._drafts = {} if draft_probabilities is None else draft_probabilities
        kv_dtype = kv_dtype or model.dtype
        self._limits = Limits(
            num_blocks=num_blocks,
            block_size=block_size,
            max_context=model.info.max_context,
            vocab_size=model.info.vocab_size,
            has_cross_attention=model.info.attended_shape is not None,
            rotary_axes=model.rotary_axes,
            sees_whole_prompts=model.info.sees_whole_prompts,
            num_state_slots=num_state_slots,
            groups=model.kv_shape.layout(kv_dtype).groups,
        )
        self._sampling = SampleTask(model)
        self._tasks: dict[type[Task], SequenceTask[Any]] = {
            Sample: self._sampling,
            Prefill: PrefillTask(),
            Pool: PoolTask(model),
        }
        self._rules = RuleBook(model.info.vocab_size, model.device)
        self._threads = StepThreads(num_threads, model.weight_bytes)
        graphs = cuda_graphs if model.info.replayable else False
        spare = graphs is not False  # a block for replays
        shape = model.kv_shape.cache_shape(num_blocks + spare, block_size, kv_dtype)
        self._graphs: DecodeGraphs | None = None
        with torch.inference_mode():
            self._cache = lazy_zeros(shape, kv_dtype, model.device)
            self._ahead = Ahead(self._cache)
            self._states = StateMemory(model, num_state_slots)
            if graphs is not False:
                most = max(min(max_running, MAX_LOGITS // model.info.vocab_size), 1)
                self._graphs = DecodeGraphs(model, self._cache, self._limits, most, graphs)
        self._transduce: TransduceTask | None = None
        if isinstance(model, TransducingModel):
            self._transduce = TransduceTask(
                model,
                self._states,
                num_state_slots,
                use_threads=self.use_threads,
                release_memory=self._release_memory,
            )
        self._encodings: dict[Slot, EncoderOutput] = {}
        self._sequences: dict[SequenceId, SequenceState] = {}
        self._splitter = BatchSplitter()

    def use_threads(self, num_rows: int) -> None:
        """Take as many threads as work on `num_rows` rows gains from."""
        self._threads.take(num_rows)

    def warm_up(self) -> None:
        """Run a step of each kind once, so that the first request does not pay for set-up."""
        if isinstance(self._model, TransducingModel):
            task, chunk = self._model.example_chunk()
            first = TransduceStep(SequenceId(-1), RequestId("warm-up"), task, 0, chunk, is_first=True)
            self.execute(Plan(0, transduces=(first,)))
            return
        slot: Slot | None = None
        encodes: tuple[EncodeStep, ...] = ()
        if (shape := self.info.attended_shape) is not None:
            slot = -1
            encodes = (EncodeStep(slot, Features(shape, bytes(4 * shape[0] * shape[1]))),)
        sequence, table = SequenceId(-1), (0,)
        prompt = (0,) * min(self.block_size, self.info.max_context - 2)
        if isinstance(self._model, BidirectionalModel):
            pool = Request[Task](RequestId("warm-up"), prompt, Pool("mean"))
            self.execute(Plan(0, wholes=(WholeStep(pool),)))
            return
        begin = SequenceStart(
            RequestId("warm-up"), prompt, (), Sample(SamplingParams(max_tokens=2, ignore_eos=True))
        )
        state_slot = 0 if self._states else None
        num_more = len(self._limits.groups) - 1  # whose content nobody looks at: all in the same blocks
        whole = SequenceStep(
            sequence,
            prompt,
            0,
            table,
            slot,
            begin=begin,
            state_slot=state_slot,
            more_tables=(table,) * num_more,
        )
        self.execute(Plan(0, encodes=encodes, sequences=(whole,)))
        if self.num_blocks > 1:
            again = msgspec.structs.replace(
                whole,
                token_ids=(),
                start=len(prompt),
                block_table=(0, 1),
                more_tables=((0, 1),) * num_more,
                begin=None,
                feeds_sampled=True,
            )
            self.execute(Plan(0, sequences=(again,)))
        self.execute(Plan(0, ends=(sequence,), frees=() if slot is None else (slot,)))
        if self._graphs is not None:
            self._graphs.record_all()

    @naming_device_loss
    @torch.inference_mode()
    def execute(self, plan: Plan) -> StepResult:
        """Do everything in `plan`: ends, frees, copies, encodes, sequences, chunks, wholes.

        An item at fault fails alone (`encode_errors`, `TokensSampled.error`, `TaskFailed`), also where the
        device has no memory for it; an exception means this class is broken or the device (DeviceLostError).
        """
        if plan.is_overlapped:
            return self._execute_overlapped(plan)
        self._threads.is_quiet = plan.is_quiet
        for sequence_id in plan.ends:
            self._sequences.pop(sequence_id, None)
        for slot in plan.frees:
            self._encodings.pop(slot, None)
        if plan.copies:
            self._states.copy(plan.copies)
            if self._transduce is not None:
                self._transduce.copy(plan.copies)
        encode_errors = self._encode(plan.encodes)
        with self._ahead.waiting(_newest_blocks(plan.sequences)):
            outcomes = self._run_sequences(plan.sequences)
        return StepResult(
            step=plan.step,
            outcomes=outcomes,
            transduced=self._run_chunks(plan.transduces),
            wholes=self._run_wholes(plan.wholes),
            encode_errors=encode_errors,
            encoder_bytes=self._encoder_bytes(plan, encode_errors),
            # Nothing moves blocks between engines yet: what was to come is computed.
            transfers_failed=tuple(each.transfer_id for each in plan.transfers),
        )

    def _execute_overlapped(self, plan: Plan) -> StepResult:
        with self._threads.overlapped_encoding():
            errors = self._encode(plan.encodes)
        return StepResult(plan.step, encode_errors=errors, encoder_bytes=self._encoder_bytes(plan, errors))

    def _encoder_bytes(self, plan: Plan, errors: dict[Slot, str]) -> dict[Slot, int]:
        kept = [step.slot for step in plan.encodes if step.slot not in errors]
        return {slot: self._encodings[slot].num_bytes for slot in kept}

    def _encode(self, steps: Sequence[EncodeStep]) -> dict[Slot, str]:
        errors: dict[Slot, str] = {}
        good: dict[str | None, list[EncodeStep]] = {}
        for step in steps:
            try:
                self._model.check_features(step.features)
                good.setdefault(step.adapter, []).append(step)
            except ValueError as error:
                errors[step.slot] = str(error)
        for name, part in good.items():
            self._threads.take_for_encode()
            if name is None:
                self._encode_good(part, errors)
            elif name in self._adapters:
                with adapting((AdaptedRows(self._adapters[name], ALL_ROWS),)):
                    self._encode_good(part, errors)
            else:
                errors |= dict.fromkeys((step.slot for step in part), self._not_loaded(name))
        return errors

    def _not_loaded(self, adapter: str) -> str:
        return f"the adapter {adapter} is not loaded; loaded are: {', '.join(self._adapters) or 'none'}"

    def _encode_good(self, steps: Sequence[EncodeStep], errors: dict[Slot, str]) -> None:
        def encode(steps: Sequence[EncodeStep]) -> None:
            with native_call:
                outputs = self._model.encode([step.features for step in steps])
            self._encodings.update(zip((step.slot for step in steps), outputs, strict=True))

        def failed(step: EncodeStep, reason: str, _: Fault) -> None:
            errors[step.slot] = reason

        run_in_halves(steps, encode, failed, release_memory=self._release_memory)

    def _release_memory(self) -> None:
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _run_sequences(self, steps: Sequence[SequenceStep]) -> tuple[SequenceOutcome, ...]:
        results: dict[SequenceId, SequenceOutcome] = {}
        good: list[FedSequence] = []
        for step in steps:
            prepared = self._prepare(step)
            if isinstance(prepared, FedSequence):
                good.append(prepared)
            else:
                results[step.sequence_id] = prepared
        if good:
            if self._limits.has_cross_attention:
                # Rows that listen to one window are neighbours, so that they share one read of it.
                good.sort(key=lambda fed: (fed.step.encoder_slot or 0, fed.step.encoder_span or ()))
            answers = [each for part in self._splitter.split(good) for each in self._run(part)]
            for fed, answer in zip(good, answers, strict=True):
                results[fed.step.sequence_id] = answer
        return tuple(results[step.sequence_id] for step in steps)

    def _prepare(self, step: SequenceStep) -> FedSequence | TokensSampled:
        """The sequence ready to run, or what to answer without running it."""
        sequence_id, start = step.sequence_id, step.begin
        state = self._sequences.get(sequence_id)
        if start is not None:
            rules = self._rules.rules_of(start.task.sampling) if isinstance(start.task, Sample) else None
            adapter = None
            if start.adapter is not None:
                adapter = self._adapters.get(start.adapter)
                if adapter is None:
                    reason = self._not_loaded(start.adapter)
                    return TokensSampled(start.request_id, error=reason, fault="defect")
            state = self._sequences[sequence_id] = SequenceState(start, rules, adapter)
            if state.sampling.grammar is not None:
                try:
                    state.follow(self._matcher(state.sampling.grammar))
                except GrammarError as error:
                    state.finished = True
                    return TokensSampled(state.request_id, error=str(error), fault="cannot_follow")
        if state is None:
            return TokensSampled(RequestId(""), error="this sequence was never begun", fault="defect")
        if state.finished:
            return TokensSampled(state.request_id)
        if step.num_supposed:
            step = step.from_position(state.num_tokens - 1)
        drawn_from = None if step.draft_handle is None else self._drafts.get(step.draft_handle)
        fault = fault_of(step, state, self._limits, self._encodings)
        if fault is None and step.draft_handle is not None:
            fault = _draft_fault(step, drawn_from, self._limits.vocab_size)
        if fault is not None:
            state.finished = True
            return TokensSampled(state.request_id, error=fault, fault="defect")
        token_ids = (state.generated[-1], *step.token_ids) if step.feeds_sampled else step.token_ids
        return FedSequence(step, state, token_ids, drawn_from)

    def _matcher(self, grammar: Grammar) -> GrammarMatcher:
        if self._grammars is None:
            raise GrammarError("this model's tokenizer cannot follow a grammar")
        return self._grammars.matcher(grammar)

    def _run(self, good: Sequence[FedSequence]) -> list[SequenceOutcome]:
        """One forward pass; if the device has no memory for it, two of half the sequences. Those with states
        fail then: a part of them may have gone on."""
        try:
            results = self._attempt(good)
        except (RuntimeError, MemoryError) as caught:
            reason = out_of_memory(caught)
            if reason is None:
                raise
        else:
            return [self._answer(fed, result) for fed, result in zip(good, results, strict=True)]
        self._release_memory()
        if len(good) == 1 or self._states:
            return [_without_memory(each, reason) for each in good]
        self._splitter.fail(good)
        half = len(good) // 2
        return self._run(good[:half]) + self._run(good[half:])

    def _attempt(self, fed: Sequence[FedSequence]) -> list[Any]:
        """Forward, and what each task makes of it; changes nothing but the KV of the fed positions, and
        states.

        A result is that of its sequence's task, or `_NOT_FINITE`.
        """
        device = self._model.device
        self.use_threads(sum(len(each.token_ids) for each in fed))
        if self._graphs is not None and self._graphs.can_replay(fed):
            return self._sampling.replayed(fed, self._graphs.logits(fed))
        wanted = [self._task_of(each).num_wanted(each) for each in fed]
        if self._states:
            self._states.clear(each.step.state_slot for each in fed if each.step.start == 0)
        batch = step_batch(fed, self._limits, self._encodings, device, wanted)
        if batch.rows.adapted:
            with adapting(batch.rows.adapted, batch.token_ids.shape[0]):
                hidden = self._model.forward(batch, self._cache)
        else:
            hidden = self._model.forward(batch, self._cache)
        results: list[Any] = [None] * len(fed)
        starts = [0, *accumulate(len(each.token_ids) for each in fed)]
        chunks = [i for i, each in enumerate(fed) if not (each.step.answers and each.samples)]
        if chunks:  # nobody looks at their logits, and their blocks would be found by others
            ends = torch.tensor([starts[i + 1] - 1 for i in chunks])
            finite = hidden[to_device(ends, device)].isfinite().all(-1)
            for i, is_finite in zip(chunks, finite.tolist(), strict=True):
                results[i] = None if is_finite else _NOT_FINITE
        for kind, task in self._tasks.items():
            members = [i for i, each in enumerate(fed) if type(each.state.task) is kind]
            if members:
                found = task.compute([Rows(fed[i], starts[i]) for i in members], hidden)
                for i, result in zip(members, found, strict=True):
                    results[i] = result if results[i] is None else results[i]
        return results

    def _task_of(self, fed: FedSequence) -> SequenceTask[Any]:
        return self._tasks[type(fed.state.task)]

    def _answer(self, fed: FedSequence, result: object) -> SequenceOutcome:
        """Tell the sequence what was computed, and the scheduler."""
        if result is _NOT_FINITE:
            fed.state.finished = True
            return TokensSampled(fed.state.request_id, error=NOT_FINITE, fault="not_finite")
        return self._task_of(fed).answer(fed, result)

    def _run_chunks(self, steps: Sequence[TransduceStep]) -> tuple[ChunkOutcome, ...]:
        if not steps:
            return ()
        if self._transduce is None:
            raise RuntimeError("a plan has chunks of fed requests, and the model takes whole inputs")
        return self._transduce.run(steps)

    def _run_wholes(self, steps: Sequence[WholeStep]) -> dict[RequestId, Outcome]:
        """The outcomes of requests that are run as a whole."""
        outcomes: dict[RequestId, Outcome] = {}
        pools: list[WholePrompt] = []
        for step in steps:
            match step.request.task:
                case Align():
                    outcomes[step.request.request_id] = self._align(step)
                case Pool() as pool:
                    pools.append(WholePrompt(step.request.request_id, step.request.prompt_token_ids, pool))
                case Sample() | Prefill() | Transduce():
                    raise AssertionError("what makes keys and values, or is fed, is no whole")
        if pools:
            outcomes |= {each.request_id: each for each in self._pool(pools)}
        return outcomes

    def _pool(self, prompts: Sequence[WholePrompt]) -> list[Outcome]:
        """Vectors of whole prompts; if the device has no memory for them, of one half after the other."""
        assert isinstance(self._model, BidirectionalModel)
        self.use_threads(sum(len(each.token_ids) for each in prompts))
        try:
            return list(pool_whole(self._model, prompts))
        except (RuntimeError, MemoryError) as error:
            reason = out_of_memory(error)
            if reason is None:
                raise
        self._release_memory()
        if len(prompts) == 1:
            error_text = f"{reason} computing {len(prompts[0].token_ids)} tokens"
            return [TaskFailed(prompts[0].request_id, error_text, "out_of_memory")]
        half = len(prompts) // 2
        return self._pool(prompts[:half]) + self._pool(prompts[half:])

    def _align(self, step: WholeStep) -> Outcome:
        request_id = step.request.request_id
        self.use_threads(len(step.request.prompt_token_ids))
        output = None if step.encoder_slot is None else self._encodings.get(step.encoder_slot)
        try:
            return align(self._model, step.request, output)
        except ValueError as error:
            return TaskFailed(request_id, str(error))
        except (RuntimeError, MemoryError) as error:
            reason = out_of_memory(error)
            if reason is None:
                raise
        self._release_memory()
        return TaskFailed(request_id, reason, "out_of_memory")


def _newest_blocks(steps: Iterable[SequenceStep]) -> Iterator[int]:
    """Those that are written to, of each table one."""
    for step in steps:
        if step.block_table:
            yield step.block_table[-1]
        for table in step.more_tables:
            if table:
                yield table[-1]


def _draft_fault(step: SequenceStep, drawn_from: torch.Tensor | None, vocab_size: int) -> str | None:
    """What is wrong with the probabilities of a draft."""
    if drawn_from is None:
        return f"the probabilities {step.draft_handle} of a draft are gone"
    if drawn_from.ndim != 2 or drawn_from.shape[0] < step.num_draft or drawn_from.shape[1] != vocab_size:
        shape = tuple(drawn_from.shape)
        return f"the probabilities of a draft are {shape}; needed: {(step.num_draft, vocab_size)}"
    return None


def _without_memory(fed: FedSequence, reason: str) -> TokensSampled:
    fed.state.finished = True
    error = f"{reason} computing {len(fed.token_ids)} tokens of a context of {fed.end}"
    return TokensSampled(fed.state.request_id, error=error, fault="out_of_memory")


_NOT_FINITE: Final = object()
"""The result of a sequence whose hidden states are no numbers."""
