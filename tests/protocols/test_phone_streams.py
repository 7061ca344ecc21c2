"""Every provider's stream, as documented, becomes tracks and sound under the provider's name of the call."""

from __future__ import annotations

import json

import pytest
from peers.phone_streams import OTHERS, STREAMS, sound
from sensorium.protocols.calls.frames import decode_call_frame
from sensorium.protocols.errors import ClientError
from sensorium.realtime.calls.call import CallMachine
from sensorium.realtime.calls.effects import AppendTrackAudio, Begin, CallEffect, OpenTrack, SendEvent


def play(*frames: str | bytes) -> list[CallEffect]:
    machine = CallMachine("call_1", now=0.0)
    effects: list[CallEffect] = []
    for frame in frames:
        effects += machine.receive(frame if isinstance(frame, bytes) else decode_call_frame(frame), now=0.0)
        if effects and isinstance(effects[-1], Begin):
            effects += machine.agreed()
    return effects


@pytest.mark.parametrize("provider", STREAMS)
def test_all_sound_is_heard(provider: str) -> None:
    stream = STREAMS[provider]
    effects = play(*stream.frames(), *map(json.dumps, stream.closing))
    (opened,) = (each for each in effects if isinstance(each, OpenTrack))
    rates = {"pcmu": ("pcmu", 8_000), "pcm8": ("pcm16", 8_000), "pcm16": ("pcm16", 16_000)}
    assert (opened.track, opened.format.encoding, opened.format.rate) == ("inbound", *rates[stream.sound])
    assert b"".join(each.audio for each in effects if isinstance(each, AppendTrackAudio)) == sound(
        stream.sound
    )
    events = [each.event for each in effects if isinstance(each, SendEvent)]
    assert events[0].event == "call.started"
    assert events[0].call == (stream.call or "call_1")
    assert not [each for each in events if each.event == "error"]


@pytest.mark.parametrize("provider", OTHERS)
def test_others_are_refused_once(provider: str) -> None:
    machine = CallMachine("call_1", now=0.0)
    try:
        read = decode_call_frame(json.dumps(OTHERS[provider]))
    except ClientError as error:
        effects = machine.receive(error, now=0.0)
    else:
        effects = machine.receive(read, now=0.0)
    (error_event,) = (
        each.event for each in effects if isinstance(each, SendEvent) and each.event.event == "error"
    )
    assert error_event.code == "unknown_stream"
