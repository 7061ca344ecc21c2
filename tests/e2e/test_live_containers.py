"""What a browser's recorder sends, against a real server: the words are those of the file."""

from __future__ import annotations

import io
from collections.abc import Callable

import httpx
import numpy as np
import pytest
import soundfile
from support.audio_files import FloatArray
from support.raw_socket import pcm, raw_session, resampled
from support.server import Server
from support.sound_streams import ogg, webm

pytestmark = pytest.mark.slow


def samples(wav: bytes) -> FloatArray:
    return (np.frombuffer(resampled(pcm(wav), 16_000, 48_000), "<i2") / 32_768).astype(np.float32)


@pytest.mark.parametrize("make", [webm, ogg], ids=["webm", "ogg"])
def test_words_are_those_of_the_file(
    make: Callable[[FloatArray], bytes], server: Server, lights: bytes
) -> None:
    data = make(samples(lights))
    answer = httpx.post(f"{server.api}/audio/transcriptions", files={"file": ("a", data)}, timeout=60)
    with raw_session(server.realtime) as session:
        session.configure(container="auto")
        for start in range(0, len(data), 1_777):
            session.append_binary(data[start : start + 1_777])
        session.commit()
        assert session.until("completed")["transcript"] == answer.json()["text"]


def test_what_breaks_one_stream_is_told_there_and_costs_nobody(server: Server, lights: bytes) -> None:
    data = webm(samples(lights))
    with raw_session(server.realtime) as broken, raw_session(server.realtime) as neighbour:
        for session in (broken, neighbour):
            session.configure(container="audio/webm")
        half = len(data) // 2
        neighbour.append_binary(data[:half])
        broken.append(b"#EXTM3U\nfile:///etc/passwd\n")
        while (event := broken.receive())["type"] != "error":
            pass
        assert event["error"]["code"] == "invalid_audio"
        neighbour.append_binary(data[half:])
        broken.append_binary(data)
        for session in (broken, neighbour):
            session.commit()
        texts = [session.until("completed")["transcript"] for session in (broken, neighbour)]
        assert texts[0] == texts[1] != ""


def test_two_people_on_two_channels_are_two_transcripts(
    server: Server, lights: bytes, conversation: bytes
) -> None:
    """As the file says them, raw and in a container."""
    first = np.frombuffer(pcm(lights), "<i2")
    second = np.frombuffer(pcm(conversation), "<i2")[: len(first) + 16_000]
    both = np.stack([np.pad(first, (0, len(second) - len(first))), second], axis=1)
    buffer = io.BytesIO()
    soundfile.write(buffer, both, 16_000, format="FLAC")
    url, form = (
        f"{server.api}/audio/transcriptions",
        {"multichannel": "true", "response_format": "verbose_json"},
    )
    answer = httpx.post(url, files={"file": ("a", buffer.getvalue())}, data=form, timeout=60).json()
    wanted = [channel["text"] for channel in answer["channels"]]
    for data, container in ((both.astype("<i2").tobytes(), None), (buffer.getvalue(), "audio/flac")):
        with raw_session(server.realtime) as session:
            session.configure(container=container, channels=2)
            for start in range(0, len(data), 9_999 if container else 10_000):
                session.append_binary(data[start : start + (9_999 if container else 10_000)])
            session.commit()
            texts: dict[int, str] = {}
            while len(texts) < 2:
                event = session.until("completed")
                texts[event["channel"]] = event["transcript"]
            assert [texts[0], texts[1]] == wanted
            assert wanted[0] != wanted[1]
