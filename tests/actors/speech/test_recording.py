"""What files and live turns share: ranges are cut and heard alike however audio comes; deltas join."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.speech.recording import CutRule, DeltaJoiner, LiveRecording, Recording
from sensorium.media.voice_activity import VoiceActivityModel
from support.running_speech import sound
from support.raw_socket import pcm

DATA = Path(__file__).parents[3] / "examples" / "data"
TEXTS = st.text(alphabet="ab \n", max_size=8)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5), cuts=st.randoms(use_true_random=False), space=st.booleans()
)
def test_deltas_join_to_the_transcript_in_any_order(texts: list[str], cuts: Random, space: bool) -> None:
    separator = " " if space else ""
    emitted: list[str] = []
    joiner = DeltaJoiner(len(texts), separator, emitted.append)
    pending = [(index, list(text)) for index, text in enumerate(texts)]
    while pending:
        index, letters = cuts.choice(pending)
        if letters and cuts.random() < 0.8:
            joiner.feeder(index)(letters.pop(0))
        else:
            # Whatever was not fed comes with the end.
            joiner.finish(index, texts[index])
            pending = [entry for entry in pending if entry[0] != index]
    stripped = (text.strip() for text in texts)
    assert "".join(emitted) == separator.join(text for text in stripped if text)
    assert all(emitted)


def test_what_may_be_an_echo_waits_for_the_end_of_its_range() -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(3, " ", emitted.append, context="Anna Berg, Zurich")
    joiner.feeder(0)("Anna ")
    joiner.feeder(0)("Berg")
    assert emitted == []
    joiner.finish(0, "")  # it was one
    joiner.feeder(1)("Anna ")
    joiner.feeder(1)("said")
    assert emitted == ["Anna said"]
    joiner.finish(1, "Anna said")
    joiner.finish(2, "Anna")
    assert "".join(emitted) == "Anna said Anna"


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1_000),
    start=st.integers(0, 3_000),
    ends=st.lists(st.integers(1, 60_000), min_size=1, max_size=6),
)
def test_live_ranges_are_those_of_a_file(seed: int, start: int, ends: list[int]) -> None:
    audio = sound(start + 60_000, seed=seed)
    rule = CutRule(16_000, 4_000)
    live = LiveRecording(rule, lambda a, b: audio[a:b], start=start)
    for end in ends:
        expected = [(start + a, start + b) for a, b in rule.split(audio[start : start + end])]
        assert live.ranges(start + end) == expected
        assert live.open_start == expected[-1][0]


def test_who_is_heard_does_not_hang_on_how_audio_comes() -> None:
    speech = np.frombuffer(pcm((DATA / "kitchen_lights.wav").read_bytes()), "<i2").astype(np.float32) / 32_768
    noise = sound(30_000, seed=0) * np.float32(0.3)
    audio = np.concatenate((np.zeros(9_000, np.float32), noise, speech))
    model = VoiceActivityModel()

    async def heard(recording: Recording, end: int) -> bool:
        return not await recording.is_silent((0, end))

    async def check() -> None:
        growing = Recording(lambda a, b: audio[a:b], model)
        found = []
        for end in [*range(0, len(audio), 3_001), 39_000, len(audio)]:
            whole = Recording(lambda a, b: audio[a:b], model)
            found.append(await heard(growing, end))
            assert found[-1] == await heard(whole, end)
        assert found[-1]
        assert not await heard(growing, 39_000)
        without_model = Recording(lambda a, b: audio[a:b])
        assert [await heard(without_model, end) for end in (0, 9_000, 12_000)] == [False, False, True]

    trio.run(check)
