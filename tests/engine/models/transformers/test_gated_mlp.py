"""Gated feed-forwards as two products: the same numbers, and only where they are such."""

from __future__ import annotations

import pytest
import torch
from sensorium.engine.models.transformers.gated_mlp import GatedMlp, fuse_gated_mlps
from sensorium.engine.models.transformers.rounded import read_bytes, tile_linears
from torch import Tensor, nn


class _Mlp(nn.Module):
    def __init__(self, activation: nn.Module, middle: int = 128, *, biased: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(32, middle, bias=biased)
        self.up_proj = nn.Linear(32, middle, bias=biased)
        self.down_proj = nn.Linear(middle, 32)
        self.act = activation

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return down


def _tiled(mlp: _Mlp) -> nn.Sequential:
    model = nn.Sequential(mlp)
    tile_linears(model)
    return model


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@torch.inference_mode()
def test_the_same_numbers_and_bytes() -> None:
    model = _tiled(_Mlp(nn.SiLU()))
    x = torch.randn(1, 5, 32)
    expected, num_bytes = model(x), read_bytes([model])
    fuse_gated_mlps(model)
    assert isinstance(model[0], GatedMlp)
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
    assert read_bytes([model]) == num_bytes


@pytest.mark.parametrize(
    "mlp",
    [_Mlp(nn.GELU()), _Mlp(nn.SiLU(), 96), _Mlp(nn.SiLU(), biased=True)],
    ids=["another activation", "unfilled tiles", "biases"],
)
@torch.inference_mode()
def test_others_stay(mlp: _Mlp) -> None:
    model = _tiled(mlp)
    fuse_gated_mlps(model)
    assert model[0] is mlp
