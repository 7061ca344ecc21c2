"""Local audio for live sessions: read a WAV file with the standard library, cut it into chunks, pace them.

Only PCM16 WAV at the rates the wire knows; whole files in any format go to `Client.transcribe`, which lets
the server decode. Knows no sockets and no clock: time is an argument. Read next:
`client/realtime/transcription_machine.py`.
"""

from __future__ import annotations

import random
import sys
import wave
from array import array
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ..protocols.shared.audio_format import SUPPORTED_RATES, AudioFormat, wave_file
from .errors import AudioError

CHUNK_MS: Final = 100
"""Audio per message when a file is streamed: short enough not to delay a first partial noticeably."""


class Audio(msgspec.Struct, frozen=True):
    """Mono little-endian PCM16 in memory."""

    pcm: bytes
    rate: int

    @property
    def format(self) -> AudioFormat:
        """The wire's name for it."""
        return AudioFormat("pcm16", self.rate)

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.pcm) / self.format.bytes_per_second

    def chunks(self, chunk_ms: int = CHUNK_MS) -> Iterator[bytes]:
        """The audio in order, in pieces of `chunk_ms`; the last one may be shorter."""
        return cut(self.pcm, self.format, chunk_ms)


def cut(data: bytes, audio_format: AudioFormat, chunk_ms: int = CHUNK_MS) -> Iterator[bytes]:
    """Cut raw audio into pieces of `chunk_ms`, always at whole samples."""
    size = max(1, audio_format.rate * chunk_ms // 1000) * audio_format.bytes_per_sample
    for start in range(0, len(data), size):
        yield data[start : start + size]


def silence(duration_s: float, rate: int) -> bytes:
    """PCM16 silence."""
    return bytes(2 * round(duration_s * rate))


def read_wav(path: str | Path, *, rates: Collection[int] = SUPPORTED_RATES) -> Audio:
    """A PCM16 WAV file as mono audio; several channels are averaged. `rates` empty: any rate will do.

    Raises AudioError, with the ffmpeg command that helps, for other sample formats and rates.
    """
    try:
        with wave.open(str(path), "rb") as source:
            width, num_channels, rate = source.getsampwidth(), source.getnchannels(), source.getframerate()
            data = source.readframes(source.getnframes())
    except FileNotFoundError:
        raise AudioError(f"no such file: {path}") from None
    except (wave.Error, EOFError, OSError) as error:
        reason = str(error) or "it ends too early"
        raise AudioError(f"{path} is not a plain WAV file ({reason}); {_convert(path)}") from error
    if width != 2:
        raise AudioError(f"{path} has {8 * width}-bit samples, not 16-bit; {_convert(path)}")
    if rates and rate not in rates:
        allowed = ", ".join(str(rate) for rate in rates)
        raise AudioError(f"{path} has {rate} samples per second, not one of {allowed}; {_convert(path)}")
    return Audio(_downmix(data[: len(data) - len(data) % (2 * num_channels)], num_channels), rate)


def wav_bytes(audio: Audio) -> bytes:
    """The audio as a WAV file."""
    return wave_file(audio.pcm, audio.format)


def varied(audio: Audio, seed: int) -> Audio:
    """The same to any ear, but not to a cache: every hundredth sample moves by at most one step of 65536.

    A benchmark that sends the same bytes again and again measures a server's cache.
    """
    samples = _samples(audio.pcm)
    steps = random.Random(seed)
    for index in range(0, len(samples), 100):
        samples[index] = max(-32_768, min(32_767, samples[index] + steps.choice((-1, 0, 1))))
    return Audio(_pcm(samples), audio.rate)


class Pacer:
    """When the next chunk may be sent. The schedule is fixed: a late chunk does not delay the later ones.

    With `speed` 1.0 a chunk leaves when its last sample would have been spoken, as from a microphone. With
    `speed` None it leaves at once unless that puts more than `max_ahead_s` of audio ahead of real time.
    """

    def __init__(self, *, start: float, speed: float | None = 1.0, max_ahead_s: float = float("inf")) -> None:
        self._start = start
        self._speed = speed
        self._max_ahead_s = max_ahead_s
        self.sent_s = 0.0
        """Seconds of audio handed out so far."""

    def next_time(self, duration_s: float) -> float:
        """The time at which a chunk of `duration_s` may leave (it may already have passed)."""
        self.sent_s += duration_s
        if self._speed is None:
            return self._start + self.sent_s - self._max_ahead_s
        return self._start + self.sent_s / self._speed


def _downmix(data: bytes, num_channels: int) -> bytes:
    """The mean of interleaved channels, rounded towards zero."""
    if num_channels == 1:
        return data
    samples = _samples(data)
    channels = [samples[index::num_channels] for index in range(num_channels)]
    return _pcm(array("h", (int(sum(frame) / num_channels) for frame in zip(*channels, strict=True))))


def _samples(pcm: bytes) -> array[int]:
    samples = array("h", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _pcm(samples: array[int]) -> bytes:
    if sys.byteorder == "big":
        samples.byteswap()
    return samples.tobytes()


def _convert(path: str | Path) -> str:
    return f"convert it first: ffmpeg -i {path} -ac 1 -ar 24000 -c:a pcm_s16le live.wav"
