"""Qwen3-Omni's thinker: pictures as Qwen3-VL with experts, and sound as Qwen3-ASR hears it.

The models that speak, which lie in the same folder, are not read.
"""

from __future__ import annotations

from functools import partial

from ...prompts import AudioWindows
from ...qwen3_asr.windows import num_audio_tokens
from ..family import Checkpoint, MediaFamily
from . import qwen3_vl_moe
from .audio_windows import EXTRACTORS
from .qwen2_5_omni import with_audio


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Clips below half a second are filled up to that, as for Qwen3-ASR."""
    n_window = checkpoint.size("audio_config.n_window", 50)
    window_frames = checkpoint.size("audio_config.n_window_infer", 800)
    num_tokens = partial(num_audio_tokens, n_window=n_window)
    windows = AudioWindows(window_frames, num_tokens, extractors=EXTRACTORS)
    return with_audio(qwen3_vl_moe.open_family(checkpoint), checkpoint, windows, num_tokens)
