"""Parakeet CTC as `engine/models/base.py` asks for it: a fed request has one chunk, a whole window.

A token is a run of rows, 80 ms each, whose likeliest label is the same and not blank. Nothing lasts behind a
window, so a slot's state is empty in all but form.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor
from transformers import ParakeetCTCConfig

from ....kernels.linear.linear import arrange_linear
from ....kernels.linear.logits import exact_head_logits
from ....kernels.linear.weight_codes import HEAD_GRID
from ....protocols.engine.messages import Features, InputChunk, Transduce
from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import ChunkBatch, Emitted, EncoderOutput, KvShape, Listened, StepBatch
from ..dense.config import check_size, parse_config
from ..nemotron_asr.chunks import FRAMES_PER_ROW
from ..nemotron_asr.conformer import ConformerConfig, conformer_config
from ..nemotron_asr.source import product_bytes
from ..nemotron_asr.text import TransducerText
from ..source import ModelSource, Opening, tensor_reader
from ..weights import TensorReader
from .encoder import WindowEncoder
from .info import WINDOW_FRAMES, ParakeetInfo
from .side import side_of

_NO_CACHE = KvShape(0, 1, 1)
_HEAD = "ctc_head"
T = TypeVar("T", int, float)


class LabelRun(NamedTuple):
    """Rows in a row with one label, which is a token."""

    label: int
    start: int
    end: int
    """Behind the last row."""
    logprob: float
    """Of the surest of the rows."""


class ParakeetCtcModel:
    """The weights of one checkpoint. A `TransducingModel`, see `base.py`."""

    kv_shape = _NO_CACHE
    rotary_axes = 1

    def __init__(
        self,
        info: ParakeetInfo,
        config: ConformerConfig,
        blank: int,
        weight_bytes: int,
        tensors: TensorReader,
    ) -> None:
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self.weight_bytes = weight_bytes
        self._blank = blank
        self._encoder = WindowEncoder(config, -(-info.window_frames // FRAMES_PER_ROW), tensors)
        self._head_rows = tensors.take(f"{_HEAD}.weight").flatten(1)
        self._head_bias = tensors.take(f"{_HEAD}.bias")
        grid = None if tensors.quantization == "none" else HEAD_GRID
        self._head = arrange_linear(self._head_rows, None, grid)
        tensors.finish()

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """See `RecurrentModel`."""
        return [torch.zeros((num_slots, 1), dtype=self.dtype, device=self.device)]

    def check_chunk(self, task: Transduce, chunk: InputChunk, *, is_first: bool) -> None:
        """See `TransducingModel`: one window is all of a request."""
        info, shape = self.info, chunk.features.shape
        if task.lookahead or task.condition:
            raise ValueError(
                f"lookahead is {task.lookahead} and condition {task.condition}; allowed: 0, since a window "
                "is seen as a whole and its language cannot be named"
            )
        if len(shape) != 2 or shape[0] != info.num_mel_bins:
            raise ValueError(f"a window must be [{info.num_mel_bins} mel bins, frames], not {list(shape)}")
        if not (is_first and chunk.is_last):
            raise ValueError("a request has one chunk, which is its last one: this model needs whole windows")
        if shape[1] > info.window_frames:
            raise ValueError(f"a window has {shape[1]} frames; allowed: up to {info.window_frames}")

    def example_chunk(self) -> tuple[Transduce, InputChunk]:
        """See `TransducingModel`."""
        shape = (self.info.num_mel_bins, 100)
        data = torch.zeros(shape).numpy().tobytes()
        return Transduce(), InputChunk(Features(shape, data), shape[1], is_last=True, is_first=True)

    def listen(self, batch: ChunkBatch) -> Listened:
        """See `TransducingModel`."""
        return Listened(*self._encoder.encode([each.features[:, : each.num_valid] for each in batch.chunks]))

    def emit(self, listened: Listened, batch: ChunkBatch) -> Emitted:
        """See `TransducingModel`."""
        logits = exact_head_logits(listened.rows, self._head, self._head_rows) + self._head_bias
        logprobs, labels = logits.log_softmax(1).max(1)
        found = [
            runs_of(part_labels, part_logprobs, self._blank)
            for part_labels, part_logprobs in zip(
                _parts(labels.tolist(), listened.num_rows),
                _parts(logprobs.tolist(), listened.num_rows),
                strict=True,
            )
        ]
        return Emitted(
            token_ids=tuple(tuple(run.label for run in runs) for runs in found),
            rows=tuple(tuple(run.start for run in runs) for runs in found),
            logprobs=tuple(
                tuple(run.logprob for run in runs) if chunk.task.logprobs else ()
                for runs, chunk in zip(found, batch.chunks, strict=True)
            ),
            ends=tuple(tuple(run.end for run in runs) for runs in found),
        )

    def commit(self, batch: ChunkBatch, listened: Listened, emitted: Emitted) -> None:
        """See `TransducingModel`; nothing lasts."""

    def check_features(self, features: Features) -> None:
        """See `Model`; a fed request has no items."""
        raise ValueError(f"{self.info.name} takes audio as the chunk of a request only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `Model`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes audio as the chunk of a request only")

    def forward(self, batch: StepBatch, cache: Tensor) -> NoReturn:
        """Requests are fed: `listen`."""
        raise AssertionError("a CTC model has no sequences")

    def logits(self, hidden: Tensor) -> NoReturn:
        """Tokens are `emit`'s."""
        raise AssertionError("a CTC model has no sequences")


