"""Options in the address of a request to a real server: each is read, or refused with the way to send it."""

from __future__ import annotations

import base64

import httpx
import pytest
from sensorium.protocols.shared.audio_format import AudioFormat, wave_file
from support.server import Server

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("path", "param", "message"),
    [
        ("/audio/transcriptions?response_format=xml", "response_format", "must be one of"),
        ("/audio/transcriptions?model=tiny-whisper", "model", "is given twice"),
        ("/audio/transcriptions?foo=bar", "foo", "is not a field"),
        ("/realtime/client_secrets?model=tiny-whisper", "model", "fields of the JSON body"),
    ],
)
def test_options_in_the_address_are_read_or_refused(
    path: str, param: str, message: str, server: Server, lights: bytes
) -> None:
    files, form = {"file": ("a.wav", lights)}, {"model": "tiny-whisper"}
    answer = httpx.post(f"{server.api}{path}", files=files, data=form, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert message in answer.json()["error"]["message"]


def test_an_option_in_the_address_is_a_field_of_the_form(server: Server, lights: bytes) -> None:
    address = f"{server.api}/audio/transcriptions?response_format=text&api-version=2024-06-01"
    answer = httpx.post(address, files={"file": ("a.wav", lights)}, timeout=60)
    plain = httpx.post(address.partition("?")[0], files={"file": ("a.wav", lights)}, timeout=60).json()
    assert answer.text == plain["text"] + "\n"
    silent = wave_file(bytes(3200), AudioFormat("pcm16", 16_000))
    file = f"data:audio/wav;base64,{base64.b64encode(silent).decode()}"
    query, parts = {"url": file, "response_format": "text"}, {"model": (None, "tiny-whisper")}
    assert httpx.post(address.partition("?")[0], params=query, files=parts, timeout=60).status_code == 200
