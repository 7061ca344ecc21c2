"""Which audio a session takes, and when its client is warned. Knows amounts, neither audio nor time.

Over `max_append_bytes`, or `max_backlog_ms` of received audio that may hold speech and that no hypothesis
covers, an append is refused; at half that backlog `input_audio_buffer.backpressure` is sent, and again only
after it fell below a quarter. A turn of `force_turn_s` is ended (detection on), one of `max_turn_s` takes no
more audio (off; silence slides out), which is warned of, too. Used by `realtime/session.py`.
"""

from __future__ import annotations

from ..protocols.errors import ClientError, TooLargeError
from ..protocols.realtime.events import InputAudioBufferBackpressure
from ..protocols.shared.audio_format import INTERNAL_RATE, ms_to_samples, samples_to_ms
from ..protocols.shared.container_format import ContainerFormat
from .channels import Channels
from .config import SessionConfig
from .outgoing import Outgoing
from .settings import SessionSettings


class Admission:
    """The limits of audio of one session."""

    def __init__(self, config: SessionConfig, channels: Channels, outgoing: Outgoing) -> None:
        self._config = config
        self._channels = channels
        self._outgoing = outgoing
        self._max_backlog = ms_to_samples(config.max_backlog_ms)
        self._max_turn = ms_to_samples(config.max_turn_s * 1000)
        self._warned = self._turn_warned = False

    @property
    def is_lagging(self) -> bool:
        """More than half of the backlog is used up."""
        return self._channels.backlog > self._max_backlog // 2

    def refusal(self, num_bytes: int, settings: SessionSettings) -> ClientError | None:
        """Why an append of `num_bytes` cannot be taken. How much sound a container holds shows later."""
        config = self._config
        if not settings.model:
            return ClientError("no model of this server takes audio", code="audio_not_served", param="audio")
        if num_bytes > config.max_append_bytes:
            return TooLargeError(
                f"`audio` is {num_bytes} bytes; the limit is {config.max_append_bytes}", param="audio"
            )
        audio_format = settings.format
        if isinstance(audio_format, ContainerFormat):
            return None
        return self.refusal_of(num_bytes * INTERNAL_RATE // audio_format.bytes_per_second)

    def refusal_of(self, num_samples: int) -> ClientError | None:
        """Why so much sound cannot be taken."""
        config = self._config
        backlog = self._channels.backlog + num_samples
        if backlog > self._max_backlog:
            return ClientError(
                f"{samples_to_ms(backlog)} ms of audio would be waiting; the limit is "
                f"{config.max_backlog_ms} ms: send no faster than real time",
                code="input_audio_buffer_overflow",
                param="audio",
            )
        if not self._channels.has_room(num_samples):
            return ClientError(
                f"the turn would be longer than {config.max_turn_s:g} s; commit or clear it first",
                code="input_audio_buffer_overflow",
                param="audio",
            )
        return None

    def warn(self) -> None:
        """Tell the client, once, that a limit is near."""
        backlog, unended = self._channels.backlog, self._channels.unended
        self._warned = self._press(self._warned, backlog, self._max_backlog // 2, self._max_backlog)
        self._turn_warned = self._press(self._turn_warned, unended, self._max_turn * 9 // 10, self._max_turn)

    def _press(self, warned: bool, used: int, at: int, limit: int) -> bool:
        """Warn once when `used` of `limit` samples reach `at`, and again only after it fell to half of that.

        Gives whether the client is warned now.
        """
        if warned:
            return used > at // 2
        if used < at:
            return False
        self._outgoing.send(
            InputAudioBufferBackpressure(buffered_ms=samples_to_ms(used), limit_ms=samples_to_ms(limit))
        )
        return True
