"""Prompts and rules of `WhisperText`, beside `transformers` where it has the same notion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.engine.models.whisper.tokenizer import read_tokenizer
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from support.whisper_folder import SENTENCES, WhisperShape, make_whisper_folder, special_tokens
from transformers import WhisperTokenizer

SHAPE = WhisperShape()
IDS = special_tokens(SHAPE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_whisper_folder(tmp_path_factory.mktemp("text"), random_weights=False)


@pytest.fixture(scope="module")
def text(folder: Path) -> WhisperText:
    return WhisperText.from_folder(folder, name="some-model")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> WhisperTokenizer:
    return WhisperTokenizer.from_pretrained(folder)


def test_info(text: WhisperText) -> None:
    info = text.info
    assert (info.name, info.window_s, info.num_positions, info.position_s) == ("some-model", 2.0, 100, 0.02)
    assert info.languages == ("en", "zh", "de", "es")
    assert info.tasks == ("transcribe", "translate")
    assert not info.alignment_is_rough


def test_a_checkpoint_may_say_that_its_alignment_is_rough(tmp_path: Path) -> None:
    folder = make_whisper_folder(tmp_path, random_weights=False)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "alignment_is_rough": True}))
    assert WhisperText.from_folder(folder, name="rough").info.alignment_is_rough


def test_prompt(text: WhisperText) -> None:
    assert text.prompt(language="de") == (IDS.start, IDS.languages["de"], IDS.transcribe, IDS.no_timestamps)
    translated = text.prompt(language="EN", task="translate")
    assert translated == (IDS.start, IDS.languages["en"], IDS.translate, IDS.no_timestamps)
    with pytest.raises(BadRequestError, match=r"'fr' is not one of en, zh, de, es") as caught:
        text.prompt(language="fr")
    assert caught.value.param == "language"
    with pytest.raises(ValueError, match="needs a language"):
        text.prompt(language=None)


def test_numbers_are_spelled_where_no_numeral_may_be_said(text: WhisperText) -> None:
    usual = text.request(language="en").sampling.suppress_token_ids
    spelled = text.request(language="en", spells_numbers=True).sampling.suppress_token_ids
    more = set(spelled) - set(usual)
    assert set(usual) <= set(spelled)
    assert more
    for token_id in range(text.end_id):
        has_numeral = any(each.isdigit() or each in "%$£€" for each in text.decode([token_id]))
        assert (token_id in spelled) == (has_numeral or token_id in usual)
    assert not more & set(text.encode(" twenty-one per cent"))


@pytest.mark.parametrize("sentence", [*SENTENCES, "  spaces around  ", "日本語 and ñ 🎈"])
def test_previous_text_is_encoded_as_transformers_does(
    text: WhisperText, theirs: WhisperTokenizer, sentence: str
) -> None:
    want = theirs.get_prompt_ids(sentence).tolist()
    assert list(text.previous(sentence)) == [want[0], *want[1:][-31:]]


def test_previous_text_keeps_the_most_recent_tokens(text: WhisperText) -> None:
    long = " ".join(SENTENCES)
    ids = text.previous(long)
    assert len(ids) == 1 + SHAPE.max_target_positions // 2 - 1
    assert ids[0] == IDS.previous
    assert long.endswith(text.decode(ids[-8:]))
    assert text.previous(" \n ") == ()


@given(
    pieces=st.lists(
        st.sampled_from(
            [
                "<|endoftext|>",
                "<|startoftranscript|>",
                "<|en|>",
                "<|0.00|>",
                "<|notimestamps|>",
                " ",
                "hello",
                "<|",
            ]
        )
    )
)
def test_text_never_becomes_control_tokens(text: WhisperText, pieces: list[str]) -> None:
    written = "".join(pieces)
    ids = text.encode(written)
    assert all(text.is_text(token_id) for token_id in ids)
    assert text.decode(ids) == written


@given(st.text())
def test_text_survives_encoding(text: WhisperText, written: str) -> None:
    clean = written.encode("utf-8", "replace").decode()
    assert text.decode(text.encode(clean)) == clean


def test_half_a_character_is_a_question_mark(text: WhisperText) -> None:
    """Python's texts may have them; nothing else takes them."""
    assert text.prompt(language="de", previous_text="a \ud800 b") == text.prompt(
        language="de", previous_text="a ? b"
    )


@given(st.lists(st.integers(0, IDS.vocab_size + 3)))
def test_decoding_equals_transformers(
    text: WhisperText, theirs: WhisperTokenizer, token_ids: list[int]
) -> None:
    known = [token_id for token_id in token_ids if token_id < IDS.vocab_size]
    plain = [token_id for token_id in known if token_id < IDS.end]
    want = theirs.decode(plain, clean_up_tokenization_spaces=False)
    assert text.decode(known) == want
    assert b"".join(map(text.token_bytes, token_ids)).decode("utf-8", "replace") == want


