"""A session that also speaks the flat dialect: translates around `realtime/session.py`, and knows no audio.

Nothing is translated until the client sends an event that only the flat dialect has
(`protocols/realtime/codec.py` finds out). From then on audio is 16 kHz PCM16, turns are detected, so that
hours without a commit cost no more than minutes, and every `Send` says what the client reads `instead` of the
event.

An *utterance* is what lies between two final commits; it holds any number of turns. Its deltas are those of
its turns, joined by a space where the script has spaces. **Laws**: no delta is empty; `done.text` is the
deltas joined; every final commit is answered once, in order: by `done`, or by the `error` of the first of
its turns that failed after the commit. Audio that comes before the answer belongs to the next utterance.

A turn's exact transcript may contradict what was released. That cannot be corrected here: what follows the
released words in it is appended, so that no word behind the contradiction is lost
(`realtime/transcript/continuation.py`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from ..protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    Error,
    InputAudioBufferClear,
    InputAudioBufferCommitted,
    InputAudioBufferFlush,
    InputAudioBufferFlushed,
    InvalidEvent,
    ServerEvent,
    SessionUpdate,
    SessionUpdated,
)
from ..protocols.realtime.session import (
    AudioPatch,
    FormatPatch,
    InputPatch,
    ServerVadPatch,
    SessionPatch,
    TranscriptionPatch,
)
from ..protocols.realtime.vllm_events import (
    FLAT_RATE,
    FlatCommit,
    FlatControl,
    FlatError,
    FlatInvalid,
    FlatServerEvent,
    FlatUpdate,
    FlatUsage,
    TranscriptionDelta,
    TranscriptionDone,
)
from ..protocols.transcription.view import TokenUsage
from .effects import Effect, Send
from .events import SessionEvent
from .session import Session
from .transcript.continuation import continuation, joint

MAX_WAITING: Final = 256
"""Final commits without an answer; the next one is refused."""
_FORMAT: Final = InputPatch(format=FormatPatch("audio/pcm", FLAT_RATE, 1))
_TURNS: Final = msgspec.structs.replace(_FORMAT, turn_detection=ServerVadPatch())


class _Utterance:
    """What was said between two final commits."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.num_pending = 0
        """Committed turns that are not answered."""
        self.is_final = False
        """The final commit has come."""
        self.failed = False
        """The final commit was answered by an error."""
        self.num_input = 0
        self.num_output = 0


