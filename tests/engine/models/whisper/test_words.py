"""Words are those of `transformers` (and so openai/whisper), for every language and broken Unicode; but no
word ends where no space is: "well-known" is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.engine.models.whisper.words import SPACELESS_LANGUAGES, split_words
from support.whisper_folder import SENTENCES, make_whisper_folder
from transformers import WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

NAMES = {"en": "english", "es": "spanish", "zh": "chinese", "ja": "japanese", "th": "thai"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whisper_folder(tmp_path_factory.mktemp("words"), random_weights=False)


@pytest.fixture(scope="module")
def text(folder: Path) -> WhisperText:
    return WhisperText.from_folder(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> WhisperTokenizer:
    return WhisperTokenizer.from_pretrained(folder)


def check(text: WhisperText, theirs: WhisperTokenizer, token_ids: list[int], language: str) -> None:
    groups = split_words([text.tokenizer.token_bytes(token_id) for token_id in token_ids], language)
    words, _, indices = _combine_tokens_into_words(theirs, token_ids, NAMES[language])
    if language in SPACELESS_LANGUAGES:
        assert [group.text for group in groups] == words
        assert [list(range(group.start, group.end)) for group in groups] == indices
        return
    starts = {places[0] for places in indices}
    assert {group.start for group in groups} <= starts, "a word of ours is one of theirs, or several"
    assert all(group.text[:1].isspace() for group in groups[1:])
    for group in groups:
        assert sum(any(map(str.isalnum, chunk)) for chunk in group.text.split()) <= 1


@pytest.mark.parametrize("language", NAMES)
@pytest.mark.parametrize(
    "sentence", [*SENTENCES, "「こんにちは」、世界。", 'He said "no" (twice) - and 3.5% more.']
)
def test_words_equal_transformers(
    text: WhisperText, theirs: WhisperTokenizer, sentence: str, language: str
) -> None:
    check(text, theirs, list(text.tokenizer.encode(" " + sentence)), language)


def test_what_a_hyphen_or_a_point_joins_is_one_word(text: WhisperText) -> None:
    said = "A well-known, ill-disposed 3.5 % (or so) - yes."
    pieces = [text.tokenizer.token_bytes(token_id) for token_id in text.tokenizer.encode(" " + said)]
    found = [group.text.strip() for group in split_words(pieces, "en")]
    assert found == ["A", "well-known,", "ill-disposed", "3.5", "%", "(or", "so)", "- yes."]


@given(st.text(alphabet="ab é世 .,!?\"'-(¿", max_size=30), st.sampled_from(sorted(NAMES)))
def test_any_text(text: WhisperText, theirs: WhisperTokenizer, written: str, language: str) -> None:
    check(text, theirs, list(text.tokenizer.encode(written)), language)


@given(st.lists(st.integers(0, 319), max_size=30), st.sampled_from(sorted(NAMES)))
def test_every_token_is_in_exactly_one_word(text: WhisperText, token_ids: list[int], language: str) -> None:
    """Also where tokens are no valid UTF-8; the words together are the text."""
    groups = split_words([text.tokenizer.token_bytes(token_id) for token_id in token_ids], language)
    covered = [index for group in groups for index in range(group.start, group.end)]
    assert covered == list(range(len(token_ids)))
    assert "".join(group.text for group in groups) == text.decode(token_ids)
