"""In place of the keys and values of a `transformers` model with MLA: attention over its latents.

A layer of `transformers` compresses a token to a latent, has `expand_kv` make keys and values of it, and
gives those to the attention interface. Here `expand_kv` gives the latents as they are, and
`kernels/attention/latent_attention.py` has the matrices that would expand them.
`engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ....kernels.attention.latent_attention import LatentSizes


class UpProjection(nn.Module):
    """What expands latents to keys and values of all heads; its weight keeps its name and shape."""

    weight: nn.Parameter

    def __init__(self, original: nn.Module, sizes: LatentSizes) -> None:
        super().__init__()
        self.register_parameter("weight", original.get_parameter("weight"))
        self.sizes = sizes

    @property
    def by_head(self) -> Tensor:
        """[heads, key + value, rank]."""
        return self.weight.view(-1, self.sizes.key + self.sizes.value, self.sizes.rank)


def keep_latents(decoder: nn.Module) -> None:
    """Have each layer that compresses its keys and values give latents to attention."""
    for module in list(decoder.modules()):
        if callable(getattr(module, "expand_kv", None)):
            _keep(module)


def up_projection_of(module: nn.Module) -> UpProjection | None:
    """That of a layer which gives latents."""
    found = getattr(module, "kv_b_proj", None)
    return found if isinstance(found, UpProjection) else None


def _keep(module: Any) -> None:  # noqa: ANN401 (a layer of any family)
    sizes = LatentSizes(
        rank=module.kv_lora_rank,
        shared=module.qk_rope_head_dim,
        key=module.qk_nope_head_dim,
        value=module.v_head_dim,
    )
    module.kv_b_proj = UpProjection(module.kv_b_proj, sizes)
    module.expand_kv = _as_they_are


def _as_they_are(latents: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
    return latents, shared


def joined(latents: Tensor, shared: Tensor) -> Tensor:
    """Both [1, 1, rows, …] → what is kept of each row, [rows, rank + shared]."""
    return torch.cat((latents[0, 0], shared[0, 0]), -1)
