"""Texts of ranges join into one stream and one transcript, in whatever order they come."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.speech.joining import DeltaJoiner, join_texts

TEXTS = st.text(alphabet="ab \n", max_size=8)


@given(
    texts=st.lists(st.tuples(TEXTS, st.sampled_from(["en", "zh", "ja"])), min_size=1, max_size=5),
    cuts=st.randoms(use_true_random=False),
)
def test_deltas_join_to_the_transcript_in_any_order(texts: list[tuple[str, str]], cuts: Random) -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(len(texts), emitted.append)
    pending = [(index, list(text)) for index, (text, _) in enumerate(texts)]
    while pending:
        index, letters = cuts.choice(pending)
        text, language = texts[index]
        if letters and cuts.random() < 0.8:
            joiner.feeder(index, language)(letters.pop(0))
        else:
            # Whatever was not fed comes with the end.
            joiner.finish(index, text, language, language)
            pending = [entry for entry in pending if entry[0] != index]
    assert "".join(emitted) == join_texts((text.strip(), language) for text, language in texts)
    assert all(emitted)


def test_texts_of_unspaced_languages_join_as_they_are() -> None:
    texts = [("你好", "zh"), ("", None), ("世界", "ja"), ("Hello", "en"), ("你", "zh")]
    assert join_texts(texts) == "你好世界 Hello 你"


def test_an_echo_is_told_by_what_was_said_however_it_is_written() -> None:
    emitted: list[str] = []
    joiner = DeltaJoiner(1, emitted.append, context="Twenty left", written=lambda said, _: said.upper())
    feed = joiner.feeder(0, "en")
    feed("Twenty ")
    assert emitted == []
    feed("came back home. ")
    assert emitted == ["TWENTY CAME BACK HOME."]
    joiner.finish(0, "TWENTY CAME BACK HOME.", "en", "en")
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
