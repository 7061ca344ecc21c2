"""Follows a stream without turns: `turn_detection` is `captions`, and an item is a segment of the stream.

Takes the place of `realtime/turns/listener.py`. Where segments end is decided by the words of the model that
streams (`actors/speech/streaming/segments.py`). Here the text of each is shown as it comes, and its item is
committed and completed when it is over. Voice activity decides nothing, so there are no `speech_started` and
`speech_stopped`.

One question at a time asks about all full chunks. A commit ends the segment with all words up to there, also
those of the chunk that is not full; a clear drops what was not committed. The stream goes on after both. It
ends where the client asks for another model, other options or another delay: what was said until then is
committed, as by a flush, and another stream begins.

Audio is kept as long as it is not answered, and as far as the stream needs it to be fed again: the longest
segment and a little more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...protocols.engine.messages import ItemId
from ...protocols.shared.audio_format import ms_to_samples
from ...protocols.transcription.streaming import ChunkDelay, Segmentation, StreamSegment
from ...protocols.transcription.transcript import Transcript
from ..buffer import Buffer
from ..config import SessionConfig
from ..conversation import Conversation, Item
from ..effects import ContinueStream, EndStream, ForgetBefore, ResetVoiceActivity
from ..events import SegmentsReady, StreamFailed
from ..outgoing import EventSink
from ..settings import SessionSettings
from ..transcript.release import policy_maker
from .commits import MIN_COMMIT, check_pending, too_short
from .detector import TurnDetector
from .partial_interval import Pace

_LATE_WORD: Final = ms_to_samples(500)
"""No word that begins so long before the end of the last full chunk is still to come."""
_EMPTY: Final = Transcript(text="", language="", duration=0.0)


@dataclass(frozen=True, slots=True)
class _Conclusion:
    """A segment that was ended by a commit."""

    question: ContinueStream
    item: Item


class CaptionListener:
    """One channel's stream. After every input `advance` does what follows from the new state."""

    def __init__(
        self,
        config: SessionConfig,
        settings: SessionSettings,
        conversation: Conversation,
        outgoing: EventSink,
        new_id: Callable[[str], str],
    ) -> None:
        self._config = config
        self._settings = settings
        self._conversation = conversation
        self._outgoing = outgoing
        self._new_id = new_id
        conversation.utterances.configure(settings.utterance_end_ms)
        self._buffer = Buffer()
        self._detector = TurnDetector(settings.detector(config))
        self._in_flight: ContinueStream | None = None
        self._conclusions: deque[_Conclusion] = deque()
        """Not answered yet."""
        self._covered_end = 0
        """Up to there everything was answered."""
        self._kept_from = 0
        self._ends_soon = False
        """No more audio will come."""
        self._begin_stream()
        self.pace = Pace()
        """Chunks are asked about as they come, whatever the load."""

    @property
    def backlog(self) -> int:
        """Samples received that no answer covers."""
        return self._buffer.received - self._covered_end

    @property
    def unended(self) -> int:
        """There is no turn that the client must end."""
        return 0

    def has_room(self, _: int) -> bool:
        """There is no longest turn."""
        return True

    @property
    def deadline(self) -> float:
        """Nothing happens by itself: what is said of a chunk that is not full may change."""
        return math.inf

    def append(self, num_samples: int, *, now: float) -> None:  # noqa: ARG002 (as of turns)
        """More audio is in the store."""
        self._buffer.received += num_samples

    def score(self, end_sample: int, probability: float) -> None:
        """Take the voice activity of the next frame, which only says what a flush may pass over."""
        if self._buffer.score(end_sample):
            self._detector.push(end_sample, probability)

    def commit(self) -> None:
        """End the segment. Raises BadRequestError, changing nothing, if there is too little; see
        `Listener.commit`."""
        check_pending(self._conversation)
        buffered, follows_commit = self._buffer.num_buffered, self._buffer.follows_commit
        if self._conversation.open is None and buffered < MIN_COMMIT and not follows_commit:
            raise too_short(buffered)
        self._conclude()

    def flush(self) -> ItemId | None:
        """End the segment if there are words in it, or speech that was not answered; see `Listener.flush`."""
        if self._conversation.open is None and (
            not self._has_unheard_speech or self._buffer.num_buffered < MIN_COMMIT
        ):
            return None
        self._conclude()
        return self._conversation.pending[-1].id

    def clear(self) -> None:
        """Drop what was not committed; the stream goes on."""
        self._conversation.discard()
        self._detector.reset()
        self._buffer.clear()
        self._go_on_from(self._buffer.received)
        self._outgoing.do(ResetVoiceActivity())

    def finish(self) -> None:
        """End the segment in progress; no more audio will come."""
        self._ends_soon = True
        self.flush()

    def configure(self, settings: SessionSettings) -> None:
        """Use other settings: with another stream, if they change what a word is."""
        old, self._settings = self._settings, settings
        self._conversation.utterances.configure(settings.utterance_end_ms)
        self._detector.reconfigure(settings.detector(self._config))
        if self._heard_by(settings) != self._heard_by(old):
            self.flush()
            self._leave_stream()
            self._begin_stream()
        self._conversation.make_policy = policy_maker(settings.delay or self._config.delay, settings.delays)

    def take(self, event: SegmentsReady) -> None:
        """Show what was said, and end what is over."""
        if self._in_flight is None or event.question.key != self._in_flight.key:
            return  # of before a commit or a clear
        self._in_flight = None
        answer = event.answer
        self._covered_end = max(self._covered_end, event.question.end_sample)
        self._kept_from = answer.kept_from
        if event.question.shown_start is not None:
            item = self._concluded(event.question)
            item.newest = item.answer = answer.segments[0].transcript
            return
        self._start, self._quiet_until = answer.next_start, 0
        for segment in answer.segments:
            self._show(segment)

    def fail(self, event: StreamFailed) -> None:
        """What was asked about is lost; the stream goes on behind it."""
        if self._in_flight is None or event.question.key != self._in_flight.key:
            return
        self._in_flight = None
        end = event.question.end_sample
        self._covered_end = max(self._covered_end, end)
        self._kept_from = event.kept_from
        if event.question.shown_start is not None:
            self._concluded(event.question).answer = event.error
            return
        item = self._opened(self._start)
        self._commit(item, end)
        item.answer = event.error
        self._start = end
        self._quiet_until = end + self._segmentation.max_length  # not an item that failed for each chunk

    def advance(self, *, now: float) -> None:  # noqa: ARG002 (as of turns)
        """Ask about what is new, answer what is due, give audio back."""
        if self._ends_soon and self._in_flight is None and self._conversation.open is not None:
            self._conclude()
        self._ask()
        self._conversation.settle()
        self._conversation.reach(self._covered_end - _LATE_WORD)
        keep_from = min(self._conversation.keep_from(self._start), self._kept_from)
        if self._buffer.forget(keep_from):
            self._outgoing.do(ForgetBefore(keep_from))

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self._buffer.check()
        assert self._buffer.forgotten <= self._kept_from <= self._start <= self._buffer.received
        assert self._covered_end <= self._buffer.received
        item = self._conversation.open
        assert item is None or self._start <= item.start <= self._buffer.received

    @property
    def _delay(self) -> ChunkDelay:
        delay = self._settings.own_delay(self._config.delay)
        assert delay is not None, "the settings allow no other model"
        return delay

    @property
    def _segmentation(self) -> Segmentation:
        segmentation = self._settings.segmentation
        assert segmentation is not None
        return segmentation

    @property
    def _has_unheard_speech(self) -> bool:
        detector = self._detector
        return detector.candidate_start is not None or detector.last_speech_end > self._covered_end

    def _heard_by(self, settings: SessionSettings) -> object:
        return settings.model, settings.options, settings.own_delay(self._config.delay)

    def _begin_stream(self) -> None:
        self._stream_id = ItemId(self._new_id("stream"))
        self._stream_start = self._buffer.received
        self._asked_end = self._buffer.received
        self._quiet_until = 0
        """After a failure nothing is asked about less audio."""
        self._go_on_from(self._buffer.received)

    def _leave_stream(self) -> None:
        if all(each.question.stream_id != self._stream_id for each in self._conclusions):
            self._outgoing.do(EndStream(self._stream_id))

    def _go_on_from(self, sample: int) -> None:
        """Words before it are of no item to come."""
        self._start = sample
        """No word before it is still to come in an item that is not committed."""
        if self._in_flight is not None and self._in_flight.shown_start is None:
            self._in_flight = None

    def _conclude(self) -> None:
        """End the segment with all that was received; what it says is still to be asked."""
        item, end = self._opened(self._start), self._buffer.received
        question = self._question(end, shown_start=item.start)
        self._commit(item, end)
        if end > self._start:
            self._conclusions.append(_Conclusion(question, item))
        else:
            item.answer = _EMPTY  # nothing new since the last commit
        self._go_on_from(end)

    def _opened(self, start: int) -> Item:
        """The open item, or one that begins there."""
        if self._conversation.open is None:
            self._conversation.begin(start, start).options = self._conversation.options
        assert self._conversation.open is not None
        return self._conversation.open

    def _commit(self, item: Item, end: int, answer: Transcript | None = None) -> None:
        item.is_streamed = True
        self._conversation.commit(end, answer=answer)
        self._buffer.commit(end)

    def _concluded(self, question: ContinueStream) -> Item:
        """The item of the first conclusion, which is answered."""
        conclusion = self._conclusions.popleft()
        assert conclusion.question.key == question.key
        left = question.stream_id
        if left != self._stream_id and all(each.question.stream_id != left for each in self._conclusions):
            self._outgoing.do(EndStream(left))
        return conclusion.item

    def _ask(self) -> None:
        if self._in_flight is not None:
            return
        if self._conclusions:
            self._in_flight = self._conclusions[0].question
        else:
            received = self._buffer.received
            end = self._stream_start + self._delay.last_full(received - self._stream_start)
            if end <= max(self._asked_end, self._start) or received < self._quiet_until:
                return
            self._in_flight = self._question(end)
        self._asked_end = max(self._asked_end, self._in_flight.end_sample)
        self._outgoing.do(self._in_flight)

    def _question(self, end: int, *, shown_start: int | None = None) -> ContinueStream:
        return ContinueStream(
            self._stream_id, self._stream_start, self._start, end, self._segmentation, shown_start
        )

    def _show(self, segment: StreamSegment) -> None:
        if self._conversation.open is None and not segment.transcript.text:
            return  # a token without a letter
        item = self._opened(segment.start)
        self._conversation.show(item, segment.transcript, self._covered_end)
        if segment.is_over:
            self._commit(item, segment.end, segment.transcript)
            self._conversation.settle()  # before the next one is shown
