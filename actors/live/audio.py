"""What one session hears: bytes in, samples into the store, speech scores to the pure session.

`ListeningMachine` has the shape of every pure machine (`receive`, `deadline`, `on_deadline`), so the generic
driver runs it; it adds to `realtime/session.py` what that room must not know: numpy, resampling, and where
endless speech is cut best (`media/segments.py`). Two effects are its own: `Hear`, the samples whose voice
activity has to be computed (`actors/live/hearing.py`), and `Then`, what the client did behind them. Effects
are performed in order, each to its end, so a commit finds all audio before it judged. Appends come in pieces
small enough to never hold the loop for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...media.pcm import PcmDecoder
from ...media.resample import StreamingResampler
from ...media.segments import best_cut
from ...media.voice_activity import FRAME_SAMPLES
from ...protocols.audio import INTERNAL_RATE, AudioFormat
from ...protocols.errors import BadRequestError
from ...protocols.flat import FlatControl
from ...protocols.realtime import InputAudioBufferClear, InputAudioBufferCommit, InputAudioBufferFlush
from ...realtime.effects import Effect, FindCut
from ...realtime.events import AudioAppended, AudioRefused, CutFound, SessionEvent, SpeechScored
from ...realtime.flat import FlatSession
from ...realtime.session import Session
from .store import AudioStore, Samples

PIECE_BYTES: Final = 16 * 1024
"""Bytes handled in one go: 2 s of G.711 (64 scores) at the most, 0.3 s of 24 kHz PCM16."""
_KEPT_FRAMES: Final = 320
"""10 s of scores, more than a session has searched for a cut."""
_NOTHING: Final = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class AudioPiece:
    """A part of one append. The first one carries the append's size, for admission as a whole."""

    data: bytes
    num_bytes_total: int
    is_first: bool
    event_id: str | None = None


Input = AudioPiece | SessionEvent | FlatControl
"""What reaches a session's machine."""


@dataclass(frozen=True, slots=True)
class Hear:
    """Have the voice activity of the stream's next samples computed; then call `ListeningMachine.heard`."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class Then:
    """Now it is this event's turn; then call `ListeningMachine.proceed`."""

    event: SessionEvent | FlatControl


LiveEffect = Effect | Hear | Then
"""What a session asks its actor to do."""


def pieces(audio: bytes, *, event_id: str | None = None) -> Iterator[AudioPiece]:
    """Cut one append; an empty append is one empty piece."""
    for start in range(0, max(len(audio), 1), PIECE_BYTES):
        yield AudioPiece(audio[start : start + PIECE_BYTES], len(audio), start == 0, event_id)


class ListeningMachine:
    """A `Session` that takes audio as bytes. Owns the session's store and resampler."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.dialect = FlatSession(session)
        """Every event goes through it; it speaks as the client does."""
        self.store = AudioStore()
        self.num_samples_received = 0
        self._format = AudioFormat()
        self._decoder = PcmDecoder(self._format)
        self._resampler = StreamingResampler(self._format.rate)
        self._refusing = False
        self._activity: deque[tuple[int, float]] = deque(maxlen=_KEPT_FRAMES)
        """The newest scores, for where endless speech is cut."""

    @property
    def deadline(self) -> float:
        """When `on_deadline` wants to be called."""
        return self.session.deadline

    def on_deadline(self, *, now: float) -> Sequence[LiveEffect]:
        """Limits of time."""
        return self._settled(self.dialect.on_deadline(now=now), now)

    def receive(self, event: Input, *, now: float) -> Sequence[LiveEffect]:
        """React to one event."""
        match event:
            case AudioPiece():
                return self._append(event, now)
            case InputAudioBufferCommit() | InputAudioBufferFlush():
                # What the resampler still holds belongs to the turn that ends here.
                return [*self._flush(now), Then(event)]
            case InputAudioBufferClear():
                self._resampler = StreamingResampler(self._format.rate)
                return self._tell(event, now)
            case _:
                return self._tell(event, now)

    def heard(self, scores: Iterable[tuple[int, float]], *, now: float) -> list[Effect]:
        """The voice activity of what was to be heard."""
        effects: list[Effect] = []
        for end_sample, probability in scores:
            self._activity.append((end_sample, probability))
            effects += self._tell(SpeechScored(end_sample, probability), now)
        return effects

    def _tell(self, event: SessionEvent | FlatControl, now: float) -> list[Effect]:
        return self._settled(self.dialect.receive(event, now=now), now)

    def _settled(self, effects: Iterable[Effect], now: float) -> list[Effect]:
        """Answer at once where the session wants to know a place; the effects that are left."""
        settled: list[Effect] = []
        for effect in effects:
            if isinstance(effect, FindCut):
                settled += self._tell(CutFound(self._best_cut(effect)), now)
            else:
                settled.append(effect)
        return settled

    def _best_cut(self, asked: FindCut) -> int:
        """Whole frames are searched: about a millisecond for 8 s."""
        frames = [
            (end - FRAME_SAMPLES, probability)
            for end, probability in self._activity
            if asked.after <= end - FRAME_SAMPLES and end <= asked.before
        ]
        start = frames[0][0] if frames else asked.after
        return start + best_cut(self.store.copy(start, asked.before), [each for _, each in frames])

    def proceed(self, then: Then, *, now: float) -> list[Effect]:
        """All audio before it was heard."""
        return self._tell(then.event, now)

    def configure(self, audio_format: AudioFormat, *, now: float) -> Sequence[LiveEffect]:
        """Bytes from now on are in this format."""
        if audio_format == self._format:
            return []
        effects = self._flush(now)
        self._format = audio_format
        self._decoder = PcmDecoder(audio_format)
        self._resampler = StreamingResampler(audio_format.rate)
        return effects

    def _flush(self, now: float) -> Sequence[LiveEffect]:
        """Bring what the resampler's filter holds back onto the timeline."""
        if self._format.rate == INTERNAL_RATE:
            return []
        tail = self._resampler.push(_NOTHING, last=True)
        self._resampler = StreamingResampler(self._format.rate)
        return self._hear(tail, now)

    def _append(self, piece: AudioPiece, now: float) -> Sequence[LiveEffect]:
        if piece.is_first:
            self._refusing = False
            refusal = self._admit(piece, now)
            if refusal is not None:
                self._refusing = True
                return refusal
        if self._refusing:
            return []
        try:
            samples = self._decoder.decode(piece.data)
        except BadRequestError as error:
            self._refusing = True
            return self._tell(AudioRefused(error, piece.event_id), now)
        return self._hear(self._resampler.push(samples), now)

    def _admit(self, piece: AudioPiece, now: float) -> list[Effect] | None:
        if piece.num_bytes_total % self._format.bytes_per_sample:
            error = BadRequestError(
                f"The audio has {piece.num_bytes_total} bytes, which is not a whole number of "
                f"{self._format.bytes_per_sample}-byte {self._format.encoding} samples.",
                code="invalid_audio",
                param="audio",
            )
            return self._tell(AudioRefused(error, piece.event_id), now)
        return self.dialect.admit(piece.num_bytes_total, event_id=piece.event_id)

    def _hear(self, samples: Samples, now: float) -> Sequence[LiveEffect]:
        self.store.append(samples)
        self.num_samples_received += len(samples)
        return [*self._tell(AudioAppended(len(samples)), now), Hear(samples)]
