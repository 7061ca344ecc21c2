"""Other people's clients on a real server: OpenAI's package itself, and the frames that others send.

LiveKit's plugin and Pipecat's service are too heavy for the test environment (90 packages). What they send
was recorded from livekit-plugins-openai 1.8.9 and pipecat-ai 1.14.0; what they read of each event is taken
from their sources. `examples/interop` runs the real ones.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import httpx
import pytest
from interop import openai_realtime, vllm_realtime
from sensorium.actors.config.server import ListenConfig, RealtimeConfig
from support.raw_socket import Event, RawSession, pcm, raw_session, resampled, silence
from support.server import Server, make_config, running_server
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[2] / "examples" / "data"
LIGHTS = DATA / "kitchen_lights.wav"
CONVERSATION = DATA / "conversation.wav"
TRANSCRIPTION = "conversation.item.input_audio_transcription"
KEY = "a real key"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a key, and has room for few seconds of waiting audio."""
    config = make_config(
        listen=ListenConfig(port=0, drain_s=5.0, api_key=(KEY,)),
        realtime=RealtimeConfig(max_backlog_ms=6_000),
    )
    with running_server(config) as server:
        yield server


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


# --- vLLM's flat dialect -------------------------------------------------------------------------------


class FlatClient:
    """What vLLM's own tests do with a socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send(self, **event: object) -> None:
        self._socket.send(json.dumps(event))

    def receive(self) -> Event:
        event: Event = json.loads(self._socket.recv(20))
        return event

    def append(self, audio: bytes) -> None:
        for start in range(0, len(audio), 3_200):
            part = base64.b64encode(audio[start : start + 3_200]).decode()
            self.send(type="input_audio_buffer.append", audio=part)

    def utterance(self, audio: bytes) -> Event:
        """One cycle: start, audio, end; gives `done`. Checks the deltas on the way."""
        self.send(type="input_audio_buffer.commit")
        self.append(audio)
        self.send(type="input_audio_buffer.commit", final=True)
        return self.done()

    def done(self) -> Event:
        text = ""
        while True:
            event = self.receive()
            match event["type"]:
                case "transcription.delta":
                    assert event["delta"]
                    assert event["logprobs"] is None
                    text += event["delta"]
                case "transcription.done":
                    assert event["text"] == text
                    return event
                case kind:
                    assert kind == "session.updated", event


@contextmanager
def flat_client(url: str, model: str | None = "tiny-whisper", **options: Any) -> Iterator[FlatClient]:  # noqa: ANN401
    with connect(url, **options) as socket:
        client = FlatClient(socket)
        created = client.receive()
        assert created["type"] == "session.created"
        assert isinstance(created["id"], str)
        assert isinstance(created["created"], int)
        if model is not None:
            client.send(type="session.update", model=model)
        yield client


def test_vllms_example_client(server: Server) -> None:
    text = asyncio.run(vllm_realtime.main(str(CONVERSATION), server.realtime))
    spoken = " ".join(turn["text"] for turn in json.loads((DATA / "conversation.json").read_text())["turns"])
    missed = set(words(spoken)) - set(words(text))
    assert len(missed) <= 3, missed
    assert "<" not in text


def test_utterances_on_one_socket_do_not_leak(server: Server, lights: bytes) -> None:
    with flat_client(server.realtime) as client:
        assert client.utterance(pcm(lights)[:3_200])["type"] == "transcription.done"
        first, second = client.utterance(pcm(lights)), client.utterance(pcm(lights))
        assert first["text"] == second["text"] != ""
        assert first["usage"]["completion_tokens"] == second["usage"]["completion_tokens"] > 0
        assert client.utterance(silence(1.0))["text"] == ""


def test_audio_sent_before_done_is_not_lost(server: Server, lights: bytes) -> None:
    with flat_client(server.realtime) as client:
        for _ in range(2):
            client.append(pcm(lights))
            client.send(type="input_audio_buffer.commit", final=True)
        assert client.done()["text"] == client.done()["text"] != ""


def test_an_empty_utterance_is_answered(server: Server) -> None:
    with flat_client(server.realtime) as client:
        assert client.utterance(b"")["text"] == ""
        assert client.utterance(b"\0\0")["text"] == ""


@pytest.mark.parametrize("politely", [True, False])
def test_a_client_that_leaves_midway_leaves_nothing(server: Server, lights: bytes, politely: bool) -> None:
    with connect(server.realtime) as socket:
        client = FlatClient(socket)
        client.send(type="session.update", model="")
        assert [client.receive()["type"] for _ in range(2)] == ["session.created", "session.updated"]
        client.append(pcm(lights))
        if not politely:
            socket.socket.shutdown(SHUT_RDWR)  # no goodbye; these sessions wait for nobody


def test_refusals_of_the_flat_dialect(server: Server) -> None:
    with flat_client(server.realtime, None) as client:
        client.send(type="input_audio_buffer.commit", final=True)
        assert client.receive()["code"] == "model_not_validated"
        client.send(type="session.update", model="nonexistent-model")
        refused = client.receive()
        assert refused["code"] == "model_not_found"
        assert "nonexistent-model" in refused["error"]
        client.send(type="session.update", model="tiny-whisper", include=["bogus"])
        refused = client.receive()
        assert refused["code"] == "invalid_event"
        assert "include" in refused["error"]


def test_a_file_at_full_speed_waits_for_the_transcription(guarded: Server, conversation: bytes) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with flat_client(guarded.realtime, additional_headers=headers) as client:
        transcript = client.utterance(pcm(conversation))["text"]
    assert "Wetter" in transcript
    guarded.wait_quiet()


# --- LiveKit and Pipecat -------------------------------------------------------------------------------


def livekit_update(**transcription: object) -> Event:
    audio_input = {
        "format": {"rate": 24_000, "type": "audio/pcm"},
        "transcription": {"model": "tiny-whisper", **transcription},
        "turn_detection": {
            "type": "server_vad",
            "prefix_padding_ms": 600,
            "silence_duration_ms": 350,
            "threshold": 0.5,
        },
    }
    session = {"type": "transcription", "audio": {"input": audio_input}}
    return {"session": session, "type": "session.update"}


@pytest.mark.parametrize(
    "transcription",
    [{}, {"language": "en", "prompt": "lights"}, {"keywords": ["kitchen"], "languages": ["en", "de"]}],
)
def test_what_livekit_sends(server: Server, lights: bytes, transcription: Event) -> None:
    audio = resampled(pcm(lights) + silence(1.0), 16_000, 24_000)
    url = f"{server.realtime}?intent=transcription&model=tiny-whisper"
    headers = {"User-Agent": "LiveKit Agents", "Authorization": "Bearer none"}
    with connect(url, additional_headers=headers) as socket:
        session = RawSession(socket)
        # The plugin does not wait for session.created, and takes any error event as the end.
        session.send(livekit_update(**transcription))
        for start in range(0, len(audio), 2_400):
            session.append(audio[start : start + 2_400])
        completed = session.until("completed")
    started = session.seen("speech_started")[0]
    stopped = session.seen("speech_stopped")[0]
    assert started["item_id"] == stopped["item_id"] == completed["item_id"]
    assert stopped["audio_end_ms"] > started["audio_start_ms"]
    assert session.deltas(started["item_id"]) == completed["transcript"] != ""
    assert [language["code"] for language in completed["languages"]] == ["en"]
    assert completed["usage"]["input_tokens"] > 0


def test_livekit_keeps_a_socket_for_the_next_stream(server: Server, lights: bytes) -> None:
    audio = resampled(pcm(lights) + silence(1.0), 16_000, 24_000)
    with raw_session(f"{server.realtime}?intent=transcription&model=tiny-whisper") as session:
        transcripts = []
        for language in ("de", "en"):
            session.send(livekit_update(language=language))
            session.append(audio)
            transcripts.append(session.until("completed")["transcript"])
        assert "kitchen" in transcripts[1]


@pytest.mark.parametrize("field", ["near_field", "far_field"])
def test_noise_reduction_costs_a_client_nothing_else_of_its_update(server: Server, field: str) -> None:
    """OpenAI's samples ask for it, and both libraries have an option for it. None is claimed."""
    update = livekit_update(language="en")
    update["session"]["audio"]["input"]["noise_reduction"] = {"type": field}
    with raw_session(f"{server.realtime}?intent=transcription&model=tiny-whisper") as session:
        session.send(update)
        transcript = session.until("session.updated")["session"]["audio"]["input"]
        assert transcript["noise_reduction"] is None
        assert transcript["transcription"]["language"] == "en"


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        (
            {"turn_detection": {"type": "server_vad", "create_response": True}},
            "turn_detection.create_response",
            "unsupported_parameter",
        ),
        ({"transcription": {"temperature": 0}}, "transcription.temperature", "unknown_parameter"),
    ],
)
def test_what_is_not_served_is_refused_by_name_and_nothing_is_lost(
    server: Server, lights: bytes, change: Event, param: str, code: str
) -> None:
    with raw_session(f"{server.realtime}?intent=transcription&model=tiny-whisper") as session:
        session.send(livekit_update())
        before = session.until("session.updated")["session"]
        update = livekit_update()
        update["session"]["audio"]["input"] |= change
        session.send(update | {"event_id": "mine"})
        error = session.until("error")["error"]
        assert (error["code"], error["param"]) == (code, f"session.audio.input.{param}")
        assert error["event_id"] == "mine"
        session.send({"type": "input_audio_buffer.clear", "all": True})
        error = session.until("error")["error"]
        assert (error["code"], error["param"]) == ("unknown_parameter", "all")
        session.send(livekit_update())
        assert session.until("session.updated")["session"] == before
        session.append(resampled(pcm(lights) + silence(1.0), 16_000, 24_000))
        assert session.until("completed")["transcript"]


