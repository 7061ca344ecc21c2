"""Attention layers of older models, which compute attention themselves, made to call ours.

A layer that keeps its attention in a method of its own has that method replaced, others their forward pass.
Both are what the model's file does, up to the attention itself. `engine/models/transformers/model.py` has
what is called. Biases by distance (ALiBi) are not known to our attention: who adds them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from torch import Tensor, nn

Attention = Callable[..., tuple[Tensor, None]]
"""As transformers' attention interface has it: layer, query, key and value [1, heads, rows, dim] and options
to [1, rows, heads, dim]."""


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
        mixed, _ = attention(module, query, key, value, None, scaling=value.shape[-1] ** -0.5)
        return mixed.transpose(1, 2), None

    module._attn = attend


def _gpt(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """GPT, whose keys are [1, heads, dim, rows]."""
    module.layer_idx = index

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> list[Tensor]:
        scaling = value.shape[-1] ** -0.5 if module.scale else 1.0
        mixed, _ = attention(module, query, key.transpose(2, 3), value, None, scaling=scaling)
        return [mixed.transpose(1, 2)]

    module._attn = attend


def _gpt_neo(module: Any, index: int, attention: Attention) -> None:  # noqa: ANN401
    """GPT-Neo, which does not scale, and has windows in every other layer."""
    inner = module.attention
    inner.layer_idx = index
    window = inner.config.window_size if module.attention_type == "local" else None

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: object) -> tuple[Tensor, None]:
        mixed, _ = attention(inner, query, key, value, None, scaling=1.0, sliding_window=window)
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
    "ZambaAttention": _zamba,
    "Zamba2Attention": _zamba,
}
"""By the name of the class in `transformers`."""
