"""Decodes containers in this process and at once: the clock of a test stands still meanwhile."""

from __future__ import annotations

from sensorium.actors.live.container_decoder import Decoded, Sound
from sensorium.media.streams.decoder import StreamDecoder
from sensorium.media.streams.packets import StreamError
from sensorium.protocols.errors import MediaError
from sensorium.protocols.shared.container_format import StreamContainer


class InlineSound:
    """See `Sound`. It does not begin again."""

    def __init__(self, container: StreamContainer, num_channels: int) -> None:
        self._decoder = StreamDecoder(container, num_channels)

    async def decode(self, data: bytes, *, is_first: bool = False, is_end: bool = False) -> Decoded:
        try:
            self._decoder.push(data)
            samples = self._decoder.take_last() if is_end else self._decoder.take()
        except StreamError as error:
            raise MediaError(str(error), code="invalid_audio", param="audio") from error
        return Decoded(samples, self._decoder.has_more)

    def close(self) -> None:
        """There is nothing to give back."""


def inline_sound(container: StreamContainer, num_channels: int = 1) -> Sound:
    """A new stream."""
    return InlineSound(container, num_channels)
