"""A whole audio or video file as bytes → mono samples, or those of each channel.

Runs in a worker process; see `actors/media/pool.py`.
libsndfile reads WAV and AIFF, libav everything else (for concatenated MP3 and chained OGG it reads all parts,
libsndfile only the first). Limits hold while decoding: never more than one block beyond them is in memory.
Headers are not believed: what counts is what decodes. A file that is cut off or damaged in the middle gives
the samples that could be decoded; only a file that gives none is refused. Messages carry no decoder's text.
What may be opened is decided in `media/containers.py`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import av
import numpy as np
import numpy.typing as npt
import soundfile

from ..protocols.audio import INTERNAL_RATE
from ..protocols.errors import MediaError, TooLargeError
from .containers import DECODERS, DEMUXERS, SUPPORTED, Container, demuxed, junk_before, opened, sniff
from .joined import joined_parts
from .pcm import is_sound
from .resample import StreamingResampler
from .streams.ogg import parts_by_decoder
from .streams.packets import StreamError

FloatArray = npt.NDArray[np.float32]

MIN_RATE: Final = 4_000
MAX_RATE: Final = 384_000
"""Rates outside are no recordings of speech; far outside, resampling one block would not stay small."""
MAX_CHANNELS: Final = 8
"""7.1 surround. Also what PyAV handles safely, see `_mix`."""
_SAMPLE_TYPES: Final = {
    name: np.dtype(code)
    for name, code in {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}.items()
}
"""libav's sample formats, without the `p` of the planar ones."""
_BLOCK_VALUES: Final = 1 << 18
"""Values (frames x channels) read from libsndfile at once: 1 MiB."""
_GROWTH_SAMPLES: Final = 1 << 20
"""The result grows by 4 MiB at a time, in place where the allocator can remap pages."""
_AT_ONCE_SAMPLES: Final = 1 << 16
"""A second or more is resampled together."""
_MAX_BAD_PACKETS: Final = 1000
"""Consecutive packets that do not decode before a damaged file is given up."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What one file may cost. `max_seconds` bounds the decoded audio, of all channels that are kept together,
    whatever the header says."""

    max_bytes: int = 25 * 1024 * 1024
    max_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class DecodedAudio:
    """Mono float32 samples [n] at 16 kHz, n > 0, finite, and what they came from; [channels, n] if these are
    kept."""

    samples: FloatArray
    container: str
    source_rate: int
    num_channels: int

    @property
    def duration_s(self) -> float:
        """Seconds of audio."""
        return int(self.samples.shape[-1]) / INTERNAL_RATE


def recognise(data: bytes, limits: DecodeLimits) -> Container:
    """The container, from a glance at the bytes; cheap and safe in any process.

    Raises MediaError if the file is empty or not supported, TooLargeError if it has too many bytes.
    """
    if not data:
        raise _media_error("The file is empty.")
    if len(data) > limits.max_bytes:
        raise TooLargeError(
            f"The file has {len(data)} bytes; the limit is {limits.max_bytes} bytes.", param="file"
        )
    container = sniff(data)
    if container is None:
        raise _media_error(f"The file is not in a supported audio format ({SUPPORTED}).")
    return container


def decode_audio(
    data: bytes, *, limits: DecodeLimits | None = None, are_channels_kept: bool = False
) -> DecodedAudio:
    """Decode the first audio stream of a file, mix its channels (mean) unless they are kept, and resample.

    Raises TooLargeError (param `file`) when a limit is passed, MediaError (param `file`) when the bytes
    are not a supported file or hold no audio.
    """
    limits = limits or DecodeLimits()
    container = recognise(data, limits)
    readers: list[Callable[[bytes, Container, _Sink], None]] = [_read_with_libav]
    if container in {"wav", "aiff"}:
        readers.insert(0, _read_with_libsndfile)
    reason = "The file could not be decoded."
    for read in readers:
        sink = _Sink(limits, are_channels_kept=are_channels_kept)
        try:
            read(data, container, sink)
        except _UnreadableError as error:
            reason = str(error)
            continue
        samples = sink.finish()
        if samples.size:
            return DecodedAudio(samples, container, sink.source_rate, sink.num_channels)
        reason = "The file holds no audio samples."
    raise _media_error(reason)


