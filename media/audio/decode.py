"""A whole audio or video file as bytes → mono samples, or those of each channel, on the file's own timeline.

Runs in a worker process; see `actors/media_decoding/worker_pool.py`.
libsndfile reads WAV, W64, AIFF and AU, libav everything else; of a file that is several, each is opened by
itself (`media/audio/concatenated.py`). Limits hold while decoding: never more than one block beyond them is
in memory. Headers are not believed: what counts is what decodes. A file that is cut off or damaged in the
middle gives the samples that could be decoded; only a file that gives none is refused. Messages carry no
decoder's text. A track that begins late or has holes has silence there (`media/audio/timeline.py`). What may
be opened is decided in `media/audio/containers.py`; what becomes of the samples is
`media/audio/sample_collector.py`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import av
import numpy as np
import numpy.typing as npt
import soundfile

from ...protocols.errors import MediaError, TooLargeError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ..streams.ogg import parts_by_decoder
from ..streams.packets import StreamError
from .concatenated import joined_parts
from .containers import DECODERS, DEMUXERS, SUPPORTED, Container, junk_before, opened, sniff
from .file_packets import believed_packets, num_samples, seconds_of, skipped, time_base_of
from .sample_collector import DecodeLimits, Sink
from .timeline import Timeline

__all__ = ["DecodeLimits", "DecodedAudio", "decode_audio", "measure_audio", "recognise"]

FloatArray = npt.NDArray[np.float32]

MIN_RATE: Final = 4_000
MAX_RATE: Final = 384_000
"""Rates outside are no recordings of speech; far outside, resampling one block would not stay small."""
MAX_CHANNELS: Final = 8
"""7.1 surround. Also what PyAV handles safely, see `frame_channels`."""
_SAMPLE_TYPES: Final = {
    name: np.dtype(code)
    for name, code in {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}.items()
}
"""libav's sample formats, without the `p` of the planar ones."""
_BLOCK_VALUES: Final = 1 << 18
"""Values (frames x channels) read from libsndfile at once: 1 MiB."""
_MAX_BAD_PACKETS: Final = 1000
"""Consecutive packets that do not decode before a damaged file is given up."""
_BY_LIBSNDFILE: Final[frozenset[Container]] = frozenset({"wav", "w64", "aiff", "au"})
_OWN_ZERO: Final[frozenset[Container]] = frozenset({"mp4", "matroska"})
"""The container has a timeline of its own, whose zero is where pictures and sound begin to be played."""
_RESTART_S: Final[dict[Container, float]] = {
    "mp4": float("inf"),
    "matroska": float("inf"),
    "ogg": float("inf"),
    "asf": float("inf"),
    "flv": float("inf"),
    "mpegts": 10.0,
    "mpeg": 10.0,
}
"""Containers with stamps, and which leaps are another clock's (of joined broadcasts, as in ffmpeg). In the
others stamps count samples: there are no holes."""


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
    data: bytes,
    *,
    limits: DecodeLimits | None = None,
    are_channels_kept: bool = False,
    track: int | None = None,
) -> DecodedAudio:
    """Decode one audio track of a file, mix its channels (see `Mixer`) unless they are kept, and resample.

    `track` counts the file's audio tracks from 0; None: the first that is flagged default, or else the first.
    Raises TooLargeError (param `file`) when a limit is passed, MediaError (param `file`, or `audio_track`)
    when the bytes are not a supported file or hold no audio.
    """
    limits = limits or DecodeLimits()
    container = recognise(data, limits)
    sink = Sink(limits, are_channels_kept=are_channels_kept)
    first: Exception | None = None
    for part in _parts(data, container):
        sink.begin()
        try:
            _read(part, container, sink, track)
        except _GIVEN_UP as error:
            first = first or error
    samples = sink.finish()
    if samples.size:
        return DecodedAudio(samples, container, sink.source_rate, sink.num_channels)
    if first is None:
        raise _media_error("The file holds no audio samples.")
    raise _media_error(
        str(first) if isinstance(first, _UnreadableError) else "The file could not be decoded."
    ) from first


def measure_audio(
    data: bytes,
    *,
    limits: DecodeLimits | None = None,
    are_channels_kept: bool = False,
    track: int | None = None,
) -> float:
    """Seconds a file will decode to, by its header or its packets, and no more than the limit; of all
    channels together if they are kept.

    Raises MediaError and TooLargeError for what is plainly none. A file that lies here is not believed later.
    """
    limits = limits or DecodeLimits()
    container = recognise(data, limits)
    seconds, num_channels = 0.0, 1
    for part in _parts(data, container):
        # Decoding will say what is wrong, or get by.
        with suppress(*_GIVEN_UP, soundfile.SoundFileError, RuntimeError):
            length_s, count = _measured(part, container, track)
            seconds += max(length_s, 0.0)
            num_channels = max(num_channels, count)
    seconds *= min(num_channels, MAX_CHANNELS) if are_channels_kept else 1
    return min(seconds, limits.max_seconds)


