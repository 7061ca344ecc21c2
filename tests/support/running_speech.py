"""Speech models behind real engines, for tests of everything above the engine: small random ones, or any."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import trio
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.inference.engine import Engine
from sensorium.actors.model_loading import load_model
from sensorium.actors.speech.families.qwen3_asr import Qwen3Asr
from sensorium.actors.speech.families.whisper import Whisper
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.media.speech.voice_activity import VoiceActivityModel
from sensorium.protocols.engine.statistics import EngineStatistics
from support.asr_folder import AsrShape, make_asr_folder
from support.text_folder import QwenShape
from support.whisper_folder import WhisperShape, make_whisper_folder

CONTEXT = 1024
"""Of a random Qwen3-ASR. Room for one window in a range: long recordings are cut early, tests stay short."""
WINDOW_S = 2
"""Of a random Whisper."""
EXACT = EngineConfig(device="cpu", dtype="float32", num_threads=1)
TWO_THREADS = replace(EXACT, num_threads=2)
"""With more threads than one, windows of who speaks are encoded beside the steps; and threads wait for each
other, which costs more than such small models gain."""


def _own_folder() -> Path:
    """One that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="sensorium-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def random_asr_folder(seed: int = 0, max_positions: int = CONTEXT) -> Path:
    """A Qwen3-ASR folder; made once per test run."""
    path = _own_folder() / f"random-asr-{seed}"
    return make_asr_folder(path, seed=seed, shape=AsrShape(text=QwenShape(max_positions=max_positions)))


@cache
def random_folder(seed: int = 0, multilingual: bool = True, window_s: int = WINDOW_S) -> Path:
    """A Whisper folder; made once per test run."""
    path = _own_folder() / f"random-{seed}"
    shape = WhisperShape(
        window_s=window_s,
        multilingual=multilingual,
        languages=("en", "zh", "de", "es") if multilingual else (),
    )
    return make_whisper_folder(path, seed=seed, shape=shape)


@dataclass(frozen=True, slots=True)
class RunningSpeech:
    """A speech model and the engine it asks."""

    speech: Transcriber
    engine: Engine

    def whisper(self) -> Whisper:
        """What answers for it, if it is Whisper."""
        assert isinstance(self.speech.family, Whisper)
        return self.speech.family

    def qwen3_asr(self) -> Qwen3Asr:
        """What answers for it, if it is Qwen3-ASR."""
        assert isinstance(self.speech.family, Qwen3Asr)
        return self.speech.family

    async def idle(self, *, num_parked: int = 0) -> EngineStatistics:
        """The counters once nothing waits, runs or holds anything, but for `num_parked` sessions."""
        with trio.fail_after(5):
            while True:
                now = self.engine.statistics()
                held = now.num_waiting + now.num_running + now.num_cache_references
                is_all_free = num_parked > 0 or now.num_free_blocks == now.num_total_blocks
                if not held and now.num_sessions_parked <= num_parked and is_all_free:
                    return now
                await trio.sleep(0.001)


@asynccontextmanager
async def running_speech(
    model: str | Path | None = None,
    *,
    config: EngineConfig = EXACT,
    activity: VoiceActivityModel | None = None,
) -> AsyncIterator[RunningSpeech]:
    """A folder's or embedded model's engine, running, and what transcribes with it; else a random Whisper."""
    loaded = load_model("random", str(model or random_folder()), config, activity)
    assert isinstance(loaded.speech, Transcriber)
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        yield RunningSpeech(loaded.speech, loaded.engine)
        nursery.cancel_scope.cancel()


def sound(num_samples: int, *, seed: int) -> npt.NDArray[np.float32]:
    """Noise whose loudness changes every 50 ms, with pauses and stretches of digital silence."""
    rng = np.random.default_rng(seed)
    num_blocks = num_samples // 800 + 1
    loudness = rng.choice([0.0, 0.001, 0.05, 0.3], size=num_blocks, p=[0.15, 0.15, 0.35, 0.35])
    noise = rng.standard_normal(num_samples) * np.repeat(loudness, 800)[:num_samples]
    clipped: npt.NDArray[np.float32] = np.clip(noise, -1.0, 1.0).astype(np.float32)
    return clipped
