"""The items of a session in order: what has been asked about each, and what has been answered.

An item is *open* while its audio still grows (at most one is), *pending* once committed and until it is
answered. Each has at most one `Transcribe` in flight; a newer wish waits for the answer and then asks
about the newest range, so that load makes hypotheses rarer and never queues them. An answer that does not
match what is in flight is late or foreign and is ignored.

Items are answered in order, exactly once. Text of an item is withheld until every earlier item is
answered, because clients join deltas without looking at `item_id`. Where utterances end is told between them
(`realtime/turns/utterances.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, UnsetType

from ..protocols.engine.messages import ItemId
from ..protocols.errors import SensoriumError
from ..protocols.realtime.events import (
    ConversationItemAdded,
    ConversationItemDone,
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    ConversationItemInputAudioTranscriptionSegment,
    InputAudioBufferCommitted,
)
from ..protocols.realtime.items import InputAudioContent, Message
from ..protocols.shared.audio_format import samples_to_ms
from ..protocols.transcription.transcript import Transcript, TranscriptionOptions, tokens_between
from ..protocols.transcription.view import LogProb, detected_languages, log_probs, token_usage
from .effects import ForgetItem, Transcribe
from .events import HypothesisFailed, HypothesisReady
from .outgoing import EventSink, error_detail
from .transcript.release import ReleasePolicy
from .turns.left_context import LeftContext
from .turns.utterances import SpokenWords, Utterances

MAX_PENDING: Final = 1024
"""Committed items without an answer; a client's next commit is refused (turns are bounded by audio)."""


class Item:
    """One turn. Positions in samples; `end` is None while the item is open."""

    def __init__(self, item_id: ItemId, start: int, speech_start: int, policy: ReleasePolicy) -> None:
        self.id = item_id
        self.start = start
        self.speech_start = speech_start
        self.speech_end = speech_start
        """Of the newest speech."""
        self.before: tuple[int, ...] = ()
        """Where earlier turns begin that it may be heard behind."""
        self.end: int | None = None
        self.in_flight: Transcribe | None = None
        """In flight."""
        self.requested_end = speech_start
        """End of the newest range ever asked about; before that, where the speech began."""
        self.requested_speech_end = speech_start
        """Of the speech in the range that was asked about last."""
        self.covered_end = start
        """End of the newest range that was answered."""
        self.speculated_end = -1
        """End of the newest range asked about with `final` before the commit."""
        self.exact: tuple[int, Transcript] | None = None
        """The newest final hypothesis and the end of its range."""
        self.answer: Transcript | SensoriumError | None = None
        self.options: TranscriptionOptions | None = None
        """In force when the item was first asked about; None: never asked."""
        self.newest: Transcript | None = None
        """What was understood of [start, covered_end)."""
        self.policy = policy
        self.is_streamed = False
        """Its answer is a part of a stream's, and nothing is asked about it alone."""
        self.spoken = SpokenWords(item_id, start, speech_start)
        self.withheld = ""
        self.num_sent = 0
        """Bytes of its text that the client was sent."""
        self.num_words_sent = 0


