"""A small random Qwen3-ASR behind a real engine, for tests of everything above the engine."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import trio
from sensorium.actors.config import EngineConfig
from sensorium.actors.models import load_model
from sensorium.actors.speech.asr import AsrTranscriber
from support.asr_folder import AsrShape, make_asr_folder
from support.text_folder import QwenShape

CONTEXT = 1024
"""Room for one window in a segment: long recordings are cut early, and tests stay short."""


@cache
def random_asr_folder(seed: int = 0, max_positions: int = CONTEXT) -> Path:
    """A model folder; made once per test run."""
    path = Path(tempfile.mkdtemp(prefix="sensorium-test-")) / f"random-asr-{seed}"
    return make_asr_folder(path, seed=seed, shape=AsrShape(text=QwenShape(max_positions=max_positions)))


@asynccontextmanager
async def running_asr(
    folder: Path | None = None, *, config: EngineConfig | None = None
) -> AsyncIterator[AsrTranscriber]:
    """The model's engine, running, and what transcribes with it."""
    config = config or EngineConfig(device="cpu", dtype="float32", num_threads=1)
    model = load_model("random", str(folder or random_asr_folder()), config)
    assert isinstance(model.speech, AsrTranscriber)
    async with trio.open_nursery() as nursery:
        await nursery.start(model.engine.run)
        yield model.speech
        nursery.cancel_scope.cancel()
