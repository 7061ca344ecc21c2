"""What the sessions of a call begin with, by the call's address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sensorium.actors.http.calls.routes import _patch
from sensorium.protocols.shared.audio_format import AudioFormat


@pytest.mark.parametrize(
    ("options", "transcription"),
    [
        ({}, {"delay": "low"}),
        ({"delay": "high", "language": "de", "model": "any"}, {"delay": "high", "language": "de"}),
    ],
)
def test_text_comes_soon_unless_the_address_says_otherwise(
    options: dict[str, str], transcription: dict[str, str]
) -> None:
    patch: dict[str, Any] = msgspec.to_builtins(_patch(options, AudioFormat("pcmu", 8_000)))
    found = patch["audio"]["input"]
    assert {name: value for name, value in found["transcription"].items() if value} == transcription
    assert found["format"]["type"] == "audio/pcmu"