def pipecat_update(turn_detection: Event | None, **transcription: object) -> Event:
    audio_input = {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": {"model": "tiny-whisper", "language": "en", **transcription},
        "turn_detection": turn_detection,
    }
    session = {"type": "transcription", "audio": {"input": audio_input}}
    return {"type": "session.update", "session": session}


def pipecat_session(session: RawSession, turn_detection: Event | None, **transcription: object) -> None:
    """It sends nothing before `session.created`, and no audio that counts before `session.updated`."""
    session.send(pipecat_update(turn_detection, **transcription))
    session.until("session.updated")


def test_what_pipecat_sends_with_its_own_voice_activity(server: Server, lights: bytes) -> None:
    audio = resampled(silence(0.5) + pcm(lights), 16_000, 24_000)
    with raw_session(f"{server.realtime}?intent=transcription") as session:
        pipecat_session(session, None)
        for _ in range(2):
            for start in range(0, len(audio), 3_300):
                session.append(audio[start : start + 3_300])
            session.commit()
            assert "kitchen" in session.until("completed")["transcript"]
            # A pause that its detector took for the end of speech, and the same once more.
            session.append(silence(0.25, 24_000))
            session.commit()
            session.commit()
            assert [session.until("completed")["transcript"] for _ in range(2)] == ["", ""]


