"""What Qwen3-ASR live costs, counted by the engine: nothing is computed twice, and age costs nothing.

A session's machine is driven directly: every question it has is answered before the next audio comes, so
that counts do not depend on the machine's speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.live.audio import AudioBatch, ListeningMachine, LiveEffect, pieces
from sensorium.actors.speech.families import qwen3_asr
from sensorium.actors.speech.families.qwen3_asr import Qwen3Asr
from sensorium.actors.speech.model import LiveTurn, ReadAudio, SpeechModel
from sensorium.media.transcript.range_answer import RangeAnswer, Samples
from sensorium.protocols.engine.messages import EncoderItem, ItemId
from sensorium.protocols.engine.statistics import EngineStatistics
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import ForgetBefore, ForgetItem, Transcribe
from sensorium.realtime.events import HypothesisReady, SessionEvent
from sensorium.realtime.session import Session
from support.asr_folder import make_audio
from support.fake_sessions import FakeModel
from support.footprint import footprint
from support.running_speech import random_asr_folder, running_speech
from support.signals import pink_noise, silence_then_shout
from support.vad_streams import LoudnessStream, settled

pytestmark = pytest.mark.slow

RATE = 16_000
TOKENS_PER_S = 13
"""What a second of audio becomes."""
COUNTED = (
    "num_windows_encoded",
    "num_encoder_tokens",
    "num_prefill_tokens",
    "num_decode_tokens",
    "num_steps",
)
SMALL = EngineConfig(
    device="cpu", dtype="float32", num_threads=1, max_running=4, num_blocks=96, encoder_memory="256KiB"
)
"""Room for a range and a half: caches are full within the first minute."""


@pytest.fixture(autouse=True, scope="module")
def _short_answers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qwen3_asr, "token_budget", lambda _: 12)
        yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each window's hash was part of a question."""
    hashes: Counter[str] = Counter()
    answer = Qwen3Asr.answer

    async def spy(self: Qwen3Asr, items: Sequence[EncoderItem], *how: Any) -> RangeAnswer:  # noqa: ANN401
        hashes.update({item.content_hash for item in items})
        return await answer(self, items, *how)

    monkeypatch.setattr(Qwen3Asr, "answer", spy)
    return hashes


def reader(audio: Samples) -> ReadAudio:
    return lambda start, end: audio[start:end]


def work(now: EngineStatistics, before: EngineStatistics) -> dict[str, int]:
    return {name: getattr(now, name) - getattr(before, name) for name in COUNTED}


def glide(seconds: float) -> Samples:
    """Grows louder now and then."""
    return make_audio(1, seconds)


def steady(seconds: float) -> Samples:
    """As loud all the time."""
    return pink_noise(seconds, level_db=-30)


@pytest.mark.parametrize(
    ("signal", "phase_s", "factor"),
    [(steady, 0.5, 5.0), (steady, 0.0, 5.5), (glide, 0.0, 6.5), (silence_then_shout, 0.25, 7.0)],
)
async def test_no_window_is_encoded_twice(
    signal: Callable[[float], Samples], phase_s: float, factor: float, asked: Counter[str]
) -> None:
    """At an update a second.

    A whole window's tokens are computed 4.5 times, and once more by the share of a second that the updates
    come behind its seconds: 5 on average. A sound louder than all before may change the windows before it.
    """
    seconds = 34
    audio = signal(seconds)
    async with running_speech(random_asr_folder(0, 4096)) as asr:
        live = asr.speech.live(reader(audio), TranscriptionOptions(language="en"), start=0)
        start = asr.engine.statistics()
        prefills = []
        for second in range(1, seconds + 1):
            before = asr.engine.statistics()
            await live.hypothesis(round((second - phase_s) * RATE), final=second == seconds)
            prefills.append(work(asr.engine.statistics(), before)["num_prefill_tokens"])
        done = work(asr.engine.statistics(), start)
        assert done["num_windows_encoded"] == len(asked)
        assert max(asked.values()) > 10  # whole windows are asked about again and again
        assert done["num_encoder_tokens"] <= factor * seconds * TOKENS_PER_S
        # The open window and the text around it, and the one before when it has just been finished.
        around = 60
        assert sum(prefill > 8 * TOKENS_PER_S + around for prefill in prefills) <= seconds // 8 + 2
        if signal is steady:
            assert max(prefills) <= 9 * TOKENS_PER_S + around
        live.close()


