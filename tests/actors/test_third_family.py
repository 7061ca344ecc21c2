"""A family nobody knew: a folder (`support/ctc/`), a speech file (`support/ctc_speech.py`), a registry line.

It transcribes files and live turns through the real engine. `tests/engine/models/test_third_family.py` opens
and runs it without.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
import trio
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.model_loading import load_model
from sensorium.engine.models import families
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.asr_folder import FloatArray
from support.ctc.folder import ENTRY, make_ctc_folder, transcript_of

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(device="cpu", dtype="float32", num_threads=1)
RATE = 16_000
SPEECH = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of the family, which is registered meanwhile."""
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, ENTRY))
    return make_ctc_folder(tmp_path / "ctc")


@pytest.fixture
def samples() -> FloatArray:
    """Two windows of speech, at 16 kHz."""
    samples: FloatArray = soundfile.read(SPEECH, dtype="float32")[0]
    return samples


def test_graphs_of_it_are_refused(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="steps of a random_ctc model cannot be recorded"):
        load_model("ctc", str(folder), replace(CONFIG, cuda_graphs="on"))


async def test_it_transcribes_files_and_live_turns(folder: Path, samples: FloatArray) -> None:
    loaded = await trio.to_thread.run_sync(load_model, "ctc", str(folder), CONFIG)
    assert loaded.speech is not None
    assert loaded.prompts is None
    options = TranscriptionOptions(word_timestamps=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(loaded.engine.run)
        short = await loaded.speech.transcribe(samples[: 2 * RATE], options)
        assert short.text == transcript_of(folder, samples[: 2 * RATE]).strip()
        assert len(short.words) > 1
        assert [word.word for word in short.words] == short.text.split()
        assert all(0 <= word.start <= word.end <= 2 for word in short.words)
        pieces: list[str] = []
        whole = await loaded.speech.transcribe(samples, options, on_delta=pieces.append)
        assert "".join(pieces) == whole.text
        turn = loaded.speech.live(lambda start, end: samples[start:end], options, start=0)
        for end in range(RATE // 2, len(samples), RATE // 2):
            partial = await turn.hypothesis(end, final=False)
            assert partial.duration == pytest.approx(end / RATE)
        assert await turn.hypothesis(len(samples), final=True) == whole
        turn.close()
        with pytest.raises(BadRequestError):
            loaded.speech.check(TranscriptionOptions(language="de"))
        several = TranscriptionOptions(beam_size=2)
        with pytest.raises(BadRequestError) as checked:
            loaded.speech.check(several)
        with pytest.raises(BadRequestError) as caught:
            await loaded.speech.transcribe(samples, several)
        for error in (checked.value, caught.value):
            assert (error.param, error.code) == ("beam_size", "unsupported_parameter")
        statistics = loaded.engine.statistics()
        assert statistics.num_encoder_tokens == 50 * statistics.num_windows_encoded > 0
        nursery.cancel_scope.cancel()
