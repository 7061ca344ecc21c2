"""When somebody has said what they had to say: no other word has followed their last one for long enough.

A turn ends where voice activity ends, and so not at all while music plays behind the speech; an *utterance*
ends by its words, as Deepgram's `utterance_end_ms` has it. It may hold several turns, and a turn several of
them, one after the other. Pure: positions in samples, no audio, no clock.

`SpokenWords` is what hypotheses tell of the words of one item. Where its last word ends is known where words
have times (in finals, if asked for). Else it is where voice activity ends, unless that goes on for longer
than a word behind the hypothesis that had the word first: then where that hypothesis ends. A last word that
becomes another one counts as new: it may still be spoken.

`Utterances` is one channel's, and looks at its items in order:

    nothing said ── a word ──→ being said ── `wait` behind the last word, and no other ──→ told
                                ↑  │ a word                                                 │ a word
                                └──┴────────────────────────────────────────────────────────┘

`Conversation` leads it from item to item (`follow`, `answered`), so that an utterance is told behind the
answer to the turn it ended in, and in front of the text of the next one; `Listener` says how far is
understood (`reach`). Of audio that has not come nothing is concluded.
"""

from __future__ import annotations

from typing import Final

from ...protocols.engine.messages import ItemId
from ...protocols.realtime.events import InputAudioBufferUtteranceEnded
from ...protocols.shared.audio_format import INTERNAL_RATE, ms_to_samples, samples_to_ms
from ...protocols.transcription.transcript import Transcript
from ..outgoing import EventSink
from ..transcript.pieces import pieces, plain, weight

_UNSHOWN: Final = ms_to_samples(500)
"""A word that begins so shortly before the end of a hypothesis need not be in it: half of the words are there
330 ms after they begin, nine of ten by then (both embedded models, `delay` minimal)."""
_EARLY_WORD: Final = ms_to_samples(800)
"""So long may voice activity go on behind the hypothesis that had a word first and still be that word: a
likely one is shown up to 390 ms before it was said to its end, and voice activity ends 100 ms behind that."""
_RECUT: Final = 200
"""Pieces at the end of a text that are cut again with every hypothesis, at most: half a millisecond."""


class SpokenWords:
    """The words of one item, as far as they are known. Positions in samples on the session's timeline."""

    def __init__(self, item_id: ItemId, start: int, speech_start: int) -> None:
        """Its audio begins at `start`, its speech at `speech_start`."""
        self.item_id = item_id
        self.first = speech_start
        """No word begins before."""
        self.known_end = speech_start
        """No word begins before that is not known."""
        self.end = speech_start
        """Of the last word."""
        self.num_words = 0
        self._start = start
        self._last = ""
        self._shown = start
        """Where the hypothesis ends that had the last word first."""
        self._is_timed = False
        self._num_reported, self._reported_end = 0, -1
        """Of an utterance that has ended."""
        self._text = _GrowingText()

    @property
    def has_news(self) -> bool:
        """There are words of an utterance that has not ended."""
        return self.num_words > self._num_reported and self.end > self._reported_end

    def mark_reported(self) -> None:
        """The utterance has ended. One more word where it was is no other utterance, but a better text."""
        self._num_reported, self._reported_end = self.num_words, self.end

    def learn(self, transcript: Transcript, covered_end: int, speech_end: int) -> None:
        """Take a hypothesis about the audio up to `covered_end`, with its last speech up to `speech_end`."""
        num_words, last = self._text.words(transcript.text)
        self.known_end = max(self.known_end, covered_end - _UNSHOWN)
        if not num_words and not self.num_words:
            self.first = self.known_end
        if num_words and (num_words > self.num_words or last != self._last):
            self._shown, self._is_timed = covered_end, False
        if transcript.words:
            self._is_timed = True
            self.end = min(self._start + round(transcript.words[-1].end * INTERNAL_RATE), covered_end)
        elif num_words and not self._is_timed:
            self.end = speech_end if speech_end - self._shown <= _EARLY_WORD else self._shown
        self.num_words = num_words
        self._last = last or self._last


class _GrowingText:
    """A growing text, of which only the end is cut into words again."""

    def __init__(self) -> None:
        self._before, self._num_before, self._last = "", 0, ""
        """A beginning that was the same, its words, and the last of them."""

    def words(self, text: str) -> tuple[int, str]:
        """How many there are, and the last."""
        if not text.startswith(self._before):
            self._before, self._num_before, self._last = "", 0, ""
        found = pieces(text[len(self._before) :])
        words = [plain(piece) for piece in found if weight(piece)]
        num_words, last = self._num_before + len(words), words[-1] if words else self._last
        if len(found) > _RECUT:
            kept = found[: -_RECUT // 2]
            words = [plain(piece) for piece in kept if weight(piece)]
            self._before += "".join(kept)
            self._num_before += len(words)
            self._last = words[-1] if words else self._last
        return num_words, last


class Utterances:
    """Those of one channel. `wait` is in samples; None: nothing is told, and nothing remembered."""

    def __init__(self, outgoing: EventSink) -> None:
        self.wait: int | None = None
        self._outgoing = outgoing
        self._answered: SpokenWords | None = None
        """The newest item that was answered and has words of the utterance in progress."""
        self._head: SpokenWords | None = None
        """The item behind it that is not answered."""

    def configure(self, wait_ms: int | None) -> None:
        """Wait so long from now on."""
        self.wait = None if wait_ms is None else ms_to_samples(wait_ms)
        if wait_ms is None:
            self._answered = self._head = None

    def follow(self, item: SpokenWords) -> None:
        """Something is known of the first item that is not answered, and may be told behind this."""
        if self.wait is None:
            return
        if self._answered is not None and item.first - self._answered.end >= self.wait:
            self._end(self._answered)
        self._head = item

    def answered(self, item: SpokenWords) -> None:
        """The item that was followed is answered."""
        if self.wait is not None and item.has_news:
            self._answered = item
        self._head = None

    def discard(self) -> None:
        """The item that is followed is no more; what was said before stays."""
        self._head = None

    def is_over(self, position: int) -> SpokenWords | None:
        """The item with the last word, if no other begins before `position` and that is far enough."""
        last = self._head if self._head is not None and self._head.has_news else self._answered
        if self.wait is None or last is None or position - last.end < self.wait:
            return None
        return last

    def reach(self, position: int) -> None:
        """No word begins before `position` that is not known: tell an utterance that is over."""
        if (last := self.is_over(position)) is not None:
            self._end(last)

    def _end(self, last: SpokenWords) -> None:
        last.mark_reported()
        self._answered = None
        self._outgoing.send(
            InputAudioBufferUtteranceEnded(item_id=last.item_id, last_word_end_ms=samples_to_ms(last.end))
        )
