"""Words are those of `transformers` (and so openai/whisper) for Chinese, or several of them, for broken
Unicode, too; one ends at a space, or where a script has none: "well-known" is one, in whatever language."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.engine.models.whisper.words import split_words
from sensorium.protocols.shared.scripts import parts_words
from support.whisper_folder import SENTENCES, make_whisper_folder
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whisper_folder(tmp_path_factory.mktemp("words"), random_weights=False)


@pytest.fixture(scope="module")
def text(folder: Path) -> WhisperText:
    return WhisperText.from_folder(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> WhisperTokenizer:
    return WhisperTokenizer.from_pretrained(folder)


def words_of(text: WhisperText, sentence: str) -> list[str]:
    pieces = [text.token_bytes(token_id) for token_id in text.encode(sentence)]
    return [group.text.strip() for group in split_words(pieces)]


def check(text: WhisperText, theirs: WhisperTokenizer, token_ids: list[int]) -> None:
    groups = split_words([text.token_bytes(token_id) for token_id in token_ids])
    _, _, indices = _combine_tokens_into_words(theirs, token_ids, "chinese")
    starts = {places[0] for places in indices}
    assert {group.start for group in groups} <= starts, "a word of ours is one of theirs, or several"
    for before, group in itertools.pairwise(groups):
        assert group.text[:1].isspace() or parts_words(before.text[-1], group.text[0])
    for group in groups:
        assert sum(any(map(str.isalnum, chunk)) for chunk in group.text.split()) <= 1


@pytest.mark.parametrize(
    "sentence", [*SENTENCES, "「こんにちは」、世界。", 'He said "no" (twice) - and 3.5% more.']
)
def test_words_are_those_of_transformers(text: WhisperText, theirs: WhisperTokenizer, sentence: str) -> None:
    check(text, theirs, list(text.encode(" " + sentence)))


def test_scripts_part_words_whatever_the_language(text: WhisperText) -> None:
    """A translation from Japanese is English, and in Chinese there may be an English name."""
    sentence = " 世界 unavailable世界。Retry, 世"
    assert words_of(text, sentence) == ["世", "界", "unavailable", "世", "界。", "Retry,", "世"]


def test_what_a_hyphen_or_a_point_joins_is_one_word(text: WhisperText) -> None:
    sentence = "A well-known, ill-disposed 3.5 % (or so) - yes."
    assert words_of(text, " " + sentence) == [
        "A",
        "well-known,",
        "ill-disposed",
        "3.5",
        "%",
        "(or",
        "so)",
        "- yes.",
    ]


@given(st.text(alphabet="ab é世 .,!?\"'-(¿", max_size=30))
def test_any_text(text: WhisperText, theirs: WhisperTokenizer, written: str) -> None:
    check(text, theirs, list(text.encode(written)))


@given(st.lists(st.integers(0, 319), max_size=30))
def test_every_token_is_in_exactly_one_word(text: WhisperText, token_ids: list[int]) -> None:
    """Also where tokens are no valid UTF-8; the words together are the text."""
    groups = split_words([text.token_bytes(token_id) for token_id in token_ids])
    covered = [index for group in groups for index in range(group.start, group.end)]
    assert covered == list(range(len(token_ids)))
    assert "".join(group.text for group in groups) == text.decode(token_ids)
