"""What the runner asks of a model, whatever its family: encode items, run one ragged step, give logits.

A model knows tensors and its weights; no requests, no sampling, no slots. `engine/execution/runner.py` drives
it, `engine/models/registry.py` makes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import torch
from torch import Tensor

from ...kernels.attention.kv_quantization import stored_size
from ...kernels.attention.paged_attention import PagedBatch
from ...kernels.linear.row_adapters import AdaptedRows
from ...protocols.engine.messages import FLOAT_BYTES, Align, Features, InputChunk, Transduce
from ..planning.kv.groups import CacheLayout, layout_of
from ..planning.kv.specs import ChunkedLocal, FullAttention, Latent, LayerSpec, SlidingWindow
from .info import ModelInfo


def is_whole(features: Features) -> bool:
    """Whether these have as many bytes as their shape says."""
    return len(features.data) == math.prod(features.shape) * FLOAT_BYTES[features.encoded or "float32"]


def values_of(features: Features) -> Tensor:
    """The numbers of whole features in their shape."""
    dtype: torch.dtype = getattr(torch, features.encoded or "float32")
    # A copy, as torch warns of buffers that cannot be written to.
    return torch.frombuffer(bytearray(features.data), dtype=dtype).view(features.shape)


class EncoderOutput(Protocol):
    """What a model keeps of one encoded item."""

    @property
    def num_bytes(self) -> int:
        """Bytes held on the device."""

    @property
    def num_rows(self) -> int:
        """Prompt rows it can embed (`EncoderItem.num_tokens`); 0 for one that is attended to."""


@dataclass(frozen=True, slots=True)
class KvShape:
    """What layers keep of the positions they attend to: a key and a value of [num_kv_heads, head_dim], or a
    latent, which is both."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    specs: tuple[LayerSpec, ...] = ()
    """Of each layer which positions, sizes left out (`engine/planning/kv/specs.py`); empty: all attend to
    all."""
    heads: tuple[tuple[int, int], ...] = ()
    """Of each layer its key-value heads and their size, where layers differ in them; empty: those above."""
    num_vectors: int = 2
    """That each head keeps of a position: key and value, or 1, a latent."""

    def layout(self, dtype: torch.dtype) -> CacheLayout:
        """Which layers share a block table, in a cache with elements of `dtype`, which may be
        `kv_codes.CODED`."""
        everything = Latent() if self.num_vectors == 1 else FullAttention()
        specs = self.specs or (everything,) * self.num_layers
        return layout_of(
            [
                _sized(spec, self.num_vectors * num_heads * stored_size(dim, dtype) * dtype.itemsize)
                for spec, (num_heads, dim) in zip(specs, self.heads_of_layers, strict=True)
            ]
        )

    @property
    def heads_of_layers(self) -> tuple[tuple[int, int], ...]:
        """Of each layer its key-value heads and their size."""
        return self.heads or ((self.num_kv_heads, self.head_dim),) * self.num_layers

    def cache_shape(self, num_blocks: int, block_size: int, dtype: torch.dtype) -> tuple[int, ...]:
        """Of a cache of so many blocks. Layers of equal heads lie one after the other, as many as a block has
        a part of: all of them where they share one table. Of others a block lies in one piece."""
        token_size = self.layout(dtype).token_bytes // dtype.itemsize
        if self.heads:
            return (1, num_blocks, 1, 1, block_size, token_size)
        size = stored_size(self.head_dim, dtype)
        num_planes = token_size // max(self.num_vectors * self.num_kv_heads * size, 1)
        return (num_planes, num_blocks, self.num_vectors, self.num_kv_heads, block_size, size)

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one position of a block in a cache of `dtype`."""
        return math.prod(self.cache_shape(1, 1, dtype)) * dtype.itemsize


def attention_spec(window: int | None, max_context: int, *, is_latent: bool = False) -> LayerSpec:
    """Of a layer that sees so many positions, its own included (None: all). A window that is no shorter than
    the context is none."""
    if window is not None and window < max_context:
        return SlidingWindow(window)
    return Latent() if is_latent else FullAttention()


def _sized(spec: LayerSpec, num_bytes: int) -> LayerSpec:
    if isinstance(spec, FullAttention | SlidingWindow | ChunkedLocal):
        return msgspec.structs.replace(spec, token_bytes=num_bytes)
    return spec


@dataclass(frozen=True, slots=True)
class MediaEmbedding:
    """Rows `first_row` to `first_row + num_rows` of the step embed rows `offset`, … of `output`: in place of
    their tokens' embeddings or added to them, which a family's models do always or never."""

    output: EncoderOutput
    first_row: int
    num_rows: int
    offset: int


@dataclass(frozen=True, slots=True)
class CrossAttendingRows:
    """Consecutive rows of the step that cross-attend to one encoding. All rows are covered, in order."""

    output: EncoderOutput
    num_rows: int
    span: tuple[int, int] | None = None
    """Of its positions, from the first to before the second; None: all."""


@dataclass(frozen=True, slots=True)
class WantedRows:
    """The rows of a step whose hidden states are needed: `rows` int64 [some], the last ones of each
    sequence; `paged` is the step of them alone. The others are fed for their keys and values."""

    rows: Tensor
    paged: tuple[PagedBatch, ...]
    """One for each group of layers."""


@dataclass(frozen=True, slots=True)
class RowContext:
    """What the rows of a step belong to beside their tokens."""

    state_slots: Tensor | None = None
    """int64 [sequences] of a model with states: where each sequence's are."""
    adapted: tuple[AdaptedRows, ...] = ()
    """Rows with adapters; the runner has `linear` apply them (`kernels/linear/row_adapters.py`)."""
    prompt_lengths: tuple[int, ...] = ()
    """Tokens of each sequence's prompt, of a model that `sees_whole_prompts`; the rest was generated."""


