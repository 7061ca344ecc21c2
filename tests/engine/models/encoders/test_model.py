"""Text encoders and decoders that embed: their vectors are those of `transformers` on the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from sensorium import LocalEngine
from sensorium.engine.models.registry import open_model
from sensorium.protocols.errors import BadRequestError, ModelLoadError
from support.encoder_folder import (
    DECODERS,
    ENCODERS,
    TEXTS,
    Mode,
    cosines,
    make_embedding_folder,
    reference_vectors,
)
from support.text_folder import make_qwen3_folder

_MODES: tuple[Mode, ...] = ("cls", "mean", "lasttoken")
_WIDER: Final[dict[str, Any]] = {"hidden_size": 64, "intermediate_size": 96}
"""Rounding averages out over more dimensions than the other tests have."""


@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders_embed_as_transformers_does(tmp_path: Path, model_type: str) -> None:
    folder = make_embedding_folder(tmp_path, model_type)
    with LocalEngine(folder, dtype="float32") as engine:
        vectors = engine.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 32)
    assert cosines(vectors, reference_vectors(folder, TEXTS, "mean")).min() >= 0.99999
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_encoders_in_bfloat16_are_close(tmp_path: Path, model_type: str) -> None:
    folder = make_embedding_folder(tmp_path, model_type, **_WIDER)
    with LocalEngine(folder, dtype="bfloat16") as engine:
        vectors = engine.embed(TEXTS)
    assert cosines(vectors, reference_vectors(folder, TEXTS, "mean")).min() >= 0.9995


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("model_type", DECODERS)
def test_decoders_embed_as_transformers_does(
    tmp_path: Path, model_type: str, mode: Mode, *, has_head: bool
) -> None:
    folder = make_embedding_folder(tmp_path, model_type, mode=mode, has_head=has_head)
    with LocalEngine(folder, dtype="float32") as engine:
        vectors = engine.embed(TEXTS)
    assert cosines(vectors, reference_vectors(folder, TEXTS, mode)).min() >= 0.99999


@pytest.mark.parametrize("model_type", DECODERS)
def test_decoders_in_bfloat16_are_close(tmp_path: Path, model_type: str) -> None:
    folder = make_embedding_folder(tmp_path, model_type, mode="lasttoken", has_head=True, **_WIDER)
    with LocalEngine(folder, dtype="bfloat16") as engine:
        vectors = engine.embed(TEXTS)
    assert cosines(vectors, reference_vectors(folder, TEXTS, "lasttoken")).min() >= 0.9995


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("is_normalized", [True, False])
def test_the_folder_says_how_vectors_are_made(tmp_path: Path, mode: Mode, *, is_normalized: bool) -> None:
    folder = make_embedding_folder(tmp_path, "bert", mode=mode, is_normalized=is_normalized)
    with LocalEngine(folder, dtype="float32") as engine:
        vectors, short = engine.embed(TEXTS), engine.embed(TEXTS, dimensions=8)
    expected = reference_vectors(folder, TEXTS, mode, is_normalized=is_normalized)
    assert np.allclose(vectors, expected, atol=1e-4)
    expected = reference_vectors(folder, TEXTS, mode, is_normalized=is_normalized, dimensions=8)
    assert np.allclose(short, expected, atol=1e-4)


@pytest.mark.parametrize("mode", _MODES)
def test_a_prompt_of_several_chunks_has_the_same_vector(tmp_path: Path, mode: Mode) -> None:
    folder = make_embedding_folder(
        tmp_path, "qwen3", mode=mode, has_head=True, max_position_embeddings=2048, num_hidden_layers=2
    )
    text = " ".join(TEXTS[:1] * 25)  # more than a step of a CPU takes
    with LocalEngine(folder, dtype="float32") as engine:
        first = engine.embed([text, *TEXTS])
        again = engine.embed([text, *TEXTS])  # with a prefix cache that has it
    expected = reference_vectors(folder, [text, *TEXTS], mode)
    assert cosines(first, expected).min() >= 0.99999
    assert cosines(again, expected).min() >= 0.99999


def test_the_default_prompt_is_in_front_of_a_text(tmp_path: Path) -> None:
    folder = make_embedding_folder(tmp_path, "mpnet", mode="cls")
    prompts = {"prompts": {"query": "search: ", "document": ""}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with LocalEngine(folder, dtype="float32") as engine:
        vectors = engine.embed(TEXTS)
    expected = reference_vectors(folder, [f"search: {text}" for text in TEXTS], "cls")
    assert cosines(vectors, expected).min() >= 0.99999


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = make_embedding_folder(tmp_path, "bert", mode="mean")
    with LocalEngine(folder, dtype="float32") as engine:
        assert np.array_equal(engine.embed([[2, 40, 41, 3]]), engine.embed([[2, 40, 41, 3]]))
        with pytest.raises(BadRequestError, match=r"texts\[1\]\[0\].* is 999; allowed: token ids from 0"):
            engine.embed([[2], [999]])


def test_what_cannot_be_embedded_is_refused(tmp_path: Path) -> None:
    folder = make_embedding_folder(tmp_path, "xlm-roberta", mode="mean")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    with LocalEngine(folder, dtype="float32") as engine:
        with pytest.raises(BadRequestError, match="takes up to 20 tokens"):
            engine.embed(["a b c d e f g h i j k l m n o p q r s t u v w"])
        with pytest.raises(BadRequestError, match=r"dimensions.*is 33; allowed: 1 to 32"):
            engine.embed(["a"], dimensions=33)
        with pytest.raises(BadRequestError, match="takes no prompts; `embed` with it"):
            engine.generate("Hello")
        assert engine.embed([]).shape == (0, 0)


def test_positions_behind_the_padding_are_all_that_there_are(tmp_path: Path) -> None:
    source = open_model(make_embedding_folder(tmp_path, "xlm-roberta"), dtype="float32")
    assert source.info.max_context == 128  # of 130 rows, behind the id of padding, 1
    assert source.kv_shape.num_bytes(source.dtype) == 0


def test_a_model_whose_folder_does_not_say_so_does_not_embed(tmp_path: Path) -> None:
    refused = pytest.raises(BadRequestError, match=r"does not embed\. Models that embed are text encoders")
    with LocalEngine(make_qwen3_folder(tmp_path), dtype="float32") as engine, refused:
        engine.embed(["a"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", '[{"type": "a.Dense", "path": "2_Dense"}]', "module 'Dense' is not supported"),
        ("modules.json", '[{"type": "a.Pooling", "path": "../x"}]', "allowed: the name of a folder"),
        ("modules.json", "{}", "not a JSON list"),
        ("modules.json", '["a.Transformer"]', "'a.Transformer' is not a module"),
        ("1_Pooling/config.json", '{"pooling_mode": 3}', "allowed: cls, mean or lasttoken"),
        ("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}', "allowed: cls, mean or lasttoken"),
        ("sentence_bert_config.json", '{"max_seq_length": 0}', "max_seq_length is 0"),
        ("config_sentence_transformers.json", '{"default_prompt_name": "x"}', "default_prompt_name is 'x'"),
    ],
)
def test_files_that_ask_for_something_else_are_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    folder = make_embedding_folder(tmp_path, "bert", mode="cls")
    (folder / name).write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        open_model(folder, dtype="float32")


def test_a_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = make_embedding_folder(tmp_path, "bert", num_hidden_layers=2)
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 3}
    (folder / "config.json").write_text(json.dumps(config))
    source = open_model(folder, dtype="float32")
    with pytest.raises(ModelLoadError, match=r"16 missing: encoder\.layer\.2"):
        source.load()
