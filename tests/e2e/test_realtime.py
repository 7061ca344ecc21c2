"""Live sessions against a real server: the `openai` package, raw sockets, several turns, every format."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import textwrap
import wave
from pathlib import Path
from typing import Any

import httpx
import jiwer
import pytest
import soundfile
import soxr
from openai import AsyncOpenAI, OpenAI
from support.raw_socket import RawSession, pcm, raw_session, resampled, silence
from support.server import Server
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

VAD = {"type": "server_vad"}
DATA = Path(__file__).parents[2] / "examples" / "data"


def wav(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(data)
    return buffer.getvalue()


def offline(server: Server, data: bytes) -> str:
    answer = httpx.post(
        f"{server.api}/audio/transcriptions", files={"file": ("a.wav", wav(data))}, timeout=60
    )
    return str(answer.json()["text"])


def session_update(**audio: object) -> Any:  # noqa: ANN401 (a typed dict for openai)
    return {
        "type": "transcription",
        "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24_000}, **audio}},
    }


# The openai package calls websockets in a way that websockets 17 deprecates.
@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")
def test_openai_sync_client(server: Server, lights: bytes) -> None:
    audio = resampled(pcm(lights) + silence(1.0), 16_000, 24_000)
    kinds: list[str] = []
    deltas: list[str] = []
    transcript = None
    with (
        OpenAI(base_url=server.api, api_key="none") as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        connection.session.update(session=session_update(turn_detection={"type": "server_vad"}))
        for start in range(0, len(audio), 4_800):
            part = base64.b64encode(audio[start : start + 4_800]).decode()
            connection.input_audio_buffer.append(audio=part)
        for event in connection:
            kinds.append(event.type)
            if event.type == "conversation.item.input_audio_transcription.delta":
                deltas.append(event.delta or "")
            elif event.type == "conversation.item.input_audio_transcription.completed":
                transcript = event.transcript
                break
            assert event.type != "error", event
    assert kinds[:2] == ["session.created", "session.updated"]
    for expected in ("speech_started", "speech_stopped", "committed"):
        assert f"input_audio_buffer.{expected}" in kinds
    assert transcript
    assert "".join(deltas) == transcript


def test_openai_async_client(server: Server, lights: bytes) -> None:
    audio = resampled(pcm(lights), 16_000, 24_000)

    async def transcribe() -> str:
        async with (
            AsyncOpenAI(base_url=server.api, api_key="none") as client,
            client.realtime.connect(model="tiny-whisper") as connection,
        ):
            await connection.session.update(session=session_update(turn_detection=None))
            for start in range(0, len(audio), 48_000):
                part = base64.b64encode(audio[start : start + 48_000]).decode()
                await connection.input_audio_buffer.append(audio=part)
            await connection.input_audio_buffer.commit()
            async for event in connection:
                assert event.type != "error", event
                if event.type == "conversation.item.input_audio_transcription.completed":
                    return event.transcript
        raise AssertionError("the connection ended")

    assert asyncio.run(transcribe())


def test_events_in_binary_frames_and_files_in_a_session_of_samples(server: Server, lights: bytes) -> None:
    address = f"{server.realtime}?intent=transcription"
    with connect(address, open_timeout=60) as socket:

        def send(**event: object) -> None:
            socket.send(json.dumps(event).encode())

        def answer() -> dict[str, Any]:
            while (event := json.loads(socket.recv(60)))["type"] in ("session.created", "session.updated"):
                pass
            return dict(event)

        socket.send(wav(pcm(lights)))  # 16 kHz, and 24 kHz are expected
        refused = answer()["error"]
        assert (refused["code"], refused["param"]) == ("unexpected_container", "audio")
        assert "16000 Hz" in refused["message"]
        pcm_16 = {"type": "audio/pcm", "rate": 16_000}
        update = {"format": pcm_16, "turn_detection": None}
        send(type="session.update", session={"type": "transcription", "audio": {"input": update}})
        broken = "\r\n".join(textwrap.wrap(base64.b64encode(pcm(lights)).decode(), 76))
        send(type="input_audio_buffer.append", audio=broken)
        send(type="input_audio_buffer.commit")
        completed = "conversation.item.input_audio_transcription.completed"
        while (event := answer())["type"] != completed:
            assert event["type"] != "error", event
        assert event["transcript"] == offline(server, pcm(lights))


def test_a_setting_in_the_address_is_refused_with_its_place(server: Server) -> None:
    with connect(f"{server.realtime}?intent=transcription&language=en", open_timeout=60) as socket:
        error = json.loads(socket.recv(60))["error"]
    assert (error["code"], error["param"]) == ("unknown_parameter", "language")
    assert "`session.audio.input.transcription.language`" in error["message"]


@pytest.mark.parametrize("binary", [False, True])
def test_completed_is_the_offline_transcript(server: Server, conversation: bytes, binary: bool) -> None:
    audio = pcm(conversation)
    with raw_session(server.realtime) as session:
        session.configure()
        for start in range(0, len(audio), 6_400):
            (session.append_binary if binary else session.append)(audio[start : start + 6_400])
        session.commit()
        completed = session.until("completed", 60)
        assert completed["transcript"] == offline(server, audio)
        assert completed["usage"]["type"] == "tokens"
        assert completed["usage"]["output_tokens"] > 0


def test_turns_on_one_socket_do_not_leak_into_each_other(server: Server, conversation: bytes) -> None:
    audio = pcm(conversation) + silence(1.0)
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD)
        for start in range(0, len(audio), 3_200):
            session.append(audio[start : start + 3_200])
        while len(session.seen("speech_started")) < 6 or len(session.seen("completed")) < 6:
            session.receive()
        items = [event["item_id"] for event in session.seen("completed")]
        assert items == [event["item_id"] for event in session.seen("committed")]
        for committed, completed in zip(session.seen("committed"), session.seen("completed"), strict=True):
            # Millisecond times, and each turn's text is that of its own audio alone.
            start, end = committed["audio_start_ms"] * 32, committed["audio_end_ms"] * 32
            assert session.deltas(completed["item_id"]).split()[:1] == completed["transcript"].split()[:1]
            assert offline(server, audio[start:end])
        sequence = [event["server_event_seq"] for event in session.events]
        assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))


def test_every_turn_is_understood_in_its_language(server: Server, conversation: bytes) -> None:
    spoken = json.loads((DATA / "conversation.json").read_text(encoding="utf-8"))["turns"]
    audio = pcm(conversation) + silence(1.0)
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD)
        for start in range(0, len(audio), 3_200):
            session.append(audio[start : start + 3_200])
        while len(session.seen("completed")) < len(spoken):
            session.receive()
    completed = session.seen("completed")
    assert [event["languages"][0]["code"] for event in completed] == [turn["language"] for turn in spoken]
    expected, got = (
        [plain(text) for text in texts]
        for texts in ([turn["text"] for turn in spoken], [event["transcript"] for event in completed])
    )
    assert jiwer.wer(expected, got) <= 0.1
    # The turn's audio holds all of its speech: no first and no last word is lost.
    for committed, turn in zip(session.seen("committed"), spoken, strict=True):
        assert committed["audio_start_ms"] <= turn["start_ms"] + 100
        assert committed["audio_end_ms"] >= turn["end_ms"] - 100


def plain(text: str) -> str:
    """Lower case words without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_other_rates_lose_no_audio(server: Server, lights: bytes, rate: int) -> None:
    with raw_session(server.realtime) as session:
        session.configure(rate=rate)
        session.append(resampled(pcm(lights), 16_000, rate))
        session.commit()
        committed = session.until("committed")
        num_ms = committed["audio_end_ms"] - committed["audio_start_ms"]
        assert abs(num_ms - len(pcm(lights)) / 32) <= 2
        assert session.until("completed")["transcript"]


