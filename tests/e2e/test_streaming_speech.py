"""A model that streams, behind a real server: live text is `transformers`' own, however it comes about."""

from __future__ import annotations

import io
import json
import os
import signal
import wave
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from sensorium.engine.models.nemotron_asr.text import TransducerText
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel
from support.children import engine_process
from support.nemotron_folder import ConformerShape, make_nemotron_folder
from support.raw_socket import RawSession, pcm, raw_session, silence
from support.server import Server, make_config, running_server
from support.transducing import reference_streamed, reference_whole
from transformers import Nemotron3_5AsrForRNNT, NemotronAsrStreamingForRNNT

pytestmark = pytest.mark.slow

ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_running=8)
LOOKAHEADS = {
    "english": {"minimal": 0, "low": 1, "medium": 6, "high": 13},
    "multilingual": {"minimal": 0, "low": 1, "medium": 3, "high": 6, "xhigh": 13},
}
NAMES = ("english", "multilingual")


@pytest.fixture(scope="module")
def nemotrons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random checkpoints of one language and of many."""
    root = tmp_path_factory.mktemp("nemotron")
    many = ConformerShape(num_mel_bins=128, has_bias=False, scale_input=False, sliding_window=57)
    return {
        "english": make_nemotron_folder(root / "english"),
        "multilingual": make_nemotron_folder(root / "multilingual", many, multilingual=True, seed=1),
    }


@pytest.fixture(scope="module")
def direct(nemotrons: dict[str, Path]) -> Iterator[Server]:
    with running_server(make_config(*map(str, nemotrons.values()), engine=ENGINE)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def remote(nemotrons: dict[str, Path]) -> Iterator[Server]:
    process = ProcessConfig(engine_process="on")
    with running_server(make_config(str(nemotrons["english"]), engine=ENGINE, process=process)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def speech(lights: bytes) -> bytes:
    """PCM16 of speech over the window of attention, with pauses."""
    return (pcm(lights) + silence(0.7)) * 3


def reference(folder: Path, audio: bytes, lookahead: int, *, streamed: bool = False) -> str:
    """The text that `transformers` gives: of the whole, or of the full chunks as they come."""
    samples = (np.frombuffer(audio, "<i2") / 32_768).astype(np.float32)
    is_english = folder.name == "english"
    kind: Any = NemotronAsrStreamingForRNNT if is_english else Nemotron3_5AsrForRNNT
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    frames = log_mel(samples, NemoFeatureConfig(model.config.encoder_config.num_mel_bins))
    options = {} if is_english else {"prompt_ids": torch.tensor([101])}
    with torch.no_grad():
        placed = (reference_streamed if streamed else reference_whole)(model, frames, lookahead, options)
    text = TransducerText(TextTokenizer.from_folder(folder))
    return text.decode([token for token, _ in placed]).strip()


def speak(session: RawSession, audio: bytes, size: int = 6_400) -> None:
    """Append all of it."""
    for start in range(0, len(audio), size):
        session.append_binary(audio[start : start + size])


def shown(session: RawSession, completed: dict[str, Any]) -> str:
    """Checks that what was shown of an item was never taken back; gives it."""
    deltas = session.deltas(completed["item_id"])
    assert deltas == completed["transcript"]
    return deltas


@pytest.mark.parametrize(
    ("name", "delay"), [(name, delay) for name, delays in LOOKAHEADS.items() for delay in delays]
)
def test_live_text_is_that_of_transformers(
    direct: Server, nemotrons: dict[str, Path], speech: bytes, name: str, delay: str
) -> None:
    lookahead = LOOKAHEADS[name][delay]
    with raw_session(f"{direct.realtime}?model={name}") as session:
        updated = session.configure(delay=delay, model=name)
        view = updated["session"]["audio"]["input"]["transcription"]
        assert view["delay_ms"] == 80 * (lookahead + 1)
        speak(session, speech)
        session.commit()
        assert shown(session, session.until("completed")) == reference(nemotrons[name], speech, lookahead)


def test_the_list_of_models_says_which_stream(direct: Server) -> None:
    models = {each["id"]: each for each in httpx.get(f"{direct.api}/models").json()["data"]}
    assert models["english"]["delays_ms"] == [80, 160, 560, 1120]
    assert models["multilingual"]["delays_ms"] == [80, 160, 320, 560, 1120]


def test_it_does_not_matter_how_appends_are_cut(direct: Server, speech: bytes) -> None:
    """Two sessions at once, one of which sends much more finely."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(raw_session(f"{direct.realtime}?model=english")) for _ in range(3)]
        for session, size in zip(sessions, (642, 6_400, 100_000), strict=True):
            session.configure()
            speak(session, speech, size)
            session.commit()
        texts = {shown(session, session.until("completed")) for session in sessions}
    assert len(texts) == 1
    assert len(texts.pop()) > 50


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")  # transformers' streamed generate
def test_text_comes_while_the_turn_is_open(direct: Server, nemotrons: dict[str, Path], speech: bytes) -> None:
    """All that full chunks say of speech, before anybody ends the turn; words have times as they come."""
    with raw_session(f"{direct.realtime}?model=english") as session:
        session.configure(delay="minimal", timestamp_granularities=["word"])
        speak(session, speech)
        expected = reference(nemotrons["english"], speech, 0, streamed=True)
        while len("".join(each["delta"] for each in session.seen("delta"))) < len(expected) * 0.8:
            session.until("delta")
        words = [word for each in session.seen("delta") for word in each.get("words", ())]
        text = "".join(each["delta"] for each in session.seen("delta"))
        assert expected.startswith(text)
        session.commit()
        completed = session.until("completed")
        shown(session, completed)
    assert len(words) > 5
    assert completed["words"][: len(words)] == words
    starts = [word["start"] for word in completed["words"]]
    assert starts == sorted(starts)


