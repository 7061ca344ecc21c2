"""Finds the turns in a session's audio, and decides when to ask what was said.

Between `realtime/session.py` (limits, life and death) and its parts: positions (`realtime/buffer.py`), voice
activity (`detector.py`), items and hypotheses (`realtime/conversation.py`).

**With detection** a turn is [first speech − prefix padding, last speech + tail padding): these are
`audio_start_ms` and `audio_end_ms`, the audio the model hears. Once the tail has passed its range is known
and transcribed as final, though the turn is committed only after the silence duration. If the silence
lasts, the answer is there when the turn ends; if not, it was one more partial. An open item and speech in
progress are the same thing, and `speech_started` and `speech_stopped` alternate: where the client ends a
turn in mid-speech (commit, clear, detection off) `speech_stopped` comes first.

**Endless speech** is cut after `force_turn_s`. In the last seconds before that a pause of the tail's length
is enough to end the turn. If none comes, the turn ends at the best place of those seconds (`FindCut`), and
the next one begins with that very sample: `speech_stopped`, the commit and `speech_started` follow each
other. In those seconds partials reach only to the best place so far, and the cut does not lie before what was
asked about, so that no released text can belong to the next turn: words at the seam are neither lost nor
doubled.

**Without detection** the client's commit ends the turn, which is the whole buffer. Voice activity only
keeps silence from being transcribed early.

Partial hypotheses reach no further than voice activity has judged, so that a client which sends faster
than real time gets its turns apart.

**A client that stops sending** in an open turn (`realtime/turns/stalled_input.py`) sees all that was
understood of it.
"""

from __future__ import annotations

import math
from typing import Final

from ...protocols.engine.messages import ItemId
from ...protocols.realtime.events import InputAudioBufferSpeechStarted, InputAudioBufferSpeechStopped
from ...protocols.shared.audio_format import ms_to_samples, samples_to_ms
from ...protocols.transcription.transcript import Transcript
from ..buffer import Buffer
from ..config import SessionConfig
from ..conversation import Conversation, Item
from ..effects import FindCut, ForgetBefore, ResetVoiceActivity
from ..outgoing import EventSink
from ..settings import SessionSettings
from ..transcript.release import policy_maker
from .commits import MIN_COMMIT, check_pending, too_short
from .detector import FRAME_SAMPLES, SpeechStarted, SpeechStopped, TurnDetector
from .partial_interval import Pace
from .pauses import Pause
from .silence_duration import TurnEnds
from .stalled_input import Stall

SEARCH_S: Final = 12.0
"""How far before its longest length a turn may be ended by a short pause, or be cut: nearly all speech has a
gap between words in that time (`actors/speech/families/whisper.py` has figures)."""
_MIN_SEARCH: Final = ms_to_samples(500)
"""Less is not searched; the turn goes on until there is so much."""
_EMPTY_TRANSCRIPT: Final = Transcript(text="", language="", duration=0.0)


