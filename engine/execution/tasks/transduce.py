"""Transduce: one step of requests that are fed while they run, chunks of many of them in one ragged batch.

What a request's next chunk depends on lies in its slot of states, which is the model's, and in how many rows
it has had, which is counted here by slot. A slot changes only once all of a part of the step is computed
(`TransducingModel.commit`), so that a part that failed is run again in halves, and a chunk that fails alone
takes no other along. The model is in `engine/models/base.py`; `engine/planning/streaming_planner.py` knows
who has which slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ....kernels.transfer import to_device
from ....protocols.engine.messages import Fault, Features, TaskFailed, Transduced
from ....protocols.shared.panics import native_call
from ...models.base import ChunkBatch, ChunkInput, Listened, TransducingModel, is_whole, values_of
from ...planning.plan import ChunkOutcome, Copy, SequenceId, TransduceStep
from ..oom_split import BatchSplitter, run_in_halves
from ..sampler import NOT_FINITE
from ..states import StateMemory


@dataclass(frozen=True, slots=True)
class FedChunk:
    """A checked chunk of one request."""

    step: TransduceStep
    num_rows: int
    """About how many rows it makes."""


class TransduceTask:
    """The fed requests of one runner, whose model this is."""

    def __init__(
        self,
        model: TransducingModel,
        states: StateMemory,
        num_slots: int,
        *,
        use_threads: Callable[[int], None],
        release_memory: Callable[[], None],
    ) -> None:
        self._model = model
        self._states = states
        self._frames_per_row = model.info.input_frames_per_row
        self._use_threads = use_threads
        self._release_memory = release_memory
        self._num_rows = [0] * num_slots
        self._splitter = BatchSplitter()

    def copy(self, copies: Iterable[Copy]) -> None:
        """Count on with the states that are copied."""
        for copy in copies:
            self._num_rows[copy.target] = self._num_rows[copy.source]

    def run(self, steps: Sequence[TransduceStep]) -> tuple[ChunkOutcome, ...]:
        """The outcome of each."""
        outcomes: dict[SequenceId, ChunkOutcome] = {}
        fed: list[FedChunk] = []
        for step in steps:
            prepared = self._prepare(step)
            if isinstance(prepared, FedChunk):
                fed.append(prepared)
            else:
                outcomes[step.sequence_id] = prepared

        def failed(each: FedChunk, reason: str, fault: Fault) -> None:
            outcomes[each.step.sequence_id] = _failed(each.step, reason, fault)

        for part in self._splitter.split(fed) if fed else ():
            run_in_halves(
                part,
                partial(self._attempt, outcomes=outcomes),
                failed,
                release_memory=self._release_memory,
                too_large=self._splitter.fail,
            )
        return tuple(outcomes[step.sequence_id] for step in steps)

    def _prepare(self, step: TransduceStep) -> FedChunk | ChunkOutcome:
        """The chunk ready to run, or its outcome without running it."""
        if not 0 <= step.slot < len(self._num_rows):
            return _failed(step, f"the state slot {step.slot} is not one of {len(self._num_rows)}", "defect")
        if step.is_first:
            self._states.clear((step.slot,))
            self._num_rows[step.slot] = 0
        chunk = step.chunk
        if step.is_first and not chunk.num_valid:
            return self._answer(step, (), (), ())
        if not is_whole(chunk.features) or chunk.num_valid > chunk.features.shape[-1]:
            return _failed(step, f"the chunk's features are not those of shape {chunk.features.shape}")
        try:
            self._model.check_chunk(step.task, chunk, is_first=step.is_first)
        except ValueError as error:
            return _failed(step, str(error))
        return FedChunk(step, -(-chunk.features.shape[-1] // self._frames_per_row))

    def _attempt(self, fed: Sequence[FedChunk], outcomes: dict[SequenceId, ChunkOutcome]) -> None:
        self._use_threads(sum(each.num_rows for each in fed))
        batch = self._batch([each.step for each in fed])
        with native_call:
            listened = self._model.listen(batch)
            emitted = self._model.emit(listened, batch)
        finite = _finite(listened)
        self._model.commit(batch, listened, emitted)
        for index, each in enumerate(fed):
            step = each.step
            if not finite[index]:
                outcomes[step.sequence_id] = _failed(step, NOT_FINITE, "not_finite")
                continue
            outcomes[step.sequence_id] = self._answer(
                step,
                emitted.token_ids[index],
                emitted.rows[index],
                emitted.logprobs[index],
                num_rows=listened.num_rows[index],
                ends=emitted.ends[index] if emitted.ends else (),
            )

    def _batch(self, steps: Sequence[TransduceStep]) -> ChunkBatch:
        device = self._model.device
        chunks = tuple(
            ChunkInput(
                to_device(_frames(step.chunk.features), device),
                step.chunk.num_valid,
                step.is_first,
                step.chunk.is_last,
                step.task,
                self._num_rows[step.slot],
            )
            for step in steps
        )
        return ChunkBatch(chunks, to_device(torch.tensor([step.slot for step in steps]), device))

    def _answer(
        self,
        step: TransduceStep,
        token_ids: tuple[int, ...],
        rows: tuple[int, ...],
        logprobs: tuple[float, ...],
        *,
        num_rows: int = 0,
        ends: tuple[int, ...] = (),
    ) -> Transduced:
        """Count the rows, and say what they brought."""
        before = self._num_rows[step.slot]
        self._num_rows[step.slot] = before + num_rows
        return Transduced(
            step.request_id,
            token_ids,
            tuple(before + row for row in rows),
            logprobs,
            before + num_rows,
            "stop" if step.chunk.is_last else None,
            tuple(before + end for end in ends),
        )


def _frames(features: Features) -> Tensor:
    """The numbers of a chunk, which may have no frame."""
    return values_of(features) if features.data else torch.zeros(features.shape)


def _finite(listened: Listened) -> list[bool]:
    """Of each chunk whether all of its rows are numbers."""
    rows = listened.rows.isfinite().all(-1).tolist()
    return [all(rows[start:end]) for start, end in pairwise(accumulate(listened.num_rows, initial=0))]


def _failed(step: TransduceStep, error: str, fault: Fault = "not_encoded") -> TaskFailed:
    return TaskFailed(step.request_id, error, fault)
