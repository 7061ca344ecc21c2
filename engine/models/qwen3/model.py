"""Qwen3's decoder as one ragged forward pass over paged keys and values, and the text model made of it.

`Qwen3Decoder` is also the language model of Qwen3-ASR and Qwen3-VL: rows of a step may be replaced by
rows of an encoding, encodings may add to the first layers (deepstack), positions may have three axes.
Layout and roundings follow transformers' `modeling_qwen3.py`. Configs are `engine/models/qwen3/config.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import Qwen3Config

from ....kernels.attention_inputs import attention_inputs
from ....kernels.linear import LinearWeight, linear, pack_linear
from ....kernels.paged_attention import PagedBatch, paged_attention
from ....kernels.rms_norm import rms_norm
from ....kernels.rotary import RotaryTable, rotary_table
from ....kernels.silu_mul import silu_mul
from ....protocols.messages import Features
from ...text.tokenizer import TextTokenizer
from ..base import EncoderOutput, MediaEmbedding, StepBatch
from ..info import ModelInfo
from ..prompts import TextPrompts
from ..source import ModelSource, Opening, tensor_reader
from ..weights import TensorReader, num_bytes
from .config import (
    DecoderConfig,
    decoder_config,
    decoder_tensors,
    loaded_bytes,
    parse_config,
    step_tensors,
    stop_token_ids,
)

RENAMES = (("model.", ""),)
"""Tensors are stored with this prefix, except by those who saved the decoder alone."""
TIED = {"lm_head.weight": "embed_tokens.weight"}


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """An encoding that takes the place of placeholder tokens: rows [tokens, hidden], and what is added to
    the same rows after each of the first layers (deepstack)."""

    rows: Tensor
    deepstack: tuple[Tensor, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return self.rows.nbytes + sum(each.nbytes for each in self.deepstack)

    @property
    def num_rows(self) -> int:
        """Prompt rows it embeds."""
        return self.rows.shape[0]


@dataclass(frozen=True, slots=True)
class _Layer:
    """`qkv` is one projection to queries, keys and values, `gate_up` one to both halves of the middle."""

    attention_norm: Tensor
    qkv: LinearWeight
    query_norm: Tensor
    key_norm: Tensor
    out: LinearWeight
    mlp_norm: Tensor
    gate_up: LinearWeight
    down: LinearWeight
    window: int | None


class Qwen3Decoder:
    """The weights of one decoder, taken from `tensors` under `prefix` and arranged for `forward`."""

    def __init__(
        self, config: DecoderConfig, tensors: TensorReader, *, prefix: str = "", axes: Tensor | None = None
    ) -> None:
        """`axes` (see `kernels/rotary.py`) if positions have three."""
        self.config = c = config
        self._tokens = tensors.take(f"{prefix}embed_tokens.weight")
        self._layers = [_layer(c, tensors, f"{prefix}layers.{i}", c.windows[i]) for i in range(c.num_layers)]
        self._norm = tensors.take(f"{prefix}norm.weight")
        self._head = self._output_projection(tensors, prefix)
        self._frequencies = torch.tensor(c.inverse_frequencies, dtype=torch.float32, device=tensors.device)
        self._axes = None if axes is None else axes.to(tensors.device)
        self.weight_bytes = num_bytes(step_tensors(c), tensors.dtype)
        """Bytes of weights a step reads."""

    def _output_projection(self, tensors: TensorReader, prefix: str) -> LinearWeight:
        name = f"{prefix}lm_head.weight"
        # A stored copy decides: like transformers, believe a head that differs over a config that ties it.
        own = tensors.take(name) if name in tensors else None
        if own is None or (self.config.tied and torch.equal(own, self._tokens)):
            own = self._tokens
        return pack_linear(own)

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """Hidden states [rows, hidden] before the final norm; see `models/base.py`."""
        c, batches = self.config, batch.paged
        x = _place(F.embedding(batch.token_ids, self._tokens), batch.media)
        table = rotary_table(batch.positions, self._frequencies, axes=self._axes, scaling=c.rotary_scaling)
        for i, layer in enumerate(self._layers):
            mixed = self._attend(
                layer, rms_norm(x, layer.attention_norm, c.norm_eps), table, cache[i], batches
            )
            x = linear(mixed, layer.out, residual=x)
            gate_up = linear(rms_norm(x, layer.mlp_norm, c.norm_eps), layer.gate_up)
            x = linear(silu_mul(gate_up), layer.down, residual=x)
            _add_deepstack(x, batch.media, i)
        return x

    def _attend(
        self, layer: _Layer, x: Tensor, table: RotaryTable, cache: Tensor, batch: PagedBatch
    ) -> Tensor:
        c = self.config
        rows = x.shape[0]
        qkv = linear(x, layer.qkv).view(rows, c.num_heads + 2 * c.num_kv_heads, c.head_dim)
        query = attention_inputs(
            qkv, layer.query_norm, layer.key_norm, c.norm_eps, table, cache, batch.write_slots
        )
        return paged_attention(query, cache, batch, window=layer.window).reshape(rows, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab] of hidden states as `forward` gives them."""
        return linear(rms_norm(hidden, self._norm, self.config.norm_eps), self._head).float()