def test_what_pipecat_sends_with_the_servers_voice_activity(server: Server, lights: bytes) -> None:
    audio = resampled(pcm(lights) + silence(1.0), 16_000, 24_000)
    with raw_session(f"{server.realtime}?intent=transcription") as session:
        pipecat_session(session, {"type": "server_vad"}, delay="low")
        for start in range(0, len(audio), 3_300):
            session.append(audio[start : start + 3_300])
        completed = session.until("completed")
        assert session.seen("speech_started")
        assert session.seen("speech_stopped")
        assert "".join(event["delta"] for event in session.seen("delta")) == completed["transcript"]


# --- OpenAI's package and ephemeral keys ---------------------------------------------------------------


# The openai package calls websockets in a way that websockets 17 deprecates.
@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")
def test_openais_package_with_an_ephemeral_key(guarded: Server) -> None:
    finals = asyncio.run(openai_realtime.main(str(LIGHTS), guarded.api, "tiny-whisper", KEY))
    assert ["kitchen" in final for final in finals] == [True]
    guarded.wait_quiet()


def secret(server: Server, body: Event, key: str = KEY) -> httpx.Response:
    return httpx.post(
        f"{server.api}/realtime/client_secrets", json=body, headers={"Authorization": f"Bearer {key}"}
    )


def test_an_ephemeral_key_as_subprotocol(guarded: Server) -> None:
    session = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
    answer = secret(guarded, {"session": session, "expires_after": {"anchor": "created_at", "seconds": 60}})
    assert answer.status_code == 200
    value = answer.json()["value"]
    with raw_session(
        guarded.realtime, subprotocols=["realtime", f"openai-insecure-api-key.{value}"]
    ) as opened:
        assert opened.socket.subprotocol == "realtime"
        begun = opened.events[0]["session"]
        assert begun["audio"] == answer.json()["session"]["audio"]
        assert begun["audio"]["input"]["turn_detection"] is None
    guarded.wait_quiet()


def test_an_expired_ephemeral_key_opens_no_session_with_other_settings(server: Server) -> None:
    """Not even where nobody needs a key."""
    headers = {"Authorization": "Bearer ek_of-another-server"}
    with pytest.raises(InvalidStatus) as refused, connect(server.realtime, additional_headers=headers):
        pass
    assert refused.value.response.status_code == 401
    assert b"expired" in (refused.value.response.body or b"")


def test_an_ephemeral_key_opens_nothing_else(guarded: Server) -> None:
    value = secret(guarded, {}).json()["value"]
    assert secret(guarded, {}, key=value).status_code == 401
    assert httpx.get(f"{guarded.api}/models", headers={"Authorization": f"Bearer {value}"}).status_code == 401
    with (
        pytest.raises(InvalidStatus),
        connect(guarded.realtime, additional_headers={"Authorization": f"Bearer {value}x"}),
    ):
        pass


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 5}}, "expires_after.seconds"),
        ({"session": {"type": "realtime"}}, "session.model"),
        ({"session": {"type": "dictation"}}, "session.type"),
        ({"session": {"model": "nonexistent"}}, "session.model"),
        (
            {"session": {"audio": {"input": {"transcription": {"language": "xx"}}}}},
            "session.audio.input.transcription.language",
        ),
    ],
)
def test_a_session_that_could_not_begin_gets_no_key(guarded: Server, body: Event, param: str) -> None:
    answer = secret(guarded, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
