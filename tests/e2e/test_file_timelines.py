"""Times in a transcript are those of the file, whatever its container; any of its tracks may be chosen."""

from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
import soundfile
from sensorium.client import Client
from support.audio_files import FloatArray, plain_wav, sound_file, timed, tracks
from support.server import Server

pytestmark = pytest.mark.slow

LATE_S = 2.94
PICTURES = [place / 5 for place in range(30)]


def post(server: Server, data: bytes, **form: str) -> httpx.Response:
    url = f"{server.api}/audio/transcriptions"
    return httpx.post(url, files={"file": ("a", data)}, data=form, timeout=60)


@pytest.fixture(scope="module")
def spoken(lights: bytes) -> FloatArray:
    samples, rate = soundfile.read(io.BytesIO(lights), dtype="float32")
    assert rate == 16_000
    return np.asarray(samples, np.float32)


@pytest.mark.parametrize(("container", "codec"), [("matroska", "flac"), ("mpegts", "mp2")])
def test_words_are_where_the_film_has_them(
    server: Server, spoken: FloatArray, container: str, codec: str
) -> None:
    film = timed(
        spoken,
        lambda stamp_s: stamp_s + LATE_S,
        container=container,
        codec=codec,
        picture_times_s=PICTURES,
    )
    timed_words = {"response_format": "verbose_json", "timestamp_granularities[]": "word"}
    alone = post(server, plain_wav(spoken), **timed_words).json()
    for more in ({}, {"multichannel": "true"}, {"clip_timestamps": "2"}):
        found = post(server, film, **timed_words, **more).json()
        assert found["words"][0]["start"] >= 2.9 < found["words"][-1]["end"]
        assert found["duration"] == pytest.approx(LATE_S + len(spoken) / 16_000, abs=0.1)
        assert found["words"][-1]["end"] == pytest.approx(alone["words"][-1]["end"] + LATE_S, abs=0.35)
    assert post(server, film, response_format="srt").text.splitlines()[1] >= "00:00:02,9"


def test_a_track_is_chosen_by_form_and_client(server: Server, spoken: FloatArray) -> None:
    file = tracks(spoken, 0 * spoken, default=1)
    text = post(server, plain_wav(spoken)).json()["text"]
    assert text
    assert [post(server, file, audio_track=track).json()["text"] for track in ("", "0", "1")] == [
        "",
        text,
        "",
    ]
    with Client(server.url) as client:
        assert client.transcribe(file, audio_track=0).text == text
    refused = post(server, file, audio_track="2")
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], "2 audio tracks" in error["message"]) == ("audio_track", True)


def test_no_channel_and_no_part_is_lost(server: Server, spoken: FloatArray) -> None:
    text = post(server, plain_wav(spoken)).json()["text"]
    turned = sound_file(np.stack([spoken, -spoken], axis=1))
    joined = plain_wav(spoken) + plain_wav(0 * spoken) + plain_wav(spoken)
    assert post(server, turned).json()["text"] == text
    transcript = post(server, joined).json()["text"]
    assert transcript.count(text[:12]) == 2
