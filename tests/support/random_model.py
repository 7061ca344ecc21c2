"""A small random Whisper behind a real engine, for tests of everything above the engine."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import trio
from sensorium.actors.config import EngineConfig
from sensorium.actors.models import load_model
from sensorium.actors.speech.model import SpeechModel
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.actors.speech.windows import WindowDecoder
from support.whisper_folder import WhisperShape, make_whisper_folder

WINDOW_S = 2


@cache
def random_folder(seed: int = 0, multilingual: bool = True) -> Path:
    """A model folder of a 2 s window; made once per test run."""
    path = Path(tempfile.mkdtemp(prefix="sensorium-test-")) / f"random-{seed}"
    shape = WhisperShape(
        window_s=WINDOW_S,
        multilingual=multilingual,
        languages=("en", "zh", "de", "es") if multilingual else (),
    )
    return make_whisper_folder(path, seed=seed, shape=shape)


@asynccontextmanager
async def running_speech(
    model: str | None = None, *, config: EngineConfig | None = None
) -> AsyncIterator[SpeechModel]:
    """A folder's or embedded model's engine, running, and what transcribes with it."""
    config = config or EngineConfig(device="cpu", dtype="float32", num_threads=1)
    loaded = load_model("random", model or str(random_folder()), config)
    assert loaded.speech is not None
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        yield loaded.speech
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_decoder(
    folder: Path | None = None, *, config: EngineConfig | None = None
) -> AsyncIterator[WindowDecoder]:
    """The model's engine, running, and its decoder."""
    async with running_speech(None if folder is None else str(folder), config=config) as speech:
        assert isinstance(speech, Transcriber)
        yield speech.decoder


def sound(num_samples: int, *, seed: int) -> npt.NDArray[np.float32]:
    """Noise whose loudness changes every 50 ms, with pauses and stretches of digital silence."""
    rng = np.random.default_rng(seed)
    num_blocks = num_samples // 800 + 1
    loudness = rng.choice([0.0, 0.001, 0.05, 0.3], size=num_blocks, p=[0.15, 0.15, 0.35, 0.35])
    noise = rng.standard_normal(num_samples) * np.repeat(loudness, 800)[:num_samples]
    clipped: npt.NDArray[np.float32] = np.clip(noise, -1.0, 1.0).astype(np.float32)
    return clipped
