"""Speech that does not stop: turns end in time, at quiet places, and no word is lost or doubled."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.shared.audio_format import ms_to_samples
from sensorium.protocols.transcription.options import Delay
from sensorium.realtime.effects import Transcribe
from sensorium.realtime.turns.detector import FRAME_SAMPLES
from support.dialogs import COMMITTED, Dialog

WORD_FRAMES = 12
"""A word takes 384 ms; its last frame is a little less like speech."""
WORD = WORD_FRAMES * FRAME_SAMPLES
START = 16 * FRAME_SAMPLES
NUM_WORDS = 100


def words_in(start: int, end: int) -> str:
    """What a perfect model hears in a range: the words whose middle lies in it."""
    middles = ((number, START + int((number + 0.5) * WORD)) for number in range(NUM_WORDS))
    return " ".join(f"w{number}" for number, middle in middles if start <= middle < end)


class Talk:
    """A dialog in which every word has a number. Answers take `lag` frames."""

    def __init__(self, lag: int, force_turn_s: float = 60.0, delay: Delay = "medium") -> None:
        self.dialog = Dialog(force_turn_s=force_turn_s, delay=delay)
        self._lag = lag
        self._since: dict[Transcribe, int] = {}
        self._num_frames = 0
        self.append_audio([0.02] * 16)

    def append_audio(self, probabilities: list[float]) -> None:
        for probability in probabilities:
            self.dialog.append_audio(FRAME_SAMPLES, probability)
            self._num_frames += 1
            self.answer()

    def answer(self, *, everything: bool = False) -> None:
        while due := [
            question
            for question in self.dialog.pending.values()
            if everything
            or self._num_frames - self._since.setdefault(question, self._num_frames) >= self._lag
        ]:
            self.dialog.answer(words_in(due[0].start_sample, due[0].end_sample), item_id=due[0].item_id)

    def ranges(self) -> list[tuple[int, int]]:
        return [(event["audio_start_ms"], event["audio_end_ms"]) for event in self.dialog.of("committed")]

    def end(self) -> None:
        self.append_audio([0.02] * 30)
        self.answer(everything=True)


def spoken(num_words: int, gap: float) -> list[float]:
    return ([0.95] * (WORD_FRAMES - 1) + [gap]) * num_words


@pytest.mark.parametrize("gap", [0.7, 0.2])
@pytest.mark.parametrize("lag", [0, 3, 40])
def test_words_at_the_seam_are_neither_lost_nor_doubled(gap: float, lag: int) -> None:
    talk = Talk(lag, force_turn_s=12.0, delay="minimal")
    talk.append_audio(spoken(NUM_WORDS, gap))
    talk.end()
    dialog = talk.dialog
    assert len(dialog.of("committed")) >= 3
    completed = " ".join(event["transcript"] for event in dialog.of("completed"))
    shown = " ".join(dialog.text(event["item_id"]) for event in dialog.of("completed"))
    assert completed == shown == " ".join(f"w{number}" for number in range(NUM_WORDS))
    assert dialog.session.conversation.num_corrected == 0
    for (_, end), (start, _) in itertools.pairwise(talk.ranges()):
        assert start == end, "the next turn begins with the next sample"


def test_events_at_a_seam() -> None:
    talk = Talk(0, force_turn_s=12.0)
    talk.append_audio(spoken(60, 0.7))
    dialog = talk.dialog
    first = dialog.of("committed")[0]
    assert 9_000 <= first["audio_end_ms"] - first["audio_start_ms"] <= 12_000
    assert (ms_to_samples(first["audio_end_ms"]) - START) % WORD in range(WORD - FRAME_SAMPLES, WORD), (
        "between two words"
    )
    names = [name for name in dialog.names() if name not in ("delta", "session.created")]
    at = names.index("speech_stopped")
    assert names[at : at + 6] == ["speech_stopped", *COMMITTED, "speech_started", "completed"]
    assert dialog.of("speech_stopped")[0]["audio_end_ms"] == first["audio_end_ms"]
    assert dialog.of("speech_started")[1]["audio_start_ms"] == first["audio_end_ms"]
    assert dialog.of("speech_started")[1]["item_id"] == "item_2"


def test_no_released_text_can_belong_to_the_next_turn() -> None:
    talk = Talk(2, force_turn_s=12.0)
    talk.append_audio(spoken(NUM_WORDS, 0.7))
    talk.end()
    ends = {event["item_id"]: event["audio_end_ms"] for event in talk.dialog.of("committed")}
    for effect in talk.dialog.effects:
        if isinstance(effect, Transcribe):
            assert effect.end_sample <= ms_to_samples(ends[effect.item_id] + 1)


def test_a_short_pause_near_the_limit_ends_the_turn_as_silence_would() -> None:
    talk = Talk(0, force_turn_s=12.0)
    talk.append_audio([0.95] * 250)
    talk.append_audio([0.02] * 8)
    names = [name for name in talk.dialog.names() if name != "delta"]
    assert names[-5:] == ["speech_stopped", *COMMITTED, "completed"]
    (committed,) = talk.dialog.of("committed")
    assert committed["audio_end_ms"] == (16 + 250) * 32 + 200
    talk.append_audio([0.02] * 20)
    assert len(talk.dialog.of("speech_started")) == 1, "nobody speaks"
    talk.append_audio([0.95] * 10)
    assert talk.dialog.of("speech_started")[1]["audio_start_ms"] >= committed["audio_end_ms"]


def test_a_short_pause_far_from_the_limit_ends_nothing() -> None:
    talk = Talk(0, force_turn_s=60.0)
    for _ in range(20):
        talk.append_audio([0.95] * 60 + [0.02] * 8)
    assert not talk.dialog.of("committed")


def test_turns_of_the_default_length_are_about_a_minute() -> None:
    talk = Talk(0)
    talk.append_audio(spoken(400, 0.7))
    (first, second) = (end - start for start, end in talk.ranges())
    assert 57_000 <= first <= 60_600
    assert 57_000 <= second <= 60_600


frames = st.lists(
    st.tuples(st.sampled_from([0.95, 0.95, 0.6, 0.4, 0.02]), st.sampled_from([1, 2, 4, 7, 20, 60, 140])),
    min_size=1,
    max_size=12,
)
vads = st.sampled_from(
    [
        {"type": "server_vad"},
        {"type": "server_vad", "silence_duration_ms": 100, "prefix_padding_ms": 0},
        {"type": "server_vad", "prefix_padding_ms": 1000},
        {"type": "semantic_vad", "eagerness": "high"},
    ]
)


@settings(max_examples=100, deadline=None)
@given(frames, vads, st.integers(0, 10))
def test_ranges_never_overlap_and_hold_all_speech(
    runs: list[tuple[float, int]], vad: dict[str, object], lag: int
) -> None:
    talk = Talk(lag, force_turn_s=4.0)
    talk.dialog.update({"turn_detection": vad})
    probabilities = [probability for probability, length in runs for _ in range(length)] + [0.02] * 50
    talk.append_audio(probabilities)
    talk.end()
    ranges = talk.ranges()
    assert all(start < end for start, end in ranges)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert max((end - start for start, end in ranges), default=0) <= 4_000 + 500
    starts = [event["audio_start_ms"] for event in talk.dialog.of("speech_started")]
    stops = [event["audio_end_ms"] for event in talk.dialog.of("speech_stopped")]
    assert list(zip(starts, stops, strict=True)) == ranges
    index = 0
    for is_speech, group in itertools.groupby(probabilities, lambda probability: probability >= 0.5):
        length = len(list(group))
        start, end = (16 + index) * 32, (16 + index + length) * 32
        index += length
        if is_speech and length >= 3:
            held = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in ranges)
            assert held == end - start, "every sample of speech is in one turn"
