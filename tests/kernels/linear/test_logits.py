"""Near ties fall as float32 has them, in every dtype."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.linear.linear import linear, pack_linear
from sensorium.kernels.linear.logits import likeliest_in_float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 5, 80])
def test_the_likeliest_are_those_of_the_exact_product(dtype: torch.dtype, rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    hidden = (4 * torch.randn(rows, 64, generator=generator)).to(dtype)
    weight = torch.randn(600, 64, generator=generator).to(dtype)
    weight[300:] = weight[:300]
    weight[300:, 0] *= 1 + 2 * torch.finfo(dtype).eps  # every row is nearly tied with another
    exact = hidden.double() @ weight.double().T
    rounded = linear(hidden, pack_linear(weight)).float()
    assert rows == 1 or not torch.equal(rounded.argmax(1), exact.argmax(1)), "rounding does not matter here"
    found = likeliest_in_float32(rounded.clone(), hidden, weight)
    best = exact.topk(20, dim=1)
    chosen = exact.gather(1, found.argmax(1, keepdim=True))
    torch.testing.assert_close(chosen, best.values[:, :1], atol=1e-4, rtol=0)
    torch.testing.assert_close(found.amax(1).double(), exact.amax(1), atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(found.gather(1, best.indices).double(), best.values, atol=1e-3, rtol=1e-5)


def test_float32_and_nothing_stay_as_they_are() -> None:
    logits, hidden, weight = torch.randn(2, 40), torch.randn(2, 8), torch.randn(40, 8)
    assert torch.equal(likeliest_in_float32(logits.clone(), hidden, weight), logits)
    none = torch.zeros(0, 40)
    assert likeliest_in_float32(none, torch.zeros(0, 8).half(), weight.half()).shape == (0, 40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1, 31, 64, 333, 5000])
def test_company_and_threads_change_no_bit(dtype: torch.dtype, vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    hidden = torch.randn(5, 72, generator=generator).to(dtype)
    weight = torch.randn(vocab, 72, generator=generator).to(dtype)
    rounded = (hidden @ weight.T).to(torch.bfloat16)
    together = likeliest_in_float32(rounded, hidden, weight, is_rounded=True)
    assert together.dtype is torch.float32
    exact = hidden.double() @ weight.double().T
    for row in range(5):
        rows = slice(row, row + 1)
        alone = likeliest_in_float32(rounded[rows], hidden[rows], weight, is_rounded=True)
        assert torch.equal(alone, together[rows])
        torch.testing.assert_close(alone.amax().double(), exact[row].amax(), atol=1e-4, rtol=1e-5)
    changed = (together != rounded.float()).sum(1)
    assert (changed <= 32).all(), "only the largest change"


def test_what_is_not_finite_is_seen_still() -> None:
    hidden, weight = torch.randn(4, 64).bfloat16(), torch.randn(500, 64).bfloat16()
    logits = linear(hidden, pack_linear(weight))
    logits[1, 77], logits[2, 5], logits[3] = torch.nan, torch.inf, torch.nan
    found = likeliest_in_float32(logits, hidden, weight)
    assert torch.isfinite(found[[0, 2]]).all(), "of rows that are finite the likeliest are computed again"
    assert found[1, 77].isnan()
    assert found[3].isnan().all()