class Drive:
    """One session's machine, with its questions answered at once."""

    def __init__(self) -> None:
        numbers = count()
        config = SessionConfig(model="real", models=(RealtimeModel("real"),))
        self.machine = ListeningMachine(Session(config, lambda prefix: f"{prefix}_{next(numbers)}"))
        self._stream = LoudnessStream()
        self.now = 0.0
        self.num_final = 0
        self._turns: dict[ItemId, LiveTurn] = {}

    async def open(self) -> None:
        """16 kHz, detection on."""
        self.machine.session.open(now=0.0, created=0)
        audio = b'{"format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": {"type": "server_vad"}}'
        update = b'{"type": "session.update", "session": {"type": "transcription", "audio": {"input": %s}}}'
        event = decode_client_event((update % audio).decode())
        await self._perform(self.machine.receive(event, now=0.0), FakeModel())  # type: ignore[arg-type]

    async def hear(self, samples: Samples, model: SpeechModel) -> None:
        """A second of audio, and whatever is asked about it."""
        self.now += len(samples) / RATE
        data = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
        for piece in pieces(data):
            await self._receive(AudioBatch([piece]), model)

    @property
    def num_turns(self) -> int:
        """Turns that are kept."""
        return len(self._turns)

    async def _receive(self, event: AudioBatch | SessionEvent, model: SpeechModel) -> None:
        await self._perform(self.machine.receive(event, now=self.now), model)

    async def _perform(self, effects: Sequence[LiveEffect], model: SpeechModel) -> None:
        for effect in settled(self.machine, effects, self._stream, now=self.now):
            match effect:
                case Transcribe(item_id, start, end, final):
                    options = TranscriptionOptions(language="en")
                    if item_id not in self._turns:
                        self._turns[item_id] = model.live(
                            self.machine.tracks[0].store.copy, options, start=start
                        )
                    said = await self._turns[item_id].hypothesis(end, final=final)
                    self.num_final += final
                    await self._receive(HypothesisReady(item_id, start, end, final, said), model)
                case ForgetItem(item_id):
                    if item_id in self._turns:
                        self._turns.pop(item_id).close()
                case ForgetBefore(sample):
                    self.machine.tracks[0].store.forget_before(sample)
                case _:
                    pass


def minute(seed: int, *, step_s: int = 1) -> Iterator[Samples]:
    """Five turns of eight seconds, new in every minute and alike in all."""
    rng = np.random.default_rng(seed)
    for second in range(0, 60, step_s):
        noise = rng.uniform(-0.3, 0.3, step_s * RATE).astype(np.float32)
        yield noise if second % 12 < 8 else np.zeros(step_s * RATE, np.float32)


async def test_minute_thirty_costs_what_minute_one_did() -> None:
    costs: dict[int, dict[str, int]] = {}
    sizes: dict[int, int] = {}
    async with running_speech(random_asr_folder(0, 1024), config=SMALL) as asr:
        engine, drive, quick = asr.engine, Drive(), FakeModel(work_s=0.0)
        await drive.open()
        for number in range(1, 31):
            before = engine.statistics()
            # The minutes between age the session and its engine as little as a model's share of the time.
            is_counted = number in (1, 2, 30)
            model: SpeechModel = asr.speech if is_counted else quick
            for samples in minute(number, step_s=1 if is_counted else 4):
                await drive.hear(samples, model)
            await asr.idle()
            assert drive.num_turns == 0
            if is_counted:
                costs[number] = work(engine.statistics(), before)
                measured = footprint((asr.engine, asr.speech, drive.machine), leave_out=[quick])
                sizes[number] = measured.num_bytes
    assert drive.num_final >= 5 * 30
    assert costs[1]["num_encoder_tokens"] >= 40 * TOKENS_PER_S
    for name in COUNTED:
        assert costs[30][name] <= 1.05 * costs[1][name], name
        assert costs[30][name] <= 1.05 * costs[2][name], name
    assert sizes[30] <= 1.05 * sizes[2]


async def test_a_long_turn_keeps_answers_and_one_range() -> None:
    """Without detection a turn may be long: what is kept of its finished ranges is their text."""
    audio = 0.1 * np.random.default_rng(0).standard_normal(RATE * 100).astype(np.float32)
    async with running_speech(random_asr_folder(0, 512)) as asr:
        size = asr.speech.family.facts.cut_rule.size
        live = asr.speech.live(reader(audio), TranscriptionOptions(language="en"), start=0)
        sizes = []
        for end in range(size // 2, len(audio), size // 2):
            await live.hypothesis(end, final=False)
            sizes.append(footprint(live, leave_out=[asr.speech.family]).num_bytes)
            await asr.idle(num_parked=1)
        assert max(sizes[-4:]) <= max(sizes[1:5]) + 8 * 16_384
        live.close()
        await asr.idle()


async def test_turns_of_one_second_are_given_back_at_once(asked: Counter[str]) -> None:
    async with running_speech(random_asr_folder(0, 1024), config=SMALL) as asr:
        for seed in range(20):
            audio = make_audio(3 * seed, 1.5)
            live = asr.speech.live(reader(audio), TranscriptionOptions(), start=0)
            await live.hypothesis(RATE, final=False)
            await live.hypothesis(len(audio), final=True)
            live.close()
            await asr.idle()
        assert asr.engine.statistics().num_windows_encoded == len(asked) == 40
