"""Texts of ranges join into one stream and one transcript, in whatever order they come."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.speech.joining import DeltaJoiner

TEXTS = st.text(alphabet="ab \n", max_size=8)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5), cuts=st.randoms(use_true_random=False), space=st.booleans()
)
def test_deltas_join_to_the_transcript_in_any_order(texts: list[str], cuts: Random, space: bool) -> None:
    separator = " " if space else ""
    emitted: list[str] = []
    joiner = DeltaJoiner(len(texts), separator, emitted.append)
    pending = [(index, list(text)) for index, text in enumerate(texts)]
    while pending:
        index, letters = cuts.choice(pending)
        if letters and cuts.random() < 0.8:
            joiner.feeder(index)(letters.pop(0))
        else:
            # Whatever was not fed comes with the end.
            joiner.finish(index, texts[index])
            pending = [entry for entry in pending if entry[0] != index]
    stripped = (text.strip() for text in texts)
    assert "".join(emitted) == separator.join(text for text in stripped if text)
    assert all(emitted)


def test_what_may_be_an_echo_waits_for_the_end_of_its_range() -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(3, " ", emitted.append, context="Anna Berg, Zurich")
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
