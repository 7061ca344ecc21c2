"""A container's bytes as they come → samples at 16 kHz, mixed or by channel. One stream; runs in a worker.

The container is taken apart by code of ours (`matroska.py`, `ogg.py`, …), which opens nothing; its packets
go to the one libavcodec decoder the container names, out of those `Codec` lists. **Law**: however the bytes
are cut, the samples are those that `media/audio/decode.py` makes of the whole file.

`push` only takes bytes apart; `take` decodes, a bounded amount at a time: few bytes may claim minutes of
silence. Between calls a decoder can be pickled. What comes back goes on with the next packet: it has lost
what the codec and the filter remembered, some milliseconds. Who runs it: `worker.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import av
import numpy as np
import numpy.typing as npt

from ...protocols.shared.container_format import StreamContainer
from ..audio.decode import MAX_CHANNELS, MAX_RATE, MIN_RATE, frame_channels
from ..audio.downmix import Mixer, mean_of
from ..audio.pcm import is_sound
from ..audio.resample import StreamingResampler
from ..audio.timeline import Timeline
from . import opus
from .packets import Demuxer, Packet, StreamError, Track, rounded
from .sniff import open_demuxer

FloatArray = npt.NDArray[np.float32]

MAX_TURN_SAMPLES: Final = 4 * 16_000
"""Samples that one `take` gives, and what one packet more may bring."""
MAX_HOLE_S: Final = 10.0
"""A longer hole in a live stream's stamps counts as that: enough to end a turn, and little enough that a few
bytes cannot claim hours. A file has its silence whole."""
_MAX_BAD_PACKETS: Final = 1000
"""Consecutive packets that do not decode before a damaged stream is given up."""
_NOTHING: Final = np.zeros(0, np.float32)


class _Block(NamedTuple):
    """Decoded samples [channels, n], or so much silence of as many channels."""

    samples: FloatArray
    num_silent: int
    rate: int


class StreamDecoder:
    """See the file's paragraph. Every method may raise StreamError; the decoder is then of no use.

    `num_channels` 1 mixes all there are; more are kept, and must be as many.
    """

    def __init__(self, container: StreamContainer = "auto", num_channels: int = 1) -> None:
        self._num_channels = num_channels
        self._demuxer: Demuxer = open_demuxer(container)
        self._waiting: deque[Track | Packet] = deque()
        self._blocks: deque[_Block] = deque()
        """Decoded, and not resampled yet."""
        self._track: Track | None = None
        self._timeline = Timeline()
        self._mixer = Mixer()
        self._codec: av.AudioCodecContext | None = None
        self._num_to_skip = 0
        self._num_bad = 0
        self._rate = 0
        self._resamplers: list[StreamingResampler] = []
        """One for each channel that comes out, once something has."""

    @property
    def has_more(self) -> bool:
        """`take` has something to do."""
        return bool(self._waiting or self._blocks)

    def push(self, data: bytes) -> None:
        """More bytes of the stream, cut anywhere."""
        self._waiting += self._demuxer.push(data)

    def take(self) -> FloatArray:
        """Samples that became final, [n], or [channels, n] if these are kept; call it until nothing waits."""
        parts: list[FloatArray] = []
        blocks: list[FloatArray] = []
        num_samples = 0.0
        while self.has_more and num_samples < MAX_TURN_SAMPLES:
            if not self._blocks:
                item = self._waiting.popleft()
                if isinstance(item, Track):
                    parts += self._resampled(blocks)
                    self._begin(item)
                else:
                    self._blocks += self._decode(item)
                continue
            block, rate = self._next_block()
            if rate != self._rate or (blocks and len(block) != len(blocks[0])):
                parts += self._resampled(blocks)
            if rate != self._rate:
                parts.append(self._flush())
                self._rate = rate
            blocks.append(block)
            num_samples += block.shape[-1] * 16_000 / rate
        parts += self._resampled(blocks)
        return self._joined(parts)

    def take_last(self) -> FloatArray:
        """The same where no more bytes come for now: what waits for its successor is complete."""
        self._waiting += self._demuxer.end()
        samples = self.take()
        return samples if self.has_more else self._joined([samples, self._flush()])

    def _next_block(self) -> tuple[FloatArray, int]:
        """The samples that wait first, or a second of silence of those in front of them."""
        block = self._blocks.popleft()
        if not block.num_silent:
            return block.samples, block.rate
        length = min(block.num_silent, block.rate)
        if rest := block.num_silent - length:
            self._blocks.appendleft(block._replace(num_silent=rest))
        return np.zeros((len(block.samples), length), np.float32), block.rate

    def _flush(self) -> FloatArray:
        """What the resampler's filter holds back; what comes next begins with a fresh one."""
        tails = [each.push(_NOTHING, last=True) for each in self._resamplers]
        self._resamplers = []
        return self._shaped(tails) if tails else self._joined([])

    def _joined(self, parts: list[FloatArray]) -> FloatArray:
        if not parts:
            return self._shaped([_NOTHING] * self._num_channels)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def _shaped(self, channels: list[FloatArray]) -> FloatArray:
        return channels[0] if self._num_channels == 1 else np.stack(channels)

    def _begin(self, track: Track) -> None:
        known, self._track = self._track, track
        self._timeline = Timeline(track.zero_s, max_hole_s=MAX_HOLE_S)
        before = b"" if self._codec is None or known is None else known.extradata
        if track.goes_on and opus.is_same(before, track.extradata):  # as it does in a file
            self._num_to_skip = opus.pre_skip(track.extradata)
            return
        self._codec, self._mixer = None, Mixer()
        self._num_to_skip = track.skip

    def _opened(self) -> av.AudioCodecContext:
        track = self._track
        if track is None:
            raise StreamError("audio came before the stream's header")
        try:
            codec = av.CodecContext.create(track.codec, "r")
            assert isinstance(codec, av.AudioCodecContext)
            if track.extradata:
                codec.extradata = track.extradata
            if track.rate:
                _check(track.rate, track.num_channels)
                codec.sample_rate = track.rate
                codec.layout = {1: "mono", 2: "stereo"}.get(track.num_channels, f"{track.num_channels}c")
            codec.open()
        except (av.FFmpegError, ValueError) as error:
            raise StreamError("the stream's header does not fit its codec") from error
        return codec

    def _decode(self, packet: Packet) -> list[_Block]:
        """The samples of a packet, and the silence in front of them."""
        if self._codec is None:
            self._codec = self._opened()
        if not packet.data:
            return []
        try:
            frames = self._codec.decode(av.Packet(packet.data))
        except av.FFmpegError:
            self._num_bad += 1
            if self._num_bad > _MAX_BAD_PACKETS:
                raise StreamError(f"{_MAX_BAD_PACKETS} packets in a row do not decode") from None
            return []
        self._num_bad = 0
        blocks: list[_Block] = []
        for frame in frames:
            if not frame.samples:
                continue
            num_channels = frame.layout.nb_channels
            _check(frame.sample_rate, num_channels)
            if num_channels != self._num_channels != 1:
                raise StreamError(
                    f"the stream has {num_channels} channels; it was announced with {self._num_channels}"
                )
            blocks += self._placed(frame, frame_channels(frame, num_channels), packet)
            packet = packet._replace(stamp=None)
        return blocks

    def _placed(self, frame: av.AudioFrame, channels: FloatArray, packet: Packet) -> Iterator[_Block]:
        """A frame without what is padding, behind the silence that its stamp leaves."""
        assert self._track is not None
        rate, length = frame.sample_rate, frame.samples
        skipped = min(self._num_to_skip, length)
        self._num_to_skip -= skipped
        kept = channels[:, skipped : max(skipped, length - packet.trim)]
        if not kept.shape[1]:
            return
        if self._track.codec == "opus":  # the decoder skips by itself, too
            skipped += max(0, opus.num_frames(packet.data) - length)
        stamp_s: float | None = None
        if packet.stamp is not None:
            units, per_s = self._track.time_base
            stamp_s = (packet.stamp + rounded(skipped * per_s, rate * units)) * units / per_s
        silence = self._timeline.place(stamp_s, kept.shape[1], rate)
        if silence > 0:
            yield _Block(kept[:, :0], silence, rate)
        if silence > -kept.shape[1]:
            yield _Block(kept[:, max(0, -silence) :], 0, rate)

    def _resampled(self, blocks: list[FloatArray]) -> list[FloatArray]:
        if not blocks:
            return []
        channels = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=-1)
        if self._num_channels == 1:
            means = [mean_of(block) for block in blocks]
            mean = means[0] if len(means) == 1 else np.concatenate(means)
            channels = self._mixer.mix(channels, self._rate, mean=mean)[None]
        blocks.clear()
        if not is_sound(channels):
            raise StreamError("the stream holds audio samples that are not finite numbers near full scale")
        if not self._resamplers:
            self._resamplers = [StreamingResampler(self._rate) for _ in channels]
        return [self._shaped([each.push(row) for each, row in zip(self._resamplers, channels, strict=True)])]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what lives in C."""
        return {**self.__dict__, "_codec": None, "_resamplers": []}


def _check(rate: int, num_channels: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE or not 0 < num_channels <= MAX_CHANNELS:
        raise StreamError(
            f"audio with {rate} samples per second and {num_channels} channels is not supported "
            f"(rates {MIN_RATE} to {MAX_RATE}, up to {MAX_CHANNELS} channels)"
        )