class Listener:
    """One session's ear. After every input `advance` does what follows from the new state."""

    def __init__(
        self,
        config: SessionConfig,
        settings: SessionSettings,
        conversation: Conversation,
        outgoing: EventSink,
    ) -> None:
        self._config = config
        self._settings = settings
        self._conversation = conversation
        self._outgoing = outgoing
        conversation.utterances.configure(settings.utterance_end_ms)
        conversation.left_context.configure(ms_to_samples(settings.left_context_ms))
        self._detector = TurnDetector(settings.detector(config))
        self._buffer = Buffer()
        self._max_turn = ms_to_samples(config.max_turn_s * 1000)
        force_s = min(config.force_turn_s, config.max_turn_s)
        self._force_turn = ms_to_samples(force_s * 1000)
        self._search = ms_to_samples(min(SEARCH_S, force_s / 2) * 1000)
        self._searched_end = 0
        self._ends = TurnEnds()
        self._stall = Stall()
        self.pace = Pace()
        """How often partial hypotheses are asked for, beside what the client wants."""

    @property
    def _detecting(self) -> bool:
        return self._settings.turn_detection is not None

    @property
    def backlog(self) -> int:
        """Samples received that may hold speech and that no hypothesis covers."""
        buffer = self._buffer
        backlog = buffer.received - buffer.scored + self._conversation.backlog
        item = self._conversation.open
        if item is not None and self._detector.last_speech_end > item.covered_end:
            backlog += max(0, buffer.scored - item.covered_end)
        return backlog

    @property
    def unended(self) -> int:
        """Samples of a turn that the client must end; 0 where voice activity detection does."""
        is_clients = not self._detecting and self._conversation.open is not None
        return self._buffer.num_buffered if is_clients else 0

    def has_room(self, num_samples: int) -> bool:
        """Whether the turn may grow by `num_samples`."""
        return not self.unended or self.unended + num_samples <= self._max_turn

    @property
    def deadline(self) -> float:
        """When `advance` shows all that is known of a turn whose client sends nothing more."""
        item, factor = self._conversation.open, self.pace.factor
        return math.inf if item is None else self._stall.deadline(factor * item.policy.usual_update_ms / 1000)

    def append(self, num_samples: int, *, now: float) -> None:
        """More audio is in the store."""
        self._buffer.received += num_samples
        self._stall.sounded(samples_to_ms(num_samples) / 1000, now=now)

    def score(self, end_sample: int, probability: float) -> None:
        """Take the voice activity of the next frame."""
        if not self._buffer.score(end_sample):
            return
        detector = self._detector
        speech_end, was_paused = detector.last_speech_end, detector.paused
        for event in detector.push(end_sample, probability):
            if isinstance(event, SpeechStarted):
                self._start_turn(event.start_sample)
            elif isinstance(event, SpeechStopped) and self._detecting:
                self._end_turn(self._spoken_end)
        if self._detecting and was_paused and not detector.silent:
            self._ends.go_on(Pause(speech_end, end_sample - FRAME_SAMPLES), self._settings)
        item = self._conversation.open
        if item is not None:
            item.speech_end = max(item.speech_end, self._detector.last_speech_end)
            if self._detecting:
                self._bound_turn(item, end_sample)

    def cut(self, sample: int, *, now: float) -> None:
        """The best place in the last seconds of endless speech, as asked for."""
        item = self._conversation.open
        if item is None or not self._detecting or not max(item.start, item.requested_end) <= sample:
            return
        if self._buffer.scored - item.start >= self._force_turn:
            self._end_turn(sample)
            self._announce_start(self._conversation.begin(sample, sample))
        elif item.in_flight is None and sample > item.requested_end:
            self._request_partial(item, sample, now)

    def commit(self) -> None:
        """The client ends the turn. Raises `BadRequestError`, changing nothing, if there is too little.

        A second commit that finds nothing new since the first (the client's or ours) is no error, because
        clients treat errors as fatal: its item has an empty transcript. So has that of one in silence.
        """
        check_pending(self._conversation)
        self._commit()

    def flush(self) -> ItemId | None:
        """End the turn as `commit` does, but only if there is something to transcribe: the item, or None.

        None changes nothing: audio that may be the beginning of a word stays in the buffer. In a pause the
        turn ends where its silence would have ended it, which was asked about already.
        """
        item = self._conversation.open
        if self._detecting and item is None and self._detector.candidate_start is None:
            return None
        if self._buffer.num_buffered < MIN_COMMIT and not (self._detecting and item is not None):
            return None
        if self._detecting and item is not None and self._detector.paused:
            self._end_paused()
        else:
            self._commit()
        return self._conversation.pending[-1].id

    def clear(self) -> None:
        """The client drops what was not committed."""
        self._announce_stop(self._buffer.received)
        self._conversation.discard()
        self._conversation.left_context.clear()
        self._detector.reset()
        self._buffer.clear()
        self._outgoing.do(ResetVoiceActivity())

    def finish(self) -> None:
        """Commit a turn in progress; no more audio will come."""
        if self._conversation.open is not None:
            self._end_turn(self._buffer.received)
            self._detector.reset()

    def configure(self, settings: SessionSettings) -> None:
        """Use other settings. A turn in progress changes hands where detection goes on or off.

        Off: it becomes the beginning of the buffer that the client will commit. On: it goes on as a turn
        if somebody speaks, else it is committed, as its silence would have done.
        """
        was_detecting = self._detecting
        item = self._conversation.open
        if was_detecting and settings.turn_detection is None:
            self._announce_stop(self._buffer.received)
            self._buffer.slide(self._turn_start())
        self._settings = settings
        self._conversation.make_policy = policy_maker(settings.delay or self._config.delay, settings.delays)
        self._conversation.utterances.configure(settings.utterance_end_ms)
        self._conversation.left_context.configure(ms_to_samples(settings.left_context_ms))
        self._detector.reconfigure(self._ends.config(settings, self._config))
        if item is not None and self._detecting and not was_detecting:
            if self._detector.speaking:
                self._announce_start(item)
            else:
                self._conversation.commit(self._buffer.received)
                self._buffer.commit(self._buffer.received)

    def advance(self, *, now: float) -> None:
        """Ask about the open item, answer what is due, give audio back."""
        if now >= self.deadline:
            self._stall.begin()
        self._listen_for_the_end()
        self._request(now)
        self._conversation.settle()
        self._conversation.reach(self._understood_end)
        if not self._detecting and self._conversation.open is None:
            self._buffer.slide(self._buffer.received - self._max_turn)
        keep_from = self._conversation.keep_from(self._turn_start())
        if self._buffer.forget(keep_from) and self._conversation.left_context.forget(
            self._conversation.left_context_start(keep_from)
        ):
            self._outgoing.do(ForgetBefore(self._conversation.left_context.kept_from))

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self._buffer.check()
        assert self._buffer.forgotten <= self._conversation.keep_from(self._turn_start())
        item = self._conversation.open
        assert item is None or self._buffer.base <= item.start <= self._buffer.received
        if self._detecting:
            assert (item is not None) == self._detector.speaking

    @property
    def _spoken_end(self) -> int:
        """Where the turn ends if nobody speaks any more: behind the tail of its last frame of speech."""
        tail = self._settings.detector(self._config).pause
        return min(self._detector.last_speech_end + tail, self._buffer.received)

    @property
    def _understood_end(self) -> int:
        """No word begins before that no hypothesis has: where nobody speaks there is none."""
        item, detector = self._conversation.open, self._detector
        if item is not None and (not detector.silent or item.covered_end < self._spoken_end):
            return item.spoken.known_end
        return self._buffer.scored if detector.candidate_start is None else detector.candidate_start

    def _start_turn(self, speech_start: int) -> None:
        if self._detecting:
            earliest = max(self._buffer.base, self._buffer.forgotten)
            start = max(earliest, speech_start - self._settings.prefix_samples)
            self._announce_start(self._conversation.begin(start, speech_start))
        elif self._conversation.open is None:
            # Where silence has filled the buffer it gives way: what is said now needs room.
            self._buffer.slide(speech_start - self._max_turn // 2)
            self._conversation.begin(self._buffer.base, speech_start)

    def _end_turn(self, end: int) -> None:
        self._announce_stop(end)
        self._conversation.commit(end)
        self._buffer.commit(end)

    def _end_paused(self) -> None:
        """End the turn that has paused as its silence would have done."""
        self._detector.reset()
        self._end_turn(self._spoken_end)

    def _bound_turn(self, item: Item, end_sample: int) -> None:
        """End a turn that has lasted too long, if this is the place."""
        length, detector = end_sample - item.start, self._detector
        if length < self._force_turn - self._search:
            return
        if detector.paused:
            self._end_paused()
        elif length >= self._force_turn and not detector.silent:
            self._search_cut(item)

    def _search_cut(self, item: Item) -> None:
        """Have the last seconds of the turn searched, as far as nothing was asked about them."""
        end = self._buffer.scored
        after = max(item.start, item.requested_end, end - self._search)
        if end - after >= _MIN_SEARCH:
            self._searched_end = end
            self._outgoing.do(FindCut(after, end))

    def _listen_for_the_end(self) -> None:
        """Let the end of the turn follow what was said, where the client wants that."""
        pause = self._ends.judge(self._conversation.open, self._settings)
        if pause is not None and (item := self._conversation.open) is not None:
            end = item.covered_end
            self._end_turn(end)
            start = max(end, pause.end - self._settings.prefix_samples)
            self._announce_start(self._conversation.begin(start, pause.end))
        if self._ends.follow(self._conversation.open, self._detector):
            self._detector.reconfigure(self._ends.config(self._settings, self._config))

    def _commit(self) -> None:
        buffered = self._buffer.num_buffered
        is_silent = self._detecting and self._detector.candidate_start is None
        if self._conversation.open is not None and (self._detecting or buffered >= MIN_COMMIT):
            self._end_turn(self._buffer.received)
        elif self._buffer.follows_commit and (buffered == 0 or is_silent):
            self._commit_unspoken(_EMPTY_TRANSCRIPT)
        elif buffered < MIN_COMMIT:
            raise too_short(buffered)
        elif is_silent:
            self._commit_unspoken(_EMPTY_TRANSCRIPT)
        else:
            self._buffer.slide(self._turn_start())
            self._commit_unspoken(None)
        self._detector.reset()

    def _commit_unspoken(self, answer: Transcript | None) -> None:
        """Commit a buffer in which no turn was heard; None: transcribe it all the same."""
        self._conversation.begin(self._buffer.base, self._buffer.base).speech_end = self._buffer.received
        self._conversation.commit(self._buffer.received, answer=answer)
        self._buffer.commit(self._buffer.received)

    def _announce_start(self, item: Item) -> None:
        start_ms = samples_to_ms(item.start)
        self._outgoing.send(InputAudioBufferSpeechStarted(audio_start_ms=start_ms, item_id=item.id))

    def _announce_stop(self, end: int) -> None:
        item = self._conversation.open
        if item is not None and self._detecting:
            self._outgoing.send(
                InputAudioBufferSpeechStopped(audio_end_ms=samples_to_ms(end), item_id=item.id)
            )

    def _request(self, now: float) -> None:
        """Ask about the open item, if that is worth it now."""
        item, detector = self._conversation.open, self._detector
        if item is None or self._conversation.crowded:
            return
        paused = self._ends.next_end(self._settings.detector(self._config).pause)
        if paused is None and self._detecting and detector.paused:
            paused = self._spoken_end
        is_paused = paused is not None
        if (paused is not None and self._request_at_pause(item, paused)) or item.in_flight is not None:
            return
        if self._stall.is_begun:
            self._request_last(item, now, is_paused=is_paused)
        elif not is_paused and (
            detector.last_speech_end + item.policy.speech_lag > item.requested_end
            or self._is_last_word_cut(item)
        ):
            self._request_next(item, now)

    def _request_at_pause(self, item: Item, end: int) -> bool:
        """Ask about a turn that may have ended there, unless that was done."""
        if is_due := end != item.speculated_end and (item.in_flight is None or not item.in_flight.final):
            self._conversation.transcribe(item, end, final=True)
        return is_due

    def _request_next(self, item: Item, now: float) -> None:
        """Ask about a turn that goes on."""
        if self._detecting and self._detector.silent:
            return  # the pause will be asked about, and must not find a partial in its way
        scored = self._buffer.scored
        end = item.start + item.policy.reach(scored - item.start)
        factor = 1.0 if item.newest is None else self.pace.factor
        least_news = item.policy.least_news(samples_to_ms(scored - item.speech_start), factor)
        if end - item.requested_end < (1 if self._detector.paused else least_news):
            return
        if not self._detecting or scored - item.start < self._force_turn - self._search:
            self._request_partial(item, end, now)
        elif scored - max(item.requested_end, self._searched_end) >= least_news:
            self._search_cut(item)  # the turn may be cut behind what is asked about

    def _request_last(self, item: Item, now: float, *, is_paused: bool) -> None:
        """Ask about all there is of a turn whose client has stopped sending, then hold nothing back."""
        end = self._buffer.scored
        if not is_paused and item.requested_end < end and self._stall.is_news(end):
            self._request_partial(item, end, now)
        else:
            self._conversation.conclude(item)

    def _is_last_word_cut(self, item: Item) -> bool:
        """Nothing was asked about the tail of what was said, and an utterance may end with it."""
        is_quiet = self._detector.silent and self._buffer.scored >= self._spoken_end
        return (
            is_quiet
            and item.requested_end < self._spoken_end
            and self._conversation.utterances.wait is not None
        )

    def _request_partial(self, item: Item, end: int, now: float) -> None:
        self._conversation.transcribe(item, end, final=False)
        self.pace.requested(item.id, item.policy.usual_update_ms, now=now)

    def _turn_start(self) -> int:
        """Where the turn in progress begins, or one that is about to begin."""
        if self._conversation.open is not None:
            return self._conversation.open.start
        if not self._detecting:
            return self._buffer.base
        candidate = self._detector.candidate_start
        speech_start = self._buffer.scored if candidate is None else candidate
        earliest = max(self._buffer.base, self._buffer.forgotten)
        return max(earliest, speech_start - self._settings.prefix_samples)
