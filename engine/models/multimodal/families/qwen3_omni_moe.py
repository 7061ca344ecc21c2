"""Qwen3-Omni's thinker: pictures as Qwen3-VL with experts, and sound as Qwen3-ASR hears it.

The models that speak, which lie in the same folder, are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ...prompts import AudioWindows
from ...qwen3_asr.windows import num_audio_tokens
from ..family import Checkpoint, EncodeBatch, MediaFamily
from . import qwen3_vl_moe
from .audio_windows import EXTRACTORS
from .qwen2_5_omni import encode, with_audio


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Clips below half a second are filled up to that, as for Qwen3-ASR."""
    n_window = checkpoint.size("audio_config.n_window", 50)
    window_frames = checkpoint.size("audio_config.n_window_infer", 800)
    num_tokens = partial(num_audio_tokens, n_window=n_window)
    windows = AudioWindows(window_frames, num_tokens, extractors=EXTRACTORS)
    family = with_audio(qwen3_vl_moe.open_family(checkpoint), checkpoint, windows, num_tokens)
    assert family.audio is not None, "it hears"
    return replace(family, audio=replace(family.audio, encode=_encode_with_chunk(2 * n_window)))


def _encode_with_chunk(chunk_frames: int) -> Callable[[Any, EncodeBatch], Iterable[Any]]:
    """Encodes windows so that what is left behind whole chunks is filled up with zeros to a chunk.

    `transformers` fills up chunks to the longest of a call: the end of a recording when the whole of it is
    encoded at once. Here it may be a window by itself, so a whole chunk goes with it.
    """

    def encode_windows(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
        features = batch.stacked
        number, num_mel_bins, num_frames = features.shape
        if num_frames >= chunk_frames:
            return encode(model, batch)
        filled = features.new_zeros(number + 1, num_mel_bins, chunk_frames)
        filled[:number, :, :num_frames] = features
        mask = batch.below([num_frames] * number + [chunk_frames], chunk_frames).long()
        rows = model.get_audio_features(filled, feature_attention_mask=mask).last_hidden_state
        num_rows = num_audio_tokens(num_frames, chunk_frames // 2)
        return list(rows[: number * num_rows].view(number, num_rows, rows.shape[-1]))

    return encode_windows
