"""Any other causal language model of `transformers`, run by its own code over our paged cache.

All rows of a step are one packed sequence to the model; its attention layers call ours (`attention.py`), and
its recurrent layers are ours (`mixers.py`). Everything else of such a model treats rows one by one; a model
that does not is found out by comparing the packed forward with the plain one before it is used. `source.py`
opens its folder. Slower than `engine/models/dense/model.py`, as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ....kernels.attention.paged_attention import PagedSequence, paged_batch, with_tables
from ....kernels.attention.whole_spans import WholeSpan
from ....kernels.linear.weight_codes import Quantization
from ....protocols.engine.messages import Features
from ....protocols.errors import ModelLoadError
from ..base import EncoderOutput, KvShape, RowContext, StepBatch
from ..info import ModelInfo
from .attention import AttentionStep, attend_through_ours, layers_of_step, running
from .caches import CachedLayers
from .experts import ArrangedExperts, arrange_experts
from .few_rows import few_rows
from .gated_mlp import fuse_gated_mlps
from .latents import keep_latents
from .mixers import replace_mixers
from .norms import fuse_norms
from .refusal import refusal, refusing
from .rounded import adapt_linears, read_bytes, round_linears, rounded_in, tile_linears
from .skeleton import base_name, decoder_name, encoders_inside
from .sparse import keep_index_keys

_CHECK_LENGTHS: Final = (7, 3, 12)
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.08, torch.float16: 0.02}
"""Largest difference of logits, packed and plain, as a part of the largest logit."""
_COARSE_TOLERANCE: Final = 0.2
"""The same behind layers of codes, or of states in 16 bits: the least difference rounds inputs another way.
Neighbours that are mixed up make it 1."""


class _Hidden(tuple[Tensor]):
    """What a decoder gives: hidden states, and nothing of all else that it may be asked for."""

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, _: str) -> None:
        return None


class _Given(nn.Module):
    """Stands for the decoder inside a language model: gives hidden states it was given. All else that is
    asked of it is the decoder's."""

    hidden: Tensor

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self._real = (decoder,)  # in a tuple, so that its weights are not counted twice

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (as of a module)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._real[0], name)

    @property
    def decoder(self) -> _Given:
        """OPT asks for the decoder inside its decoder."""
        return self

    def forward(self, *args: object, **kwargs: object) -> _Hidden:
        return _Hidden((self.hidden,))


class _Unextended(nn.Module):
    """Stands for encoders inside a decoder: embeddings of text stay as they are."""

    def forward(self, input_ids: Tensor, inputs_embeds: Tensor, **_: object) -> Tensor:
        return inputs_embeds


