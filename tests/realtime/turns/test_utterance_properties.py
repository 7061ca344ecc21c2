"""Whatever is said or is noise: an end is told once, in time, and no word follows the last in its wait."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.shared.audio_format import ms_to_samples
from sensorium.realtime.effects import Transcribe
from support.dialogs import Dialog

ENDED = "input_audio_buffer.utterance_ended"
SEGMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("word"), st.sampled_from([96, 192, 320, 480])),
        st.tuples(st.just("word"), st.sampled_from([96, 192, 320, 480])),
        st.tuples(st.just("noise"), st.sampled_from([32, 96, 320, 1600, 3200])),
        st.tuples(st.just("silence"), st.sampled_from([32, 224, 480, 608, 960, 1216, 2400])),
        st.tuples(st.sampled_from(["commit", "flush"]), st.just(0)),
    ),
    max_size=24,
)


class Honest:
    """An engine that hears each word once it was said to its end, and takes its time to say so."""

    def __init__(self, dialog: Dialog, delay_frames: int) -> None:
        self.dialog = dialog
        self.words: list[tuple[int, int]] = []
        """Where they begin and end."""
        self._delay = delay_frames
        self._seen: dict[ItemId, tuple[Transcribe, int]] = {}
        self._num_frames = 0
        self._num_read = 0
        self.reported: list[tuple[int, int, int]] = []
        """Of each end: the end of the last word, how far was heard, and how many words were shown."""

    def play(self, kind: str, ms: int) -> None:
        if kind in ("commit", "flush"):
            self.dialog.client({"type": f"input_audio_buffer.{kind}"})
        if kind == "word":
            start = self.dialog.num_samples
            self.words.append((start, start + ms_to_samples(ms)))
        for _ in range(ms // 32):
            self.dialog.append_audio(512, 0.02 if kind == "silence" else 0.95)
            self._num_frames += 1
            self._answer()
        self._note()

    def _answer(self) -> None:
        for item_id, question in tuple(self.dialog.pending.items()):
            known, since = self._seen.get(item_id, (None, 0))
            if known != question:
                self._seen[item_id] = question, self._num_frames
            elif self._num_frames - since >= self._delay:
                start, end = question.start_sample, question.end_sample
                words_inside = [n for n, word in enumerate(self.words) if start <= word[0] and word[1] <= end]
                self.dialog.answer(" ".join(f"w{n}" for n in words_inside), item_id=item_id)
        self._note()

    def _note(self) -> None:
        for event in self.dialog.sent[self._num_read :]:
            self._num_read += 1
            if event["type"] == ENDED:
                earlier = self.dialog.sent[: self._num_read - 1]
                shown = " ".join(
                    str(each.get("delta", each.get("transcript"))) if each["type"].endswith("delta") else ""
                    for each in earlier
                    if each.get("item_id") == event["item_id"]
                )
                self.reported.append(
                    (ms_to_samples(event["last_word_end_ms"]), self.dialog.num_samples, shown.count("w"))
                )
                self._check_order(event["item_id"], earlier)

    @staticmethod
    def _check_order(item_id: str, earlier: list[dict[str, Any]]) -> None:
        kinds = [each["type"].rpartition(".")[2] for each in earlier if each.get("item_id") == item_id]
        assert "committed" not in kinds or "completed" in kinds


@given(
    segments=SEGMENTS,
    delay_frames=st.integers(0, 8),
    wait_ms=st.sampled_from([500, 1000, 2000]),
    detection=st.sampled_from([{"type": "server_vad", "silence_duration_ms": 300}, None]),
)
def test_whatever_is_said_an_end_is_told_once_and_has_no_word_behind_it(
    segments: list[tuple[str, int]], delay_frames: int, wait_ms: int, detection: dict[str, Any] | None
) -> None:
    dialog = Dialog()
    dialog.update({"transcription": {"utterance_end_ms": wait_ms}, "turn_detection": detection})
    engine = Honest(dialog, delay_frames)
    for kind, ms in segments:
        engine.play(kind, ms)
    engine.play("silence", 640)
    engine.play("flush", 0)
    engine.play("silence", wait_ms + 1600)
    assert not dialog.pending
    wait, slack = ms_to_samples(wait_ms), ms_to_samples(1)
    before = 0
    for end, received_end, num_shown in engine.reported:
        assert received_end - end >= wait - slack, "never before there was so much audio"
        assert not any(end + slack < start < end + wait - slack for start, _ in engine.words), "none follows"
        assert any(before < word_end <= end + slack for _, word_end in engine.words), (
            "it has words of its own"
        )
        assert num_shown, "its words were shown"
        before = end
    assert (before + slack >= engine.words[-1][1]) if engine.words else not engine.reported, (
        "the last one is told"
    )
    for (_, end), (start, _) in zip(engine.words, engine.words[1:], strict=False):
        # By voice activity, and by hypotheses: they come every 400 ms, and nothing of a word need be in them.
        if start - end >= wait + ms_to_samples(1400 + 2 * 32 * delay_frames):
            assert any(end - slack <= reported < start for reported, _, _ in engine.reported), (
                "a gap like this is found"
            )
