"""Decode steps recorded once per batch size and replayed: the device is handed one graph, not hundreds of
kernels one by one.

A recorded step reads its batch from tensors that stay where they are. A batch is padded to the next recorded
size with rows that write to a spare block of the cache, which no sequence owns and whose content nobody
reads. `engine/execution/runner.py` decides nothing of this: it asks `can_replay`, and runs other steps as
always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

import torch
from torch import Tensor

from ...kernels.attention.paged_attention import PagedBatch
from ...kernels.gpu.jit import has_triton
from ...kernels.transfer import to_device
from ...protocols.engine.messages import Sample
from ..models.base import Model, StepBatch
from .step import FedSequence, Limits, step_batch

Work = Callable[[], object]

_FINE_UP_TO: Final = 16
"""Recorded batch sizes double up to here, then grow by as much: padding costs little beside the weights."""
_CPU: Final = torch.device("cpu")


class GraphBackend(Protocol):
    """Records device work that reads and writes the same memory each time."""

    def record(self, work: Work) -> Work:
        """Do `work` at least once, and give what does it again on whatever then lies in that memory."""


class CudaGraphs:
    """Records CUDA graphs, all in one pool of memory: no two of them run at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graph: torch.cuda.CUDAGraph | None = None

    def record(self, work: Work) -> Work:
        """See `GraphBackend`."""
        with torch.cuda.device(self._device):
            # Compilers and libraries do what they do once outside of the recording, and on another stream.
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                work()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            pool = None if self._graph is None else self._graph.pool()
            # Other models' threads may go on using the device meanwhile.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                work()
        self._graph = graph
        return graph.replay


def batch_sizes(most: int) -> tuple[int, ...]:
    """Sizes recorded for batches of up to `most` rows: 1, 2, 4, 8, 16, 32, 48, … and `most` itself."""
    sizes = [size for size in (1, 2, 4, 8) if size < most]
    return (*sizes, *range(_FINE_UP_TO, most, _FINE_UP_TO), most)


class DecodeGraphs:
    """The recorded decode steps of one model on one cache."""

    def __init__(
        self,
        model: Model,
        cache: Tensor,
        limits: Limits,
        max_rows: int,
        backend: GraphBackend | Literal[True],
    ) -> None:
        """The last block of `cache` is the spare one: `limits.num_blocks` are in use before it.

        `backend` may be True for the device's own; raises ValueError if it has none.
        """
        assert cache.shape[1] == limits.num_blocks + 1
        self._model, self._cache, self._limits = model, cache, limits
        self._backend = _own_backend(cache) if backend is True else backend
        self._sizes = batch_sizes(max_rows)
        self._batches = _StaticBatches(limits, max_rows, model.device)
        self._logits = torch.empty((max_rows, limits.vocab_size), dtype=torch.float32, device=model.device)
        self._replays: dict[int, Work] = {}

    def can_replay(self, fed: Sequence[FedSequence]) -> bool:
        """Whether a step is one row for each of a few sequences, and nothing is wanted but its logits."""
        return len(fed) <= self._sizes[-1] and all(
            len(each.token_ids) == 1
            and each.step.answers
            and isinstance(each.state.task, Sample)
            and not each.step.media
            and each.step.probe is None
            and each.state.adapter is None
            for each in fed
        )

    @torch.inference_mode()
    def record_all(self) -> None:
        """Record every size. The largest comes first: the others fit into its memory."""
        for size in reversed(self._sizes):
            self._batches.fill((), size)
            self._replay_of(size)

    def logits(self, fed: Sequence[FedSequence]) -> Tensor:
        """float32 [sequences, vocab] behind the fed rows, in memory that the next step reuses."""
        size = next(size for size in self._sizes if size >= len(fed))
        self._batches.fill(fed, size)
        self._replay_of(size)()
        return self._logits[: len(fed)]

    def _replay_of(self, size: int) -> Work:
        if size not in self._replays:
            batch, out = self._batches.batch(size), self._logits[:size]

            def work() -> None:
                out.copy_(self._model.logits(self._model.forward(batch, self._cache)))

            self._replays[size] = self._backend.record(work)
        return self._replays[size]


class _StaticBatches:
    """Batches of one row per sequence; those of all sizes begin at the same addresses."""

    def __init__(self, limits: Limits, max_rows: int, device: torch.device) -> None:
        self._limits = limits
        widest = -(-limits.max_context // limits.block_size)
        positions = (max_rows,) if limits.rotary_axes == 1 else (limits.rotary_axes, max_rows)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._token_ids = zeros(max_rows)
        self._positions = zeros(*positions)
        self._slots = [zeros(max_rows) for _ in limits.groups]
        self._tables = [zeros(max_rows, widest, dtype=torch.int32) for _ in limits.groups]
        self._lengths = zeros(max_rows, dtype=torch.int32)
        self._starts = torch.arange(max_rows + 1, dtype=torch.int32, device=device)

    def batch(self, size: int) -> StepBatch:
        """The first `size` rows as a step."""
        paged, *more_paged = (
            PagedBatch(
                block_size=self._limits.block_size,
                block_tables=tables[:size],
                query_starts=self._starts[: size + 1],
                context_lengths=self._lengths[:size],
                write_slots=slots[:size],
                num_queries=(1,) * size,
            )
            for tables, slots in zip(self._tables, self._slots, strict=True)
        )
        return StepBatch(
            token_ids=self._token_ids[:size],
            positions=self._positions[..., :size],
            paged=paged,
            more_paged=tuple(more_paged),
        )

    def fill(self, fed: Sequence[FedSequence], size: int) -> None:
        """Put a step into the first rows; the others up to `size` see and write the spare block alone."""
        step = step_batch(fed, self._limits, {}, _CPU)
        spare = self._limits.num_blocks
        _put(self._token_ids[:size], step.token_ids, 0)
        _put(self._positions[..., :size], step.positions, 0)
        _put(self._lengths[:size], step.paged.context_lengths, 1)
        width = max(step.paged.block_tables.shape[1], 1)
        for paged, tables, slots in zip(step.groups, self._tables, self._slots, strict=True):
            _put(slots[:size], paged.write_slots, spare * self._limits.block_size)
            _put(tables[:size, :width], paged.block_tables, spare)


def _put(target: Tensor, values: Tensor, padding: int) -> None:
    """Host values into the first places of each axis, `padding` into the others."""
    padded = torch.full(target.shape, padding, dtype=target.dtype)
    padded[tuple(slice(size) for size in values.shape)] = values
    target.copy_(to_device(padded, target.device))


def _own_backend(cache: Tensor) -> GraphBackend:
    if not has_triton(cache):
        raise ValueError("CUDA graphs need a CUDA device and triton")
    return CudaGraphs(cache.device)
