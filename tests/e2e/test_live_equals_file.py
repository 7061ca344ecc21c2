"""What a live turn's `completed` says is what the file of the very same samples says, for every model."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
from sensorium.engine.models.qwen3_asr.info import Qwen3AsrInfo
from sensorium.engine.models.registry import embedded_models, open_model
from sensorium.engine.models.whisper.info import WhisperInfo
from support.raw_socket import RawSession, pcm, raw_session, silence
from support.server import Server, make_config, running_server
from support.transcripts import exact

pytestmark = pytest.mark.slow

RATE = 16_000
VAD = {"type": "server_vad"}
EAGER = {"type": "server_vad", "silence_duration_ms": 120, "prefix_padding_ms": 32}
SEMANTIC = {"type": "semantic_vad"}


def speech_models() -> list[str]:
    """Embedded models that transcribe."""
    infos = {name: open_model(name, device="cpu", dtype="float32").info for name in embedded_models()}
    return [name for name, info in infos.items() if isinstance(info, WhisperInfo | Qwen3AsrInfo)]


@dataclass(frozen=True)
class Case:
    """Parts of `sounds`, how turns are found, what the client says beforehand, bytes of an append."""

    sounds: tuple[str, ...]
    detection: dict[str, Any] | None = field(default_factory=lambda: VAD)
    hints: dict[str, Any] = field(default_factory=dict)
    chunk: int = 6_400


CASES = {
    "several turns": Case(("conversation",)),
    "short pauses end turns": Case(("three",), EAGER, {"language": "en"}, 12_346),
    "a prompt": Case(("lights",), VAD, {"language": "en", "prompt": "lights"}, 3_200),
    "one long turn": Case(("three",), None, {"languages": ["en", "es"]}, 64_000),
    "keywords, likelier": Case(("three",), VAD, {"keywords": ["Alyce", "Wettermann"], "keyword_boost": 4}),
    "faint, then loud": Case(("faint", "lights", "loud"), SEMANTIC, {"keywords": ["Anna", "percent"]}, 642),
    "faint, then loud, in one turn": Case(("faint", "loud"), None, {}, 6_400),
    "noise": Case(("noise",), None),
}


@pytest.fixture(scope="module")
def every_model() -> Iterator[Server]:
    """One server of all embedded models that transcribe."""
    with running_server(make_config(*speech_models())) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def sounds(lights: bytes, conversation: bytes) -> dict[str, bytes]:
    """PCM16 at 16 kHz; every one ends with a second of silence. `three` is the conversation's beginning, a
    sentence in each of its languages, and longer than a window."""
    noise = np.random.default_rng(0).normal(0.0, 0.02, 32_000)
    speech = np.frombuffer(pcm(lights), "<i2") / 32_768
    made = {"faint": 0.02 * speech, "loud": np.clip(6.0 * speech, -1, 1), "noise": noise}
    found = {name: (32_767 * samples).astype("<i2").tobytes() for name, samples in made.items()}
    found |= {"lights": pcm(lights), "conversation": pcm(conversation)}
    found["three"] = found["conversation"][: round(2 * RATE * 10.4)]
    return {name: data + silence(1.0) for name, data in found.items()}


def file_answer(server: Server, model: str, data: bytes, hints: dict[str, Any]) -> Any:  # noqa: ANN401
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(data)
    form = {"model": model, "response_format": "verbose_json", "timestamp_granularities[]": "word", **hints}
    answer = httpx.post(
        f"{server.api}/audio/transcriptions", files={"file": ("a.wav", buffer.getvalue())}, data=form
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def turns_of(session: RawSession, case: Case, audio: bytes) -> list[tuple[Any, Any]]:
    """Committed and completed of every turn of `audio`."""
    for start in range(0, len(audio), case.chunk):
        session.append_binary(audio[start : start + case.chunk])
    if case.detection is None:
        session.commit()
    # The last turn's end was heard when the append behind all audio is refused.
    session.append_binary(b"odd")
    while not session.seen("error"):
        session.receive()
    while len(session.seen("completed")) < len(session.seen("committed")):
        session.receive()
    completed = {event["item_id"]: event for event in session.seen("completed")}
    return [(event, completed[event["item_id"]]) for event in session.seen("committed")]


@pytest.mark.parametrize("model", speech_models())
@pytest.mark.parametrize("name", CASES)
def test_every_turn_is_the_files_transcript(
    every_model: Server, sounds: dict[str, bytes], model: str, name: str
) -> None:
    case = CASES[name]
    audio = b"".join(sounds[part] for part in case.sounds)
    with raw_session(f"{every_model.realtime}?model={model}") as session:
        session.configure(turn_detection=case.detection, timestamp_granularities=["word"], **case.hints)
        turns = turns_of(session, case, audio)
    assert turns
    for committed, completed in turns:
        first, last = (32 * committed[f"audio_{edge}_ms"] for edge in ("start", "end"))
        file = file_answer(every_model, model, audio[first:last], case.hints)
        assert (completed["transcript"], exact(completed["words"])) == (file["text"], exact(file["words"]))
        assert completed["languages"] == file["languages"]
        assert [each["code"] for each in file["languages"]][:1] == [file["language"]][
            : bool(file["language"])
        ]
    assert any(completed["transcript"] for _, completed in turns) == (name != "noise")
