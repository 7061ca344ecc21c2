"""With `semantic_vad` turns end where the sound and the words say so, however late the words are known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.shared.audio_format import ms_to_samples
from sensorium.realtime.turns.end_of_turn import Ending
from sensorium.realtime.turns.pauses import MOST_PAUSES, Pause, Pauses
from support.dialogs import Dialog

FRAME_MS = 32
SEMANTIC = {"turn_detection": {"type": "semantic_vad"}}
WAITS: dict[Ending, int] = {"finished": 500, "unknown": 800, "open": 1500}


class LateDialog(Dialog):
    """Its model answers each question so many milliseconds after it was asked, by what was said last."""

    def __init__(self, late_ms: int) -> None:
        super().__init__()
        self._late_ms = late_ms
        self._spoken: list[tuple[int, str]] = []
        self._due: dict[tuple[str, int], int] = {}
        self._now_ms = 0

    def speak_words(self, speech_ms: int, text: str, pause_ms: int) -> None:
        self._spoken.append((ms_to_samples(self._now_ms + speech_ms), text))
        for is_speech, lasts_ms in ((True, speech_ms), (False, pause_ms)):
            for _ in range(lasts_ms // FRAME_MS):
                (self.speak if is_speech else self.silence)(FRAME_MS)
                self._now_ms += FRAME_MS
                self._answer()

    def _answer(self) -> None:
        for question in list(self.pending.values()):
            key = question.item_id, question.end_sample
            due_ms = self._due.setdefault(key, self._now_ms + self._late_ms)
            if self._now_ms >= due_ms:
                words = [
                    text for end, text in self._spoken if question.start_sample < end <= question.end_sample
                ]
                self.answer(" ".join(words) or "Well", item_id=question.item_id)

    def turns(self) -> list[tuple[int, int]]:
        """Start and end of each, in ms."""
        return [(event["audio_start_ms"], event["audio_end_ms"]) for event in self.of("committed")]


PIECES = [
    (1600, "Do you have it?", 704),
    (1280, "Yes.", 608),
    (1920, "I have it and", 704),
    (960, "you can see it.", 640),
    (1600, "So I went to the", 928),
    (1280, "market.", 704),
    (2240, "You have.", 608),
    (1280, "That is right.", 2240),
]


@pytest.mark.parametrize("late_ms", [0, 320, 640, 1280, 2560, 5120])
def test_two_voices_that_answer_each_other_have_their_turns_however_late_answers_are(late_ms: int) -> None:
    dialog = LateDialog(late_ms)
    dialog.update(SEMANTIC)
    for piece in PIECES:
        dialog.speak_words(*piece)
    for _ in range(100):  # so much later the last of them is known
        dialog.speak_words(0, "", 320)
    on_time = LateDialog(0)
    on_time.update(SEMANTIC)
    for piece in PIECES:
        on_time.speak_words(*piece)
    assert [end for _, end in dialog.turns()] == [end for _, end in on_time.turns()]
    assert len(dialog.turns()) == 5
    assert max(end - start for start, end in dialog.turns()) < 6500
    texts = [event["transcript"] for event in dialog.of("completed")]
    assert texts[:2] == ["Do you have it?", "Yes."]
    assert " ".join(texts) == " ".join(text for _, text, _ in PIECES)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(12, 60).map(lambda frames: frames * FRAME_MS),
            st.sampled_from(["Yes.", "and then", "You have.", "Really?", "to the"]),
            st.integers(8, 60).map(lambda frames: frames * FRAME_MS),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([96, 480, 960, 3008]),
)
def test_turns_do_not_depend_on_how_late_answers_are(
    pieces: list[tuple[int, str, int]], late_ms: int
) -> None:
    found = []
    for late in (0, late_ms):
        dialog = LateDialog(late)
        dialog.update(SEMANTIC)
        for piece in pieces:
            dialog.speak_words(*piece)
        for _ in range(40):
            dialog.speak_words(0, "", 640)
        found.append([end for _, end in dialog.turns()])
        assert not dialog.pending
    assert found[0] == found[1]


def test_an_answer_that_fails_does_not_hold_the_turn() -> None:
    dialog = Dialog()
    dialog.update(SEMANTIC)
    dialog.speak(960)
    dialog.silence(640)
    dialog.speak(960)
    dialog.fail()
    dialog.silence(1504)
    assert dialog.of("speech_stopped")


def test_a_turn_ends_though_no_answer_comes() -> None:
    dialog = Dialog()
    dialog.update(SEMANTIC)
    dialog.speak(960)
    dialog.silence(640)
    dialog.speak(960)
    dialog.silence(31_000)
    assert not dialog.of("speech_stopped")
    dialog.silence(600)
    assert dialog.of("speech_stopped")


def test_only_pauses_that_may_be_ends_are_kept_and_not_too_many() -> None:
    pauses = Pauses()
    pauses.add(Pause(0, 499), WAITS)
    assert not pauses
    for start in range(0, 10_000 * (MOST_PAUSES + 2), 10_000):
        pauses.add(Pause(start, start + 700), WAITS)
    assert pauses.first.start == 20_000, "of more the earliest are no ends"
    assert pauses.judge("open", WAITS) is None
    assert pauses.judge("finished", WAITS) == Pause(30_000, 30_700)
    pauses.drop(55_000)
    assert pauses.first.start == 60_000
    pauses.clear()
    assert not pauses
