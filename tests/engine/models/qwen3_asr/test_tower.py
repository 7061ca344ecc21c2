"""Windows of any length, in any company, are encoded as transformers' Qwen3-ASR encoder and projector do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.models.qwen3_asr import tower as audio_tower
from sensorium.engine.models.qwen3_asr.tower import AudioTower, AudioTowerConfig
from sensorium.engine.models.weights import read_tensors
from support.asr_folder import AsrShape, load_reference, make_asr_folder
from support.text_folder import QwenShape
from torch import Tensor

SHAPES = {
    "plain": AsrShape(),
    "deep": AsrShape(num_layers=4, num_heads=2, conv_channels=6, text=QwenShape(hidden_size=20, num_heads=2)),
    "relu, 80 bins": AsrShape(num_mel_bins=80, activation="relu", ffn_size=24, d_model=16),
}


class Pair:
    """Our tower and transformers' model over the same weights."""

    def __init__(self, folder: Path, shape: AsrShape, seed: int, dtype: torch.dtype = torch.float32) -> None:
        make_asr_folder(folder, seed=seed, shape=shape)
        self.reference: Any = load_reference(folder)
        self.config = AudioTowerConfig(
            num_mel_bins=shape.num_mel_bins,
            num_layers=shape.num_layers,
            num_heads=shape.num_heads,
            hidden_size=shape.d_model,
            ffn_size=shape.ffn_size,
            conv_channels=shape.conv_channels,
            output_size=shape.text.hidden_size,
            chunk_frames=100,
            window_frames=800,
            activation="relu" if shape.activation == "relu" else "gelu",
        )
        names = self.config.tensor_shapes()
        decoder = {
            name.removeprefix("model."): tuple(tensor.shape)
            for name, tensor in self.reference.state_dict().items()
            if "language_model" in name
        }
        reader = read_tensors(folder, names | decoder, torch.device("cpu"), dtype, renames=(("model.", ""),))
        self.tower = AudioTower(self.config, reader)

    def expected(self, frames: Tensor) -> Tensor:
        """Rows of a whole utterance [mels, frames], by transformers."""
        missing = -frames.shape[1] % 100
        mask = torch.cat([torch.ones(frames.shape[1]), torch.zeros(missing)]).long()
        with torch.inference_mode():
            rows: Tensor = self.reference.get_audio_features(
                F.pad(frames, (0, missing))[None], mask[None]
            ).pooler_output
        return rows

    def noise(self, num_frames: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * seed + num_frames)
        return torch.randn(self.config.num_mel_bins, num_frames, generator=generator)


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name: str = request.param
    return Pair(tmp_path_factory.mktemp("asr") / "model", SHAPES[name], seed=len(name))


@pytest.mark.parametrize("num_frames", [1, 2, 7, 8, 9, 50, 99, 100, 101, 399, 745, 799, 800])
def test_a_window_equals_the_reference(pair: Pair, num_frames: int) -> None:
    frames = pair.noise(num_frames)
    (rows,) = pair.tower.encode([frames])
    assert rows.shape == (pair.config.num_tokens(num_frames), pair.config.output_size)
    torch.testing.assert_close(rows, pair.expected(frames), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_frames", [801, 850, 1600, 1999, 2_037])
def test_windows_of_an_utterance_equal_the_reference(pair: Pair, num_frames: int) -> None:
    frames = pair.noise(num_frames)
    rows = torch.cat(pair.tower.encode(frames.split(800, dim=1)))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(rows, pair.expected(frames), atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(lengths=st.lists(st.integers(1, 800), min_size=1, max_size=9))
def test_company_changes_nothing(pair: Pair, lengths: list[int]) -> None:
    windows = [pair.noise(length, seed) for seed, length in enumerate(lengths)]
    for window, rows in zip(windows, pair.tower.encode(windows), strict=True):
        torch.testing.assert_close(rows, pair.tower.encode([window])[0], atol=1e-5, rtol=1e-5)
        assert rows.untyped_storage().nbytes() == rows.nbytes  # holds nothing of the others


def test_many_chunks_are_convolved_in_parts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = [pair.noise(800), pair.noise(350), pair.noise(730)]
    expected = pair.tower.encode(windows)
    monkeypatch.setattr(audio_tower, "_CHUNKS_AT_ONCE", 3)
    for rows, whole in zip(pair.tower.encode(windows), expected, strict=True):
        torch.testing.assert_close(rows, whole, atol=1e-5, rtol=1e-5)


def test_nothing_to_encode(pair: Pair) -> None:
    assert pair.tower.encode([]) == []


def test_bfloat16_is_close(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "model", SHAPES["plain"], seed=5, dtype=torch.bfloat16)
    frames = pair.noise(777)
    (rows,) = pair.tower.encode([frames])
    expected = pair.expected(frames)
    assert rows.dtype is torch.bfloat16
    error = (rows.float() - expected).norm() / expected.norm()
    assert error < 0.03