def _measured(part: bytes, container: Container, track: int | None) -> tuple[float, int]:
    """Seconds and channels."""
    if container in _BY_LIBSNDFILE:
        _check_track(track, 1)
        with suppress(soundfile.SoundFileError, RuntimeError), soundfile.SoundFile(_Source(part)) as sound:
            return sound.frames / sound.samplerate, sound.channels
    with _opened(part, container, track) as (file, stream):
        timeline = _timeline(file, container, has_exact_lengths=False)
        # Where the rate is unknown until something is decoded, packets still state how long they last.
        rate, time_base = stream.codec_context.sample_rate or INTERNAL_RATE, time_base_of(stream)
        with suppress(*_GIVEN_UP):  # damaged from there on
            for packet in believed_packets(file, stream, container):
                before, after = skipped(packet)
                length = num_samples(packet, stream, time_base) - before - after
                stamp_s = seconds_of(packet.pts, time_base, before / rate)
                if length > 0:
                    timeline.place(stamp_s, length, rate)
        return timeline.end_s, stream.codec_context.channels


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


def _read(part: bytes, container: Container, sink: Sink, track: int | None) -> None:
    """Decode one recording. Raises one of `_GIVEN_UP`."""
    if container in _BY_LIBSNDFILE:
        _check_track(track, 1)
        if _read_with_libsndfile(part, sink):
            return
    with _opened(part, container, track) as (file, stream):
        timeline = _timeline(file, container)
        _decode_packets(believed_packets(file, stream, container), time_base_of(stream), sink, timeline)


def _read_with_libsndfile(data: bytes, sink: Sink) -> bool:
    """Whether it has read anything."""
    is_read = False
    try:
        with soundfile.SoundFile(_Source(data)) as file:
            _check_format(file.samplerate, file.channels)
            num_frames = _BLOCK_VALUES // file.channels
            while len(block := file.read(num_frames, dtype="float32", always_2d=True)):
                sink.push(block.T, file.samplerate)
                is_read = True
    except (soundfile.SoundFileError, RuntimeError, ValueError):
        pass  # libav may read it, or what was read is all there is
    return is_read


def _parts(data: bytes, container: Container) -> list[bytes]:
    """What is opened one after the other. Raises MediaError for too many."""
    try:
        return parts_by_decoder(data) if container == "ogg" else joined_parts(data, container)
    except StreamError as error:
        raise _media_error(f"The file cannot be decoded: {error}.") from None


def _check_track(track: int | None, num_tracks: int) -> None:
    if track is not None and track >= num_tracks:
        allowed = "0" if num_tracks == 1 else f"0 to {num_tracks - 1}"
        raise MediaError(
            f"`audio_track`: the file has {num_tracks} audio track{'s' * (num_tracks > 1)}, counted from 0; "
            f"allowed is {allowed}",
            param="audio_track",
        )


@contextmanager
def _opened(
    data: bytes, container: Container, track: int | None
) -> Iterator[tuple[av.container.InputContainer, av.AudioStream]]:
    """The file and its audio stream, for libav's own errors to be caught outside."""
    source = _Source(data[junk_before(data, container) :])
    with opened(source, DEMUXERS[container], DECODERS) as file:
        tracks = file.streams.audio
        if not tracks:
            raise _UnreadableError("The file has no audio track.")
        _check_track(track, len(tracks))
        flagged = [each for each in tracks if each.disposition & av.stream.Disposition.default]
        stream = tracks[track] if track is not None else [*flagged, *tracks][0]
        if stream.codec_context is None or stream.codec_context.codec.name not in DECODERS:
            raise _UnreadableError("The file's audio codec is not supported.")
        yield file, stream


def _timeline(
    file: av.container.InputContainer, container: Container, *, has_exact_lengths: bool = True
) -> Timeline:
    """Zero is the container's in MP4 and Matroska with pictures, or else the earliest stamp of any track."""
    covers = av.stream.Disposition.attached_pic
    others = [each for each in file.streams.video if not each.disposition & covers]
    zero_s: float | None = 0.0
    if container not in _OWN_ZERO or not others:
        tracks = [*others, *file.streams.audio]
        starts = [each.start_time * each.time_base for each in tracks if each.start_time is not None]
        zero_s = float(min(starts)) if len(tracks) > 1 and starts else None
    restart_s = _RESTART_S.get(container, 0.0)
    return Timeline(zero_s, restart_s=restart_s, has_exact_lengths=has_exact_lengths)


def _decode_packets(
    packets: Iterable[av.Packet], time_base: tuple[int, int], sink: Sink, timeline: Timeline
) -> None:
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
            if frame.samples:
                _take(frame, seconds_of(frame.pts, time_base), sink, timeline)


def _take(frame: av.AudioFrame, stamp_s: float | None, sink: Sink, timeline: Timeline) -> None:
    num_channels, rate = frame.layout.nb_channels, frame.sample_rate
    _check_format(rate, num_channels)
    silence = timeline.place(stamp_s, frame.samples, rate)
    if silence > 0:
        sink.push_silence(silence, num_channels, rate)
    sink.push(frame_channels(frame, num_channels)[:, max(0, -silence) :], rate)


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