NO_CONTEXT: Final = RowContext()


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One ragged step: all sequences' fed tokens, one after the other.

    `token_ids` is int64 [rows]; `positions` is int64 [rows], or [axes, rows] if the model has several
    `rotary_axes`.
    `paged` is the step in the first group of layers, `more_paged` in the others: they differ in tables and
    slots (`engine/planning/kv/groups.py`).
    """

    token_ids: Tensor
    positions: Tensor
    paged: PagedBatch
    media: tuple[MediaEmbedding, ...] = ()
    cross_attending: tuple[CrossAttendingRows, ...] = ()
    wanted: WantedRows | None = None
    """None: all of them."""
    rows: RowContext = NO_CONTEXT
    more_paged: tuple[PagedBatch, ...] = ()

    @property
    def groups(self) -> tuple[PagedBatch, ...]:
        """The step in each group of layers."""
        return (self.paged, *self.more_paged)


class Model(Protocol):
    """One family's forward passes over checked weights. Called from one thread, in inference mode."""

    device: torch.device
    dtype: torch.dtype
    kv_shape: KvShape
    rotary_axes: int
    """3 for a model whose rotary positions are (time, height, width), 1 for one whose positions are tokens'
    indices; a family may have others."""
    weight_bytes: int
    """Bytes of weights a decode step reads: what the number of threads is chosen by."""

    @property
    def info(self) -> ModelInfo:
        """What others may know of it."""

    def check_features(self, features: Features) -> None:
        """Raise ValueError, with a message for the client, if `encode` cannot take these."""

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """Encode checked items; batched where that pays. The result of one does not depend on the others
        beyond rounding."""

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """Hidden states [rows, hidden] of prompts and answers alike; writes the rows' keys and values into
        `cache`, which is of `KvShape.cache_shape`: [layers of a block, blocks, 2, kv_heads, block_size,
        head_dim], or coded (`kernels/attention/kv_quantization.py`). Where a layer's lie in it, and by which
        of the step's groups, is in `CacheLayout.places`. Rows that nobody looks at may hold anything."""

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab] of hidden states as `forward` gives them."""


@runtime_checkable
class AligningModel(Protocol):
    """A model that can say when each token was spoken (Whisper)."""

    def align(self, task: Align, token_ids: Sequence[int], output: EncoderOutput) -> tuple[int, ...]:
        """`TokensAligned.boundaries`; raises ValueError with a message for the client."""


@runtime_checkable
class RecurrentModel(Protocol):
    """A model some of whose layers keep a state of each sequence. `forward` reads and writes those at
    `RowContext.state_slots`; a step that failed leaves them as they may be."""

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """The states of so many slots, which are the first dimension of each tensor; zeros are the state in
        front of a sequence. The model keeps the tensors, and others clear and copy slots of them."""


@dataclass(frozen=True, slots=True)
class ChunkInput:
    """The chunk of one request in a step of fed requests."""

    features: Tensor
    """float32 on the model's device, in the shape of `InputChunk.features`: [num_mel_bins, num_frames]."""
    num_valid: int
    """Frames that are input; those behind are padding, in a last chunk only. 0 only in a last chunk that is
    not the first: what the states hold of frames that completed no row is then to be ended."""
    is_first: bool
    """The slot holds zeros: the state in front of all input."""
    is_last: bool
    task: Transduce
    num_rows_before: int
    """Rows that `listen` gave of the chunks before this one."""


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """One ragged step of fed requests: chunks of any length, age and look-ahead, one a request."""

    chunks: tuple[ChunkInput, ...]
    slots: Tensor
    """int64 [chunks] on the device: where each request's states are, all different."""


