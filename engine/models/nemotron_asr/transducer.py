"""The RNN transducer behind the encoder: rows → tokens, greedily, for many streams at once.

A predictor (an LSTM over the tokens so far) and a row join to the logits of one decision: blank goes on to
the next row, anything else is a token of this row, at most so many a row. On blank the predictor stays as it
is, so several rows are joined with it at a time, and only those up to the first token count. A stream's state
is its predictor's. Source: https://arxiv.org/abs/1211.3711; layout follows transformers' `ParakeetForRNNT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.logits import exact_head_logits
from ....kernels.linear.weight_codes import GRIDS, HEAD_GRID
from ....protocols.errors import ModelLoadError
from ..base import Emitted
from ..dense.config import check_size
from ..weights import Shape, TensorReader
from .conformer import take_product

_ROWS_AT_ONCE: Final = 8
"""Rows of a stream that are joined with one state of its predictor: speech has some three to a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransducerConfig:
    """The numbers of predictor and joint."""

    vocab_size: int
    """Blank is one of them."""
    blank: int
    start: int
    """The token in front of all tokens."""
    num_layers: int
    hidden_size: int
    most_symbols: int
    """Tokens of one row, at most."""

    def tensor_shapes(self, encoder_size: int) -> dict[str, Shape]:
        """Name and shape of every tensor."""
        d, vocab = self.hidden_size, self.vocab_size
        shapes: dict[str, Shape] = {"decoder.embedding.weight": (vocab, d)}
        for layer in range(self.num_layers):
            for side in ("ih", "hh"):
                shapes[f"decoder.lstm.weight_{side}_l{layer}"] = (4 * d, d)
                shapes[f"decoder.lstm.bias_{side}_l{layer}"] = (4 * d,)
        products: dict[str, Shape] = {
            "decoder.decoder_projector": (d, d),
            "joint.head": (vocab, d),
            "encoder_projector": (d, encoder_size),
        }
        for name, shape in products.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
        return shapes


def transducer_config(config: PreTrainedConfig, start: int | None, path: Path) -> TransducerConfig:
    """Check a config. Raises ModelLoadError naming the field."""
    if config.hidden_act != "relu":
        raise ModelLoadError(f"{path}: hidden_act {config.hidden_act!r} is not relu")
    vocab_size = check_size(config, "vocab_size", path, minimum=2)
    blank = config.blank_token_id
    start = blank if start is None else start
    for field, value in (("blank_token_id", blank), ("decoder_start_token_id", start)):
        if type(value) is not int or not 0 <= value < vocab_size:
            raise ModelLoadError(f"{path}: {field} is {value!r}, not a token id below {vocab_size}")
    return TransducerConfig(
        vocab_size=vocab_size,
        blank=blank,
        start=start,
        num_layers=check_size(config, "num_decoder_layers", path),
        hidden_size=check_size(config, "decoder_hidden_size", path),
        most_symbols=check_size(config, "max_symbols_per_step", path),
    )


