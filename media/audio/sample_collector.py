"""Collects what a file's decoder gives: mixed or each channel for itself, at one rate, within the limits.

Never more than one block beyond the limits is in memory. Read next: `media/audio/decode.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...protocols.errors import MediaError, TooLargeError
from ...protocols.shared.audio_format import INTERNAL_RATE
from .downmix import Mixer, mean_of
from .pcm import is_sound
from .resample import StreamingResampler

FloatArray = npt.NDArray[np.float32]

_GROWTH_SAMPLES: Final = 1 << 20
"""The result grows by 4 MiB at a time, in place where the allocator can remap pages."""
_AT_ONCE_SAMPLES: Final = 1 << 16
"""A second or more is mixed and resampled together: a codec's frames are short, and each call has its
price."""


MAX_HOLE_S: Final = 6 * 3600.0
"""A longer hole is no silence of a recording but damage, and its samples would take gigabytes."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What one file may cost. `max_seconds` bounds the decoded audio, of all channels that are kept together,
    whatever the header says."""

    max_bytes: int = 25 * 1024 * 1024
    max_seconds: float = 3600.0


class Sink:
    """Collects a file's blocks."""

    def __init__(self, limits: DecodeLimits, *, are_channels_kept: bool) -> None:
        self.source_rate = 0
        self.num_channels = 0
        self._limits = limits
        self._are_channels_kept = are_channels_kept
        self._tracks: list[_Track] = []
        self._pending: list[FloatArray] = []
        self._means: list[FloatArray] = []
        """Of the pending blocks, which are made as they come: sums of strided samples are rounded differently
        from sums of the same samples in another layout."""
        self._num_pending = 0
        self._format = (0, 0)
        """Channels and rate of what is pending."""
        self._mixer = Mixer()

    def begin(self) -> None:
        """Another recording of the same file follows."""
        self._flush()
        self._mixer = Mixer()

    def push(self, block: FloatArray, rate: int) -> None:
        """Add samples [channels, n]. The rate may change between blocks; so may channels that are mixed."""
        self.source_rate = self.source_rate or rate
        self.num_channels = self.num_channels or len(block)
        if not self._tracks:
            num_kept = len(block) if self._are_channels_kept else 1
            self._tracks = [_Track(self._limits, share=num_kept) for _ in range(num_kept)]
        if self._are_channels_kept and len(block) != len(self._tracks):
            raise _media_error(
                "The number of channels changes within the file; they cannot be transcribed separately."
            )
        if self._format != (len(block), rate):
            self._flush()
            self._format = len(block), rate
        self._pending.append(block)
        if not self._are_channels_kept:
            self._means.append(mean_of(block))
        self._num_pending += block.shape[1]
        if self._num_pending >= _AT_ONCE_SAMPLES:
            self._flush()

    def push_silence(self, num_samples: int, num_channels: int, rate: int) -> None:
        """Add a hole of the file's timeline. Raises TooLargeError at once if it goes beyond the limit, or is
        longer than `MAX_HOLE_S`."""
        if num_samples > MAX_HOLE_S * rate:
            raise TooLargeError(
                f"The file's time stamps leave a hole of {num_samples / rate:.0f} seconds; the limit is "
                f"{MAX_HOLE_S:g} seconds.",
                param="file",
            )
        self._flush()
        before = self._tracks[0].num_samples if self._tracks else 0
        share = num_channels if self._are_channels_kept else 1
        if before / INTERNAL_RATE + num_samples / rate > self._limits.max_seconds / share:
            raise _too_long(self._limits, share, " (by its time stamps)")
        for start in range(0, num_samples, _AT_ONCE_SAMPLES):
            length = min(_AT_ONCE_SAMPLES, num_samples - start)
            self.push(np.zeros((num_channels, length), np.float32), rate)

    def finish(self) -> FloatArray:
        """Everything collected: [n], or [channels, n] if these are kept. The sink is spent."""
        self._flush()
        tracks = [track.finish() for track in self._tracks]
        if self._are_channels_kept and tracks:
            return np.stack(tracks)
        return tracks[0] if tracks else np.zeros(0, np.float32)

    def _flush(self) -> None:
        if not self._pending:
            return
        rate = self._format[1]
        block = _joined(self._pending)
        kept = block if self._are_channels_kept else self._mixed(block, rate)[None]
        self._pending, self._means, self._num_pending = [], [], 0
        for track, samples in zip(self._tracks, kept, strict=True):
            track.push(samples, rate)

    def _mixed(self, block: FloatArray, rate: int) -> FloatArray:
        mean = _joined(self._means)
        return self._mixer.mix(block, rate, mean=mean)


def _joined(blocks: list[FloatArray]) -> FloatArray:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=-1)


class _Track:
    """Collects one channel at any rate as samples at one rate, within its share of the limit."""

    def __init__(self, limits: DecodeLimits, *, share: int) -> None:
        self.num_samples = 0
        self._limits = limits
        self._share = share
        """Channels that the limit is for."""
        self._max_samples = int(limits.max_seconds * INTERNAL_RATE) // share
        self._resampler: StreamingResampler | None = None
        self._samples = np.zeros(0, np.float32)

    def push(self, block: FloatArray, rate: int) -> None:
        """Add samples [n]."""
        if not is_sound(block):
            raise _media_error(
                "The file holds audio samples that are not finite numbers near full scale (-1.0 to 1.0)."
            )
        if self._resampler is None or self._resampler.source_rate != rate:
            self._end()
            self._resampler = StreamingResampler(rate, INTERNAL_RATE)
        self._store(self._resampler.push(block))

    def finish(self) -> FloatArray:
        """Everything collected. The track is spent."""
        self._end()
        # No other reference to the array exists while it is resized, so no check (it would count ours).
        self._samples.resize(self.num_samples, refcheck=False)
        return self._samples

    def _end(self) -> None:
        if self._resampler is not None:
            self._store(self._resampler.push(np.zeros(0, np.float32), last=True))
            self._resampler = None

    def _store(self, samples: FloatArray) -> None:
        end = self.num_samples + len(samples)
        if end > self._max_samples:
            raise _too_long(self._limits, self._share)
        if end > len(self._samples):
            self._samples.resize(end + _GROWTH_SAMPLES, refcheck=False)
        self._samples[self.num_samples : end] = samples
        self.num_samples = end


def _media_error(message: str) -> MediaError:
    return MediaError(message, param="file")


def _too_long(limits: DecodeLimits, share: int, source: str = "") -> TooLargeError:
    limit = f"{limits.max_seconds:g} seconds"
    limit += f" of all {share} channels together" if share > 1 else ""
    return TooLargeError(f"The file holds more audio than the limit of {limit}{source}.", param="file")