def test_turns_found_by_voice_activity(direct: Server, speech: bytes) -> None:
    """Each is the file of the same samples, and nothing that was shown is taken back."""
    with raw_session(f"{direct.realtime}?model=english") as session:
        session.configure(turn_detection={"type": "server_vad"}, delay="high")
        speak(session, speech + silence(1.0))
        turns = [session.until("completed") for _ in range(3)]
        commits = {each["item_id"]: each for each in session.seen("committed")}
        for turn in turns:
            commit = commits[turn["item_id"]]
            first, last = (32 * commit[f"audio_{edge}_ms"] for edge in ("start", "end"))
            assert shown(session, turn) == file_text(direct, speech[first:last])


def wav(audio: bytes) -> bytes:
    """A WAV file of PCM16 at 16 kHz."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(audio)
    return buffer.getvalue()


def file_text(server: Server, audio: bytes, **fields: object) -> Any:  # noqa: ANN401
    """The text of a file."""
    url = f"{server.api}/audio/transcriptions"
    answer = httpx.post(
        url, files={"file": ("a.wav", wav(audio))}, data={"model": "english", **fields}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["text"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_one_stream(direct: Server, nemotrons: dict[str, Path], speech: bytes, name: str) -> None:
    assert file_text(direct, speech, model=name) == reference(nemotrons[name], speech, 13)


def test_a_file_is_told_as_it_is_understood(direct: Server, speech: bytes) -> None:
    url = f"{direct.api}/audio/transcriptions"
    fields = {"model": "english", "stream": "true"}
    answer = httpx.post(url, files={"file": ("a.wav", wav(speech * 3))}, data=fields, timeout=60)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [event["delta"] for event in events if event["type"] == "transcript.text.delta"]
    assert len(deltas) > 2
    assert "".join(deltas) == events[-1]["text"] == file_text(direct, speech * 3)


def test_subtitles_and_words(direct: Server, speech: bytes) -> None:
    url, files = f"{direct.api}/audio/transcriptions", {"file": ("a.wav", wav(speech))}
    fields = {
        "model": "english",
        "response_format": "verbose_json",
        "timestamp_granularities[]": ["word", "segment"],
    }
    body = httpx.post(url, files=files, data=fields, timeout=60).json()
    assert body["language"] == "en"
    assert "".join(segment["text"] for segment in body["segments"]).strip() == body["text"]
    assert " ".join(word["word"] for word in body["words"]) == body["text"]
    assert all(0 <= word["start"] < word["end"] <= body["duration"] for word in body["words"])


def test_a_tag_is_the_language_and_no_text(direct: Server, speech: bytes) -> None:
    url, files = f"{direct.api}/audio/transcriptions", {"file": ("a.wav", wav(speech))}
    body = httpx.post(
        url, files=files, data={"model": "multilingual", "response_format": "verbose_json"}, timeout=60
    ).json()
    assert "<en" not in body["text"]
    assert "<de" not in body["text"]
    refused = httpx.post(url, files=files, data={"model": "english", "language": "de"}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "language")
    refused = httpx.post(url, files=files, data={"model": "english", "prompt": "names"}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")


def test_the_process_is_killed_amid_a_turn(remote: Server, nemotrons: dict[str, Path], speech: bytes) -> None:
    """The turn is fed again, nothing is given twice, and the text is the same."""
    with raw_session(f"{remote.realtime}?model=english") as session:
        session.configure(delay="medium")
        half = len(speech) // 4 * 2
        speak(session, speech[:half])
        session.until("delta")
        os.kill(engine_process(), signal.SIGKILL)
        speak(session, speech[half:])
        session.commit()
        assert shown(session, session.until("completed")) == reference(nemotrons["english"], speech, 6)
