"""`sensorium bench-text` against a real server of random models: all is measured, a refusal is told."""

from __future__ import annotations

import io
import math
import random
from functools import partial

import anyio
import httpx
import pytest
from PIL import Image
from sensorium.client.bench.text import TextPlan, TextResult, measure_text, noise_png, text_report
from sensorium.client.errors import SDKError
from support.server import Server

pytestmark = pytest.mark.slow

SMALL = {"prompt_tokens": 8, "output_tokens": 6, "shared_prefix_tokens": 32, "prefill_tokens": 40}


def measure(server: Server, **more: object) -> TextResult:
    plan = TextPlan(
        base_urls=(server.url, server.url),
        concurrency=(1, 3),
        num_rounds=2,
        **(SMALL | more),  # type: ignore[arg-type]
    )
    return anyio.run(partial(measure_text, plan, lambda _: None), backend="trio")


def test_every_figure_has_a_value_per_round_and_server(text_server: Server) -> None:
    result = measure(text_server, model="vision", image_side=32)
    figures = {row.figure for row in result.rows}
    assert {"decode, 1 at a time", "decode, 3 at a time", "prefill of 40 tokens"} < figures
    assert any(figure.startswith("shared prefix of 32") for figure in figures)
    assert any(figure.startswith("same image again") for figure in figures)
    assert len(result.rows) == 2 * len(figures)
    assert all(len(row.values) == 2 and all(map(math.isfinite, row.values)) for row in result.rows)
    report = text_report(result)
    assert all(figure in report for figure in figures)


def test_a_refusal_ends_the_run_with_the_servers_words(text_server: Server) -> None:
    with pytest.raises(SDKError, match="`nobody` does not exist"):
        measure(text_server, model="nobody")


def test_what_fails_is_counted_and_the_rest_goes_on(text_server: Server) -> None:
    result = measure(text_server, model="text", image_side=32)  # a model without eyes
    assert len(result.failures) == 2
    assert set(result.failures.values()) == {2}
    assert not any("image" in row.figure for row in result.rows)
    assert all(len(row.values) == 2 for row in result.rows)
    assert "2 requests failed" in text_report(result)


def test_ids_above_the_vocabulary_are_refused_so_it_is_asked_for(text_server: Server) -> None:
    sizes = {card["id"]: card["vocab_size"] for card in httpx.get(f"{text_server.api}/models").json()["data"]}
    assert not measure(text_server, model="text").failures
    with pytest.raises(SDKError):
        measure(text_server, model="text", max_token_id=1000 * sizes["text"])


def test_noise_images_are_images_and_never_the_same() -> None:
    draw = random.Random(1).randbytes
    one, other = noise_png(48, draw), noise_png(48, draw)
    assert one != other
    with Image.open(io.BytesIO(one)) as image:
        image.load()
        assert (image.size, image.mode, image.format) == ((48, 48), "RGB", "PNG")
        assert len(set(image.get_flattened_data())) > 100
