"""Triton's argmax, random choice and draft check equal their references. Run by `test_interpreter.py`."""

from __future__ import annotations

import random

import pytest
import torch
from sensorium.kernels.argmax import argmax_reference
from sensorium.kernels.gpu.sampling import argmax, draw
from sensorium.kernels.sampling import Filters, draw_reference

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_argmax_takes_the_first_of_equals_or_not_a_number(dtype: torch.dtype) -> None:
    rng = random.Random(1)
    values = [-1.5, -0.0, 0.0, 2.0, INF, -INF, NAN]
    rows = [rng.choices(rng.sample(values, rng.randint(1, len(values))), k=19) for _ in range(40)]
    x = torch.tensor(rows, dtype=dtype)
    assert torch.equal(argmax(x), argmax_reference(x))
    assert torch.equal(argmax(x.t().contiguous().t()), argmax_reference(x))
    assert argmax(x[:0]).shape == (0,)


def test_argmax_of_a_large_vocabulary() -> None:
    x = torch.randn(2, 9001, generator=torch.Generator().manual_seed(0)) - 9  # all below zero
    x[1, [4095, 4096, 9000]] = 5.0
    assert torch.equal(argmax(x), argmax_reference(x))
    assert argmax(x)[1] == 4095


@pytest.mark.parametrize(("seed", "few"), [(0, 1), (1, 16), (2, 1024)])
def test_draws_equal_the_reference(seed: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row wants something else; some tokens are forbidden, many are equally likely; those that are kept
    fit what is gathered, or do not."""
    monkeypatch.setattr("sensorium.kernels.gpu.sampling._FEW", few)
    rng, rows, vocab = random.Random(seed), 16, 60
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3
    logits[::3] = logits[::3].round()
    logits[rng.sample(range(rows), 4), 5:40] = -INF
    filters = Filters(
        temperature=[rng.choice([0.01, 0.5, 1.0, 3.0]) for _ in range(rows)],
        top_k=[rng.choice([0, 1, 4, 59, 60, 99]) for _ in range(rows)],
        top_p=[rng.choice([1.0, 0.9, 0.4, 1e-9]) for _ in range(rows)],
        min_p=[rng.choice([0.0, 0.05, 1.0]) for _ in range(rows)],
    )
    uniforms = [rng.choice([0.0, rng.random(), 1 - 2**-53]) for _ in range(rows)]
    got, want = draw(logits, filters, uniforms), draw_reference(logits.clone(), filters, uniforms)
    assert torch.equal(got, want)


def test_draws_over_several_parts_of_a_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorium.kernels.gpu.sampling._DRAW_BLOCK", 32)
    logits = torch.randn(6, 100, generator=torch.Generator().manual_seed(4))
    filters = Filters([1.0] * 6, [0, 30, 0, 30, 0, 1], [1.0, 1.0, 0.9, 0.8, 1.0, 1.0], [0.0] * 5 + [0.2])
    uniforms = [0.999, 0.7, 0.5, 0.01, 0.3, 0.9]
    assert torch.equal(draw(logits, filters, uniforms), draw_reference(logits.clone(), filters, uniforms))


def test_rows_without_a_choice_still_give_a_token() -> None:
    logits = torch.zeros(3, 10)
    logits[0, 3], logits[1] = NAN, -INF
    plain = Filters([1.0] * 3, [5] * 3, [0.5] * 3, [0.0] * 3)
    got = draw(logits, plain, [0.5] * 3)
    assert ((got >= 0) & (got < 10)).all()
    assert got[2] == draw_reference(logits, plain, [0.5] * 3)[2]
    assert draw(logits[:0], Filters([], [], [], []), []).shape == (0,)