def test_g711_is_understood(server: Server, lights: bytes) -> None:
    samples, rate = soundfile.read(io.BytesIO(lights), dtype="float32")
    spoken = soxr.resample(samples, rate, 8_000)
    with raw_session(server.realtime) as session:
        for kind, subtype in (("audio/pcmu", "ULAW"), ("audio/pcma", "ALAW")):
            audio = {"input": {"format": {"type": kind}, "turn_detection": None}}
            session.send({"type": "session.update", "session": {"type": "transcription", "audio": audio}})
            session.until("session.updated")
            coded = io.BytesIO()
            soundfile.write(coded, spoken, 8_000, format="RAW", subtype=subtype)
            session.append(coded.getvalue())
            session.commit()
            assert "light" in session.until("completed")["transcript"].lower()


def test_word_times_come_with_completed(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.configure(timestamp_granularities=["word", "segment"])
        session.append(pcm(lights))
        session.commit()
        completed = session.until("completed")
        assert " ".join(word["word"] for word in completed["words"]) == completed["transcript"]
        assert session.seen("transcription.segment")


def test_the_model_may_be_in_the_url(server: Server) -> None:
    with raw_session(f"{server.realtime}?model=tiny-whisper&intent=transcription") as session:
        view = session.events[0]["session"]
        assert view["audio"]["input"]["transcription"]["model"] == "tiny-whisper"
        assert view["limits"]["max_append_bytes"] == 15 * 1024 * 1024
        assert "binary_audio" in view["capabilities"]


def test_latencies_and_audio_are_counted(server: Server, lights: bytes) -> None:
    def read(name: str) -> float:
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), 0.0)

    before = read("sensorium_final_seconds_count")
    completed = read('sensorium_audio_received_seconds_total{source="realtime"}')
    talk(server, pcm(lights))
    assert read("sensorium_final_seconds_count") == before + 1
    more = read('sensorium_audio_received_seconds_total{source="realtime"}') - completed
    assert more == pytest.approx(len(pcm(lights)) / 32_000 + 1.0, abs=0.1)


def talk(server: Server, audio: bytes) -> RawSession:
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD)
        session.append(audio + silence(1.0))
        session.until("completed")
        return session