def _layer(c: DecoderConfig, tensors: TensorReader, name: str, window: int | None) -> _Layer:
    attention, qkv = f"{name}.self_attn", ("q_proj", "k_proj", "v_proj")
    out_bias = tensors.take(f"{attention}.o_proj.bias") if c.attention_bias else None
    qkv_bias = tensors.take_all(*(f"{attention}.{part}.bias" for part in qkv)) if c.attention_bias else None
    return _Layer(
        attention_norm=tensors.take(f"{name}.input_layernorm.weight"),
        qkv=pack_linear(tensors.take_all(*(f"{attention}.{part}.weight" for part in qkv)), qkv_bias),
        query_norm=tensors.take(f"{attention}.q_norm.weight"),
        key_norm=tensors.take(f"{attention}.k_norm.weight"),
        out=pack_linear(tensors.take(f"{attention}.o_proj.weight"), out_bias),
        mlp_norm=tensors.take(f"{name}.post_attention_layernorm.weight"),
        gate_up=pack_linear(tensors.take_all(f"{name}.mlp.gate_proj.weight", f"{name}.mlp.up_proj.weight")),
        down=pack_linear(tensors.take(f"{name}.mlp.down_proj.weight")),
        window=window,
    )


def _embedded(output: EncoderOutput) -> EmbeddedRows:
    assert isinstance(output, EmbeddedRows), "this decoder takes encodings of its own families only"
    return output


def _place(x: Tensor, media: Sequence[MediaEmbedding]) -> Tensor:
    """Put rows of encodings where their placeholders are."""
    for span in media:
        rows = _embedded(span.output).rows[span.offset : span.offset + span.num_rows]
        x[span.first_row : span.first_row + span.num_rows] = rows
    return x


def _add_deepstack(x: Tensor, media: Sequence[MediaEmbedding], layer: int) -> None:
    for span in media:
        deepstack = _embedded(span.output).deepstack
        if layer < len(deepstack):
            rows = deepstack[layer][span.offset : span.offset + span.num_rows]
            x[span.first_row : span.first_row + span.num_rows] += rows


class DecoderModel:
    """What the models around a decoder share; a family adds how its items are checked and encoded."""

    rotary_axes = 1

    def __init__(self, info: ModelInfo, decoder: Qwen3Decoder, tensors: TensorReader) -> None:
        """Called when every part has taken its tensors: none may be left."""
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self.kv_shape = decoder.config.kv_shape
        self.weight_bytes = decoder.weight_bytes
        self._decoder = decoder
        tensors.finish()

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """See `models/base.py`."""
        return self._decoder.forward(batch, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `models/base.py`."""
        return self._decoder.logits(hidden)


class Qwen3Model(DecoderModel):
    """Qwen3 for text: the decoder and nothing else."""

    def __init__(self, info: ModelInfo, config: DecoderConfig, tensors: TensorReader) -> None:
        super().__init__(info, Qwen3Decoder(config, tensors), tensors)

    def check_features(self, features: Features) -> None:
        """See `models/base.py`."""
        raise ValueError(f"{self.info.name} takes text only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `models/base.py`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes text only")


def open_source(opening: Opening) -> ModelSource:
    """Check a Qwen3 folder: config, tokenizer, names and shapes of its tensors."""
    path = opening.folder / "config.json"
    parsed = parse_config(opening.config, Qwen3Config.from_dict, path)
    config = decoder_config(parsed, path, tied=bool(parsed.tie_word_embeddings))
    text = TextTokenizer.from_folder(opening.folder)
    info = ModelInfo(
        name=opening.name,
        folder=opening.folder,
        family="qwen3",
        vocab_size=config.vocab_size,
        max_context=config.max_context,
        stop_token_ids=stop_token_ids(opening.folder, parsed.eos_token_id, text.end_ids),
        replayable=True,
    )
    expected = decoder_tensors(config)
    reader = tensor_reader(opening, expected, renames=RENAMES, tied=TIED if config.tied else None)
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=config.kv_shape,
        weight_bytes=loaded_bytes(config, expected, opening.device, opening.dtype),
        text=text,
        load=lambda: Qwen3Model(info, config, reader()),
        prompts=TextPrompts(text),
    )
