"""Under overload partial hypotheses are asked for less often, finals as ever; it ends with the overload."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

import pytest
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.effects import Effect, Transcribe
from sensorium.realtime.events import AudioAppended, HypothesisReady, SpeechScored
from sensorium.realtime.session import Session
from sensorium.realtime.transcript.delay_presets import RELEASES
from sensorium.realtime.turns.partial_interval import MAX_FACTOR, Pace

ITEM = ItemId("item")
FRAME = 512
FRAME_S = FRAME / 16_000
USUAL_S = RELEASES["medium"].update_ms / 1000


def answer(pace: Pace, lag_s: float, *, times: int = 1) -> float:
    for _ in range(times):
        pace.requested(ITEM, 400, now=100.0)
        pace.answered(ITEM, now=100.0 + lag_s)
    return pace.factor


def test_answers_in_time_change_nothing() -> None:
    assert answer(Pace(), 0.39, times=50) == 1.0


def test_one_late_answer_is_soon_forgotten() -> None:
    pace = Pace()
    assert answer(pace, 10.0) == 2.0
    assert answer(pace, 0.2) < 2.0
    assert answer(pace, 0.2, times=7) == 1.0


def test_the_interval_grows_with_the_lag_and_is_bounded() -> None:
    assert answer(Pace(), 0.5, times=10) == pytest.approx(2.5)
    assert answer(Pace(), 1.0, times=10) == pytest.approx(5.0)
    assert answer(Pace(), 60.0, times=10) == MAX_FACTOR


def test_answers_to_other_questions_say_nothing() -> None:
    pace = Pace()
    pace.answered(ITEM, now=50.0)
    pace.requested(ITEM, 400, now=0.0)
    pace.answered(ItemId("older"), now=50.0)
    assert (pace.factor, pace.lag_s) == (1.0, 0.0)


class Engine:
    """One device that serves one question at a time, finals first; and its sessions, which all speak."""

    def __init__(self, num_sessions: int, *, turn_s: float) -> None:
        numbers = count()
        config = SessionConfig(model="m", models=(RealtimeModel("m"),))
        self.sessions = [Session(config, lambda kind: f"{kind}_{next(numbers)}") for _ in range(num_sessions)]
        for session in self.sessions:
            session.open(now=0.0, created=0)
        self.now = 0.0
        self.partial_lags: list[tuple[float, float]] = []
        """When, and how long it took."""
        self.final_lags: list[float] = []
        self.max_waiting = 0
        self._num_frames = [0] * num_sessions
        self._turn_frames = round(turn_s / FRAME_S)
        self._waiting: list[tuple[bool, float, int, int, Transcribe]] = []
        self._order = count()
        self._busy_until = 0.0
        self._running: tuple[bool, float, int, int, Transcribe] | None = None

    def run(self, seconds: float, *, work_s: float) -> None:
        """All sessions speak, each with pauses at times of its own."""
        for _ in range(round(seconds / FRAME_S)):
            self.now += FRAME_S
            for index in range(len(self.sessions)):
                self._speak(index)
            while self._running is None or self._busy_until <= self.now:
                if self._running is not None:
                    self._finish(*self._running)
                self._running = heapq.heappop(self._waiting) if self._waiting else None
                if self._running is None:
                    break
                self._busy_until = max(self._busy_until, self.now - FRAME_S) + work_s

    def _speak(self, index: int) -> None:
        session = self.sessions[index]
        self._num_frames[index] += 1
        number = self._num_frames[index]
        is_pause = (number + index * 37) % self._turn_frames > self._turn_frames - 25
        effects = session.receive(AudioAppended(FRAME), now=self.now)
        effects += session.receive(SpeechScored(number * FRAME, 0.02 if is_pause else 0.95), now=self.now)
        self._take(index, effects)

    def _take(self, index: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Transcribe):
                question = (not effect.final, self.now, next(self._order), index, effect)
                heapq.heappush(self._waiting, question)
        self.max_waiting = max(self.max_waiting, len(self._waiting))

    def _finish(self, is_partial: bool, requested: float, _: int, index: int, effect: Transcribe) -> None:
        lag = self._busy_until - requested
        if is_partial:
            self.partial_lags.append((self.now, lag))
        else:
            self.final_lags.append(lag)
        num_words = (effect.end_sample - effect.start_sample) // 8000
        words = " ".join(f"word{index}" for index in range(num_words))
        transcript = Transcript(text=words, language="en", duration=1.0)
        where = (effect.item_id, effect.start_sample, effect.end_sample, effect.final)
        answer = HypothesisReady(*where, transcript)
        self._take(index, self.sessions[index].receive(answer, now=self.now))


def test_an_engine_five_times_too_slow_is_asked_less_and_answers_in_time() -> None:
    num_sessions = 20
    work_s = 5 * USUAL_S / num_sessions
    engine = Engine(num_sessions, turn_s=20.0)
    engine.run(60.0, work_s=work_s)
    # The queue of partials never grows: a session asks again when it was answered.
    assert engine.max_waiting <= num_sessions + 5
    late = [lag for when, lag in engine.partial_lags if when > 20.0]
    assert sum(late) / len(late) < 0.75 * num_sessions * work_s, "as late as if everybody asked all the time"
    assert all(2.0 < session.pace.factor <= MAX_FACTOR for session in engine.sessions)
    # Finals wait for what runs already and for each other.
    assert len(engine.final_lags) >= 2 * num_sessions
    assert max(engine.final_lags) < 3 * work_s
    # The engine is fast again.
    engine.run(30.0, work_s=0.1 * USUAL_S / num_sessions)
    assert all(session.pace.factor == 1.0 for session in engine.sessions)


def test_an_engine_in_time_is_asked_as_ever() -> None:
    engine = Engine(4, turn_s=8.0)
    engine.run(30.0, work_s=0.05)
    assert all(session.pace.factor == 1.0 for session in engine.sessions)
