"""Nemotron ASR as `engine/models/base.py` asks for it: chunks of fed requests → tokens that are final.

A request's look-ahead and language hold for all of its chunks. The encoder is `encoder.py`, what makes tokens
of its rows `transducer.py`; the multilingual model has a product between them that depends on the language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import torch
from torch import Tensor

from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.weight_codes import GRIDS
from ....protocols.engine.messages import Features, InputChunk, Transduce
from ..base import ChunkBatch, ChunkInput, Emitted, EncoderOutput, KvShape, Listened, StepBatch
from ..weights import Shape, TensorReader
from .chunks import chunk_frames, is_whole
from .conformer import ConformerConfig, take_product
from .encoder import StreamChunk, StreamingEncoder
from .info import NemotronAsrInfo
from .transducer import Transducer, TransducerConfig

NO_CACHE: Final = KvShape(0, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagePrompt:
    """The numbers of the product that depends on the language."""

    num_prompts: int
    hidden_size: int

    def tensor_shapes(self, size: int) -> dict[str, Shape]:
        """Name and shape of every tensor, behind an encoder of this size."""
        return {
            "prompt_projector.linear_1.weight": (self.hidden_size, size + self.num_prompts),
            "prompt_projector.linear_1.bias": (self.hidden_size,),
            "prompt_projector.linear_2.weight": (size, self.hidden_size),
            "prompt_projector.linear_2.bias": (size,),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NemotronAsrConfig:
    """The numbers of one checkpoint."""

    encoder: ConformerConfig
    left_context: int
    """Rows before its chunk that a row attends to, at most."""
    transducer: TransducerConfig
    prompt: LanguagePrompt | None
    """None for a model of one language."""

    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of every tensor."""
        size = self.encoder.hidden_size
        shapes = self.encoder.tensor_shapes() | self.transducer.tensor_shapes(size)
        return shapes if self.prompt is None else shapes | self.prompt.tensor_shapes(size)

    def state_elements(self) -> int:
        """Numbers in the states of one stream."""
        c, t = self.encoder, self.transducer
        first, second, _ = c.mel_bins()
        rows = 2 * self.left_context + c.kernel_size - 1
        tails = c.num_mel_bins + (first + second) * c.channels
        return c.num_layers * rows * c.hidden_size + tails + (2 * t.num_layers + 1) * t.hidden_size


