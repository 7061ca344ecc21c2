"""Executes plans on one device: encodes items, runs one ragged decoder step, samples, aligns.

Owns the paged KV cache, the encodings by slot and what is remembered of each sequence. It drives any `Model`
(`engine/models/base.py`) and knows no requests beyond the plan at hand, no tasks and no clocks (whoever calls
`execute` measures it). `engine/planning/plan.py` is the boundary; next: `step.py`, `sampler.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec
import torch
from torch import Tensor

from ...kernels.host_memory import Ahead, lazy_zeros
from ...kernels.transfer import to_device
from ...protocols.engine.messages import Features, PromptLogprobs, RequestId, SamplingParams
from ...protocols.shared.panics import native_call
from ..models.base import AligningModel, EncoderOutput, Model
from ..planning.plan import (
    AlignStep,
    EncodeStep,
    Plan,
    Sampled,
    SequenceId,
    SequenceStart,
    SequenceStep,
    Slot,
    StepResult,
)
from .faults import NO_KERNELS, first_line, naming_device_loss, out_of_memory, spoils_thread
from .grammar import GrammarError, GrammarMatcher
from .grammar_store import GrammarStore
from .graphs import DecodeGraphs, GraphBackend
from .logits import RowSpan
from .oom_split import Portions
from .sampler import NOT_FINITE, Choice, accept, choose, prompt_logprobs
from .sequence import SequenceState
from .step import FedSequence, Limits, fault_of, step_batch
from .threads import StepThreads
from .token_rules import RuleBook

_MAX_LOGITS: Final = 1 << 26
"""Elements of float32 logits in memory at once, if a single sequence does not need more."""


@dataclass(slots=True)
class _Outcome:
    """What a step computed for one sequence, before the sequence knows of it."""

    span: RowSpan | None = None
    choice: Choice | None = None
    probability: float | None = None
    prompt: PromptLogprobs | None = None
    is_finite: bool = True


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
    ) -> None:
        """`num_threads` is the most torch may use (None: leave torch as it is). Keys and values are kept as
        `kv_dtype`: the model's (None) or `kernels.kv_codes.CODED`. With `cuda_graphs` decode
        steps of up to `max_running` sequences are replayed (ValueError where they cannot be)."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        self.info = model.info
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._model = model
        self._grammars = grammars
        self._limits = Limits(
            num_blocks=num_blocks,
            block_size=block_size,
            max_context=model.info.max_context,
            vocab_size=model.info.vocab_size,
            listens=model.info.attended_shape is not None,
            rotary_axes=model.rotary_axes,
        )
        self._rules = RuleBook(model.info.vocab_size, model.device)
        self._threads = StepThreads(num_threads, model.weight_bytes)
        graphs = cuda_graphs if model.info.replayable else False
        kv_dtype, spare = kv_dtype or model.dtype, graphs is not False  # a block for replays
        shape = model.kv_shape.cache_shape(num_blocks + spare, block_size, kv_dtype)
        self._graphs: DecodeGraphs | None = None
        with torch.inference_mode():
            self._cache = lazy_zeros(shape, kv_dtype, model.device)
            self._ahead = Ahead(self._cache)
            if graphs is not False:
                most = max(min(max_running, _MAX_LOGITS // model.info.vocab_size), 1)
                self._graphs = DecodeGraphs(model, self._cache, self._limits, most, graphs)
        self._encodings: dict[Slot, EncoderOutput] = {}
        self._sequences: dict[SequenceId, SequenceState] = {}
        self._portions = Portions()

    def use_threads(self, num_rows: int) -> None:
        """Take as many threads as work on `num_rows` rows gains from."""
        self._threads.take(num_rows)

    def warm_up(self) -> None:
        """Run a step of each kind once, so that the first request does not pay for set-up."""
        slot: Slot | None = None
        encodes: tuple[EncodeStep, ...] = ()
        if (shape := self.info.attended_shape) is not None:
            slot = -1
            encodes = (EncodeStep(slot, Features(shape, bytes(4 * shape[0] * shape[1]))),)
        sequence, table = SequenceId(-1), (0,)
        prompt = (0,) * min(self.block_size, self.info.max_context - 2)
        begin = SequenceStart(RequestId("warm-up"), prompt, (), SamplingParams(max_tokens=2, ignore_eos=True))
        first = SequenceStep(sequence, prompt, 0, table, slot, begin=begin)
        self.execute(Plan(0, encodes=encodes, sequences=(first,)))
        if self.num_blocks > 1:
            again = SequenceStep(sequence, (), len(prompt), (0, 1), slot, feeds_sampled=True)
            self.execute(Plan(0, sequences=(again,)))
        self.execute(Plan(0, ends=(sequence,), frees=() if slot is None else (slot,)))
        if self._graphs is not None:
            self._graphs.record_all()

    @naming_device_loss
    @torch.inference_mode()
    def execute(self, plan: Plan) -> StepResult:
        """Do everything in `plan`: ends, frees, encodes, sequences, alignments.

        An item at fault fails alone (`encode_errors`, `Sampled.error`, `align_errors`), also where the
        device has no memory for it; an exception means this class is broken or the device (DeviceLostError).
        """
        if plan.is_overlapped:
            return self._execute_overlapped(plan)
        self._threads.is_quiet = plan.is_quiet
        for sequence_id in plan.ends:
            self._sequences.pop(sequence_id, None)
        for slot in plan.frees:
            self._encodings.pop(slot, None)
        encode_errors = self._encode(plan.encodes)
        with self._ahead.waiting(step.block_table[-1] for step in plan.sequences if step.block_table):
            sampled = self._run_sequences(plan.sequences)
        boundaries: dict[RequestId, tuple[int, ...]] = {}
        align_errors: dict[RequestId, str] = {}
        for align in plan.aligns:
            try:
                boundaries[align.command.request_id] = self._align(align)
            except ValueError as error:
                align_errors[align.command.request_id] = str(error)
        return StepResult(
            step=plan.step,
            sampled=sampled,
            boundaries=boundaries,
            align_errors=align_errors,
            encode_errors=encode_errors,
            encoder_bytes=self._encoder_bytes(plan, encode_errors),
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
        good: list[EncodeStep] = []
        for step in steps:
            try:
                self._model.check_features(step.features)
                good.append(step)
            except ValueError as error:
                errors[step.slot] = str(error)
        if good:
            self._threads.take_for_encode()
            self._encode_good(good, errors)
        return errors

    def _encode_good(self, steps: Sequence[EncodeStep], errors: dict[Slot, str]) -> None:
        """All at once; what fails so is tried in halves, and what fails alone is in `errors`."""
        try:
            with native_call:
                outputs = self._model.encode([step.features for step in steps])
            self._encodings.update(zip((step.slot for step in steps), outputs, strict=True))
            return
        except torch.AcceleratorError:  # nothing works on the device after one
            raise
        except Exception as error:  # a model that trips over one input must not take the others along
            if spoils_thread(error):
                raise RuntimeError(NO_KERNELS) from error
            memory = out_of_memory(error)
            reason = memory or f"this input cannot be encoded ({first_line(error)})"
        if memory is not None:
            self._release_memory()
        if len(steps) == 1:
            errors[steps[0].slot] = reason
            return
        half = len(steps) // 2
        self._encode_good(steps[:half], errors)
        self._encode_good(steps[half:], errors)

    def _release_memory(self) -> None:
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _run_sequences(self, steps: Sequence[SequenceStep]) -> tuple[Sampled, ...]:
        results: dict[SequenceId, Sampled] = {}
        good: list[FedSequence] = []
        for step in steps:
            answer = self._prepare(step)
            if isinstance(answer, Sampled):
                results[step.sequence_id] = answer
            else:
                good.append(answer)
        if good:
            if self._limits.listens:
                # Rows that listen to one window are neighbours, so that they share one read of it.
                good.sort(key=lambda fed: (fed.step.encoder_slot or 0, fed.step.encoder_span or ()))
            answers = [each for part in self._portions.split(good) for each in self._run(part)]
            for fed, sampled in zip(good, answers, strict=True):
                results[fed.step.sequence_id] = sampled
        return tuple(results[step.sequence_id] for step in steps)

    def _prepare(self, step: SequenceStep) -> FedSequence | Sampled:
        """The sequence ready to run, or what to answer without running it."""
        sequence_id, start = step.sequence_id, step.begin
        state = self._sequences.get(sequence_id)
        if start is not None:
            state = self._sequences[sequence_id] = SequenceState(start, self._rules.rules_of(start.sampling))
            if start.sampling.grammar is not None:
                try:
                    state.follow(self._matcher(start))
                except GrammarError as error:
                    state.finished = True
                    return Sampled(sequence_id, error=str(error), fault="cannot_follow")
        if state is None:
            return Sampled(sequence_id, error="this sequence was never begun", fault="defect")
        if state.finished:
            return Sampled(sequence_id)
        fault = fault_of(step, state, self._limits, self._encodings)
        if fault is not None:
            state.finished = True
            return Sampled(sequence_id, error=fault, fault="defect")
        token_ids = (state.generated[-1], *step.token_ids) if step.feeds_sampled else step.token_ids
        return FedSequence(step, state, token_ids)

    def _matcher(self, start: SequenceStart) -> GrammarMatcher:
        assert start.sampling.grammar is not None
        if self._grammars is None:
            raise GrammarError("this model's tokenizer cannot follow a grammar")
        return self._grammars.matcher(start.sampling.grammar)

    def _run(self, good: Sequence[FedSequence]) -> list[Sampled]:
        """One forward pass; if the device has no memory for it, two of half the sequences."""
        try:
            outcomes = self._attempt(good)
        except (RuntimeError, MemoryError) as caught:
            reason = out_of_memory(caught)
            if reason is None:
                raise
        else:
            return [_answer(fed, outcome) for fed, outcome in zip(good, outcomes, strict=True)]
        self._release_memory()
        if len(good) == 1:
            good[0].state.finished = True
            rows, context = len(good[0].token_ids), good[0].end
            error = f"{reason} computing {rows} tokens of a context of {context}"
            return [Sampled(good[0].step.sequence_id, error=error, fault="out_of_memory")]
        self._portions.fail(good)
        half = len(good) // 2
        return self._run(good[:half]) + self._run(good[half:])

    def _attempt(self, fed: Sequence[FedSequence]) -> list[_Outcome]:
        """Forward, logits and choices; changes nothing but the KV of the fed positions."""
        device = self._model.device
        self.use_threads(sum(len(each.token_ids) for each in fed))
        if self._graphs is not None and self._graphs.can_replay(fed):
            spans = [RowSpan(each.state, row) for row, each in enumerate(fed)]
            choices = choose(self._graphs.logits(fed), spans)
            return [_Outcome(*both) for both in zip(spans, choices, strict=True)]
        hidden = self._model.forward(step_batch(fed, self._limits, self._encodings, device), self._cache)
        outcomes = [_Outcome() for _ in fed]
        starts = [0, *accumulate(len(each.token_ids) for each in fed)]
        chunks = [i for i, each in enumerate(fed) if not each.step.samples]
        if chunks:  # nobody looks at their logits, and their blocks would be found by others
            ends = torch.tensor([starts[i + 1] - 1 for i in chunks])
            finite = hidden[to_device(ends, device)].isfinite().all(-1)
            for i, is_finite in zip(chunks, finite.tolist(), strict=True):
                outcomes[i].is_finite = is_finite
        for part in self._parts(fed):
            self._choose([(fed[i], starts[i], outcomes[i]) for i in part], hidden)
        for each, start, outcome in zip(fed, starts[:-1], outcomes, strict=True):
            if each.state.sampling.prompt_logprobs is not None:
                outcome.prompt = self._prompt_logprobs(each, hidden[start : start + len(each.token_ids)])
        return outcomes

    def _parts(self, fed: Sequence[FedSequence]) -> Iterator[list[int]]:
        """Indices of sequences that need logits, as many at a time as `_MAX_LOGITS` allows."""
        size, rows = _MAX_LOGITS // self._limits.vocab_size, 0
        part: list[int] = []
        for index, each in enumerate(fed):
            needed = (1 + each.step.num_draft if each.step.samples else 0) + (each.probe_row is not None)
            if part and needed and rows + needed > size:
                yield part
                part, rows = [], 0
            if needed:
                part.append(index)
                rows += needed
        if part:
            yield part

    def _choose(self, members: Sequence[tuple[FedSequence, int, _Outcome]], hidden: Tensor) -> None:
        """Fill the outcomes of sequences with what the logits of their sampling and probed rows say."""
        rows: list[int] = []
        spans: list[RowSpan] = []
        probes: list[tuple[int, int, _Outcome]] = []
        for each, start, outcome in members:
            if each.step.samples:
                outcome.span = RowSpan(each.state, len(rows), each.draft)
                spans.append(outcome.span)
                end = start + len(each.token_ids)
                rows.extend(range(end - 1 - each.step.num_draft, end))
            probed = each.probe_row
            if probed is not None and each.step.probe is not None:
                probes.append((len(rows), each.step.probe.token_id, outcome))
                rows.append(start + probed)
        logits = self._model.logits(hidden[to_device(torch.tensor(rows), hidden.device)])
        for row, token_id, outcome in probes:
            outcome.probability = float((logits[row, token_id] - logits[row].logsumexp(-1)).exp())
        choices = iter(choose(logits, spans))
        for _, _, outcome in members:
            if outcome.span is not None:
                outcome.choice = next(choices)

    def _prompt_logprobs(self, fed: FedSequence, hidden: Tensor) -> PromptLogprobs | None:
        """Of the prompt tokens behind the fed ones, from their rows of hidden states, some at a time."""
        state, start = fed.state, fed.step.start
        count = min(len(fed.token_ids), state.num_prompt - 1 - start)
        if count < 1:
            return None
        size = max(_MAX_LOGITS // 4 // self._limits.vocab_size, 1)
        parts = (
            (
                self._model.logits(hidden[first : min(first + size, count)]),
                state.prompt_token_ids[start + 1 + first : start + 1 + min(first + size, count)],
            )
            for first in range(0, count, size)
        )
        return prompt_logprobs(parts, state.sampling.prompt_logprobs or 0)

    def _align(self, step: AlignStep) -> tuple[int, ...]:
        """Boundaries of the text tokens; raises ValueError with a message for the client."""
        output = self._encodings.get(step.encoder_slot)
        if output is None:
            raise ValueError("the encoded window of this request is gone")
        if not isinstance(self._model, AligningModel):
            raise ValueError("this model has no times of tokens")
        self.use_threads(len(step.command.token_ids))
        try:
            return self._model.align(step.command, output)
        except (RuntimeError, MemoryError) as error:
            reason = out_of_memory(error)
            if reason is None:
                raise
        self._release_memory()
        raise ValueError(reason)


def _answer(fed: FedSequence, outcome: _Outcome) -> Sampled:
    """Tell the sequence what was chosen, and the scheduler."""
    reported = [] if outcome.prompt is None else list(outcome.prompt.logprobs)
    if outcome.probability is not None:
        reported.append(outcome.probability)
    sequence_id = fed.step.sequence_id
    if not outcome.is_finite or not all(map(math.isfinite, reported)):
        fed.state.finished = True
        return Sampled(sequence_id, error=NOT_FINITE, fault="not_finite")
    sampled = Sampled(sequence_id)
    if outcome.span is not None and outcome.choice is not None:
        sampled = accept(outcome.span, outcome.choice, sequence_id)
    if not reported or sampled.error is not None:
        return sampled
    return msgspec.structs.replace(
        sampled, prompt_logprobs=outcome.prompt, probe_probability=outcome.probability
    )
