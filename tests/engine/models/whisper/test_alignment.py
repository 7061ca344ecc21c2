"""Word times: our warping equals openai/whisper's as `transformers` has it, and finds known answers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.alignment import median_filter, row_starts, token_boundaries
from sensorium.engine.planning.plan import Plan, WholeStep
from sensorium.protocols.engine.messages import Align, ContentHash, Request, RequestId, TokensAligned
from support.plan_loop import encode
from support.whisper_folder import WhisperShape, make_whisper_folder, special_tokens
from transformers import WhisperForConditionalGeneration
from transformers.generation.utils import GenerateEncoderDecoderOutput
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter


@pytest.mark.parametrize("seed", range(20))
def test_warping_equals_transformers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.standard_normal((int(rng.integers(1, 20)), int(rng.integers(20, 60))))
    text, time = _dynamic_time_warping(cost)
    jumps = np.pad(np.diff(text), (1, 0), constant_values=1).astype(bool)
    assert row_starts(cost).tolist() == time[jumps].tolist()


def test_more_rows_than_columns_still_gives_every_row_a_start() -> None:
    starts = row_starts(np.random.default_rng(0).standard_normal((30, 4)))
    assert len(starts) == 30
    assert (np.diff(starts) >= 0).all()


def test_median_filter_equals_transformers() -> None:
    x = torch.randn(2, 5, 40)
    assert torch.equal(median_filter(x, 7), _median_filter(x[None], 7)[0])
    short = torch.randn(2, 5, 3)
    assert torch.equal(median_filter(short, 7), short)


def test_a_staircase_is_found_exactly() -> None:
    """Attention that steps from token to token gives back the steps."""
    edges = [0, 12, 30, 55, 80, 100]
    weights = torch.full((2, 5, 100), 0.001)
    for row in range(5):
        weights[:, row, edges[row] : edges[row + 1]] = 1.0
    assert token_boundaries(weights, 0, 5) == tuple(edges[:-1])


def test_what_comes_before_the_text_is_not_of_its_first_token() -> None:
    """The prompt's first row looks at it; the text's rows begin where they look."""
    edges = [0, 60, 75, 90, 100]
    weights = torch.full((2, 6, 100), 0.001)
    for row, (start, end) in zip((0, 3, 4, 5), itertools.pairwise(edges), strict=True):
        weights[:, row, start:end] = 1.0
    assert token_boundaries(weights, 3, 3) == (60, 75, 90)


def test_what_cannot_be_aligned_is_an_error() -> None:
    with pytest.raises(ValueError, match="not finite"):
        token_boundaries(torch.full((1, 3, 20), float("nan")), 0, 3)
    with pytest.raises(ValueError, match="nothing"):
        token_boundaries(torch.ones(1, 3, 20), 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_equals_transformers_token_timestamps(tmp_path: Path, seed: int) -> None:
    """Same attention, same rows: the times `transformers` extracts, to the position."""
    heads = [(0, 1), (1, 0), (1, 1)]
    folder = make_whisper_folder(tmp_path, seed=seed, alignment_heads=heads)
    model: Any = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    window = torch.randn(80, 200, generator=torch.Generator().manual_seed(seed))
    ids = special_tokens(WhisperShape())
    prompt = (ids.start, ids.languages["en"], ids.transcribe, ids.no_timestamps)
    text = tuple(range(40, 52))
    tokens = (*prompt, *text, ids.end)
    with torch.no_grad():
        output = model(window[None], decoder_input_ids=torch.tensor([tokens]), output_attentions=True)
    weights = torch.stack([output.cross_attentions[layer][0, head] for layer, head in heads])

    rows = weights[:, len(prompt) :]
    theirs = model._extract_token_timestamps(
        GenerateEncoderDecoderOutput(
            sequences=torch.tensor([tokens]), cross_attentions=(output.cross_attentions,)
        ),
        heads,
        num_input_ids=len(prompt),
    )
    ours = token_boundaries(rows, 0, rows.shape[1])
    torch.testing.assert_close(torch.tensor(ours) * 0.02, theirs[0, len(prompt) : -1])

    # Through the runner: rows as openai/whisper chooses them, attention computed by us.
    runner = Runner(open_model(folder, device="cpu", dtype="float32").load(), num_blocks=4)
    encode(runner, [window])
    command = Request(
        RequestId("a"),
        tokens,
        Align(len(prompt), len(prompt) + len(text), 100),
        encoder_hash=ContentHash("h"),
    )
    result = runner.execute(Plan(0, wholes=(WholeStep(command, 0),)))
    expected = token_boundaries(weights, len(prompt) - 1, len(text) + 1)
    assert result.wholes == {"a": TokensAligned(RequestId("a"), expected)}
    assert len(expected) == len(text) + 1
    assert list(expected) == sorted(expected)