class NemotronAsrModel:
    """The weights of one checkpoint and the states of its streams. A `TransducingModel`, see `base.py`."""

    kv_shape = NO_CACHE
    rotary_axes = 1

    def __init__(
        self, info: NemotronAsrInfo, config: NemotronAsrConfig, weight_bytes: int, tensors: TensorReader
    ) -> None:
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self.weight_bytes = weight_bytes
        self._hidden_size = config.encoder.hidden_size
        self._prompt = config.prompt
        self._encoder = StreamingEncoder(config.encoder, config.left_context, info.lookaheads, tensors)
        if config.prompt is not None:
            self._take_prompt(config.encoder.hidden_size, tensors)
        self._project = take_product(tensors, "encoder_projector")
        self._transducer = Transducer(config.transducer, tensors)
        tensors.finish()

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """See `RecurrentModel`."""
        return [*self._encoder.make_states(num_slots), self._transducer.make_states(num_slots)]

    def check_chunk(self, task: Transduce, chunk: InputChunk, *, is_first: bool) -> None:
        """See `TransducingModel`: whole chunks of the request's look-ahead, unless it is the last one."""
        info, shape = self.info, chunk.features.shape
        if task.lookahead not in info.lookaheads:
            raise ValueError(
                f"lookahead is {task.lookahead}; allowed: {', '.join(map(str, sorted(info.lookaheads)))}"
            )
        num_conditions = 1 if self._prompt is None else self._prompt.num_prompts
        if not 0 <= task.condition < num_conditions:
            raise ValueError(f"condition is {task.condition}; allowed: 0 to {num_conditions - 1}")
        if len(shape) != 2 or shape[0] != info.num_mel_bins:
            raise ValueError(f"a chunk must be [{info.num_mel_bins} mel bins, frames], not {list(shape)}")
        if not chunk.is_last and not is_whole(shape[1], task.lookahead, is_first=is_first):
            sizes = [chunk_frames(task.lookahead, is_first=first) for first in (is_first, False)]
            raise ValueError(
                f"a chunk has {shape[1]} frames; allowed at lookahead {task.lookahead}: {sizes[0]}, and any "
                f"number of times {sizes[1]} more"
            )

    def example_chunk(self) -> tuple[Transduce, InputChunk]:
        """See `TransducingModel`."""
        lookahead = self.info.lookaheads[0]
        shape = (self.info.num_mel_bins, chunk_frames(lookahead, is_first=True))
        data = torch.zeros(shape).numpy().tobytes()
        return Transduce(lookahead), InputChunk(Features(shape, data), shape[1], is_first=True)

    def listen(self, batch: ChunkBatch) -> Listened:
        """See `TransducingModel`."""
        streams, slots = self._fed(batch)
        if not streams:
            nothing = torch.empty((0, self._hidden_size), dtype=self.dtype, device=self.device)
            return Listened(nothing, (0,) * len(batch.chunks))
        rows, found, update = self._encoder.encode(streams, slots)
        each = iter(found)
        num_rows = tuple(next(each) if chunk.num_valid else 0 for chunk in batch.chunks)
        return Listened(rows, num_rows, update)

    def emit(self, listened: Listened, batch: ChunkBatch) -> Emitted:
        """See `TransducingModel`."""
        rows, chunks = listened.rows, batch.chunks
        if self._prompt is not None:
            conditions = [chunk.task.condition for chunk in chunks]
            languages = torch.tensor(conditions, device=self.device).repeat_interleave(
                torch.tensor(listened.num_rows, device=self.device)
            )
            hidden = linear(rows, self._prompt_in, residual=self._languages.index_select(0, languages))
            rows = linear(hidden.relu_(), self._prompt_out)
        return self._transducer.emit(
            linear(rows, self._project),
            listened.num_rows,
            batch.slots,
            [chunk.is_first for chunk in chunks],
            [chunk.task.logprobs for chunk in chunks],
        )

    def commit(self, batch: ChunkBatch, listened: Listened, emitted: Emitted) -> None:
        """See `TransducingModel`."""
        streams, slots = self._fed(batch)
        if streams:
            self._encoder.commit(streams, slots, listened.update)
        self._transducer.commit(batch.slots, emitted.update)

    def _fed(self, batch: ChunkBatch) -> tuple[list[StreamChunk], Tensor]:
        """The chunks that have frames, and their slots. Without any an input ends where a chunk does, and no
        row is left."""
        fed = [index for index, chunk in enumerate(batch.chunks) if chunk.num_valid]
        streams = [_stream(batch.chunks[index]) for index in fed]
        if len(fed) == len(batch.chunks):
            return streams, batch.slots
        return streams, batch.slots.index_select(0, torch.tensor(fed, dtype=torch.int64, device=self.device))

    def _take_prompt(self, size: int, tensors: TensorReader) -> None:
        name = "prompt_projector.linear_1"
        weight, bias = tensors.take(f"{name}.weight"), tensors.take(f"{name}.bias")
        # A one-hot input adds a column.
        self._languages = (weight[:, size:].t() + bias).contiguous()
        self._prompt_in: LinearWeight = arrange_linear(
            weight[:, :size].contiguous(), None, GRIDS[tensors.quantization]
        )
        self._prompt_out = take_product(tensors, "prompt_projector.linear_2")

    def check_features(self, features: Features) -> None:
        """See `Model`; a fed request has no items."""
        raise ValueError(f"{self.info.name} takes audio that arrives in chunks only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `Model`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes audio that arrives in chunks only")

    def forward(self, batch: StepBatch, cache: Tensor) -> NoReturn:
        """Requests are fed: `listen`."""
        raise AssertionError("a transducer has no sequences")

    def logits(self, hidden: Tensor) -> NoReturn:
        """Tokens are `emit`'s."""
        raise AssertionError("a transducer has no sequences")


def _stream(chunk: ChunkInput) -> StreamChunk:
    frames = chunk.features[:, : chunk.num_valid]
    return StreamChunk(frames, chunk.task.lookahead, chunk.num_rows_before, chunk.is_first)