@dataclass(frozen=True, slots=True)
class Listened:
    """What `listen` made of a step."""

    rows: Tensor
    """[rows, width] in the model's dtype: the chunks' rows, one chunk after the other, without padding."""
    num_rows: tuple[int, ...]
    """How many rows each chunk has; none if it completes no frame."""
    update: Any = None
    """The model's own: what `commit` needs to know."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """What `emit` made of the rows, a tuple for each chunk."""

    token_ids: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    """Of each token the row of its chunk that it was given at, from 0, never decreasing."""
    logprobs: tuple[tuple[float, ...], ...]
    """Natural logarithms, one for each token; of chunks whose task does not want them, none."""
    update: Any = None
    """The model's own: what `commit` needs to know."""
    ends: tuple[tuple[int, ...], ...] = ()
    """Of each token the row behind the last one that says it; no tuples where tokens have a single row."""


@runtime_checkable
class TransducingModel(RecurrentModel, Protocol):
    """A model whose requests are fed while they run. A step is `listen`, `emit`, then `commit`.

    States are tensors of slots (`make_states`) which the model keeps. Others clear a slot to zeros before a
    request's first chunk and copy slots for forks, so everything that a request's next chunk depends on lies
    in its slot, or follows from `ChunkInput.num_rows_before`. A chunk's answer does not depend on the other
    chunks of the step beyond rounding.

    `listen` and `emit` may run out of memory, and are then called again with fewer chunks of the step. So
    they change nothing that another call could read: new states go into `update`, or to a place of the slot
    that is read only after `commit` (such as the free part of a ring buffer whose end follows from
    `num_rows_before`). `ModelInfo.input_frames_per_row` is above 0.
    """

    device: torch.device

    @property
    def info(self) -> ModelInfo:
        """What others may know of it."""

    def check_chunk(self, task: Transduce, chunk: InputChunk, *, is_first: bool) -> None:
        """Raise ValueError, with a message for the client, if `listen` cannot take this chunk, or the model
        has no such look-ahead or condition."""

    def example_chunk(self) -> tuple[Transduce, InputChunk]:
        """What a request may begin with: the engine runs it once before it takes requests."""

    def listen(self, batch: ChunkBatch) -> Listened:
        """Encode the chunks, each with what its slot holds of those before."""

    def emit(self, listened: Listened, batch: ChunkBatch) -> Emitted:
        """The tokens of the rows. Rows of a chunk that are not finite may give any; their number is bounded
        for each row."""

    def commit(self, batch: ChunkBatch, listened: Listened, emitted: Emitted) -> None:
        """Make the states in `batch.slots` those behind the chunks. Needs no memory to speak of."""


@runtime_checkable
class NormingModel(Protocol):
    """A model whose `logits` begins with the decoder's last norm: `forward` gives what is in front of it."""

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The decoder's last hidden states [rows, hidden], of what `forward` gives."""


@runtime_checkable
class BidirectionalModel(Protocol):
    """A model whose tokens attend to what follows them, too: its prompts are run as a whole."""

    def hidden_states(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """The last layer's states of each token: [prompts, longest, width], with padding behind the shorter
        ones. The result of one prompt does not depend on the others beyond rounding."""
