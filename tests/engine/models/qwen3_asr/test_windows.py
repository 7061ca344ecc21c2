"""Counting agrees with transformers' processor, and windows add up to the utterance."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.qwen3_asr.windows import num_audio_tokens, num_conv_tokens
from transformers import Qwen3ASRProcessor


@given(num_frames=st.integers(0, 200_000))
def test_tokens_are_those_of_the_processor(num_frames: int) -> None:
    expected = Qwen3ASRProcessor._get_audio_token_length(None, torch.tensor([num_frames]))
    assert num_audio_tokens(num_frames) == int(expected[0])


@pytest.mark.parametrize(("num_frames", "num_tokens"), [(0, 0), (1, 1), (8, 1), (9, 2), (99, 13), (100, 13)])
def test_tokens_of_a_chunk(num_frames: int, num_tokens: int) -> None:
    assert num_conv_tokens(num_frames) == num_tokens


@given(num_frames=st.integers(0, 20_000), chunks=st.integers(1, 12))
def test_windows_of_whole_chunks_add_up(num_frames: int, chunks: int) -> None:
    window_frames = 100 * chunks
    windows = [min(window_frames, num_frames - start) for start in range(0, num_frames, window_frames)]
    assert sum(map(num_audio_tokens, windows)) == num_audio_tokens(num_frames)
