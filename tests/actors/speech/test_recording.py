"""Ranges are cut and heard alike however audio comes, and looked at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.speech.recording import LiveRecording, Recording
from sensorium.media.speech.voice_activity import VoiceActivityModel
from support.raw_socket import pcm
from support.running_speech import sound
from support.scripted_speech import ScriptedFamily, scripted_audio

DATA = Path(__file__).parents[3] / "examples" / "data"


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1_000),
    start=st.integers(0, 3_000),
    ends=st.lists(st.integers(1, 60_000), min_size=1, max_size=6),
)
def test_live_ranges_are_those_of_a_file(seed: int, start: int, ends: list[int]) -> None:
    audio = sound(start + 60_000, seed=seed)
    family = ScriptedFamily()
    live = LiveRecording(family, lambda a, b: audio[a:b], start=start)

    async def check() -> None:
        for end in ends:
            rule = family.facts.cut_rule
            expected = [(start + a, start + b) for a, b in rule.split(audio[start : start + end])]
            assert await live.ranges(start + end) == expected
            assert live.open_start == expected[-1][0]

    trio.run(check)


def test_who_is_heard_does_not_hang_on_how_audio_comes() -> None:
    speech = np.frombuffer(pcm((DATA / "kitchen_lights.wav").read_bytes()), "<i2").astype(np.float32) / 32_768
    noise = sound(30_000, seed=0) * np.float32(0.3)
    audio = np.concatenate((np.zeros(9_000, np.float32), noise, speech))
    model = VoiceActivityModel()

    async def heard(recording: Recording, end: int) -> bool:
        return end > 0 and await recording.items((0, end)) != ()

    async def check() -> None:
        growing = Recording(ScriptedFamily(), lambda a, b: audio[a:b], model)
        found = []
        for end in [*range(0, len(audio), 3_001), 39_000, len(audio)]:
            whole = Recording(ScriptedFamily(), lambda a, b: audio[a:b], model)
            found.append(await heard(growing, end))
            assert found[-1] == await heard(whole, end)
        assert found[-1]
        assert not await heard(growing, 39_000)
        without_model = Recording(ScriptedFamily(), lambda a, b: audio[a:b])
        assert [await heard(without_model, end) for end in (0, 9_000, 12_000)] == [False, False, True]

    trio.run(check)


async def test_audio_is_looked_at_once_until_it_is_released() -> None:
    family, audio = ScriptedFamily(), np.ones(16_000, np.float32)
    live = LiveRecording(family, lambda a, b: audio[a:b], start=0)
    for end in (4_000, 4_000, 9_000, 16_000, 16_000):
        part = (await live.ranges(end))[0]
        assert len(await live.items(part)) == 1
        live.release(part)  # it is open
    assert family.num_looked_at == 16_000
    assert live.session(part) == live.session(part)
    live.close()
    live.close()
    assert len(family.engine.closed) == 1
    file = Recording(family, lambda a, b: audio[a:b])
    for _ in range(2):
        await file.items(part)
    assert family.num_looked_at == 32_000
    assert file.session(part) is None


async def test_silence_is_remembered_and_has_no_features() -> None:
    family, audio = ScriptedFamily(), scripted_audio(0, 1)
    recording = Recording(family, lambda a, b: audio[a:b])
    assert await recording.items((0, 16_000)) == ()
    recording.release((0, 16_000))
    del audio
    audio = np.zeros(0, np.float32)
    assert await recording.items((0, 16_000)) == ()
    assert family.num_looked_at == 0