def test_sampling_follows_the_generation_config(text: WhisperText) -> None:
    sampling = text.sampling(num_prompt=4, temperature=0.5, seed=3)
    assert sampling.max_tokens == 60
    assert sampling.stop_token_ids == (IDS.end,)
    assert IDS.start in sampling.suppress_token_ids
    assert sampling.begin_suppress_token_ids == (220, IDS.end)
    assert (sampling.temperature, sampling.seed, sampling.logprobs) == (0.5, 3, 0)
    assert text.sampling(num_prompt=60).max_tokens == 4
    assert text.max_tokens(64) == 0


def test_max_length_does_not_count_the_prompt(tmp_path: Path) -> None:
    """transformers: `min(max_length + num_prompt, max_target_positions)` positions in all."""
    folder = make_whisper_folder(tmp_path, random_weights=False)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": 20}))
    text = WhisperText.from_folder(folder)
    assert text.max_tokens(4) == 20
    assert text.max_tokens(50) == 1  # 20 + 31 - 50


def test_detection_asks_for_one_language(text: WhisperText) -> None:
    request = text.detection()
    assert request.prompt_token_ids == (IDS.start,)
    assert request.sampling.allowed_token_ids == tuple(IDS.languages.values())
    assert request.sampling.max_tokens == 1
    assert [text.language_of(token_id) for token_id in IDS.languages.values()] == ["en", "zh", "de", "es"]
    with pytest.raises(ValueError, match="not a language"):
        text.language_of(3)


def test_detection_can_be_held_to_some_languages(text: WhisperText) -> None:
    allowed = text.detection(["de", "ZH"]).sampling.allowed_token_ids
    assert allowed == (text.language_ids["de"], text.language_ids["zh"])
    with pytest.raises(BadRequestError) as caught:
        text.detection(["de", "xx"])
    assert caught.value.param == "languages"


def test_english_only(tmp_path: Path) -> None:
    shape = WhisperShape(multilingual=False)
    text = WhisperText.from_folder(make_whisper_folder(tmp_path, shape=shape, random_weights=False))
    assert (text.info.languages, text.info.tasks) == ((), ("transcribe",))
    for language in (None, "en"):
        assert text.prompt(language=language) == (IDS.start, IDS.no_timestamps)
    with pytest.raises(BadRequestError):
        text.prompt(language="de")
    with pytest.raises(BadRequestError) as caught:
        text.prompt(language="en", task="translate")
    assert caught.value.param == "task"
    with pytest.raises(ValueError, match="English-only"):
        text.detection()


def test_a_folder_without_generation_config(tmp_path: Path) -> None:
    folder = make_whisper_folder(tmp_path, random_weights=False)
    (folder / "generation_config.json").unlink()
    text = WhisperText.from_folder(folder)
    assert set(text.info.languages) == {"en", "zh", "de", "es"}
    assert text.sampling(num_prompt=4).stop_token_ids == (IDS.end,)
    assert text.no_timestamps_id == IDS.no_timestamps


def test_vocabulary_files_serve_as_a_tokenizer(folder: Path, text: WhisperText, tmp_path: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in model["merges"]))
    added = text.tokenizer.backend.get_added_tokens_decoder()
    ids = {token.content: token_id for token_id, token in added.items()}
    (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
    again = WhisperText(read_tokenizer(tmp_path), text.info, {})
    for sentence in SENTENCES:
        assert again.encode(sentence) == text.encode(sentence)
    assert again.byte_table == text.byte_table
    assert {name: again.tokenizer.added_id(name) for name in ids} == ids


def test_a_tokenizer_without_control_tokens_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    description = json.loads((folder / "tokenizer.json").read_text())
    description["added_tokens"] = description["added_tokens"][:1]
    description["post_processor"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(ModelLoadError, match=r"no token <\|startoftranscript\|>"):
        WhisperText.from_folder(tmp_path)


def at(seconds: float) -> int:
    return IDS.no_timestamps + 1 + round(seconds / 0.02)


def test_alignment_feeds_the_text_between_prompt_and_end(text: WhisperText) -> None:
    words = text.encode(" Hello there")
    request = text.alignment((at(0), *words, at(1)), language="de")
    assert request.token_ids == (*text.prompt(language="de"), *words, IDS.end)
    assert request.text_token_ids == words
    long = text.alignment([40] * 200, language="de")
    assert len(long.token_ids) == SHAPE.max_target_positions


def test_words_get_times_from_boundaries(text: WhisperText) -> None:
    ids = text.encode(" Hello there!")
    boundaries = [3 * i for i in range(len(ids) + 1)]
    words = text.words(ids, boundaries)
    assert [word.word for word in words] == ["Hello", "there!"]
    assert words[0].start == 0.0
    assert words[0].end == words[1].start
    assert words[1].end == pytest.approx(boundaries[-1] * 0.02)
    with pytest.raises(ValueError, match="boundaries"):
        text.words(ids, boundaries[:-1])
