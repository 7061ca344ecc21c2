"""What one session hears: bytes in, samples into the store, speech scores to the pure session.

`ListeningMachine` has the shape of every pure machine (`receive`, `deadline`, `on_deadline`), so the
generic driver runs it; it adds to `realtime/session.py` what that room must not know: numpy, and the
samples of each channel (`actors/live/channel_audio.py`). Channels that are not heard apart are mixed. Its own
effects: `Decode` and `EndSound`, what comes in a container (`actors/live/container_decoder.py`), `Detect`,
the samples whose voice activity is computed (`actors/live/voice_activity.py`), and `Then`, what the client
did behind them. Effects are performed in order, each to its end, so a commit finds all audio before it
judged. Appends come in pieces small enough to never hold the loop for long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...media.audio.container_in_pcm import refusal_of_file
from ...media.audio.downmix import Mixer
from ...media.audio.pcm import PcmDecoder, is_sound
from ...protocols.errors import BadRequestError, SensoriumError
from ...protocols.realtime.events import InputAudioBufferClear, InputAudioBufferCommit, InputAudioBufferFlush
from ...protocols.realtime.vllm_events import FlatControl
from ...protocols.shared.audio_format import INTERNAL_RATE, AudioFormat
from ...protocols.shared.container_format import ContainerFormat, InputFormat
from ...realtime.effects import Effect, FindCut
from ...realtime.events import AudioAppended, AudioRefused, CutFound, SessionEvent, SpeechScored
from ...realtime.session import Session
from ...realtime.vllm_session import FlatSession
from .audio_store import Samples
from .channel_audio import Track

PIECE_BYTES: Final = 16 * 1024
"""Bytes handled in one go: 2 s of G.711 (64 scores) at the most, 0.3 s of 24 kHz PCM16."""
_SLICE_SAMPLES: Final = 2 * INTERNAL_RATE
"""As much as the largest piece of G.711."""


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """A part of one append. The first one carries the append's size, for admission as a whole."""

    data: bytes
    num_bytes_total: int
    is_first: bool
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AudioBatch:
    """Pieces that waited together, `PIECE_BYTES` at the most: heard at once, which costs a busy loop less."""

    pieces: Sequence[AudioPiece]


Input = AudioPiece | SessionEvent | FlatControl
"""What reaches a session."""


@dataclass(frozen=True, slots=True)
class Detect:
    """Have the voice activity of a channel's next samples computed; then call `ListeningMachine.scored`."""

    samples: Samples
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Then:
    """Now it is this event's turn; then call `ListeningMachine.proceed`."""

    event: SessionEvent | FlatControl


@dataclass(frozen=True, slots=True)
class Decode:
    """Have this piece of a container decoded; then call `ListeningMachine.decoded`, or `undecodable`."""

    piece: AudioPiece


@dataclass(frozen=True, slots=True)
class EndSound:
    """Have everything decoded that came; then call `ListeningMachine.decoded`, unless nobody wants it."""

    is_wanted: bool = True


LiveEffect = Effect | Detect | Then | Decode | EndSound
"""What a session asks its actor to do."""


def pieces(audio: bytes, *, event_id: str | None = None) -> Iterator[AudioPiece]:
    """Cut one append; an empty append is one empty piece."""
    for start in range(0, max(len(audio), 1), PIECE_BYTES):
        yield AudioPiece(audio[start : start + PIECE_BYTES], len(audio), start == 0, event_id)


def slices(samples: Samples) -> Iterator[Samples]:
    """Sound [n] or [channels, n] out of a container in parts that never hold the loop for long."""
    for start in range(0, samples.shape[-1], _SLICE_SAMPLES):
        yield samples[..., start : start + _SLICE_SAMPLES]


