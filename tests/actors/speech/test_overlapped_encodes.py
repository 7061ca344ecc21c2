"""Which models encode what is spoken to them in a second thread, and that it changes no word."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.asr_folder import make_audio
from support.running_speech import EXACT, random_asr_folder, random_folder, running_speech, sound

pytestmark = pytest.mark.slow


def device_threads() -> set[threading.Thread]:
    """Threads that execute plans."""
    return {thread for thread in threading.enumerate() if thread.name == "sensorium-device"}


@pytest.mark.parametrize(("is_whisper", "num_threads", "wanted"), [(True, 2, 2), (True, 1, 1), (False, 2, 1)])
async def test_a_model_that_attends_to_windows_has_a_thread_for_them_while_somebody_speaks(
    is_whisper: bool, num_threads: int, wanted: int
) -> None:
    before = device_threads()
    folder = random_folder() if is_whisper else random_asr_folder()
    audio = sound(16_000 * 5, seed=7) if is_whisper else make_audio(7, 5.0)
    async with running_speech(folder, config=replace(EXACT, num_threads=num_threads)) as running:
        file = await running.speech.transcribe(audio, TranscriptionOptions(language="en"))
        assert len(device_threads() - before) == 1, "nobody speaks"
        live = running.speech.live(lambda a, b: audio[a:b], TranscriptionOptions(language="en"), start=0)
        await live.hypothesis(16_000 * 2, final=False)
        final = await live.hypothesis(len(audio), final=True)
        assert len(device_threads() - before) == wanted
        live.close()
        assert final.text == file.text != ""
    for thread in device_threads() - before:  # it says that it ends just before it does
        thread.join(5.0)
        assert not thread.is_alive()