class Conversation:
    """Opens, asks about, commits and answers items.

    `options` and `make_policy` apply to items whose first hypothesis is requested later.
    """

    def __init__(
        self,
        outgoing: EventSink,
        new_id: Callable[[str], str],
        *,
        make_policy: Callable[[], ReleasePolicy],
        max_finals_in_flight: int,
    ) -> None:
        self._outgoing = outgoing
        self._new_id = new_id
        self.make_policy = make_policy
        """Says how the text of an item is shown."""
        self._max_in_flight = max_finals_in_flight
        self.make_place: Callable[[], ItemId | None] | None = None
        """Gives the item that the next turn comes behind, where there is more than turns."""
        self._last_item_id: ItemId | None = None
        self.options = TranscriptionOptions()
        self.utterances = Utterances(outgoing)
        self.left_context = LeftContext()
        self.open: Item | None = None
        self.pending: deque[Item] = deque()
        self._counted: tuple[int, int] | None = None
        self.num_corrected = 0
        self.num_withheld = 0
        """Hypotheses that had new text and released none of it."""

    @property
    def num_tracked(self) -> int:
        """Items with any state."""
        return len(self.pending) + (self.open is not None)

    @property
    def backlog(self) -> int:
        """Committed samples of all items that no hypothesis covers yet."""
        return self._waiting()[0]

    @property
    def crowded(self) -> bool:
        """As many committed items are being transcribed as may be at a time."""
        return self._waiting()[1] >= self._max_in_flight

    def begin(self, start: int, speech_start: int) -> Item:
        """Open an item whose audio starts at `start`, and its speech at `speech_start`."""
        assert self.open is None
        self.open = Item(ItemId(self._new_id("item")), start, speech_start, self.make_policy())
        self.open.before = self.left_context.before(start)
        return self.open

    def transcribe(self, item: Item, end: int, *, final: bool) -> None:
        """Ask for a hypothesis over [item.start, end). Nothing may be in flight for the item but a partial
        one, whose place a final one takes: the client waits for that."""
        assert item.in_flight is None or (final and not item.in_flight.final)
        if item.options is None:
            item.options, item.policy = self.options, self.make_policy()
        item.in_flight = Transcribe(item.id, item.start, end, final, before=item.before)
        self._counted = None
        item.requested_end = end
        item.requested_speech_end = min(end, item.speech_end)
        if final and item.end is None:
            item.speculated_end = end
        self._outgoing.do(item.in_flight)

    def commit(self, end: int, *, answer: Transcript | None = None) -> None:
        """Commit the open item with its audio ending at `end`; `answer` if nothing needs transcribing."""
        item = self.open
        assert item is not None
        self.open = None
        if answer is None and not item.is_streamed:
            self.left_context.began(item.start)
        item.end = end
        item.answer = answer
        if item.exact is not None and item.exact[0] == end and answer is None:
            item.answer = item.exact[1]
        self.pending.append(item)
        self._counted = None
        previous = self._last_item_id if self.make_place is None else self.make_place()
        self._last_item_id = item.id
        self._outgoing.send(
            InputAudioBufferCommitted(
                item_id=item.id,
                previous_item_id=previous,
                audio_start_ms=samples_to_ms(item.start),
                audio_end_ms=samples_to_ms(end),
            )
        )
        message = Message(id=item.id, role="user", content=[InputAudioContent()])
        self._outgoing.send(ConversationItemAdded(item=message, previous_item_id=previous))
        self._outgoing.send(ConversationItemDone(item=message, previous_item_id=previous))

    def discard(self) -> None:
        """Forget the open item, if there is one."""
        if self.open is not None:
            self.utterances.discard()
            self._outgoing.do(ForgetItem(self.open.id))
            self.open = None

    def on_ready(self, event: HypothesisReady) -> None:
        """Take an answer: release text, or keep the exact transcript of a committed item."""
        item = self._answered(event)
        if item is None:
            return
        item.covered_end, item.newest = event.end_sample, event.transcript
        if self.utterances.wait is not None:
            item.spoken.learn(event.transcript, event.end_sample, item.requested_speech_end)
        if event.final:
            item.exact = (event.end_sample, event.transcript)
            if item.end == event.end_sample:
                item.answer = event.transcript
                return
        speech_ms = samples_to_ms(event.end_sample - item.speech_start)
        is_in_digits = item.options is not None and item.options.numerals == "digits"
        text = item.policy.take(event.transcript, speech_ms, is_paused=event.final, is_in_digits=is_in_digits)
        self._release(item, text)

    def show(self, item: Item, transcript: Transcript, end: int) -> None:
        """Release what is settled of an open item, which a stream has understood up to `end`."""
        item.covered_end, item.newest = end, transcript
        if self.utterances.wait is not None:
            item.spoken.learn(transcript, end, end)
        self._release(item, item.policy.take(transcript, samples_to_ms(end - item.start)))

    def on_failed(self, event: HypothesisFailed) -> None:
        """Take a failure: it ends a committed item, a partial is simply asked for again later."""
        item = self._answered(event)
        if item is not None and event.final and item.end == event.end_sample:
            item.answer = event.error

    def reach(self, position: int) -> None:
        """No word begins before `position` that is not known: tell an utterance that is over, all text of
        it before that. While an answer is due that waits."""
        if self.pending or (last := self.utterances.is_over(position)) is None:
            return
        if self.open is not None and self.open.spoken is last:
            self.conclude(self.open)
        self.utterances.reach(position)

    def conclude(self, item: Item) -> None:
        """Show the rest of an open item's newest hypothesis, whatever doubt there is."""
        self._release(item, item.policy.conclude())

    def keep_from(self, turn_start: int) -> int:
        """The first sample that may still be asked for, where the turn in progress begins at `turn_start`."""
        return next((item.start for item in self.pending if item.answer is None), turn_start)

    def left_context_start(self, start: int) -> int:
        """The same, or the first that may be heard in front of that: of several turns a later one may reach
        further back, where the client has changed its mind."""
        befores = [item.before for item in (*self.pending, self.open) if item is not None]
        befores = befores or [self.left_context.before(start)]
        return min((start, *(each[0] for each in befores if each)))

    def fail_pending(self, error: SensoriumError) -> None:
        """Answer every committed item that is still waiting with `error`."""
        for item in self.pending:
            item.answer = item.answer or error
        self._counted = None
        self.settle()

    def settle(self) -> None:
        """Send the answers that are due, in order, and ask for the finals that are missing."""
        while self.pending and self.pending[0].answer is not None:
            self._send_answer(self.pending.popleft())
            self._counted = None
        if (head := self._head()) is not None:
            self._release(head, "")
        places = self._max_in_flight - self._waiting()[1]
        for item in self.pending:
            is_asked = item.is_streamed or (item.in_flight is not None and item.in_flight.final)
            if item.answer is not None or is_asked:
                continue
            if item.in_flight is None:
                if places <= 0:
                    break
                places -= 1
            assert item.end is not None
            self.transcribe(item, item.end, final=True)

    def check(self) -> None:
        """Assert the invariants between inputs."""
        assert self.open is None or self.open.end is None
        assert self._counted in (None, self._count())
        position = 0
        for item in self.pending:
            assert item.end is not None
            assert position <= item.start <= item.end
            position = item.end
            is_asked = item.in_flight is not None or item.is_streamed
            assert is_asked or item.answer is not None or self.crowded
        assert not self.pending or self.pending[0].answer is None
        assert self.open is None or self.open.start >= position
        head = self._head()
        assert head is None or head.withheld == ""

    def _waiting(self) -> tuple[int, int]:
        """The backlog, and the committed items that are being transcribed; counted where they have changed,
        for whoever speaks asks with each frame, and there may be many."""
        if self._counted is None:
            self._counted = self._count()
        return self._counted

    def _count(self) -> tuple[int, int]:
        backlog = num_in_flight = 0
        for item in self.pending:
            num_in_flight += item.in_flight is not None
            if item.answer is None and item.end is not None:
                backlog += max(0, item.end - item.covered_end)
        return backlog, num_in_flight

    def _head(self) -> Item | None:
        return self.pending[0] if self.pending else self.open

    def _answered(self, event: HypothesisReady | HypothesisFailed) -> Item | None:
        """The item whose question this answers, now with nothing in flight; None if there is none."""
        question = (event.item_id, event.start_sample, event.end_sample, event.final)
        for item in (*self.pending, *([self.open] if self.open is not None else [])):
            if item.in_flight is not None and item.in_flight.question == question:
                item.in_flight = self._counted = None
                return item
        return None

    def _release(self, item: Item, text: str) -> None:
        item.withheld += text
        if item is not self._head():
            return
        self.utterances.follow(item.spoken)
        if item.withheld:
            self._send_text(item, item.withheld, item.newest)
            item.withheld = ""

    def _send_text(self, item: Item, text: str, transcript: Transcript | None) -> None:
        """More of an item's text, which is `transcript`'s."""
        start, item.num_sent = item.num_sent, item.num_sent + len(text.encode())
        options = item.options or self.options
        logprobs: list[LogProb] | UnsetType = UNSET
        if options.logprobs:
            logprobs = (
                [] if transcript is None else log_probs(tokens_between(transcript, start, item.num_sent))
            )
        words = item.newest.words[item.num_words_sent : item.policy.num_words_settled] if item.newest else ()
        item.num_words_sent += len(words)
        self._outgoing.send(
            ConversationItemInputAudioTranscriptionDelta(
                item_id=item.id,
                delta=text,
                logprobs=logprobs,
                words=list(words) if words and options.word_timestamps else UNSET,
            )
        )

    def _send_answer(self, item: Item) -> None:
        if self.utterances.wait is not None and item.end is not None and isinstance(item.answer, Transcript):
            speech_end = min(item.end, item.speech_end)
            item.spoken.learn(item.answer, item.end, speech_end)
        self.utterances.follow(item.spoken)
        if isinstance(item.answer, SensoriumError):
            self._outgoing.send(
                ConversationItemInputAudioTranscriptionFailed(
                    item_id=item.id, error=error_detail(item.answer)
                )
            )
        else:
            assert item.answer is not None
            self._complete(item, item.answer)
        self.utterances.answered(item.spoken)
        self._outgoing.do(ForgetItem(item.id))

    def _complete(self, item: Item, transcript: Transcript) -> None:
        rest = item.policy.finish(transcript.text, unsent=item.withheld)
        if rest:
            self._send_text(item, rest, transcript)
        options = item.options or self.options
        for segment in transcript.segments if options.segment_timestamps else ():
            self._outgoing.send(
                ConversationItemInputAudioTranscriptionSegment(
                    id=self._new_id("seg"),
                    item_id=item.id,
                    text=segment.text,
                    start=segment.start,
                    end=segment.end,
                )
            )
        self.num_corrected += item.policy.corrected
        self.num_withheld += item.policy.num_withheld
        self._outgoing.send(
            ConversationItemInputAudioTranscriptionCompleted(
                item_id=item.id,
                transcript=transcript.text,
                usage=token_usage(transcript),
                languages=detected_languages(transcript),
                logprobs=log_probs(transcript.tokens) if options.logprobs else UNSET,
                words=list(transcript.words) if options.word_timestamps else UNSET,
            )
        )
