"""What is done in threads for a recording has its class of service."""

from __future__ import annotations

import msgspec
from sensorium.actors.runtime.compute_pool import LANE
from sensorium.actors.speech.model import FILE, LIVE_FINAL, LIVE_FIRST
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.protocols.engine.messages import Lane
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.scripted_speech import ScriptedFamily, scripted_audio

PLAIN = TranscriptionOptions()


async def test_who_is_listened_to_before_whom() -> None:
    """Work in threads has the class of what it is for: nothing that is spoken waits for a file."""
    family, found = ScriptedFamily(("en", "a"), ("en", "b")), list[Lane]()
    family.while_looking = lambda: found.append(LANE.get())
    audio = scripted_audio(1, 2)
    speech = Transcriber(family)
    await speech.transcribe(audio, PLAIN, lane=Lane("batch", 3, "alice"))
    assert set(found) == {Lane("batch", 3, "alice")}
    found.clear()
    live = speech.live(lambda start, end: audio[start:end], PLAIN, start=0, caller="bob")
    await live.hypothesis(4_000, final=False)
    await live.hypothesis(8_000, final=False, is_pushed=True)
    await live.hypothesis(12_000, final=True)
    expected = (LIVE_FIRST, FILE, LIVE_FINAL)
    assert found == [msgspec.structs.replace(lane, caller="bob") for lane in expected]
    assert LANE.get() == Lane()
