"""Layers that choose which positions a row attends to (DSA), over our cache.

An indexer of `transformers` scores all positions before a row and gives the best ones. Its own code runs
here, for some rows of one sequence at a time, with that sequence's index keys. They lie in the cache, each
behind the latent of its token. `kernels/attention/selected_attention.py` attends to what it chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from ....kernels.attention.kv_cache import write_latents
from ....kernels.attention.paged_attention import PagedBatch
from ....kernels.attention.selected_attention import SelectedRows, portions
from .caches import CachedLayers

_SCORE_BYTES: Final = 64 * 1024**2
"""Of scores, or of chosen latents, that are held at once, unless those of one row are more."""


def keep_index_keys(decoder: nn.Module, layers_of_step: Callable[[], CachedLayers | None]) -> None:
    """Have each indexer of a decoder find the sequences of a step; None of `layers_of_step` is a step without
    values."""
    for module in list(decoder.modules()):
        if callable(getattr(module, "expand_kv", None)) and hasattr(module, "indexer"):
            module.register_forward_pre_hook(_with_mask, with_kwargs=True)
            indexer: Any = module.indexer
            if indexer is not None:
                indexer.forward = partial(_select, indexer, type(indexer).forward, layers_of_step)


def index_size_of(module: nn.Module) -> int:
    """Numbers of an index key that an attention layer keeps of a token; 0 if it has no indexer."""
    indexer: Any = getattr(module, "indexer", None)
    return 0 if indexer is None else int(indexer.head_dim)


def _with_mask(
    module: nn.Module, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """None is made for us, and the layer takes a part of it."""
    if options.get("attention_mask") is None:
        options = options | {"attention_mask": torch.zeros(1, 1, 1, 1)}
    return args, options


@dataclass(slots=True)
class _IndexKeys:
    """Stands for the cache of `transformers`: the index keys of the sequence of some rows."""

    cache: Tensor
    batch: PagedBatch
    rows: SelectedRows
    is_read: bool

    def update_indexer(self, keys: Tensor, _: int) -> Tensor:
        """Keep those of the rows, [1, rows, size], and give the sequence's up to them."""
        rows, (_, _, _, block_size, width) = self.rows, self.cache.shape
        size = keys.shape[2]
        slots = self.batch.write_slots[rows.first_row : rows.first_row + rows.num_rows]
        write_latents(self.cache, slots, keys[0], width - size)
        if not self.is_read:
            return keys
        end = rows.start + rows.num_rows
        blocks = self.batch.block_tables[rows.sequence, : -(-end // block_size)]
        return self.cache.index_select(0, blocks).view(1, -1, width)[:, :end, width - size :]


def _select(
    indexer: Any,  # noqa: ANN401 (of any family)
    choose: Callable[..., Tensor],
    layers_of_step: Callable[[], CachedLayers | None],
    hidden_states: Tensor,
    q_resid: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    *_: object,
    **__: object,
) -> tuple[SelectedRows, ...]:
    """In place of an indexer's `forward`: what each row of the step sees."""
    layers = layers_of_step()
    if layers is None:
        return ()
    cache, batch = layers.of(indexer.layer_idx)
    context = batch.block_tables.shape[1] * batch.block_size
    row_bytes = max(indexer.n_heads * context * 4, indexer.index_topk * cache.shape[4] * 4)
    selected: list[SelectedRows] = []
    for rows in portions(batch, max(_SCORE_BYTES // row_bytes, 1)):
        own = slice(rows.first_row, rows.first_row + rows.num_rows)
        end = rows.start + rows.num_rows
        is_chosen = end > indexer.index_topk
        # Rows that see all are scored against themselves: nobody looks at it, but their keys are made so.
        length = end if is_chosen else rows.num_rows
        mask = torch.full((rows.num_rows, length), float("-inf"), device=hidden_states.device)
        mask = mask.triu(length - rows.num_rows + 1)[None]
        keys = _IndexKeys(cache, batch, rows, is_chosen)
        cos_and_sin = tuple(each[:, own] for each in position_embeddings)
        positions = choose(
            indexer, hidden_states[:, own], q_resid[:, own], cos_and_sin, mask, None, past_key_values=keys
        )
        selected.append(replace(rows, positions=positions[0] if is_chosen else None))
    return tuple(selected)
