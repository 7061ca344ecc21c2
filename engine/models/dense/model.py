"""A decoder of Llama's shape as one ragged pass over paged keys and values, and the text models made of it.

Llama, Mistral, Qwen2, Qwen3 and SmolLM3 are its options. `Decoder` is also the language model of Qwen3-ASR
and Qwen3-VL: rows of a step may be replaced by rows of an encoding, encodings may add to the first layers
(deepstack), positions may have three axes. Layout and roundings follow transformers' `modeling_llama.py` and
`modeling_qwen3.py`. Read `traits.py` for what architectures differ in, `config.py` for configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ....kernels.attention.attention_inputs import HeadNorms, attention_inputs
from ....kernels.attention.paged_attention import PagedBatch, paged_attention
from ....kernels.layers import Heads, LayerParts, Layers, written_down
from ....kernels.linear.fused_input import RmsNorm
from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.logits import head_logits
from ....kernels.linear.quantized_linear import BitsWeight
from ....kernels.linear.weight_codes import HEAD_GRID
from ....kernels.rms_norm import rms_norm
from ....kernels.rotary import RotaryTable, rotary_table
from ....protocols.engine.messages import Features
from ...text.tokenizer import TextTokenizer
from ..base import EncoderOutput, MediaEmbedding, StepBatch, is_whole, values_of
from ..embedding import decoder_embedding
from ..info import ModelInfo
from ..source import ModelSource, Opening
from ..weights import TensorReader
from .config import DecoderConfig, decoder_config, parse_config, step_bytes
from .side import side_of
from .source import decoder_facts, decoder_source
from .traits import architecture_traits


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


class Decoder:
    """The weights of one decoder, taken from `tensors` under `prefix` and arranged for `forward`."""

    def __init__(
        self,
        config: DecoderConfig,
        tensors: TensorReader,
        *,
        prefix: str = "",
        axes: Tensor | None = None,
        adds_media: bool = False,
    ) -> None:
        """`axes` (see `kernels/rotary.py`) if positions have three. Rows of encodings take the place of their
        tokens' embeddings, or are added to them (`adds_media`)."""
        self._adds_media = adds_media
        self.config = c = config
        self._dtype = tensors.dtype
        saved_bytes = tensors.saved_bytes(prefix)
        self.weight_bytes = step_bytes(c, tensors.dtype, tensors.quantization) - saved_bytes
        """Bytes of weights a step reads."""
        self._tokens: Tensor | BitsWeight = tensors.take(f"{prefix}embed_tokens.weight")
        self._layers = [_layer(c, tensors, f"{prefix}layers.{i}", i) for i in range(c.num_layers)]
        heads = Heads(c.num_heads, c.num_kv_heads, c.head_dim)
        can_turn = all(c.has_rotary)
        places = c.kv_shape.layout(tensors.dtype).places
        self._places = [place for place in places if place is not None]
        self._few: Layers | None = None
        if can_turn:
            self._few = written_down(self._layers, heads, "silu_mul", turned=True, places=self._places)
        self._norm = tensors.take(f"{prefix}norm.weight")
        self._head = self._output_projection(tensors, prefix)
        self._frequencies = torch.tensor(c.inverse_frequencies, dtype=torch.float32, device=tensors.device)
        self._axes = None if axes is None else axes.to(tensors.device)

    def _output_projection(self, tensors: TensorReader, prefix: str) -> LinearWeight:
        name = f"{prefix}lm_head.weight"
        # A stored copy decides: like transformers, believe a head that differs over a config that ties it.
        own = tensors.take(name) if name in tensors else None
        tokens = self._tokens
        assert isinstance(tokens, Tensor), "not rounded yet"
        is_tied = own is None or (self.config.tied and torch.equal(own, tokens))
        grid = None if tensors.quantization == "none" else HEAD_GRID
        head = arrange_linear(tokens if own is None or is_tied else own, None, grid)
        if is_tied and isinstance(head, BitsWeight):
            self._tokens = head  # the only copy
        return head

    def _embed(self, token_ids: Tensor) -> Tensor:
        if isinstance(self._tokens, BitsWeight):
            return self._tokens.rows(token_ids).to(self._dtype)
        return F.embedding(token_ids, self._tokens)

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """Hidden states [rows, hidden] before the final norm; see `engine/models/base.py`."""
        c, groups = self.config, batch.groups
        x = _place(self._embed(batch.token_ids), batch.media, is_added=self._adds_media)
        table = rotary_table(batch.positions, self._frequencies, axes=self._axes, scaling=c.rotary_scaling)
        few = self._few
        if (
            few is not None
            and batch.wanted is None
            and few.take(x.shape[0], cache)
            and not _num_levels(batch.media)
        ):
            few.run(x, cache, groups, table=table)
            return x
        still = table
        if not all(c.has_rotary):
            still = RotaryTable(torch.ones_like(table.cos), torch.zeros_like(table.sin))
        last = len(self._layers) - 1
        for i, layer in enumerate(self._layers):
            turns = table if c.has_rotary[i] else still
            group, plane = self._places[i]
            query = self._query(layer, x, turns, cache[plane], groups[group])
            if i == last and batch.wanted is not None and _num_levels(batch.media) <= last:
                rows, paged = batch.wanted.rows, batch.wanted.paged[group]
                all_rows = torch.zeros_like(x)
                all_rows[rows] = self._rest(layer, query[rows], x[rows], cache[plane], paged)
                return all_rows
            x = self._rest(layer, query, x, cache[plane], groups[group])
            _add_deepstack(x, batch.media, i)
        return x

    def _query(
        self, layer: LayerParts, x: Tensor, table: RotaryTable, cache: Tensor, batch: PagedBatch
    ) -> Tensor:
        """Queries [rows, heads, dim]; keys and values are in the cache then."""
        c = self.config
        qkv = linear(x, layer.qkv, before=layer.norm)
        qkv = qkv.view(x.shape[0], c.num_heads + 2 * c.num_kv_heads, c.head_dim)
        return attention_inputs(qkv, layer.head_norms, table, cache, batch.write_slots)

    def _rest(self, layer: LayerParts, query: Tensor, x: Tensor, cache: Tensor, batch: PagedBatch) -> Tensor:
        """The rows `x` behind a layer, from their queries on."""
        mixed = paged_attention(query, cache, batch, window=layer.window).reshape(x.shape[0], -1)
        x = linear(mixed, layer.out, residual=x)
        gate_up = linear(x, layer.up, before=layer.last_norm)
        return linear(gate_up, layer.down, before="silu_mul", residual=x)

    def final_norm(self, hidden: Tensor) -> Tensor:
        """What hidden states as `forward` gives them are in front of the output projection."""
        return rms_norm(hidden, self._norm, self.config.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab] of hidden states as `forward` gives them."""
        return head_logits(self.final_norm(hidden), self._head)


def _layer(c: DecoderConfig, tensors: TensorReader, name: str, number: int) -> LayerParts:
    """`qkv` is one projection to queries, keys and values, `up` one to both halves of the middle."""
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"
    head_norms = None
    if c.has_head_norms:
        query, key = (tensors.take(f"{attention}.{part}_norm.weight") for part in ("q", "k"))
        head_norms = HeadNorms(query, key, c.norm_eps)
    return LayerParts(
        norm=RmsNorm(tensors.take(f"{name}.input_layernorm.weight"), c.norm_eps),
        qkv=_linear(
            tensors, *(f"{attention}.{part}_proj" for part in ("q", "k", "v")), biased=c.has_qkv_bias
        ),
        head_norms=head_norms,
        out=_linear(tensors, f"{attention}.o_proj", biased=c.has_out_bias),
        last_norm=RmsNorm(tensors.take(f"{name}.post_attention_layernorm.weight"), c.norm_eps),
        up=_linear(tensors, f"{mlp}.gate_proj", f"{mlp}.up_proj", biased=c.has_mlp_bias),
        down=_linear(tensors, f"{mlp}.down_proj", biased=c.has_mlp_bias),
        window=c.windows[number],
    )


def _linear(tensors: TensorReader, *names: str, biased: bool) -> LinearWeight:
    bias = tensors.take_all(*(f"{name}.bias" for name in names)) if biased else None
    return tensors.take_linear(*(f"{name}.weight" for name in names), bias=bias)


def _embedded(output: EncoderOutput) -> EmbeddedRows:
    assert isinstance(output, EmbeddedRows), "this decoder takes encodings of its own families only"
    return output


def _place(x: Tensor, media: Sequence[MediaEmbedding], *, is_added: bool) -> Tensor:
    """Put rows of encodings where their placeholders are."""
    for span in media:
        rows = _embedded(span.output).rows[span.offset : span.offset + span.num_rows]
        placed = x[span.first_row : span.first_row + span.num_rows]
        placed.copy_(placed + rows if is_added else rows)
    return x


def _num_levels(media: Sequence[MediaEmbedding]) -> int:
    """Layers behind which encodings are added."""
    return max((len(_embedded(span.output).deepstack) for span in media), default=0)


def _add_deepstack(x: Tensor, media: Sequence[MediaEmbedding], layer: int) -> None:
    for span in media:
        deepstack = _embedded(span.output).deepstack
        if layer < len(deepstack):
            rows = deepstack[layer][span.offset : span.offset + span.num_rows]
            x[span.first_row : span.first_row + span.num_rows] += rows


class DecoderModel:
    """What the models around a decoder share; a family adds how its items are checked and encoded."""

    rotary_axes = 1
    num_levels = 1
    """Vectors of each row of an encoding: its embedding, and those of the deepstack."""

    def __init__(self, info: ModelInfo, decoder: Decoder, tensors: TensorReader) -> None:
        """Called when every part has taken its tensors: none may be left."""
        self.info = info
        self.device, self.dtype = tensors.device, tensors.dtype
        self.kv_shape = decoder.config.kv_shape
        self.weight_bytes = decoder.weight_bytes
        self._decoder = decoder
        tensors.finish()

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        if features.encoded is None:
            self.check_input(features)
            return
        width, shape = self.num_levels * self._decoder.config.hidden_size, features.shape
        if len(shape) != 2 or shape[1] != width or not shape[0]:
            raise ValueError(f"embeddings have shape {list(shape)}; {self.info.name} takes [rows, {width}]")
        if not is_whole(features):
            raise ValueError(f"{len(features.data)} bytes are not {features.encoded} values of {list(shape)}")
        if not self._rows(features).isfinite().all():
            raise ValueError(f"embeddings must be finite numbers, also as {self.dtype}".replace("torch.", ""))

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `engine/models/base.py`; what was encoded elsewhere is taken as it is."""
        encoded = iter(self.encode_inputs([item for item in items if item.encoded is None]))
        return [next(encoded) if item.encoded is None else self._embedded(item) for item in items]

    def check_input(self, features: Features) -> None:
        """`check_features` of what is to be encoded."""
        raise ValueError(f"{self.info.name} takes text only")

    def encode_inputs(self, items: Sequence[Features]) -> list[EmbeddedRows]:
        """`encode` of such items; there may be none."""
        raise ValueError(f"{self.info.name} takes text only")

    def _rows(self, features: Features) -> Tensor:
        return values_of(features).to(self.device, self.dtype)

    def _embedded(self, features: Features) -> EmbeddedRows:
        # Copies: slices would keep each other in memory.
        levels = self._rows(features).tensor_split(self.num_levels, dim=1)
        rows, *deepstack = (each.clone(memory_format=torch.contiguous_format) for each in levels)
        return EmbeddedRows(rows, tuple(deepstack))

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        return self._decoder.forward(batch, cache)

    def final_norm(self, hidden: Tensor) -> Tensor:
        """See `NormingModel`."""
        return self._decoder.final_norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        return self._decoder.logits(hidden)


class DenseModel(DecoderModel):
    """A text model: the decoder and nothing else."""

    def __init__(self, info: ModelInfo, config: DecoderConfig, tensors: TensorReader) -> None:
        super().__init__(info, Decoder(config, tensors), tensors)

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        self.check_input(features)


def open_source(opening: Opening) -> ModelSource:
    """Check the folder of a text model: config, tokenizer, names and shapes of its tensors."""
    path = opening.folder / "config.json"
    config_class, traits = architecture_traits(opening.config)
    parsed = parse_config(opening.config, config_class.from_dict, path)
    config = decoder_config(parsed, path, tied=bool(parsed.tie_word_embeddings), traits=traits)
    text = TextTokenizer.from_folder(opening.folder)
    facts = decoder_facts(opening, config, text, parsed.eos_token_id)
    embedding = decoder_embedding(opening.folder, config.hidden_size)
    info = ModelInfo(family=config_class.model_type, embedding=embedding, **facts)
    return decoder_source(
        opening, config, info, side_of(text), lambda tensors: DenseModel(info, config, tensors)
    )
