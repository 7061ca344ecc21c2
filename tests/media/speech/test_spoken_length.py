"""Words are all of the text, in order; what takes longer to say is expected to last longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.speech.spoken_length import phrase_end, spoken_length_s, spoken_words

TEXTS = st.text(alphabet=st.characters() | st.sampled_from(" \n.,-—?!()«»“”今日はñé90%€กขา가"), max_size=40)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Turn  on the lights.", ["Turn", "on", "the", "lights."]),
        ("Yes — no", ["Yes —", "no"]),
        ("— yes", ["—", "yes"]),
        ("今天(星期二)好。", ["今", "天", "(星", "期", "二)", "好。"]),
        ("用API吧。API", ["用", "API", "吧。", "API"]),
        ("ครับ", ["ค", "รั", "บ"]),
        ("안녕 하세요", ["안녕", "하세요"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert spoken_words(text) == words


@given(TEXTS)
def test_words_are_all_of_the_text(text: str) -> None:
    words = spoken_words(text)
    assert "".join("".join(words).split()) == "".join(text.split())
    assert all(words)
    assert all(spoken_length_s(word) > 0 for word in words)


@pytest.mark.parametrize(
    ("shorter", "longer"),
    [
        ("a", "banana"),
        ("strength", "strengthening"),
        ("mas", "además"),
        ("light", "light."),
        ("5", "90"),
        ("10", "10%"),
        ("is", "BBC"),
        ("bell", "belt"),  # a doubled letter is one sound
        ("好", "好。"),
        ("мир", "перемирие"),
    ],
)
def test_longer_words_last_longer(shorter: str, longer: str) -> None:
    assert spoken_length_s(shorter) < spoken_length_s(longer)


def test_phrases_end_at_punctuation_behind_a_word() -> None:
    assert {phrase_end(word) for word in ("lights.", 'no!"', "好。", "so…", "(well)?")} == {"."}
    assert {phrase_end(word) for word in ("yes,", "one:", "好，")} == {","}
    assert {phrase_end(word) for word in ("lights", "¿qué", "don't", '"no"')} == {""}