def runs_of(labels: Sequence[int], logprobs: Sequence[float], blank: int) -> list[LabelRun]:
    """The tokens of a window, of each row's likeliest label and its log-probability."""
    found: list[LabelRun] = []
    start = 0
    for label, rows in groupby(labels):
        end = start + sum(1 for _ in rows)
        if label != blank:
            found.append(LabelRun(label, start, end, max(logprobs[start:end])))
        start = end
    return found


def _parts(values: Sequence[T], sizes: Sequence[int]) -> list[Sequence[T]]:
    """Values of all windows, window by window."""
    return [values[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def open_source(opening: Opening) -> ModelSource:
    """Check a Parakeet CTC folder: its configs, its tokenizer and the names of its tensors."""
    folder, path = opening.folder, opening.folder / "config.json"
    parsed = parse_config(opening.config, ParakeetCTCConfig.from_dict, path)
    config = conformer_config(parsed.encoder_config, path, is_causal=False)
    vocab_size, blank = check_size(parsed, "vocab_size", path, minimum=2), _blank(parsed, path)
    info = ParakeetInfo(
        name=opening.name,
        folder=folder,
        family="parakeet",
        vocab_size=vocab_size,
        max_context=1,  # no prompt is taken
        input_frames_per_row=FRAMES_PER_ROW,
        num_mel_bins=config.num_mel_bins,
        state_bytes=opening.dtype.itemsize,  # a slot's state, though empty, is one number
        whole_input_rows=WINDOW_FRAMES // FRAMES_PER_ROW,
    )
    shapes = config.tensor_shapes()
    shapes |= {f"{_HEAD}.weight": (vocab_size, config.hidden_size, 1), f"{_HEAD}.bias": (vocab_size,)}
    tensors = tensor_reader(opening, shapes)
    weight_bytes = product_bytes(opening, shapes) - tensors.saved_bytes
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=_NO_CACHE,
        weight_bytes=weight_bytes,
        side=side_of(TransducerText(TextTokenizer.from_folder(folder))),
        load=lambda: ParakeetCtcModel(info, config, blank, weight_bytes, tensors.read()),
    )


def _blank(config: ParakeetCTCConfig, path: Path) -> int:
    blank = config.pad_token_id
    if type(blank) is not int or not 0 <= blank < config.vocab_size:
        raise ModelLoadError(f"{path}: pad_token_id is {blank!r}, not a token id below {config.vocab_size}")
    return blank
