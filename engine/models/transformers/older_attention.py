"""Attention layers that our attention does not fit as they are, made to call it.

Older models compute attention themselves: who keeps it in a method has that replaced, others their forward
pass. Biases by distance (ALiBi) become two more numbers of each key. All else is what the model's file does.
`engine/models/transformers/attention.py` has what is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

Attention = Callable[..., tuple[Tensor, None]]
"""As transformers' attention interface has it: layer, query, key and value [1, heads, rows, dim] and options
to [1, rows, heads, dim]."""


_PART: Final = 256
"""Positions are kept as two numbers that any dtype has exactly: of parts and within one."""
_EVEN: Final = 8
"""Numbers of a key are a multiple of."""


def call_ours(decoder: nn.Module, attention: Attention) -> None:
    """Let such layers of a decoder call `attention`."""
    found = [
        (module, _KINDS[name]) for module in decoder.modules() if (name := type(module).__name__) in _KINDS
    ]
    for index, (module, replace) in enumerate(found):
        replace(module, index, attention)


def _method(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401 (a layer of transformers)
    """Of queries, keys and values [1, heads, rows, dim], scaled as usual."""
    module.layer_idx = index

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> tuple[Tensor, None]:
        mixed, _none = attention(module, query, key, value, None, scaling=value.shape[-1] ** -0.5)
        return mixed.transpose(1, 2), None

    module._attn = attend


def _gpt(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """GPT, whose keys are [1, heads, dim, rows]."""
    module.layer_idx = index

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> list[Tensor]:
        scaling = value.shape[-1] ** -0.5 if module.scale else 1.0
        mixed, _none = attention(module, query, key.transpose(2, 3), value, None, scaling=scaling)
        return [mixed.transpose(1, 2)]

    module._attn = attend


def _gpt_neo(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """GPT-Neo, which does not scale, and has windows in every other layer."""
    inner = module.attention
    inner.layer_idx = index
    window = inner.config.window_size if module.attention_type == "local" else None

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> tuple[Tensor, None]:
        mixed, _none = attention(inner, query, key, value, None, scaling=1.0, sliding_window=window)
        return mixed.transpose(1, 2), None

    inner._attn = attend


def _falcon(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """Falcon."""
    module.layer_idx = index
    module.forward = partial(_falcon_forward, module, attention)


def _falcon_forward(
    module: Any,  # noqa: ANN401
    attention: Attention,
    hidden_states: Tensor,
    alibi: Tensor | None,
    *_: object,
    position_embeddings: tuple[Tensor, Tensor],
    **__: object,
) -> tuple[Tensor, None]:
    if alibi is not None:
        raise ValueError("it adds biases by distance (alibi), which are not known here")
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    parts = module._split_heads(module.query_key_value(hidden_states))
    query, key, value = (part.transpose(1, 2) for part in parts)
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    mixed, _none = attention(module, query, key, value, None, scaling=module.inv_norm_factor)
    return module.dense(mixed.flatten(2)), None


def _xglm(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """XGLM."""
    module.layer_idx = index
    module.forward = partial(_xglm_forward, module, attention)


def _xglm_forward(
    module: Any,  # noqa: ANN401
    attention: Attention,
    hidden_states: Tensor,
    *_: object,
    **__: object,
) -> tuple[Tensor, None]:
    parts = (project(hidden_states) for project in (module.q_proj, module.k_proj, module.v_proj))
    query, key, value = (part.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for part in parts)
    mixed, _none = attention(module, query, key, value, None, scaling=module.scaling)
    return module.out_proj(mixed.flatten(2)), None


def _bloom(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """BLOOM."""
    places = _Places(module)
    slopes = module.build_alibi_tensor(torch.ones(1, 2), module.num_heads, torch.float32)[:, 0, 1]
    for number, block in enumerate(module.h):
        layer = block.self_attention
        layer.layer_idx = number
        layer.forward = partial(_bloom_forward, layer, partial(_by_distance, attention, places, slopes))


def _bloom_forward(
    layer: Any,  # noqa: ANN401
    attention: Attention,
    hidden_states: Tensor,
    residual: Tensor,
    **_: object,
) -> tuple[Tensor, None]:
    query, key, value = layer._reshape(layer.query_key_value(hidden_states))
    mixed, _none = attention(layer, query, key, value, layer.inv_norm_factor)
    return layer.dense(mixed.flatten(2)) + residual, None


def _mpt(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """MPT."""
    places = _Places(module)
    slopes = module.build_mpt_alibi_tensor(module.num_heads, 2)[:, 0].diff()[:, 0].float()
    for number, block in enumerate(module.blocks):
        layer = block.attn
        layer.layer_idx = number
        layer.forward = partial(_mpt_forward, layer, partial(_by_distance, attention, places, slopes))
    module.build_mpt_alibi_tensor = lambda *_, **__: None


def _mpt_forward(
    layer: Any,  # noqa: ANN401
    attention: Attention,
    hidden_states: Tensor,
    **_: object,
) -> tuple[Tensor, None]:
    mixed = layer.Wqkv(hidden_states)
    if layer.clip_qkv:
        mixed = mixed.clamp(min=-layer.clip_qkv, max=layer.clip_qkv)
    query, key, value = (
        part.unflatten(-1, (layer.n_heads, -1)).transpose(1, 2) for part in mixed.chunk(3, dim=2)
    )
    output, _none = attention(layer, query, key, value, layer.softmax_scale)
    return layer.out_proj(output.flatten(2)), None


class _Places:
    """The positions of the rows that a decoder is run with."""

    positions: Tensor

    def __init__(self, decoder: nn.Module) -> None:
        decoder.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, decoder: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.positions = options["position_ids"][0]


def _by_distance(
    attention: Attention,
    places: _Places,
    slopes: Tensor,
    layer: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float,
) -> tuple[Tensor, None]:
    """With `slopes` [heads] times a key's position added to its scores, as softmax takes it for minus its
    distance: a key has its position, and a query the slope, as two more numbers each."""
    size = value.shape[-1]
    width = -(-(size + 2) // _EVEN) * _EVEN
    parts = torch.stack((places.positions // _PART, places.positions % _PART), -1).to(key.dtype)
    steps = (slopes[:, None] * torch.tensor([float(_PART), 1.0], device=slopes.device) / scaling).to(query)
    heads, rows = query.shape[1:3]
    query = torch.cat((query, steps[None, :, None].expand(1, heads, rows, 2)), -1)
    key = torch.cat((key, parts[None, None].expand(1, heads, rows, 2)), -1)
    query, key = (pad(each, (0, width - size - 2)) for each in (query, key))
    mixed, _none = attention(layer, query, key, pad(value, (0, width - size)), None, scaling=scaling)
    return mixed[..., :size], None


def _diffllama(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """Differential attention: each head mixes two values, which are one of twice the size here."""
    module.forward = partial(_diffllama_forward, module, attention)


def _diffllama_forward(
    layer: Any,  # noqa: ANN401
    attention: Attention,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    *_: object,
    **__: object,
) -> tuple[Tensor, None]:
    from transformers.models.diffllama.modeling_diffllama import apply_rotary_pos_emb

    query, key, value = (
        project(hidden_states).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
        for project in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    value = torch.cat([half.repeat(1, 2, 1, 1) for half in value.chunk(2, dim=1)], -1)
    mixed, _none = attention(layer, query, key, value, None, scaling=layer.scaling)
    first, second = mixed.chunk(2, dim=2)
    pairs = ((layer.lambda_q1, layer.lambda_k1), (layer.lambda_q2, layer.lambda_k2))
    plus, minus = ((q * k).sum(-1, dtype=torch.float32).exp().to(query) for q, k in pairs)
    mixed = first - (plus - minus + layer.lambda_init) * second
    return layer.o_proj(((1 - layer.lambda_init) * layer.groupnorm(mixed)).flatten(2)), None


def _hrm(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """HRM, whose layers are run several times, each with a cache of its own."""
    first = module.layer_idx

    def number(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:  # noqa: ANN401
        module.layer_idx = first + options["cycle_offset"]

    module.register_forward_pre_hook(number, with_kwargs=True)


def _zamba(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """Zamba, of whose layers several share one module: it is called with the layer's number."""

    def number(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:  # noqa: ANN401
        module.layer_idx = options["layer_idx"]

    module.register_forward_pre_hook(number, with_kwargs=True)


_KINDS: Final[Mapping[str, Callable[[Any, int, Attention], None]]] = {
    "CodeGenAttention": _method,
    "GPTJAttention": _method,
    "GPTNeoXJapaneseAttention": _method,
    "GPTNeoAttention": _gpt_neo,
    "Attention": _gpt,
    "FalconAttention": _falcon,
    "XGLMAttention": _xglm,
    "BloomModel": _bloom,
    "MptModel": _mpt,
    "DiffLlamaAttention": _diffllama,
    "HrmTextAttention": _hrm,
    "ZambaAttention": _zamba,
    "Zamba2Attention": _zamba,
}
"""By the name of the class in `transformers`."""