class ListeningMachine:
    """A `Session` that takes audio as bytes. Owns the session's samples."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.dialect = FlatSession(session)
        """Every event goes through it; it speaks as the client does."""
        self.tracks = [Track()]
        """One for each channel that is heard."""
        self.num_samples_received = 0
        """Of each channel."""
        self._format: InputFormat = AudioFormat()
        self._decoder = PcmDecoder(AudioFormat())
        self._mixer = Mixer()
        self._rest = b""
        """The beginning of a frame that two pieces of an append share."""
        self._refusing = False
        self._is_fresh = True
        """The next append begins a stream of samples."""
        self._is_file = False
        """It began a file, whose other bytes are no samples either."""
        self._is_full = False
        """The rest of the sound that an append brought in a container is not taken."""
        self._begin()

    @property
    def bytes_per_s(self) -> float:
        """Of audio as it comes; infinity for a container, whose bytes do not tell."""
        return math.inf if isinstance(self._format, ContainerFormat) else self._format.bytes_per_second

    @property
    def deadline(self) -> float:
        """When `on_deadline` wants to be called."""
        return self.session.deadline

    def on_deadline(self, *, now: float) -> Sequence[LiveEffect]:
        """Limits of time."""
        return self._settled(self.dialect.on_deadline(now=now), now)

    def receive(self, event: AudioBatch | SessionEvent | FlatControl, *, now: float) -> Sequence[LiveEffect]:
        """React to one event, or to audio."""
        match event:
            case AudioBatch(batch):
                return self._append_all(batch, now)
            case InputAudioBufferCommit() | InputAudioBufferFlush():
                self._is_fresh, self._is_file = True, False
                # What the resampler still holds belongs to the turn that ends here.
                return [*self._flush(now), Then(event)]
            case InputAudioBufferClear():
                if isinstance(self._format, ContainerFormat):
                    return [EndSound(is_wanted=False), Then(event)]
                self._begin()
                return self._receive(event, now)
            case _:
                return self._receive(event, now)

    def scored(self, scores: Iterable[tuple[int, float]], *, channel: int = 0, now: float) -> list[Effect]:
        """The voice activity of what was to be heard."""
        effects: list[Effect] = []
        for end_sample, probability in scores:
            self.tracks[channel].scored(end_sample, probability)
            effects += self._receive(SpeechScored(end_sample, probability, channel), now)
        return effects

    def _receive(self, event: SessionEvent | FlatControl, now: float) -> list[Effect]:
        return self._settled(self.dialect.receive(event, now=now), now)

    def _settled(self, effects: Iterable[Effect], now: float) -> list[Effect]:
        """Answer at once where the session wants to know a place; the effects that are left."""
        settled: list[Effect] = []
        for effect in effects:
            if isinstance(effect, FindCut):
                place = self.tracks[effect.channel].best_cut(effect)
                settled += self._receive(CutFound(place, effect.channel), now)
            else:
                settled.append(effect)
        return settled

    def proceed(self, then: Then, *, now: float) -> list[Effect]:
        """All audio before it was heard."""
        return self._receive(then.event, now)

    def configure(
        self, audio_format: InputFormat, num_channels: int = 1, *, now: float
    ) -> Sequence[LiveEffect]:
        """Bytes from now on are in this format; what the effects end came in the one before."""
        if (audio_format, num_channels) == (self._format, len(self.tracks)):
            return []
        effects = self._flush(now)
        self._format = audio_format
        if num_channels != len(self.tracks):
            self.tracks = [Track() for _ in range(num_channels)]
        self._begin()
        return effects

    def _begin(self) -> None:
        """Raw samples come afresh."""
        self._is_fresh, self._is_file = True, False
        if isinstance(self._format, AudioFormat):
            self._decoder, self._mixer = PcmDecoder(self._format), Mixer()
            for track in self.tracks:
                track.begin(self._format.rate)

    def _flush(self, now: float) -> Sequence[LiveEffect]:
        """Bring what the resampler's filter holds back onto the timeline."""
        if isinstance(self._format, ContainerFormat):
            return [EndSound()]
        if self._format.rate == INTERNAL_RATE:
            return []
        tails = [track.flushed() for track in self.tracks]
        return [*self._store(tails, now), *_detect(tails)]

    def decoded(self, samples: Samples, *, event_id: str | None, now: float) -> Sequence[LiveEffect]:
        """Sound [n] or [channels, n] that was in a container. What there is no room for is refused."""
        if self._is_full:
            return []
        received = list(np.atleast_2d(samples))
        refusal = self.dialect.admit_sound(samples.shape[-1], event_id=event_id)
        if refusal is not None:
            self._is_full = True
            return refusal
        return [*self._store(received, now), *_detect(received)]

    def undecodable(self, error: SensoriumError, *, event_id: str | None, now: float) -> list[Effect]:
        """Bytes that could not be decoded; what came out before them was told. Once for an append."""
        if self._is_full:
            return []
        self._is_full = True
        return self._receive(AudioRefused(error, event_id), now)

    def _admit_container(self, batch: Sequence[AudioPiece]) -> Sequence[LiveEffect]:
        effects: list[LiveEffect] = []
        for piece in batch:
            if piece.is_first:
                refusal = self.dialect.admit(piece.num_bytes_total, event_id=piece.event_id)
                self._refusing = refusal is not None
                effects += refusal or []
            if not self._refusing:
                effects.append(Decode(piece))
        return effects

    def begin_append(self) -> None:
        """The first piece of an append is about to be decoded."""
        self._is_full = False

    def _append_all(self, batch: Sequence[AudioPiece], now: float) -> Sequence[LiveEffect]:
        if isinstance(self._format, ContainerFormat):
            return self._admit_container(batch)
        effects: list[LiveEffect] = []
        stored: list[list[Samples]] = []
        for piece in self._joined(batch):
            effects += self._append(piece, stored, now)
        if stored:
            whole = stored[0] if len(stored) == 1 else map(np.concatenate, zip(*stored, strict=True))
            effects += _detect(whole)
        return effects

    def _joined(self, batch: Sequence[AudioPiece]) -> Sequence[AudioPiece]:
        """Appends that are all taken, as one: a batch of tiny ones costs no more than one large append."""
        assert isinstance(self._format, AudioFormat)
        size = self._format.bytes_per_frame
        if (
            len(batch) == 1
            or self._is_fresh
            or not all(
                piece.is_first
                and len(piece.data) == piece.num_bytes_total
                and not piece.num_bytes_total % size
                for piece in batch
            )
        ):
            return batch
        data = b"".join(piece.data for piece in batch)
        if not self.session.would_admit(len(data)):
            return batch
        if self._format.encoding == "float32" and not is_sound(np.frombuffer(data, "<f4")):
            return batch
        return [AudioPiece(data, len(data), is_first=True)]

    def _append(self, piece: AudioPiece, stored: list[list[Samples]], now: float) -> Sequence[Effect]:
        if piece.is_first:
            self._refusing, self._rest = False, b""
            refusal = self._admit(piece, now)
            if refusal is not None:
                self._refusing = True
                return refusal
        if self._refusing or self._is_file:
            return []
        try:
            channels = self._decoder.decode(self._whole_frames(piece.data))
        except BadRequestError as error:
            self._refusing = True
            return self._receive(AudioRefused(error, piece.event_id), now)
        if len(channels) != len(self.tracks):
            channels = self._mixer.mix(channels, self._decoder.format.rate)[None]
        samples = [track.resampled(each) for track, each in zip(self.tracks, channels, strict=True)]
        stored.append(samples)
        return self._store(samples, now)

    def _whole_frames(self, data: bytes) -> bytes:
        assert isinstance(self._format, AudioFormat)
        data = self._rest + data
        end = len(data) - len(data) % self._format.bytes_per_frame
        self._rest = data[end:]
        return data[:end]

    def _admit(self, piece: AudioPiece, now: float) -> list[Effect] | None:
        assert isinstance(self._format, AudioFormat)
        if self._is_fresh and piece.data:
            self._is_fresh = False
            if (is_file := refusal_of_file(piece.data, self._format)) is not None:
                self._is_file = True
                return self._receive(AudioRefused(is_file, piece.event_id), now)
        if self._is_file:
            return None
        if piece.num_bytes_total % self._format.bytes_per_frame:
            error = BadRequestError(
                f"The audio has {piece.num_bytes_total} bytes, which is not a whole number of "
                f"{self._format.bytes_per_sample}-byte {self._format.encoding} samples"
                + (f" of {self._format.num_channels} channels." if self._format.num_channels > 1 else "."),
                code="invalid_audio",
                param="audio",
            )
            return self._receive(AudioRefused(error, piece.event_id), now)
        return self.dialect.admit(piece.num_bytes_total, event_id=piece.event_id)

    def _store(self, samples: Sequence[Samples], now: float) -> list[Effect]:
        """As many of each channel."""
        effects: list[Effect] = []
        self.num_samples_received += len(samples[0])
        for channel, (track, each) in enumerate(zip(self.tracks, samples, strict=True)):
            track.store.append(each)
            effects += self._receive(AudioAppended(len(each), channel), now)
        return effects


def _detect(samples: Iterable[Samples]) -> list[LiveEffect]:
    return [Detect(each, channel) for channel, each in enumerate(samples)]
