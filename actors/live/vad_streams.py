"""Audio input of a session: a voice activity stream for each channel, and the decoder of its container.

Voice activity is `actors/live/voice_activity.py`, decoding `actors/live/container_decoder.py`; both serve
every session.
"""

from __future__ import annotations

from functools import partial

from ...media.transcript.range_answer import Samples
from ...protocols.shared.container_format import ContainerFormat, InputFormat
from .container_decoder import Decoded, OpenSound, Sound
from .voice_activity import OpenVadStream


class VadStreams:
    """Streams of one session. Cancelling a wait loses the audio that was being scored."""

    def __init__(
        self, open_vad_stream: OpenVadStream, open_sound: OpenSound, num_channels: int, *, caller: str
    ) -> None:
        """`caller` is that of its lanes."""
        self._open_vad_stream = partial(open_vad_stream, caller)
        self._open_sound = open_sound
        self._vad_streams = [self._open_vad_stream() for _ in range(num_channels)]
        self._sound: Sound | None = None

    @property
    def are_decoding(self) -> bool:
        """Whether sound comes in a container."""
        return self._sound is not None

    def configure(self, audio_format: InputFormat, num_channels: int) -> None:
        """Bytes come in this format from now on."""
        if num_channels != len(self._vad_streams):
            self._vad_streams = [self._open_vad_stream() for _ in range(num_channels)]
        self.close()
        if isinstance(audio_format, ContainerFormat):
            self._sound = self._open_sound(audio_format.container, num_channels)

    def reset(self, channel: int) -> None:
        """A channel goes on behind a gap."""
        self._vad_streams[channel].reset()

    async def score(self, samples: Samples, channel: int, *, is_pushed: bool) -> list[tuple[int, float]]:
        """See `VadStream.score`."""
        return await self._vad_streams[channel].score(samples, is_pushed=is_pushed)

    async def decode(self, data: bytes, *, is_first: bool, is_end: bool) -> Decoded:
        """See `Sound.decode`; only while `are_decoding`."""
        assert self._sound is not None
        return await self._sound.decode(data, is_first=is_first, is_end=is_end)

    def close(self) -> None:
        """No more bytes of a container come."""
        if self._sound is not None:
            self._sound.close()
        self._sound = None
