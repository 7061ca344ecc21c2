"""How Qwen3-ASR's audio tower cuts an utterance: frames to chunks, chunks to windows, windows to tokens.

Torch-free arithmetic for prompts and for the live side; `engine/models/qwen3_asr/tower.py` computes what is
counted here. A chunk is what the convolutions see at once, a window (8 s) what attention sees at once: one
encoder item.
"""

from __future__ import annotations

from typing import Final

N_WINDOW: Final = 50
"""Half a chunk, in mel frames of 10 ms: what every published checkpoint uses."""

_NUM_CONVOLUTIONS: Final = 3


def num_conv_tokens(num_frames: int) -> int:
    """Positions left of one chunk's frames after three convolutions of stride 2 (0 of 0)."""
    for _ in range(_NUM_CONVOLUTIONS):
        num_frames = (num_frames + 1) // 2
    return num_frames


def num_audio_tokens(num_frames: int, n_window: int = N_WINDOW) -> int:
    """Prompt tokens (placeholders, rows of the encoding) that `num_frames` mel frames become: 13 a second."""
    whole, rest = divmod(num_frames, 2 * n_window)
    return whole * num_conv_tokens(2 * n_window) + num_conv_tokens(rest)
