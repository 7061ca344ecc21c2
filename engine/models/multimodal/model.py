"""A model of `transformers` that sees or hears: its own encoders in front of its decoder over our cache.

How an item's features become rows is the family's word (`family.py`); the decoder is run as any other of
`transformers` (`engine/models/transformers/model.py`), with those rows in place of embeddings.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ....kernels.attention.whole_spans import WholeSpan
from ....kernels.linear.weight_codes import Quantization
from ....protocols.engine.messages import Features
from ...text.tokenizer import TextTokenizer
from ..base import EncoderOutput, KvShape, StepBatch, is_whole, values_of
from ..dense.model import EmbeddedRows
from ..info import ModelInfo
from ..source import ModelSource, Opening
from ..transformers.model import RecurrentTransformersModel, TransformersModel
from ..transformers.source import open_with_decoder
from .family import AudioEncoding, Checkpoint, MediaFamily, is_of_shape, open_family
from .side import side_of


@dataclass(frozen=True)
class _Batch:
    """See `EncodeBatch`."""

    values: tuple[Tensor, ...]
    items: tuple[Features, ...]

    @cached_property
    def stacked(self) -> Tensor:
        return torch.stack(self.values)

    @cached_property
    def joined(self) -> Tensor:
        return torch.cat(self.values)

    @property
    def grid(self) -> tuple[int, int, int] | None:
        return self.items[0].grid

    @cached_property
    def grids(self) -> Tensor:
        return torch.tensor([each.grid or (1, 1, 1) for each in self.items], device=self.values[0].device)

    def ids(self, token_ids: Sequence[int]) -> Tensor:
        return torch.tensor(list(token_ids), device=self.values[0].device)

    def below(self, lengths: Sequence[int], size: int) -> Tensor:
        device = self.values[0].device
        return torch.arange(size, device=device) < torch.tensor(lengths, device=device)[:, None]

    @property
    def num_frames(self) -> list[int]:
        return [each.grid[2] if each.grid is not None else each.shape[-1] for each in self.items]


class MultimodalModel(TransformersModel):
    """Encoders and decoder of one checkpoint."""

    reads_tokens = False

    def __init__(
        self,
        family: MediaFamily,
        info: ModelInfo,
        kv_shape: KvShape,
        model: PreTrainedModel,
        device: torch.device,
        quantization: Quantization = "none",
        *,
        adaptable: bool = False,
    ) -> None:
        self._family = family
        self.rotary_axes = family.rotary_axes
        self.sees_ahead_in_windows = family.sees_whole_in_windows
        super().__init__(info, kv_shape, model, device, quantization, adaptable=adaptable)
        # The decoder lies beside the encoders or around them, or is a language model's base that lies there.
        beside = self._model if self._base is self._decoder else self._base
        self._towers: nn.Module = beside if self._encoders is None else self._encoders
        decoding = {self._decoder, self._given}
        for part in self._towers.children() if self._encoders is None else self._towers.modules():
            if isinstance(part, PreTrainedModel) and decoding.isdisjoint(part.modules()):
                # Others keep the weights of all pairs of patches. Towers that have no such way stay so.
                with suppress(ValueError):
                    part.set_attn_implementation(_TOWER_ATTENTION)
            if self._encoders is not None and hasattr(part, "is_causal"):
                cast(Any, part).is_causal = False  # what Phi-4's say where they have no mask, which is wrong
        self._beside_id = None if family.audio is None else family.audio.id_beside_pictures
        self._embed: nn.Module = cast(Any, self._decoder).get_input_embeddings()

    def check_features(self, features: Features) -> None:
        """See `engine/models/base.py`."""
        audio = self._audio_of(features)
        shape, wanted = features.shape, (audio or self._family).feature_shape
        if features.encoded is not None or not is_of_shape(features, wanted):
            shown = ", ".join("any" if size is None else str(size) for size in wanted)
            raise ValueError(f"features have shape {list(shape)}; {self.info.name} takes [{shown}]")
        merge, grid = self._family.merge_size if audio is None else None, features.grid
        if merge is not None:
            if grid is None or min(grid) < 1 or math.prod(grid) != shape[0]:
                raise ValueError(f"{shape[0]} patches do not fill a grid of {grid}")
            if grid[1] % merge or grid[2] % merge:
                raise ValueError(f"a grid of {grid[1]} x {grid[2]} patches does not divide by {merge}")
        if not is_whole(features):
            raise ValueError(f"{len(features.data)} bytes are not float32 values of shape {list(shape)}")
        if not bool(values_of(features).isfinite().all()):
            raise ValueError("features must be finite numbers")

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `engine/models/base.py`; items of one shape, or patches, in one batch."""
        found: dict[int, EncoderOutput] = {}
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, item in enumerate(items):
            audio = self._audio_of(item)
            shape = item.shape if audio is not None or self._family.merge_size is None else None
            grid = None if audio is not None or self._family.batches_any_grid else item.grid
            groups.setdefault((audio is None, shape, grid), []).append(index)
        for (is_visual, *_), indices in groups.items():
            chosen = tuple(items[index] for index in indices)
            values = tuple(values_of(each).to(self.device, self.dtype) for each in chosen)
            encoding = self._family if is_visual else self._family.audio
            assert encoding is not None, "that is how it was found"
            rows = encoding.encode(self._towers, _Batch(values, chosen))
            for index, each in zip(indices, rows, strict=True):
                first, *levels = each if isinstance(each, tuple) else (each,)
                found[index] = EmbeddedRows(self._kept(first), tuple(map(self._kept, levels)))
        return [found[index] for index in range(len(items))]

    def _audio_of(self, features: Features) -> AudioEncoding | None:
        """How such features are encoded where that is not as pictures are."""
        audio = self._family.audio
        return audio if audio is not None and audio.is_audio(features) else None

    def _kept(self, rows: Tensor) -> Tensor:
        """A copy: slices would keep each other in memory."""
        return rows.to(self.dtype).clone(memory_format=torch.contiguous_format)

    def _spans(self, batch: StepBatch) -> Sequence[WholeSpan]:
        if self.info.sees_whole_prompts:
            return tuple(_prompt_spans(batch))
        if not self._family.sees_whole_items or not batch.media:
            return ()
        lengths = batch.paged.context_lengths.tolist()
        ends = list(accumulate(batch.paged.num_queries))
        found = []
        for span in batch.media:
            sequence = bisect_right(ends, span.first_row)
            start = lengths[sequence] - ends[sequence] + span.first_row
            end = start - span.offset + span.output.num_rows
            found.append(WholeSpan(sequence, span.first_row, span.num_rows, start, end))
        return found

    def _inputs(self, batch: StepBatch) -> dict[str, Any]:
        positions = batch.positions[None] if batch.positions.dim() == 1 else batch.positions[:, None]
        token_ids = batch.token_ids
        if (padding := self._family.padding) is not None:
            is_padding = torch.isin(token_ids, torch.tensor(padding.token_ids, device=token_ids.device))
            token_ids = token_ids.masked_fill(is_padding, padding.pad_id)
        embed = self._family.embed
        if not batch.media and embed is None:
            return {"input_ids": token_ids[None], "position_ids": positions}
        x = cast(Tensor, self._embed(token_ids) if embed is None else embed(self._base, token_ids))
        levels: list[list[Tensor]] = []
        is_media = torch.zeros(x.shape[0], dtype=torch.bool, device=x.device)
        for span in batch.media:
            output = span.output
            assert isinstance(output, EmbeddedRows), "that is what `encode` gives"
            place = slice(span.first_row, span.first_row + span.num_rows)
            rows = slice(span.offset, span.offset + span.num_rows)
            if self._beside_id is not None and output.deepstack:
                is_beside = int(token_ids[span.first_row]) == self._beside_id
                x[place] = (output.deepstack[0] if is_beside else output.rows)[rows]
                continue
            x[place] = output.rows[rows]
            if output.deepstack:
                levels.append([each[rows] for each in output.deepstack])
            if output.deepstack or self._family.media_mask is not None:
                is_media[place] = True
        inputs: dict[str, Any] = {"inputs_embeds": x[None], "position_ids": positions}
        if self._family.layer_inputs is not None:
            inputs |= self._family.layer_inputs(self._decoder, token_ids[None])
        if self._family.media_mask is not None:
            inputs[self._family.media_mask] = is_media[None]
        if levels:
            joined = [torch.cat(level) for level in zip(*levels, strict=True)]
            inputs |= self._family.level_inputs(is_media[None], joined)
        return inputs