def measure_audio(
    data: bytes, *, limits: DecodeLimits | None = None, are_channels_kept: bool = False
) -> float:
    """Seconds a file will decode to, by its header or its packets, and no more than the limit; of all
    channels together if they are kept.

    Raises MediaError and TooLargeError for what is plainly none. A file that lies here is not believed later.
    """
    limits = limits or DecodeLimits()
    container = recognise(data, limits)
    seconds, num_channels = 0.0, 1
    try:
        if container in {"wav", "aiff"}:
            with soundfile.SoundFile(_Source(data)) as sound:
                seconds, num_channels = sound.frames / sound.samplerate, sound.channels
        else:
            for part in _parts(data, container):
                with suppress(*_GIVEN_UP), _opened(part, container) as (file, stream):
                    packets = sum(packet.duration or 0 for packet in demuxed(file, stream))
                    seconds += float(packets * (stream.time_base or 0))
                    num_channels = max(num_channels, stream.codec_context.channels)
    except (_UnreadableError, soundfile.SoundFileError, av.FFmpegError, RuntimeError, ValueError):
        pass  # decoding will say what is wrong, or get by
    seconds *= min(num_channels, MAX_CHANNELS) if are_channels_kept else 1
    return min(max(seconds, 0.0), limits.max_seconds)


class _UnreadableError(Exception):
    """This reader cannot read the file; the message is fit for clients."""


_GIVEN_UP: Final = (_UnreadableError, av.FFmpegError, ValueError)
"""By a part of a file."""


def _media_error(message: str) -> MediaError:
    return MediaError(message, param="file")


def _check_format(rate: int, num_channels: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE or not 0 < num_channels <= MAX_CHANNELS:
        raise _media_error(
            f"Audio with {rate} samples per second and {num_channels} channels is not supported "
            f"(rates {MIN_RATE} to {MAX_RATE}, up to {MAX_CHANNELS} channels)."
        )


class _Source(io.BytesIO):
    """A file in memory that ignores seeks before its start, which damaged headers make libsndfile ask for."""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell()}.get(whence, self.getbuffer().nbytes)
        return super().seek(max(0, start + offset))


class _Sink:
    """Collects a file's blocks, mixed or each channel for itself."""

    def __init__(self, limits: DecodeLimits, *, are_channels_kept: bool) -> None:
        self.source_rate = 0
        self.num_channels = 0
        self._limits = limits
        self._are_channels_kept = are_channels_kept
        self._tracks: list[_Track] = []

    def push(self, block: FloatArray, rate: int) -> None:
        """Add samples [channels, n]. The rate may change between blocks; so may channels that are mixed."""
        self.source_rate = self.source_rate or rate
        self.num_channels = self.num_channels or len(block)
        is_kept = self._are_channels_kept or len(block) == 1
        kept = block if is_kept else block.mean(axis=0, dtype=np.float32)[None]
        if not self._tracks:
            self._tracks = [_Track(self._limits, share=len(kept)) for _ in kept]
        if len(kept) != len(self._tracks):
            raise _media_error("The number of channels changes within the file: they cannot be kept apart.")
        for track, samples in zip(self._tracks, kept, strict=True):
            track.push(samples, rate)

    def finish(self) -> FloatArray:
        """Everything collected. The sink is spent."""
        tracks = [track.finish() for track in self._tracks]
        if self._are_channels_kept and tracks:
            return np.stack(tracks)
        return tracks[0] if tracks else np.zeros(0, np.float32)


class _Track:
    """Collects blocks of one channel at any rate as samples at one rate, within its share of the limit."""

    def __init__(self, limits: DecodeLimits, *, share: int) -> None:
        self._limits = limits
        self._share = share
        """Channels that the limit is for."""
        self._max_samples = int(limits.max_seconds * INTERNAL_RATE) // share
        self._resampler: StreamingResampler | None = None
        self._pending: list[FloatArray] = []
        self._num_pending = 0
        """Samples that wait to be resampled: a codec's frames are short, and each call has its price."""
        self._samples = np.zeros(0, np.float32)
        self._num_samples = 0

    def push(self, block: FloatArray, rate: int) -> None:
        """Add samples [n]."""
        if self._resampler is None or self._resampler.source_rate != rate:
            self._flush()
            self._resampler = StreamingResampler(rate, INTERNAL_RATE)
        self._pending.append(block)
        self._num_pending += len(block)
        if self._num_pending >= _AT_ONCE_SAMPLES:
            self._store(self._resampler.push(self._take()))

    def _take(self) -> FloatArray:
        whole = self._pending[0] if len(self._pending) == 1 else np.concatenate(self._pending)
        if not is_sound(whole):
            raise _media_error(
                "The file holds audio samples that are not finite numbers near full scale (-1.0 to 1.0)."
            )
        self._pending, self._num_pending = [], 0
        return whole

    def finish(self) -> FloatArray:
        """Everything collected. The track is spent."""
        self._flush()
        # Nobody else holds the array while it is resized, so no reference check (it would count ours).
        self._samples.resize(self._num_samples, refcheck=False)
        return self._samples

    def _flush(self) -> None:
        if self._resampler is not None:
            rest = self._take() if self._pending else np.zeros(0, np.float32)
            self._store(self._resampler.push(rest, last=True))
            self._resampler = None

    def _store(self, samples: FloatArray) -> None:
        end = self._num_samples + len(samples)
        if end > self._max_samples:
            limit = f"{self._limits.max_seconds:g} seconds"
            limit += f" of all {self._share} channels together" if self._share > 1 else ""
            raise TooLargeError(f"The file holds more audio than the limit of {limit}.", param="file")
        if end > len(self._samples):
            self._samples.resize(end + _GROWTH_SAMPLES, refcheck=False)
        self._samples[self._num_samples : end] = samples
        self._num_samples = end