class FlatSession:
    """Has the shape of a `Session`, and passes everything through while the client speaks its dialect."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.is_flat = False
        """The client speaks the flat dialect; once true it stays so."""
        self._is_validated = False
        self._utterances = deque([_Utterance()])
        """Unanswered ones in order; the last one is still being said."""
        self._current = self._utterances[-1]
        """The one that committed turns belong to."""
        self._nothing_flushed = False
        self._item_id = ""
        self._released = ""
        """Text of that item that was sent."""

    @property
    def resume_token(self) -> str | None:
        """As `Session.resume_token`; clients of the flat dialect do not know how to resume."""
        return None if self.is_flat else self.session.resume_token

    @property
    def knows_backpressure(self) -> bool:
        """The client is told when it runs ahead; in the flat dialect there is no word for it."""
        return not self.is_flat

    @property
    def deadline(self) -> float:
        """When `on_deadline` has something to do."""
        return self.session.deadline

    def on_deadline(self, *, now: float) -> list[Effect]:
        """Limits of time."""
        return self._translated(self.session.on_deadline(now=now))

    def admit(self, num_bytes: int, *, event_id: str | None = None) -> list[Effect] | None:
        """As `Session.admit`."""
        refusal = self.session.admit(num_bytes, event_id=event_id)
        return None if refusal is None else self._translated(refusal)

    def admit_sound(self, num_samples: int, *, event_id: str | None = None) -> list[Effect] | None:
        """As `Session.admit_sound`."""
        refusal = self.session.admit_sound(num_samples, event_id=event_id)
        return None if refusal is None else self._translated(refusal)

    def receive(self, event: SessionEvent | FlatControl, *, now: float) -> list[Effect]:
        """React to one event of either dialect. Never raises, whatever a client sent."""
        if not isinstance(event, FlatUpdate | FlatCommit | FlatInvalid):
            return self._translated(self.session.receive(event, now=now))
        if self.session.num_channels > 1:
            refusal = InvalidEvent("unsupported_event", "this dialect knows no channels apart", "type")
            return self.session.receive(refusal, now=now)
        effects = [] if self.is_flat else self._begin(now)
        match event:
            case FlatInvalid():
                effects += self._translated(self.session.receive(event, now=now))
            case FlatUpdate():
                effects += self._update(event, now)
            case FlatCommit() if not self._is_validated:
                refusal = InvalidEvent("model_not_validated", "send session.update with a model first")
                effects += self._translated(self.session.receive(refusal, now=now))
            case FlatCommit() if event.final and len(self._utterances) > MAX_WAITING:
                problem = f"{MAX_WAITING} utterances are waiting for their answer"
                refusal = InvalidEvent("too_many_commits", problem, "final")
                effects += self._translated(self.session.receive(refusal, now=now))
            case FlatCommit():
                effects += self._commit(now) if event.final else []
        return effects

    def words(self, event: ServerEvent) -> tuple[FlatServerEvent, ...] | None:
        """What the client reads instead of `event`; None: the event itself."""
        if not self.is_flat:
            return None
        match event:
            case SessionUpdated():
                return (event,)
            case ConversationItemInputAudioTranscriptionDelta():
                return self._on_delta(event.item_id, event.delta)
            case InputAudioBufferCommitted():
                self._current.num_pending += 1
                return ()
            case ConversationItemInputAudioTranscriptionCompleted():
                return self._on_completed(event)
            case ConversationItemInputAudioTranscriptionFailed():
                return self._on_failed(event.error.message or "the transcription failed")
            case InputAudioBufferFlushed():
                self._nothing_flushed = event.item_id is None
                return self._settled()
            case Error():
                return (FlatError(event.error.message or "", event.error.code),)
            case _:
                return ()

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self.session.check()
        assert self._current is self._utterances[-1]
        assert not self._current.is_final
        if not self.session.closed:
            assert all(earlier.is_final for earlier in list(self._utterances)[:-1])
            assert len(self._utterances) == 1 or self._utterances[0].num_pending

    def _begin(self, now: float) -> list[Effect]:
        """The client turned out to speak the flat dialect. What it said before is of the first utterance."""
        self.is_flat = True
        has_turns = self.session.settings.segmentation is None  # else an ephemeral key says so
        patch = SessionPatch(audio=AudioPatch(_TURNS if has_turns else _FORMAT))
        effects = self.session.receive(SessionUpdate(patch), now=now)
        self._current.num_pending = len(self.session.conversation.pending)
        return [Send(effect.event, ()) if isinstance(effect, Send) else effect for effect in effects]

    def _update(self, event: FlatUpdate, now: float) -> list[Effect]:
        options = TranscriptionPatch(model=event.model, language=event.language, prompt=event.prompt)
        patch = SessionPatch(audio=AudioPatch(InputPatch(transcription=options)))
        effects = self.session.receive(SessionUpdate(patch), now=now)
        for effect in effects:
            self._is_validated |= isinstance(effect, Send) and isinstance(effect.event, SessionUpdated)
        return self._translated(effects)

    def _commit(self, now: float) -> list[Effect]:
        """End the utterance. What is committed while the session reacts is its last turn."""
        self._current.is_final = True
        self._utterances.append(_Utterance())
        flushed = self.session.receive(InputAudioBufferFlush(), now=now)
        effects = self._translated(flushed)
        if self._nothing_flushed:
            # What little there is holds no word: it is not the beginning of what comes next.
            effects += self._translated(self.session.receive(InputAudioBufferClear(), now=now))
        self._current = self._utterances[-1]
        return effects

    def _translated(self, effects: list[Effect]) -> list[Effect]:
        if not self.is_flat:
            return effects
        return [
            Send(effect.event, self.words(effect.event)) if isinstance(effect, Send) else effect
            for effect in effects
        ]

    def _on_delta(self, item_id: str, delta: str) -> tuple[FlatServerEvent, ...]:
        if item_id != self._item_id:
            self._item_id, self._released = item_id, ""
            events = self._emit(delta, is_new=True)
        else:
            events = self._emit(delta)
        self._released += delta
        return events

    def _on_completed(
        self, event: ConversationItemInputAudioTranscriptionCompleted
    ) -> tuple[FlatServerEvent, ...]:
        utterance = self._utterances[0]
        if isinstance(event.usage, TokenUsage):
            utterance.num_input += event.usage.input_tokens
            utterance.num_output += event.usage.output_tokens
        if event.item_id != self._item_id:
            self._item_id, self._released = event.item_id, ""
        contradicts = not event.transcript.startswith(self._released) or not self._released
        events = self._emit(continuation(self._released, event.transcript), is_new=contradicts)
        utterance.num_pending -= 1
        return events + self._settled()

    def _on_failed(self, message: str) -> tuple[FlatServerEvent, ...]:
        utterance = self._utterances[0]
        utterance.num_pending -= 1
        events: tuple[FlatServerEvent, ...] = ()
        if not utterance.failed:
            events = (FlatError(message, "processing_error"),)
            utterance.failed = utterance.is_final
        return events + self._settled()

    def _emit(self, text: str, *, is_new: bool = False) -> tuple[FlatServerEvent, ...]:
        """Add to the first unanswered utterance; `is_new`: it may need a space in front."""
        utterance = self._utterances[0]
        if not text or utterance.failed:
            return ()
        if is_new and utterance.parts:
            text = joint(utterance.parts[-1], text) + text
        utterance.parts.append(text)
        return (TranscriptionDelta(text),)

    def _settled(self) -> tuple[FlatServerEvent, ...]:
        """The answers to final commits that are due, in order."""
        answers: list[FlatServerEvent] = []
        while (utterance := self._utterances[0]).is_final and not utterance.num_pending:
            self._utterances.popleft()
            if not utterance.failed:
                num_input, num_output = utterance.num_input, utterance.num_output
                usage = FlatUsage(num_input, num_output, num_input + num_output)
                answers.append(TranscriptionDone("".join(utterance.parts), usage))
        return tuple(answers)