class TransformersModel:
    """A `transformers` language model behind our interface."""

    rotary_axes = 1
    sees_ahead_in_windows = False
    """Rows that see ahead do so in layers with a window only."""
    reads_tokens = True
    """The decoder is called with tokens and their positions, and nothing else."""

    def __init__(
        self,
        info: ModelInfo,
        kv_shape: KvShape,
        model: PreTrainedModel,
        device: torch.device,
        quantization: Quantization = "none",
        *,
        adaptable: bool = False,
    ) -> None:
        """Raises ModelLoadError if the model does not give packed what it gives one by one."""
        self.info, self.kv_shape, self.device, self.dtype = info, kv_shape, device, model.dtype
        self._num_groups = len(kv_shape.layout(model.dtype).groups)
        with refusing(info.folder):
            plain = self._plain_logits(model)
        prefix = decoder_name(model)
        decoder = model.get_submodule(prefix)
        assert isinstance(decoder, PreTrainedModel), "as all inner models are"
        attend_through_ours(model, decoder)
        self._encoders: nn.Module | None = None
        """Those that lay inside the decoder."""
        if (inside := encoders_inside(decoder)) is not None:
            self._encoders = decoder.get_submodule(inside)
            decoder.set_submodule(inside, _Unextended())
        self._decoder: nn.Module = decoder
        # What the language model does behind its decoder (projections, caps, scales) is run on hidden
        # states of our choice.
        self._base: nn.Module = model.get_submodule(base_name(model))
        self._given = _Given(self._base)
        model.set_submodule(base_name(model), self._given)
        self._model = model
        self._states = replace_mixers(self._decoder)
        keep_latents(self._decoder)
        keep_index_keys(self._decoder, layers_of_step)
        if device.type == "cpu" and quantization == "none":
            arrange_experts(self._decoder, quantization)
        with torch.inference_mode():
            fuse_norms(self._decoder)
        tile_linears(model, self._base.parameters())
        if quantization == "none":
            tile_linears(self._decoder)
            if not adaptable:  # adapters change single products
                with torch.inference_mode():
                    fuse_gated_mlps(self._decoder)
        is_plain = device.type == "cpu" and self.reads_tokens
        self._few = few_rows(decoder, kv_shape, self.dtype) if is_plain else None
        self._check(plain)
        if device.type == "cpu" and quantization != "none":
            arrange_experts(self._decoder, quantization)
        round_linears(self._decoder, quantization)
        if adaptable:
            adapt_linears(self._decoder, prefix)
        self.weight_bytes = read_bytes((self._decoder, model)) + sum(each.nbytes for each in self._experts())

    def _plain_logits(self, model: PreTrainedModel) -> list[Tensor]:
        """What the model itself gives for the check's sequences, one by one."""
        found = []
        for prompt in _check_prompts(self.info):
            inputs = {"input_ids": prompt[None].to(self.device)}
            if self.info.sees_whole_prompts:
                inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
            with torch.inference_mode():
                found.append(model(**inputs, use_cache=False).logits[0].float())
        return found

    def _check(self, plain: list[Tensor]) -> None:
        with refusing(self.info.folder), torch.inference_mode():
            packed = self._packed_logits()
            if self._few is not None:  # other steps go through the modules
                few, self._few = self._few, None
                packed, plain = packed + self._packed_logits(), plain * 2
                self._few = few
        is_rough = bool(self._states) and self.dtype is not torch.float32
        is_coarse = is_rough or rounded_in(self._decoder) or any(each.is_coded for each in self._experts())
        tolerance = _COARSE_TOLERANCE if is_coarse else _TOLERANCE[self.dtype]
        for expected, got in zip(plain, packed, strict=True):
            rows = (expected - got).abs().amax(-1) / expected.abs().max().clamp_min(1.0)
            # A state carries a rounded number on to all later rows, which may make single ones differ by any.
            difference = float(rows.median() if is_rough else rows.max())
            if not difference <= tolerance:
                raise ModelLoadError(
                    refusal(
                        self.info.folder,
                        f"logits differ by {difference:.2g} of the largest when sequences share a step",
                    )
                )

    def _experts(self) -> list[ArrangedExperts]:
        return [each for each in self._decoder.modules() if isinstance(each, ArrangedExperts)]

    def _packed_logits(self) -> list[Tensor]:
        """The check's sequences in one step up to their middles, in another to their ends; or all in one,
        where tokens of prompts attend to what follows them."""
        num_parts = 1 if self.info.sees_whole_prompts else 2
        prompts = _check_prompts(self.info)
        shape = self.kv_shape.cache_shape(2 * len(prompts) * self._num_groups, 8, self.dtype)
        cache = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self._states.allocate(len(prompts), self.device)
        slots = torch.arange(len(prompts), device=self.device) if self._states else None
        rows: list[list[Tensor]] = [[] for _ in prompts]
        for part in range(num_parts):
            spans = [(len(p) * part // num_parts, len(p) * (part + 1) // num_parts) for p in prompts]
            firsts = range(0, shape[1], 2 * len(prompts))
            sequences = [
                [
                    PagedSequence((first + 2 * i + 1, first + 2 * i), start, end - start)
                    for i, (start, end) in enumerate(spans)
                ]
                for first in firsts
            ]
            paged = paged_batch(sequences[0], 8, self.device)
            batch = StepBatch(
                torch.cat([p[start:end] for p, (start, end) in zip(prompts, spans, strict=True)]).to(
                    self.device
                ),
                torch.cat([torch.arange(start, end) for start, end in spans]).to(self.device),
                paged,
                more_paged=tuple(with_tables(paged, each) for each in sequences[1:]),
                rows=RowContext(slots, prompt_lengths=tuple(map(len, prompts))),
            )
            logits = self.logits(self.forward(batch, cache))
            for i, each in enumerate(torch.split(logits, [end - start for start, end in spans])):
                rows[i].append(each)
        return [torch.cat(each) for each in rows]

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        raise ValueError(f"{self.info.name} takes text only")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `engine/models/base.py`; there is nothing to encode."""
        raise ValueError(f"{self.info.name} takes text only")

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        if self._few is not None and self._few.take(len(batch.token_ids), cache):
            return self._few.forward(batch, cache)
        slots = batch.rows.state_slots
        states = nullcontext() if slots is None else self._states.step(slots, batch.paged.num_queries)
        layers = CachedLayers(self.kv_shape, batch.groups, cache)
        positions = batch.positions if batch.positions.dim() == 1 else None
        step = AttentionStep(layers, self._spans(batch), self.sees_ahead_in_windows, positions)
        with running(step), states:
            output = self._decoder(**self._inputs(batch), use_cache=False)
        return cast(Tensor, output.last_hidden_state[0])

    def _spans(self, batch: StepBatch) -> Sequence[WholeSpan]:
        """Rows of a step that see ahead."""
        return ()

    def _inputs(self, batch: StepBatch) -> dict[str, Any]:
        """What the decoder is called with for the rows of a step."""
        return {"input_ids": batch.token_ids[None], "position_ids": batch.positions[None]}

    def logits(self, hidden: Tensor) -> Tensor:
        """See `engine/models/base.py`."""
        self._given.hidden = hidden[None]
        output = self._model(inputs_embeds=hidden[None], use_cache=False)
        return cast(Tensor, output.logits[0].float())


class RecurrentTransformersModel(TransformersModel):
    """One of whose layers some keep states."""

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """See `RecurrentModel` in `engine/models/base.py`."""
        return (self._states.allocate(num_slots, self.device),)


def _check_prompts(info: ModelInfo) -> list[Tensor]:
    """Tokens from all over the vocabulary, the same each time."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(info.vocab_size, (length,), generator=generator) for length in _CHECK_LENGTHS]