def _read_with_libsndfile(data: bytes, _: Container, sink: _Sink) -> None:
    try:
        with soundfile.SoundFile(_Source(data)) as file:
            _check_format(file.samplerate, file.channels)
            num_frames = _BLOCK_VALUES // file.channels
            while len(block := file.read(num_frames, dtype="float32", always_2d=True)):
                sink.push(block.T, file.samplerate)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        if not sink.num_channels:
            raise _UnreadableError("The file could not be decoded.") from error


def _read_with_libav(data: bytes, container: Container, sink: _Sink) -> None:
    """Of a file that is several, what can be read of each: one may be cut, or without sound."""
    first: Exception | None = None
    for part in _parts(data, container):
        try:
            with _opened(part, container) as (file, stream):
                _decode_packets(demuxed(file, stream), sink.push)
        except _GIVEN_UP as error:
            first = first or error
    if first is not None and not sink.num_channels:
        if isinstance(first, _UnreadableError):
            raise first
        raise _UnreadableError("The file could not be decoded.") from first


def _parts(data: bytes, container: Container) -> list[bytes]:
    """What is opened one after the other. Raises MediaError for too many."""
    try:
        return parts_by_decoder(data) if container == "ogg" else joined_parts(data, container)
    except StreamError as error:
        raise _media_error(f"The file cannot be decoded: {error}.") from None


@contextmanager
def _opened(
    data: bytes, container: Container
) -> Iterator[tuple[av.container.InputContainer, av.AudioStream]]:
    """The file's first audio stream, for libav's own errors to be caught outside."""
    source = _Source(data[junk_before(data, container) :])
    with opened(source, DEMUXERS[container], DECODERS) as file:
        if not file.streams.audio:
            raise _UnreadableError("The file has no audio track.")
        stream = file.streams.audio[0]
        if stream.codec_context is None or stream.codec_context.codec.name not in DECODERS:
            raise _UnreadableError("The file's audio codec is not supported.")
        yield file, stream


def _decode_packets(packets: Iterable[av.Packet], push: Callable[[FloatArray, int], None]) -> None:
    """Decode until the end; damaged packets are skipped, as players do."""
    num_bad = 0
    for packet in packets:
        try:
            frames = packet.decode()
        except av.FFmpegError:
            num_bad += 1
            if num_bad > _MAX_BAD_PACKETS:
                return
            continue
        num_bad = 0
        for frame in frames:
            if not frame.samples:
                continue
            num_channels = frame.layout.nb_channels
            _check_format(frame.sample_rate, num_channels)
            push(frame_channels(frame, num_channels), frame.sample_rate)


def frame_channels(frame: av.AudioFrame, num_channels: int) -> FloatArray:
    """A frame's channels (at most 8), full scale 1.0, shape [channels, n].

    Not `frame.to_ndarray()`: PyAV looks for the planes' end behind the table of 8, so that an 8-channel
    frame gets a ninth plane at a wild address. With more than 8 it would read outside the table itself.
    """
    is_planar = frame.format.is_planar
    dtype = _SAMPLE_TYPES[frame.format.name.removesuffix("p")]
    count = frame.samples if is_planar else frame.samples * num_channels
    planes = frame.planes[: num_channels if is_planar else 1]
    samples = np.empty((len(planes), count), np.float32)
    for row, plane in zip(samples, planes, strict=True):
        row[:] = np.frombuffer(plane, dtype, count=count)
    if dtype.kind == "u":
        samples -= np.float32(128)
        samples *= np.float32(1 / 128)
    elif dtype.kind == "i":
        samples *= np.float32(2.0 ** (1 - 8 * dtype.itemsize))
    return samples if is_planar else samples.reshape(-1, num_channels).T