class Transducer:
    """Predictor and joint of one checkpoint, and the predictors' states of its streams."""

    def __init__(self, config: TransducerConfig, tensors: TensorReader) -> None:
        self.config = config
        self.device, self.dtype = tensors.device, tensors.dtype
        self._tokens = tensors.take("decoder.embedding.weight")
        self._cells = [_take_cell(tensors, layer) for layer in range(config.num_layers)]
        self._out = take_product(tensors, "decoder.decoder_projector")
        self._head_rows = tensors.take("joint.head.weight")
        self._head_bias = tensors.take("joint.head.bias")
        grid = None if tensors.quantization == "none" else HEAD_GRID
        self._head = arrange_linear(self._head_rows, None, grid)
        # Behind the start token, one stream; a slot of zeros stands for it.
        nothing = torch.zeros((1, *self.state_shape()), dtype=self.dtype, device=self.device)
        self._start = self._predicted(nothing, [config.start])
        self._states = torch.empty(0)

    def state_shape(self) -> tuple[int, int]:
        """Of a slot: hidden and cell states of the layers, then the prediction."""
        return 2 * self.config.num_layers + 1, self.config.hidden_size

    def make_states(self, num_slots: int) -> Tensor:
        """Zeros for so many slots."""
        shape = (num_slots, *self.state_shape())
        self._states = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return self._states

    def emit(
        self,
        rows: Tensor,
        num_rows: Sequence[int],
        slots: Tensor,
        are_first: Sequence[bool],
        want_logprobs: Sequence[bool],
    ) -> Emitted:
        """Tokens of projected rows [rows, hidden] of streams that have so many each. `are_first`: the stream
        begins. The states behind are the `update`."""
        states = self._states.index_select(0, slots)
        begin = torch.tensor(are_first, device=self.device)
        states = torch.where(begin[:, None, None], self._start, states)
        spans = list(pairwise(accumulate(num_rows, initial=0)))
        at = [start for start, _ in spans]
        found: list[list[tuple[int, int, float]]] = [[] for _ in spans]
        num_here = [0] * len(spans)
        while True:
            windows = [
                (index, at[index], min(at[index] + _ROWS_AT_ONCE, end))
                for index, (_, end) in enumerate(spans)
                if at[index] < end
            ]
            if not windows:
                break
            logits = self._joined(rows, states, windows)
            best = logits.argmax(1).tolist()
            first, emitting, places = 0, [], []
            for index, start, end in windows:
                tokens = best[first : first + end - start]
                num_blank = next((n for n, token in enumerate(tokens) if token != self.config.blank), None)
                if num_blank is None:
                    at[index], num_here[index] = end, 0
                else:
                    if num_blank:
                        at[index], num_here[index] = start + num_blank, 0
                    found[index].append((tokens[num_blank], at[index] - spans[index][0], 0.0))
                    emitting.append(index)
                    places.append(first + num_blank)
                    num_here[index] += 1
                    if num_here[index] == self.config.most_symbols:
                        at[index], num_here[index] = at[index] + 1, 0
                first += end - start
            if emitting:
                self._note_logprobs(logits, places, emitting, found, want_logprobs)
                which = torch.tensor(emitting, device=self.device)
                tokens = [found[index][-1][0] for index in emitting]
                states.index_copy_(0, which, self._predicted(states.index_select(0, which), tokens))
        return Emitted(
            token_ids=tuple(tuple(token for token, _, _ in each) for each in found),
            rows=tuple(tuple(row for _, row, _ in each) for each in found),
            logprobs=tuple(
                tuple(logprob for _, _, logprob in each) if wanted else ()
                for each, wanted in zip(found, want_logprobs, strict=True)
            ),
            update=states,
        )

    def commit(self, slots: Tensor, update: Tensor) -> None:
        """Make the states in `slots` those of an `Emitted.update`."""
        self._states.index_copy_(0, slots, update)

    def _joined(self, rows: Tensor, states: Tensor, windows: Sequence[tuple[int, int, int]]) -> Tensor:
        """float32 logits of the rows of windows (stream, start, end), each with its stream's prediction."""
        places = [row for _, start, end in windows for row in range(start, end)]
        streams = [index for index, start, end in windows for _ in range(start, end)]
        predictions = states[:, -1].index_select(0, torch.tensor(streams, device=self.device))
        joined = (rows.index_select(0, torch.tensor(places, device=self.device)) + predictions).relu_()
        return exact_head_logits(joined, self._head, self._head_rows) + self._head_bias

    def _note_logprobs(
        self,
        logits: Tensor,
        places: Sequence[int],
        emitting: Sequence[int],
        found: list[list[tuple[int, int, float]]],
        want_logprobs: Sequence[bool],
    ) -> None:
        """Of the newest token of each stream that emits and wants them."""
        if not any(want_logprobs[index] for index in emitting):
            return
        chosen = logits.index_select(0, torch.tensor(places, device=self.device)).log_softmax(1).amax(1)
        for index, logprob in zip(emitting, chosen.tolist(), strict=True):
            found[index][-1] = (*found[index][-1][:2], logprob)

    def _predicted(self, states: Tensor, tokens: Sequence[int]) -> Tensor:
        """States [streams, …] behind one more token each."""
        x = self._tokens.index_select(0, torch.tensor(tokens, device=self.device))
        behind: list[Tensor] = []
        for layer, cell in enumerate(self._cells):
            hidden, memory = states[:, 2 * layer], states[:, 2 * layer + 1]
            gates = linear(torch.cat([x, hidden], 1), cell).float()
            keep_in, keep, new, show = gates.chunk(4, 1)
            memory = keep.sigmoid() * memory.float() + keep_in.sigmoid() * new.tanh()
            x = (show.sigmoid() * memory.tanh()).to(self.dtype)
            behind += [x, memory.to(self.dtype)]
        return torch.stack([*behind, linear(x, self._out)], 1)


def _take_cell(tensors: TensorReader, layer: int) -> LinearWeight:
    """Of inputs and hidden states side by side: input, forget, cell and output gates."""
    sides = [f"decoder.lstm.{{}}_{side}_l{layer}" for side in ("ih", "hh")]
    weight = torch.cat([tensors.take(side.format("weight")) for side in sides], 1)
    inputs, hidden = (tensors.take(side.format("bias")) for side in sides)
    return arrange_linear(weight, inputs + hidden, GRIDS[tensors.quantization])
