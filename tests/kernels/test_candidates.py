"""Every way in which an operation can run, against float64: whatever a machine chooses, results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sensorium.kernels.activation import Activation
from sensorium.kernels.attention import dense_attention as attention
from sensorium.kernels.attention.cross_attention import (
    CrossSpan,
    cross_attention,
    cross_attention_by_products,
)
from sensorium.kernels.autotune import Choice, alike, choices, measure
from sensorium.kernels.linear import linear
from sensorium.kernels.linear.float32_tiles import TiledWeight
from sensorium.kernels.linear.linear import (
    MAX_NATIVE_ROWS,
    NUM_ALIKE_ROWS,
    DenseWeight,
    linear_reference,
    pack_linear,
)
from support.attention import attend_reference, cross_attention_reference
from support.choices import Stopwatch, any_threads
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
DTYPES = [torch.float32, torch.bfloat16]


def assert_near(got: Tensor, want: Tensor) -> None:
    assert want.dtype is torch.float64
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)


def packed(out: int, size: int) -> tuple[Tensor, DenseWeight]:
    generator = torch.Generator().manual_seed(out)
    weight = (torch.randn(out, size, generator=generator) / size**0.5).bfloat16()
    made = pack_linear(weight, torch.randn(out, generator=generator).bfloat16())
    if not isinstance(made, DenseWeight) or made.choice is None:
        pytest.skip("one way only here: our loop does not know oneDNN's layout, or is not built")
    return weight, made


@pytest.mark.parametrize("name", linear.CANDIDATES)
@pytest.mark.parametrize("rows", [1, 2, 7, NUM_ALIKE_ROWS, MAX_NATIVE_ROWS, MAX_NATIVE_ROWS + 1, 403])
@pytest.mark.parametrize(("out", "size"), [(64, 96), (200, 256)])
def test_products(name: str, rows: int, out: int, size: int) -> None:
    weight, made = packed(out, size)
    assert made.tiles is not None
    if name == "c" and not made.tiles.take(rows):
        with pytest.raises(AssertionError):
            linear.CANDIDATES[name](torch.randn(rows, size).bfloat16(), made, None)
        return
    x, residual = torch.randn(rows, size).bfloat16(), torch.randn(rows, out).bfloat16()
    assert made.bias is not None
    for added in (None, residual):
        wide = None if added is None else added.double()
        want = linear_reference(x.double(), weight.double(), made.bias.double(), residual=wide)
        assert_near(linear.CANDIDATES[name](x, made, added), want)


def test_whichever_is_chosen_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = packed(128, 64)
    assert made.choice is not None
    x = torch.randn(3, 64).bfloat16()
    seen: list[str] = []
    for name in linear.CANDIDATES:
        way = linear.CANDIDATES[name]

        def run(*given: Any, name: str = name, way: Callable[..., torch.Tensor] = way) -> torch.Tensor:  # noqa: ANN401
            seen.append(name)
            return way(*given)

        monkeypatch.setattr(linear, f"_linear_{name}", run)
    was = made.choice.chosen
    for name in linear.CANDIDATES:
        made.choice.chosen = (name,) * len(was)
        linear.linear(x, made)
    made.choice.chosen = was
    assert seen == list(linear.CANDIDATES)


def test_float32_has_one_way() -> None:
    """So no choice changes its tokens."""
    before = set(choices())
    made = pack_linear(torch.randn(128, 64))
    assert isinstance(made, TiledWeight) or made.choice is None
    attend = attention.attention_choice(2, 32, 1500, torch.float32, torch.device("cpu"))
    assert attend is None
    assert set(choices()) == before


@pytest.mark.parametrize(("out", "size"), [(192, 256), (576, 1536)])
def test_products_that_are_called_alike_are(out: int, size: int) -> None:
    """With other weights and inputs than those they were tried with."""
    half = torch.randn(out, size // 2, dtype=torch.bfloat16)
    made = pack_linear(torch.cat([half, half], 1))
    if not isinstance(made, DenseWeight) or made.choice is None:
        pytest.skip("one way only here")
    x = torch.randn(NUM_ALIKE_ROWS, size, dtype=torch.bfloat16)
    x[:, size // 2 :] = -x[:, : size // 2]  # sums cancel but for what rounding leaves
    for names in alike(made.choice, any_threads):
        together = [linear.CANDIDATES[name](x, made, None) for name in sorted(names)]
        assert all(torch.equal(each, together[0]) for each in together)
        for name in names:
            for rows in (1, 2, 6, 16, 31):
                few = linear.CANDIDATES[name](x[:rows], made, None)
                assert torch.equal(few, together[0][:rows]), (name, rows)


@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh", "relu"])
def test_many_rows_are_as_few_of_them_are(activation: Activation) -> None:
    """Bit for bit, in our loop, whatever a share and a block of rows are."""
    _, made = packed(200, 256)
    assert made.tiles is not None
    assert made.choice is not None
    if not made.tiles.take(1000):
        pytest.skip("no loop for many rows: oneDNN has AMX")
    was, made.choice.chosen = made.choice.chosen, ("c",) * len(made.choice.rows)
    try:
        x = torch.randn(1000, 3, 256, dtype=torch.bfloat16)[:, 1]  # rows that are apart
        many = linear.linear(x, made, activation=activation)
        for first, rows in ((0, 64), (64, 1), (65, 30), (193, 65), (700, 300)):
            part = linear.linear(x[first : first + rows], made, activation=activation)
            assert torch.equal(part, many[first : first + rows]), (first, rows)
    finally:
        made.choice.chosen = was


def attending(name: str, heads: int, dim: int, rows: int) -> Choice:
    """The choice of an encoder that runs by this way."""
    choice = attention.attention_choice(heads, dim, rows, torch.bfloat16, torch.device("cpu"))
    assert choice is not None
    if name not in choice.candidates:
        pytest.skip("there is no C compiler")
    choice.chosen = (name,) * len(choice.rows)
    return choice


@pytest.mark.parametrize("name", attention.CANDIDATES)
@pytest.mark.parametrize("rows", [1, 40, 63, 300])
@pytest.mark.parametrize("dim", [16, 64, 72, 80, 128])
def test_attention_of_encoders(name: str, rows: int, dim: int) -> None:
    """As queries, keys and values lie behind one projection."""
    choice = attending(name, 3, dim, rows)
    query, key, value = torch.randn(2, rows, 3, 3, dim).bfloat16().permute(2, 0, 3, 1, 4)
    want = attend_reference(query.double(), key.double(), value.double())
    assert_near(attention.attend(query, key, value, choice=choice), want)
    assert attention.attention_choice(3, dim, rows, torch.float32, torch.device("cpu")) is None


@pytest.mark.parametrize("name", attention.CANDIDATES)
def test_attention_however_it_lies(name: str) -> None:
    choice = attending(name, 3, 16, 100)
    query, key, value = torch.randn(3, 2, 3, 100, 16).bfloat16()
    want = attend_reference(query.double(), key[:, :, :77].double(), value[:, :, :77].double())
    got = attention.attend(query, key[:, :, :77], value[:, :, :77], choice=choice)
    assert_near(got, want)
    wide = torch.randn(2, 100, 3, 32).bfloat16().transpose(1, 2)[..., ::2]
    want = attend_reference(wide.double(), key.double(), value.double())
    assert_near(attention.attend(wide, key, value, choice=choice), want)


@pytest.mark.parametrize("name", attention.CANDIDATES)
@pytest.mark.parametrize("step", [-0.4, 0.02, 3.0])
def test_attention_whose_scores_grow(name: str, step: float) -> None:
    """By less and by more than what makes earlier sums shrink, until one position has all."""
    rows = 400
    choice = attending(name, 2, 64, rows)
    query = torch.ones(1, 2, rows, 64).bfloat16()
    key = (torch.arange(rows)[:, None] * step / 64 * 8 + torch.zeros(1, 2, rows, 64)).bfloat16()
    value = torch.randn(1, 2, rows, 64).bfloat16()
    want = attend_reference(query.double(), key.double(), value.double())
    assert_near(attention.attend(query, key, value, choice=choice), want)


@pytest.mark.parametrize("name", attention.CANDIDATES)
def test_attention_to_what_is_no_number(name: str) -> None:
    choice = attending(name, 2, 16, 100)
    query, key, value = torch.randn(3, 1, 2, 100, 16).bfloat16()
    key[0, 0, 70, 3] = torch.nan
    query[0, 1, 5] = torch.inf
    got = attention.attend(query, key, value, choice=choice)
    assert got[0, 0].isnan().all()
    assert got[0, 1].isnan().all(1).tolist() == [row == 5 for row in range(100)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [cross_attention, cross_attention_by_products])
@pytest.mark.parametrize("lengths", [(1,), (4, 1, 7)])
def test_attention_to_encodings(dtype: torch.dtype, way: object, lengths: tuple[int, ...]) -> None:
    assert callable(way)
    spans: list[CrossSpan] = []
    for length in lengths:
        start = spans[-1].end if spans else 0
        spans.append(CrossSpan(start, start + length, torch.randn(2, 2, 50, 16).to(dtype)))
    query = torch.randn(spans[-1].end, 2, 16).to(dtype)
    wide = [CrossSpan(each.start, each.end, each.memory.double()) for each in spans]
    assert_near(way(query, spans), cross_attention_reference(query.double(), wide))


def test_what_can_be_chosen_can_be_measured() -> None:
    """Every operation's own data, by a clock that stands still."""
    _, made = packed(96, 64)
    encoder = attention.attention_choice(2, 16, 100, torch.bfloat16, torch.device("cpu"))
    assert encoder is not None
    assert made.choice is not None
    for choice in (made.choice, encoder):
        assert choice in choices()
        times = measure(choice, Stopwatch(), any_threads)
        assert times is not None
        assert [set(by) for by in times.values()] == [set(choice.candidates)] * len(choice.rows)
        num_bytes, operations = choice.cost(choice.rows[-1])
        assert num_bytes > 0
        assert operations > 0
