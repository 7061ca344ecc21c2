"""Text of a model that streams: shown as it is settled, never taken back, asked for when a chunk is full."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.transcription.streaming import ChunkDelay
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.effects import Transcribe
from sensorium.realtime.session import RealtimeModel
from sensorium.realtime.transcript.appended import AppendedPolicy, own_delay
from sensorium.realtime.transcript.release import policy_maker
from support.dialogs import Dialog

DELAYS = tuple(ChunkDelay(80 * rows, 1280 * (rows - 1) + 200, 1280 * rows) for rows in (14, 7, 2, 1))
MULTILINGUAL = (*DELAYS, ChunkDelay(320, 1280 * 3 + 200, 1280 * 4))
STREAMING = RealtimeModel("small", delays=DELAYS, takes_hints=False)
OTHER = RealtimeModel("other")


def dialog(*, detection: bool = True, **changes: object) -> Dialog:
    """A session of a model that streams."""
    return Dialog(detection=detection, models=(STREAMING, OTHER), **changes)


def streamed(question: Transcribe, delay: ChunkDelay) -> Transcript:
    """A word for each full chunk; a final has another one for the rest, which a longer turn lacks."""
    num_samples = question.end_sample - question.start_sample
    full = delay.last_full(num_samples)
    num_chunks = (full - delay.first) // delay.size + 1 if full else 0
    settled = " ".join(f"w{number}" for number in range(num_chunks))
    rest = f" r{num_samples}" if question.final and num_samples > full else ""
    return Transcript((settled + rest).strip(), "en", duration=1.0, num_settled=len(settled))


@pytest.mark.parametrize(
    ("delays", "expected"),
    [
        (DELAYS, {"minimal": 80, "low": 160, "medium": 560, "high": 1120, "xhigh": 1120}),
        (MULTILINGUAL, {"minimal": 80, "low": 160, "medium": 320, "high": 560, "xhigh": 1120}),
        (DELAYS[:1], dict.fromkeys(("minimal", "low", "medium", "high", "xhigh"), 1120)),
    ],
)
def test_a_name_is_one_of_the_models_own_delays(
    delays: tuple[ChunkDelay, ...], expected: dict[str, int]
) -> None:
    assert {name: own_delay(delays, name).delay_ms for name in expected} == expected  # type: ignore[arg-type]


def test_chunks_end_where_they_are_full() -> None:
    delay = DELAYS[1]
    ends = [delay.last_full(num_samples) for num_samples in range(0, 40_000, 8)]
    assert sorted(set(ends)) == [0, *range(delay.first, 40_000, delay.size)]
    assert ends == sorted(ends)


@pytest.mark.parametrize("name", ["minimal", "low", "medium", "high"])
def test_a_question_comes_with_every_full_chunk(name: str) -> None:
    delay = own_delay(DELAYS, name)  # type: ignore[arg-type]
    session = dialog(detection=False)
    session.update({"turn_detection": None, "transcription": {"delay": name}})
    shown = session.sent[-1]["session"]["audio"]["input"]["transcription"]
    assert (shown["delay"], shown["delay_ms"]) == (name, delay.delay_ms)
    ends = []
    for _ in range(200):
        session.speak(32)
        while session.pending:
            question = session.question()
            assert not question.final
            ends.append(question.end_sample - question.start_sample)
            assert session.num_samples - question.end_sample < 512 + 512, "it is asked for at once"
            session.answer(streamed(question, delay))
    assert all(end == delay.last_full(end) for end in ends)
    assert ends == sorted(set(ends))
    most = delay.last_full(session.num_samples)
    steps = {later - earlier for earlier, later in pairwise(ends)}
    assert ends[-1] == most
    assert steps == {delay.size}, "each chunk is a question"


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_ever_corrected(seed: int) -> None:
    """Random speech, pauses, late answers, commits and changes of mind: deltas join to the final text."""
    rng = random.Random(seed)
    session = dialog(detection=seed % 2 == 0)
    delay = own_delay(DELAYS, "medium")
    own: dict[ItemId, ChunkDelay] = {}
    for _ in range(60):
        kind = rng.choice(("speak", "speak", "speak", "silence", "commit", "delay", "answer", "fail"))
        ms = rng.choice((32, 96, 320, 960, 2400))
        if kind == "speak":
            session.speak(ms)
        elif kind == "silence":
            session.silence(ms)
        elif kind == "commit" and session.num_samples:
            session.commit()
        elif kind == "delay":
            name = rng.choice(("minimal", "low", "medium", "high"))
            delay = own_delay(DELAYS, name)  # type: ignore[arg-type]
            session.update({"transcription": {"delay": name}})
        for item_id, question in list(session.pending.items()):
            own.setdefault(item_id, delay)
            if kind == "fail" and not question.final:
                session.fail(item_id=item_id)
            elif rng.random() < 0.8:
                session.answer(streamed(question, own[item_id]), item_id=item_id)
    session.silence(3000)
    while session.pending:
        item_id, question = next(iter(session.pending.items()))
        session.answer(streamed(question, own.setdefault(item_id, delay)), item_id=item_id)
    completed = session.of("completed")
    assert completed
    for event in completed:
        assert session.text(event["item_id"]) == event["transcript"]
    assert session.session.conversation.num_corrected == 0


def test_what_a_pause_adds_waits_for_the_end_of_the_turn() -> None:
    session, delay = dialog(), own_delay(DELAYS, "medium")
    session.speak(1500)
    session.answer(streamed(session.question(), delay))
    session.silence(300)
    question = session.question()
    assert question.final
    before = session.text(question.item_id)
    session.answer(streamed(question, delay))
    settled = session.text(question.item_id)
    assert settled.startswith(before)
    assert " r" not in settled
    session.silence(600)
    (completed,) = session.of("completed")
    assert completed["transcript"] == session.text(question.item_id)
    assert " r" in completed["transcript"]


def test_a_model_that_takes_no_hints_refuses_them() -> None:
    session = dialog()
    session.update({"transcription": {"prompt": "names"}})
    (error,) = session.of("error")
    assert error["error"]["param"] == "session.audio.input.transcription.prompt"


def test_the_way_of_showing_follows_the_model() -> None:
    assert isinstance(policy_maker("low", DELAYS)(), AppendedPolicy)
    session = dialog(detection=False)
    session.speak(1000)
    session.answer(streamed(session.question(), own_delay(DELAYS, "medium")))
    session.update({"transcription": {"model": "other"}})
    session.commit()
    while session.pending:
        session.answer(streamed(session.question(), own_delay(DELAYS, "medium")))
    session.speak(1000)
    question = session.question()
    assert question.end_sample % 512 == 0, "as much as voice activity has judged"
    assert own_delay(DELAYS, "medium").last_full(question.end_sample - question.start_sample) == 0
