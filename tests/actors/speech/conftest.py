"""A random model would fill any budget, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sensorium.actors.speech.families import qwen3_asr
from sensorium.protocols.engine.messages import SamplingParams

NUM_TOKENS = 24


@pytest.fixture(scope="module")
def short_answers() -> Iterator[None]:
    """Qwen3-ASR's are, and all else is as it would be: its ranges, and how long hints may be."""

    def short(*, max_tokens: int, **how: Any) -> SamplingParams:  # noqa: ANN401
        return SamplingParams(max_tokens=min(max_tokens, NUM_TOKENS), **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qwen3_asr, "SamplingParams", short)
        yield
