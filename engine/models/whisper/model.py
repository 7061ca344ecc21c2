"""Whisper as `engine/models/base.py` asks for it: encode windows, run one ragged step, align tokens.

A window is kept as the cross-attention keys and values of all decoder layers, projected once. Layout
follows transformers' `modeling_whisper.py` (keys have no bias, norms come first). Knows no requests; see
`engine/execution/runner.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ....kernels.attention.cross_attention import CrossSpan, cross_attention, cross_scores
from ....kernels.attention.dense_attention import attend_items, attention_choice
from ....kernels.attention.kv_cache import write_kv
from ....kernels.attention.kv_quantization import CODED, MULTIPLE, codes_between, stored_size
from ....kernels.attention.paged_attention import PagedSequence, paged_attention, paged_batch
from ....kernels.host_memory import recycled
from ....kernels.layers import CrossParts, Heads, written_down
from ....kernels.linear.fused_input import prepared
from ....kernels.linear.linear import LinearWeight, arrange_linear, linear, linear_planes, pack_linear
from ....kernels.linear.logits import exact_head_logits
from ....kernels.linear.weight_codes import HEAD_GRID
from ....protocols.engine.messages import Align, Features
from ..base import CrossAttendingRows, EncoderOutput, StepBatch, is_whole, values_of
from ..layer import attended, fed_forward, in_range, projected, take_biased, take_layer, take_norm
from ..weights import TensorReader
from .alignment import token_boundaries
from .checkpoint import WhisperArchitecture, step_bytes
from .info import WhisperInfo

_MAX_WINDOWS_PER_PASS = 4
"""Full ones: bounds the activations. On CPUs 1 to 8 cost the same each (bench_engine.py's shape)."""

_ALIGNMENT_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class CrossKeyValues:
    """What one encoded window is to the decoder: keys and values [layers, 2, heads, positions, dim], or their
    codes (`kernels/attention/kv_quantization.py`)."""

    memory: Tensor
    num_positions: int

    def part(self, first: int, last: int) -> CrossKeyValues:
        """A copy of positions `first` to before `last`, at least one; of codes, from a sixteenth one on."""
        first = min(max(first, 0), self.num_positions - 1)
        last = min(max(last, first + 1), self.num_positions)
        if self.memory.dtype is not CODED:
            return CrossKeyValues(self.memory[..., first:last, :].contiguous(), last - first)
        first -= first % MULTIPLE
        return CrossKeyValues(codes_between(self.memory, first, last), last - first)

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self.memory.nbytes

    @property
    def num_rows(self) -> int:
        """It embeds nothing."""
        return 0


class WhisperModel:
    """The weights of one checkpoint, arranged for speed. An aligning `Model`, see `base.py`."""

    rotary_axes = 1

    def __init__(
        self,
        info: WhisperInfo,
        architecture: WhisperArchitecture,
        alignment_heads: Sequence[tuple[int, int]],
        tensors: TensorReader,
        *,
        codes_windows: bool = False,
    ) -> None:
        """`alignment_heads` are (layer, head) pairs whose cross-attention follows the audio. With
        `codes_windows` the encodings that the decoder attends to are kept in 8 bits."""
        self._a = a = architecture
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self.kv_shape = a.kv_shape
        self._codes_windows = codes_windows
        saved_bytes = tensors.saved_bytes("decoder.")
        self.weight_bytes = step_bytes(a, tensors.dtype, tensors.quantization) - saved_bytes
        self._alignment_heads = alignment_heads
        self._conv1, self._conv2 = (_convolution(tensors, f"encoder.conv{number}") for number in (1, 2))
        self._encoder_positions = tensors.take("encoder.embed_positions.weight")
        self._encoder_layers = [take_layer(tensors, f"encoder.layers.{i}") for i in range(a.encoder_layers)]
        self._encoder_norm = take_norm(tensors, "encoder.layer_norm")
        self._attention_choice = attention_choice(
            a.encoder_heads, a.d_model // a.encoder_heads, a.num_positions, self.dtype, self.device
        )
        self._tokens = tensors.take("decoder.embed_tokens.weight")
        self._positions = tensors.take("decoder.embed_positions.weight")
        names = [f"decoder.layers.{i}" for i in range(a.decoder_layers)]
        self._decoder_layers = [
            take_layer(tensors, name, cross=_cross_attention(tensors, name)) for name in names
        ]
        self._decoder_norm = take_norm(tensors, "decoder.layer_norm")
        heads = Heads(a.decoder_heads, a.decoder_heads, a.d_model // a.decoder_heads)
        self._few = written_down(self._decoder_layers, heads, a.activation)
        self._cross = _cross_projection(tensors, names)
        # A stored copy decides, as in `transformers`: fine-tunes have one of their own where the config ties.
        has_own = "proj_out.weight" in tensors or not a.tied
        own = tensors.take("proj_out.weight") if has_own else self._tokens
        self._head_rows = self._tokens if torch.equal(own, self._tokens) else own
        grid = None if tensors.quantization == "none" else HEAD_GRID
        self._head = arrange_linear(self._head_rows, None, grid)
        tensors.finish()

    def check_features(self, features: Features) -> None:
        """Raise ValueError unless these are a window, or the beginning of one, of finite float32 log-mel
        frames: an even number of them."""
        a = self._a
        mels, frames = features.shape if len(features.shape) == 2 else (0, 0)
        if mels != a.num_mel_bins or not 2 <= frames <= a.num_frames or frames % 2:
            raise ValueError(
                f"features of shape {features.shape} do not fit the model's {(a.num_mel_bins, a.num_frames)}"
            )
        if not is_whole(features):
            raise ValueError(f"features of shape {features.shape} cannot have {len(features.data)} bytes")
        if not 0 <= features.num_before < frames or features.num_before % 2:
            raise ValueError(f"{features.num_before} of {frames} frames cannot be context")
        # A sum is not finite where any value is not.
        if not bool(torch.isfinite(values_of(features).sum())):
            raise ValueError("features hold values that are not finite")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """Encode checked windows, of any lengths, as many at once as the activations' bound allows."""
        most = _MAX_WINDOWS_PER_PASS * self._a.num_frames
        outputs: list[EncoderOutput] = []
        first = num_frames = 0
        for index, item in enumerate(items):
            if index > first and num_frames + item.shape[1] > most:
                outputs += self._encode(items[first:index])
                first, num_frames = index, 0
            num_frames += item.shape[1]
        return outputs + self._encode(items[first:]) if items else []

    def _encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """Products run over the positions of all windows; convolutions and attention window by window."""
        a = self._a
        lengths = [item.shape[1] // 2 for item in items]
        x = torch.cat([self._positions_of(item) for item in items])
        for layer in self._encoder_layers:
            qkv = projected(layer, x, a.encoder_heads)
            x = attended(layer, x, attend_items(qkv.unbind(1), lengths, self._attention_choice))
            x = in_range(fed_forward(layer, x, a.activation))
        normed = prepared(x, self._encoder_norm)
        keep = self._coded_key_values if self._codes_windows else self._cross_key_values
        parts = zip(items, torch.split(normed, lengths), strict=True)
        return [keep(each[item.num_before // 2 :]) for item, each in parts]

    def _cross_key_values(self, encoded: Tensor) -> CrossKeyValues:
        """encoded [positions, d_model] of one window."""
        a, positions = self._a, encoded.shape[0]
        shape = (a.decoder_layers, 2, a.decoder_heads, positions, a.d_model // a.decoder_heads)
        memory = recycled(shape, encoded.dtype, encoded.device)  # each step reads it whole
        linear_planes(encoded, self._cross, memory.flatten(0, 2))
        return CrossKeyValues(memory, positions)

    def _coded_key_values(self, encoded: Tensor) -> CrossKeyValues:
        """The same in 8 bits: each layer is one block of as many positions as a block may have."""
        a, positions = self._a, encoded.shape[0]
        dim, size = a.d_model // a.decoder_heads, -(-positions // MULTIPLE) * MULTIPLE
        projected = linear(encoded, self._cross).view(positions, a.decoder_layers, 2, a.decoder_heads, dim)
        shape = (a.decoder_layers, 2, a.decoder_heads, size, stored_size(dim, CODED))
        memory = recycled(shape, CODED, encoded.device).zero_()
        slots = torch.arange(positions, device=encoded.device)
        for layer in range(a.decoder_layers):
            write_kv(memory[layer : layer + 1], slots, projected[:, layer, 0], projected[:, layer, 1])
        return CrossKeyValues(memory, positions)

    def _positions_of(self, item: Features) -> Tensor:
        """One window's frames → [positions, d_model], what the layers begin with."""
        frames = values_of(item).to(device=self.device, dtype=self.dtype).t()
        x = _convolve(_convolve(frames, self._conv1, 1), self._conv2, 2)
        return x + self._encoder_positions[: x.shape[0]]

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """Hidden states [rows, d_model], before the final norm."""
        return self._forward(batch, cache, {})

    def _forward(self, batch: StepBatch, cache: Tensor, scores: dict[int, Tensor]) -> Tensor:
        """As `forward`; the unnormalised cross-attention [heads, rows, positions] of each layer that is a
        key of `scores` is stored there (all rows then listen to one window)."""
        a = self._a
        rows, heads, dim = batch.token_ids.shape[0], a.decoder_heads, a.d_model // a.decoder_heads
        x = F.embedding(batch.token_ids, self._tokens) + self._positions[batch.positions]
        spans_of_layers = _cross_spans(batch.cross_attending)
        few = self._few
        if few is not None and not scores and few.take(rows, cache, spans_of_layers):
            few.run(x, cache, batch.groups, spans=spans_of_layers)
            return x
        for i, layer in enumerate(self._decoder_layers):
            cross, spans = layer.cross, [each.of_layer(i) for each in spans_of_layers]
            assert cross is not None, "each layer listens"
            query, key, value = projected(layer, x, heads).unbind(1)
            write_kv(cache[i], batch.paged.write_slots, key, value)
            x = attended(layer, x, paged_attention(query, cache[i], batch.paged))
            query = linear(x, cross.query, before=cross.norm).view(rows, heads, dim)
            mixed = cross_attention(query, spans)
            if i in scores:
                key, _ = spans[0].key_value()
                scores[i] = cross_scores(query, key.to(query.dtype))
            x = linear(mixed.reshape(x.shape), cross.out, residual=x)
            x = fed_forward(layer, x, a.activation)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [rows, d_model] as `forward` gives it → float32 logits [rows, vocab]."""
        return exact_head_logits(self._decoder_norm(hidden), self._head, self._head_rows)

    def align(self, task: Align, token_ids: Sequence[int], output: EncoderOutput) -> tuple[int, ...]:
        """Boundaries of the text tokens, by one teacher-forced pass over a cache of its own."""
        a, num_tokens = self._a, len(token_ids)
        if not 0 < task.text_start <= task.text_end < num_tokens <= a.max_target_positions:
            raise ValueError(
                f"text {task.text_start}–{task.text_end} of {num_tokens} tokens cannot be aligned"
            )
        if not all(0 <= token_id < a.vocab_size for token_id in token_ids):
            raise ValueError("a token id is outside the vocabulary")
        frames = min(max(task.num_frames, 1), a.num_positions)
        if task.text_start == task.text_end:
            return (frames,)
        heads = torch.stack(self._alignment_scores(token_ids, output))
        weights = heads[..., :frames].float().softmax(-1)
        # The row that predicts a token is the one before it; the row of the last text token predicts the
        # end, whose boundary is where the text ends.
        num_rows = task.text_end - task.text_start + 1
        return token_boundaries(weights, task.text_start - 1, num_rows, filter_width=a.median_filter_width)

    def _alignment_scores(self, token_ids: Sequence[int], output: EncoderOutput) -> list[Tensor]:
        """Cross-attention scores [tokens, positions] of each alignment head."""
        num_tokens, size = len(token_ids), _ALIGNMENT_BLOCK_SIZE
        num_blocks = -(-num_tokens // size)
        k = self.kv_shape
        shape = k.cache_shape(num_blocks, size, self.dtype)
        batch = StepBatch(
            token_ids=torch.tensor(token_ids, device=self.device),
            positions=torch.arange(num_tokens, device=self.device),
            paged=paged_batch([PagedSequence(range(num_blocks), 0, num_tokens)], size, self.device),
            cross_attending=(CrossAttendingRows(output, num_tokens),),
        )
        scores = {layer: torch.empty(0) for layer, _ in self._alignment_heads}
        self._forward(batch, torch.zeros(shape, dtype=self.dtype, device=self.device), scores)
        return [scores[layer][head] for layer, head in self._alignment_heads]


def _convolution(tensors: TensorReader, name: str) -> LinearWeight:
    """A width-3 convolution as a product over three neighbouring frames laid side by side."""
    weight = tensors.take(f"{name}.weight").permute(0, 2, 1).flatten(1)
    return pack_linear(weight, tensors.take(f"{name}.bias"))


def _cross_attention(tensors: TensorReader, layer: str) -> CrossParts:
    name = f"{layer}.encoder_attn"
    query, out = (take_biased(tensors, f"{name}.{part}_proj") for part in ("q", "out"))
    return CrossParts(take_norm(tensors, f"{name}_layer_norm"), query, out)


def _cross_projection(tensors: TensorReader, layers: Sequence[str]) -> LinearWeight:
    """Keys and values of one decoder layer after the other, as one projection of the encoder's output."""
    weights = [f"{layer}.encoder_attn.{part}_proj.weight" for layer in layers for part in "kv"]
    values = [tensors.take(f"{layer}.encoder_attn.v_proj.bias") for layer in layers]
    biases = [bias for value in values for bias in (torch.zeros_like(value), value)]
    return tensors.take_linear(*weights, bias=torch.cat(biases))


def _cross_spans(cross_attending: Sequence[CrossAttendingRows]) -> list[CrossSpan]:
    """What rows listen to, in all layers."""
    spans: list[CrossSpan] = []
    start = 0
    for rows in cross_attending:
        window, end = rows.output, start + rows.num_rows
        assert isinstance(window, CrossKeyValues), "encoded by another model"
        if rows.span is not None:
            window = window.part(*rows.span)
        spans.append(CrossSpan(start, end, window.memory, window.num_positions))
        start = end
    return spans


def _convolve(frames: Tensor, weight: LinearWeight, stride: int) -> Tensor:
    """Width-3 convolution with gelu: frames [n, channels] → [n / stride, out]. Three neighbours lie side by
    side as they are, so rows that overlap are no copy."""
    length, channels = frames.shape
    padded = F.pad(frames, (0, 0, 1, 1))
    neighbours = padded.as_strided((length // stride, 3 * channels), (stride * channels, 1))
    return linear(neighbours, weight, activation="gelu")