_TOWER_ATTENTION: Final = "sdpa"
_WIDTHS: Final = 8
"""Rows as wide as a tower that are there at once, beside those of its feed-forward."""


class RecurrentMultimodalModel(MultimodalModel, RecurrentTransformersModel):
    """One of whose layers some keep states."""


def open_source(opening: Opening) -> ModelSource:
    """Check a folder of one of the families: config, tokenizer, what its layers keep of a token."""
    text = TextTokenizer.from_folder(opening.folder)
    checkpoint = Checkpoint.of(opening.folder, text)
    opening = replace(opening, config=checkpoint.config)
    family = open_family(checkpoint)
    kinds = (partial(MultimodalModel, family), partial(RecurrentMultimodalModel, family))
    source = open_with_decoder(
        opening, text, kinds, family.purpose, sees_whole_prompts=family.sees_whole_prompts
    )
    side, patch_bytes = _patch_cost(checkpoint, opening.dtype.itemsize)
    row_bytes = family.row_width * opening.dtype.itemsize
    return replace(
        source,
        side=side_of(text, family, source.info),
        encoder_bytes=lambda num_tokens: num_tokens * row_bytes,
        activation_bytes=lambda num_pixels: num_pixels // side**2 * patch_bytes,
        positions=family.positions,
        sees_whole_items=family.sees_whole_items,
    )


def _prompt_spans(batch: StepBatch) -> Iterator[WholeSpan]:
    """The rows of a step that are of prompts. A prompt's last row alone sees nothing ahead."""
    if max(batch.paged.num_queries) == 1:
        return
    first = 0
    lengths = batch.paged.context_lengths.tolist()
    sequences = zip(lengths, batch.paged.num_queries, batch.rows.prompt_lengths, strict=True)
    for sequence, (length, num_queries, num_prompt) in enumerate(sequences):
        start = length - num_queries
        num_rows = min(num_prompt - start, num_queries)
        if num_rows > 0:
            yield WholeSpan(sequence, first, num_rows, start, num_prompt)
        first += num_queries


def _patch_cost(checkpoint: Checkpoint, itemsize: int) -> tuple[int, int]:
    """Pixels on a side of a tower's patch, and about how many bytes encoding one takes while it lasts."""
    vision = "vision_config."
    patch = checkpoint.value(f"{vision}patch_size", 14)
    width = checkpoint.value(f"{vision}embed_dim", checkpoint.value(f"{vision}hidden_size", 1024))
    middle = checkpoint.value(f"{vision}intermediate_size", 4 * width)
    side = min(patch) if isinstance(patch, list | tuple) else patch
    return side, itemsize * (_WIDTHS * width + 2 * middle)
