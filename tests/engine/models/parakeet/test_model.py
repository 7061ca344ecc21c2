"""Parakeet CTC's tokens and their rows are those of `transformers`, windows of any lengths in a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel, normalised
from sensorium.protocols.engine.messages import Features, InputChunk, Transduce
from support.ctc_reference import said_in
from support.nemotron_folder import ConformerShape, make_parakeet_folder
from support.transducing import FedStream, Feeder, FloatArray, noise
from transformers import ParakeetForCTC

LENGTHS_S = [0.09 + 0.31 * index for index in range(20)]


def window_of(frames: FloatArray) -> InputChunk:
    """A request's only chunk."""
    data = np.ascontiguousarray(frames).tobytes()
    return InputChunk(Features(frames.shape, data), frames.shape[1], is_last=True)


@pytest.mark.parametrize("shape", [ConformerShape(), ConformerShape(num_mel_bins=128, has_bias=False)])
def test_twenty_lengths_in_one_step(tmp_path: Path, shape: ConformerShape) -> None:
    folder = make_parakeet_folder(tmp_path / "parakeet", shape)
    config = NemoFeatureConfig(shape.num_mel_bins)
    windows = [normalised(log_mel(noise(seconds, seed), config)) for seed, seconds in enumerate(LENGTHS_S)]
    feeder = Feeder(
        Runner(open_model(folder, device="cpu", dtype="float32").load(), num_blocks=1, num_state_slots=20)
    )
    together = [
        FedStream(Transduce(logprobs=slot == 3), [window_of(each)], slot) for slot, each in enumerate(windows)
    ]
    feeder.feed(*together)
    model = ParakeetForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    said = said_in(model, windows)
    expected = [[(each.token_id, each.start) for each in tokens] for tokens in said]
    assert [each.tokens for each in together] == expected
    assert [each.ends for each in together] == [[each.end for each in tokens] for tokens in said]
    assert max(each.end - each.start for tokens in said for each in tokens) > 1
    assert len({token for tokens in expected for token, _ in tokens}) > 5
    assert together[3].logprobs == pytest.approx([each.logprob for each in said[3]], abs=1e-4)
    for slot in (0, 7):
        alone = FedStream(Transduce(), [window_of(windows[slot])], slot)
        feeder.feed(alone)
        assert alone.tokens == expected[slot]


def test_a_chunk_that_is_no_window_is_refused(tmp_path: Path) -> None:
    source = open_model(make_parakeet_folder(tmp_path / "parakeet"), device="cpu", dtype="float32")
    runner = Runner(source.load(), num_blocks=1, num_state_slots=1)
    runner.warm_up()
    frames = np.zeros((80, 40), np.float32)
    chunk = InputChunk(Features(frames.shape, frames.tobytes()), 40)
    with pytest.raises(AssertionError, match="a request has one chunk, which is its last one"):
        Feeder(runner).step([FedStream(Transduce(), [chunk], 0)])
    with pytest.raises(AssertionError, match="lookahead is 6 and condition 0; allowed: 0"):
        Feeder(runner).step([FedStream(Transduce(6), [window_of(frames)], 0)])
    with pytest.raises(AssertionError, match="a window has 3001 frames; allowed: up to 3000"):
        Feeder(runner).step([FedStream(Transduce(), [window_of(np.zeros((80, 3001), np.float32))], 0)])
