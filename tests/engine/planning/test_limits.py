"""Requests that could never run are refused, with the numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    MediaSpan,
    NgramDraft,
    ProbabilityProbe,
    Request,
    RequestId,
    Sample,
    SamplingParams,
)
from sensorium.protocols.errors import BadRequestError

CONFIG = SchedulerConfig(num_blocks=10, block_size=4, max_context=60, vocab_size=50)
GOOD = Request(RequestId("r"), (1,) * 30, Sample(SamplingParams(max_tokens=11)))


def span(start: int, num_tokens: int, grid: tuple[int, int, int] | None = None) -> MediaSpan:
    return MediaSpan(ContentHash("A"), start, num_tokens, grid)


def task(**changes: object) -> Sample:
    """That of `GOOD`, changed."""
    return msgspec.structs.replace(GOOD.task, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_token_ids": ()}, "prompt is empty"),
        (
            {"task": task(sampling=SamplingParams(max_tokens=0))},
            "max_tokens is 0; allowed: at least 1",
        ),
        (
            {"task": task(sampling=SamplingParams(max_tokens=31))},
            "has 30 tokens and max_tokens is 31; .* 60 tokens",
        ),
        (
            {"task": task(sampling=SamplingParams(max_tokens=12))},
            "need 11 blocks of 4 tokens, the engine has 10",
        ),
        ({"task": task(probe=ProbabilityProbe(30, 1))}, "probe's position 30"),
        ({"prompt_token_ids": (1, 50)}, "prompt has the token id 50; .* ends at 49"),
        ({"prompt_token_ids": (1, -1)}, "prompt has the token id -1; allowed: at least 0"),
        ({"task": task(draft_token_ids=(99,))}, "draft has the token id 99"),
        ({"media": (span(28, 3),)}, "item 0 at tokens 28 to 31 is not inside the prompt of 30 tokens"),
        ({"media": (span(-1, 3),)}, "item 0 at tokens -1 to 2 begins before"),
        ({"media": (span(0, 0),)}, "item 0 has 0 tokens"),
        ({"media": (span(0, 5), span(4, 2))}, "item 1 at tokens 4 to 6 begins before .* precedes it, 5"),
        ({"media": (span(0, 3, (1, 2, 2)),)}, "grid of 1×2×2 for 3 tokens"),
        ({"media": (span(0, 4, (1, -2, -2)),)}, "grid of 1×-2×-2"),
        ({"task": task(ngram=NgramDraft(num_tokens=0))}, "num_tokens is 0"),
        (
            {"task": task(ngram=NgramDraft(max_match=17))},
            "matches 2 to 17 tokens; allowed: 1 to 16",
        ),
        (
            {"task": task(probe=ProbabilityProbe(3, 50))},
            "probe has the token id 50",
        ),
        (
            {"task": task(ngram=NgramDraft(max_match=1, min_match=2))},
            "matches 2 to 1 tokens",
        ),
    ],
)
def test_bad_requests(changes: dict[str, object], message: str) -> None:
    CONFIG.check(GOOD)
    with pytest.raises(BadRequestError, match=message):
        CONFIG.check(msgspec.structs.replace(GOOD, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_token_ids": (1,) * 61}, "61 tokens; the model's context is 60"),
        ({"prompt_token_ids": (1, 2, 3, 4)}, "not inside"),
        ({"prompt_token_ids": (1, 2, 3, 4, 50)}, "token id 50"),
        ({"task": Align(2, 4, 0)}, "no audio"),
    ],
)
def test_bad_alignments(changes: dict[str, object], message: str) -> None:
    good = Request(RequestId("x"), (1, 2, 3, 4, 5), Align(2, 4, 10), encoder_hash=ContentHash("A"))
    CONFIG.check(good)
    with pytest.raises(BadRequestError, match=message):
        CONFIG.check(msgspec.structs.replace(good, **changes))


@pytest.mark.parametrize("name", ["num_blocks", "max_running", "max_prefill_chunk", "max_plans_in_flight"])
def test_a_bound_below_one_is_refused(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name} is 0; allowed: at least 1"):
        dataclasses.replace(CONFIG, **options)


def test_nothing_may_be_parked() -> None:
    assert SchedulerConfig(num_blocks=4, max_parked_blocks=0).max_parked_blocks == 0
    with pytest.raises(ValueError, match="max_parked_blocks is -1; allowed: at least 0"):
        SchedulerConfig(num_blocks=4, max_parked_blocks=-1)
