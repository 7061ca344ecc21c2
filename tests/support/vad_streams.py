"""Voice activity in tests: on the loop, where virtual time stands still meanwhile, or without the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from sensorium.actors.live.audio import Decode, Detect, EndSound, ListeningMachine, LiveEffect, Then
from sensorium.media.speech.voice_activity import VoiceActivityModel, VoiceActivityStream
from sensorium.media.transcript.range_answer import Samples
from sensorium.realtime.effects import Effect

SCORED = 4_096
"""Samples between two scores, 256 ms: hours of 32 ms would take minutes."""


class Stream(Protocol):
    """What scores at once."""

    def push(self, samples: Samples) -> list[tuple[int, float]]: ...

    def reset(self) -> None: ...


class LoudnessStream:
    """Whatever is not digital silence is speech. For sessions of hours."""

    def __init__(self) -> None:
        self._num_samples = 0

    def reset(self) -> None:
        """There is nothing to forget."""

    def push(self, samples: Samples) -> list[tuple[int, float]]:
        """`(end_sample, probability)` of every score whose place `samples` reach."""
        first = self._num_samples
        self._num_samples += len(samples)
        places = range(first - first % SCORED + SCORED, self._num_samples + 1, SCORED)
        return [(place, 0.95 if samples[place - first - 1] else 0.02) for place in places]


class DirectVadStream:
    """Scores where it is asked, frame by frame."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def score(self, samples: Samples, *, is_pushed: bool = False) -> list[tuple[int, float]]:
        return self._stream.push(samples)

    def reset(self) -> None:
        self._stream.reset()


def loudness_vad(_caller: str = "") -> DirectVadStream:
    """An ear that takes sound for speech."""
    return DirectVadStream(LoudnessStream())


def network_vad(model: VoiceActivityModel) -> DirectVadStream:
    """An ear that uses the network on the loop."""
    return DirectVadStream(VoiceActivityStream(model))


def settled(
    machine: ListeningMachine, effects: Sequence[LiveEffect], stream: Stream, *, now: float
) -> Iterator[Effect]:
    """The effects of a machine without its own two, which are carried out on the way."""
    for effect in effects:
        match effect:
            case Detect(samples):
                yield from settled(machine, machine.scored(stream.push(samples), now=now), stream, now=now)
            case Then():
                yield from settled(machine, machine.proceed(effect, now=now), stream, now=now)
            case Decode() | EndSound():
                raise AssertionError("raw samples only")
            case _:
                yield effect
