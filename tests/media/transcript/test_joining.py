"""Texts of ranges join into one stream and one transcript, in whatever order they come."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.transcript.joining import DeltaJoiner, Part, join_texts, joined
from sensorium.media.transcript.range_answer import RangeAnswer
from sensorium.protocols.transcription.transcript import Segment

TEXTS = st.text(alphabet="ab \n.你。…“네ไ", max_size=4)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5),
    cuts=st.randoms(use_true_random=False),
)
def test_deltas_join_to_the_transcript_in_any_order(texts: list[str], cuts: Random) -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(len(texts), emitted.append)
    pending = [(index, list(text)) for index, text in enumerate(texts)]
    while pending:
        index, letters = cuts.choice(pending)
        if letters and cuts.random() < 0.8:
            joiner.feeder(index)(letters.pop(0))
        else:
            # Whatever was not fed comes with the end.
            joiner.finish(index, texts[index])
            pending = [entry for entry in pending if entry[0] != index]
    assert "".join(emitted) == join_texts(text.strip() for text in texts)
    assert all(emitted)


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["你好", "", "世界", "Hello", "你"], "你好世界 Hello 你"),
        (["Incorrect.", "New location."], "Incorrect. New location."),
        (["你好。", "他说：“好…”", "“再见”", "…", "了"], "你好。他说：“好…”“再见”…了"),
        (["He said “yes…”", "“No.”"], "He said “yes…” “No.”"),
        (["네.", "아니요.", "네。", "아니요"], "네. 아니요. 네。 아니요"),
        (["สวัสดี", "ครับ", "OK", "人々", "は"], "สวัสดีครับ OK 人々は"),
    ],
)
def test_texts_are_joined_as_their_scripts_are_written(texts: list[str], whole: str) -> None:
    """Whatever language was asked for or detected: a model may answer in another."""
    assert join_texts(texts) == whole
    segments = [Segment(0, 0, 0.0, 1.0, text, (), 0.0, 0.0, 1.0, 0.0) for text in texts]
    parts = [
        Part(RangeAnswer(text), (segment,) if text else (), language="zh")
        for text, segment in zip(texts, segments, strict=True)
    ]
    found = joined(parts, language="zh", duration_s=9.0)
    assert found.text == whole
    assert "".join(segment.text for segment in found.segments).strip() == whole


def test_an_echo_is_told_by_what_was_said_however_it_is_written() -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(1, emitted.append, context="Twenty left", written=lambda said, _: said.upper())
    feed = joiner.feeder(0, "en")
    feed("Twenty ")
    assert emitted == []
    feed("came back home. ")
    assert emitted == ["TWENTY CAME BACK HOME."]
    joiner.finish(0, "TWENTY CAME BACK HOME.")
    assert emitted == ["TWENTY CAME BACK HOME."]


def test_what_may_be_an_echo_waits_for_the_end_of_its_range() -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(3, emitted.append, context="Anna Berg, Zurich")
    joiner.feeder(0)("Anna ")
    joiner.feeder(0)("Berg")
    assert emitted == []
    joiner.finish(0, "")  # it was one
    joiner.feeder(1)("Anna ")
    joiner.feeder(1)("said")
    assert emitted == ["Anna said"]
    joiner.finish(1, "Anna said")
    joiner.finish(2, "Anna")
    assert "".join(emitted) == "Anna said Anna"
