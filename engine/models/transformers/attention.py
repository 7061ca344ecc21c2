"""What the attention layers of a `transformers` model call: ours, over the paged cache.

It is registered with transformers' attention interface, and knows where the keys and values of each row of
the step lie that this thread is running. On a model without weights it only sees what each layer's attention
is given. `engine/models/transformers/model.py` runs steps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, PreTrainedModel

from ....kernels.attention.kv_cache import write_kv, write_latents
from ....kernels.attention.latent_attention import latent_attention
from ....kernels.attention.paged_attention import paged_attention
from ....kernels.attention.selected_attention import SelectedRows, selected_attention
from ....kernels.attention.whole_spans import WholeSpan, attend_to_spans
from .caches import CachedLayers, SeenLayer
from .latents import joined, up_projection_of
from .older_attention import call_ours
from .sparse import index_size_of

_ATTENTION: Final = "sensorium_paged"
_GROWTH: Final = "query_growth"
_NEED_MASKS: Final = ("MptForCausalLM",)  # fail without masks that nobody reads


@dataclass(slots=True)
class AttentionStep:
    """What `_paged` needs of the step being run by this thread, and what it saw of each layer."""

    layers: CachedLayers | None = None
    """None: only to see what each layer's attention is given."""
    spans: Sequence[WholeSpan] = ()
    """Rows that see ahead."""
    in_windows: bool = False
    """They do so in layers with a window only."""
    positions: Tensor | None = None
    """int64 [rows]: the rows' indices in their sequences, where layers depend on them."""
    sees_whole_prompts: bool = False
    """Layers that look both ways are those of a decoder, whose prompts do."""
    seen: dict[int, SeenLayer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """By how much Llama 4's layers without rotations lengthen queries far into a sequence (arXiv 2501.19399).
    They count rows of a step instead of positions, so that it is done here."""

    every: float
    """Positions between one length and the next."""
    factor: float

    def of(self, query: Tensor, positions: Tensor) -> Tensor:
        """Query [1, heads, rows, dim] of rows at these positions."""
        steps = ((positions.float() + 1) / self.every).floor()
        lengths = steps.log1p() * self.factor + 1
        return (query * lengths[:, None]).to(query.dtype)


_thread = threading.local()


@contextmanager
def running(step: AttentionStep) -> Iterator[AttentionStep]:
    _thread.step = step
    try:
        yield step
    finally:
        _thread.step = None


def layers_of_step() -> CachedLayers | None:
    step: AttentionStep = _thread.step
    return step.layers


def _paged(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: tuple[SelectedRows, ...] | None = None,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """transformers' attention interface: query [1, heads, rows, dim] → [1, rows, heads, dim]."""
    step: AttentionStep = _thread.step
    layer = cast(int, module.layer_idx)
    up = up_projection_of(module)
    if step.layers is None:
        _check_attention(module, attention_mask, kwargs, is_causal=not step.sees_whole_prompts)
        index_size = index_size_of(module)
        step.seen[layer] = SeenLayer(
            key, value, sliding_window, is_latent=up is not None, index_size=index_size
        )
        size = value.shape[3] if up is None else up.sizes.value
        return query.new_empty(1, query.shape[2], query.shape[1], size), None
    cache, paged = step.layers.of(layer)
    if up is not None:
        assert softcap is None, "no family bends scores of latents"
        write_latents(cache, paged.write_slots, joined(key, value))
        rows, by_head = query[0].transpose(0, 1), up.by_head
        options: dict[str, Any] = {"scale": scaling, "sinks": s_aux, **step.layers.seen(layer)}
        attend = latent_attention if indices is None else partial(selected_attention, selected=indices)
        return attend(rows, cache, paged, by_head, up.sizes, **options)[None], None
    growth = getattr(module, _GROWTH, None)
    if growth is not None:
        assert step.positions is not None, "steps of models have them"
        query = growth.of(query, step.positions)
    value_size = value.shape[3]
    if key.shape[3] != value_size:  # the smaller ones are as large as the others, with zeros
        scaling = key.shape[3] ** -0.5 if scaling is None else scaling
        size = max(key.shape[3], value_size)
        query, key, value = (pad(each, (0, size - each.shape[3])) for each in (query, key, value))
    if step.layers.writes(layer):
        write_kv(cache, paged.write_slots, key[0].transpose(0, 1), value[0].transpose(0, 1))
    rows = query[0].transpose(0, 1).contiguous()
    seen = step.layers.seen(layer)
    mixed = paged_attention(rows, cache, paged, scale=scaling, softcap=softcap, sinks=s_aux, **seen)
    if step.spans and (seen.get("window") is not None or not step.in_windows):
        attend_to_spans(mixed, rows, cache, paged, step.spans, scale=scaling, softcap=softcap, **seen)
    return mixed[None, ..., :value_size], None


def _check_attention(
    module: nn.Module, mask: Tensor | None, options: Mapping[str, object], *, is_causal: bool
) -> None:
    """Raise ValueError naming what a layer does that our attention does not. Masks that `transformers` makes
    are not made for it, so that one is the model's own."""
    if is_causal and not getattr(module, "is_causal", True):
        raise ValueError("its attention looks both ways: it is an encoder")
    if mask is not None and mask.numel() > 1:  # one number stands for none where a layer takes a part of it
        raise ValueError("its attention has masks of its own")
    biases = [name for name, value in options.items() if "bias" in name and value is not None]
    if biases:
        raise ValueError(f"its attention adds a {biases[0]} to scores")


AttentionInterface.register(_ATTENTION, _paged)


def attend_through_ours(model: PreTrainedModel, decoder: PreTrainedModel) -> None:
    call_ours(decoder, _paged)
    for module in decoder.modules():
        if getattr(module, "attn_temperature_tuning", False) and not module.use_rope:
            module.attn_temperature_tuning = False
            setattr(module, _GROWTH, QueryGrowth(module.floor_scale, module.attn_scale))
    if type(model).__name__ not in _NEED_MASKS:
        decoder.set_attn_implementation(_ATTENTION)
        decoder.config._attn_implementation = _ATTENTION  # older ones keep theirs, for which masks are made
