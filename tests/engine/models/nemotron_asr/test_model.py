"""What a Nemotron folder says of itself, what is refused, and how close fewer bits are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import ChunkBatch, ChunkInput, TransducingModel
from sensorium.engine.models.nemotron_asr.chunks import chunk_frames, is_whole, num_rows
from sensorium.engine.models.nemotron_asr.text import TransducerText
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.side import info_fields, open_side
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel
from sensorium.protocols.engine.messages import Features, InputChunk, Transduce
from sensorium.protocols.errors import ModelLoadError
from support.nemotron_folder import VOCAB_SIZE, make_nemotron_folder
from support.transducing import FedStream, Feeder, noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_nemotron_folder(tmp_path_factory.mktemp("nemotron") / "multilingual", multilingual=True)


def test_it_says_what_it_can_do(folder: Path) -> None:
    source = open_model(folder, device="cpu", dtype="float32")
    info: Any = source.info
    assert info.delays_ms == {13: 1120, 6: 560, 3: 320, 1: 160, 0: 80}
    assert info.conditions["auto"] == info.default_condition == 101
    assert (info.conditions["de"], info.conditions["de-DE"], info.conditions["es"]) == (9, 9, 3)
    assert info.describe() == "transcribe as it is spoken · 83 locales · 80, 160, 320, 560, 1120 ms of delay"
    states = source.load().make_states(3)  # type: ignore[attr-defined]
    assert sum(tensor[0].nbytes for tensor in states) == info.state_bytes
    again, side = open_side(info_fields(info))
    assert again == info
    assert isinstance(side.text, TransducerText)


def test_tags_name_the_language_and_are_no_text(folder: Path) -> None:
    text = open_model(folder, device="cpu", dtype="float32").side.text
    assert isinstance(text, TransducerText)
    ids = [text.tokenizer.id_of(piece) for piece in ("▁h", "i", "▁y", "o", "u", "<de-DE>")]
    tokens = [each for each in ids if each is not None]
    assert text.decode(tokens) == "hi you"
    assert text.language_of(tokens) == "de-DE"
    assert text.language_of(tokens[:-1]) is None
    assert [text.begins_word(each) for each in tokens] == [True, False, True, False, False, False]


@pytest.mark.parametrize("lookahead", [0, 1, 3, 6, 13])
def test_chunks_make_whole_rows(lookahead: int) -> None:
    first, later = (chunk_frames(lookahead, is_first=is_first) for is_first in (True, False))
    assert num_rows(first, is_first=True) == num_rows(later, is_first=False) == lookahead + 1
    assert num_rows(first + 3 * later, is_first=True) == 4 * (lookahead + 1)
    assert is_whole(first + 2 * later, lookahead, is_first=True)
    assert not is_whole(first + 1, lookahead, is_first=True)
    assert not is_whole(later - 1, lookahead, is_first=False)


@pytest.mark.parametrize(
    ("task", "num_frames", "message"),
    [
        (Transduce(2), 17, "lookahead is 2; allowed: 0, 1, 3, 6, 13"),
        (Transduce(6, 128), 49, "condition is 128; allowed: 0 to 127"),
        (
            Transduce(6),
            50,
            "a chunk has 50 frames; allowed at lookahead 6: 49, and any number of times 56 more",
        ),
    ],
)
def test_chunks_that_do_not_fit_are_refused(
    folder: Path, task: Transduce, num_frames: int, message: str
) -> None:
    runner = Runner(open_model(folder, device="cpu", dtype="float32").load(), num_blocks=1, num_state_slots=1)
    runner.warm_up()
    frames = np.zeros((80, num_frames), np.float32)
    chunk = InputChunk(Features(frames.shape, frames.tobytes()), num_frames)
    with pytest.raises(AssertionError, match=message):
        Feeder(runner).step([FedStream(task, [chunk], 0)])
    wrong = InputChunk(Features((79, 49), bytes(4 * 79 * 49)), 49)
    with pytest.raises(AssertionError, match=r"must be \[80 mel bins, frames\], not \[79, 49\]"):
        Feeder(runner).step([FedStream(Transduce(6), [wrong], 0)])


def edited(path: Path, change: Callable[[dict[str, Any]], None], name: str = "config.json") -> None:
    """Change a JSON file of a folder."""
    values = json.loads((path / name).read_text())
    change(values)
    (path / name).write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda c: c.update(hidden_act="gelu"), "hidden_act 'gelu' is not relu"),
        (
            "config.json",
            lambda c: c.update(blank_token_id=VOCAB_SIZE),
            "blank_token_id is 60, not a token id",
        ),
        (
            "config.json",
            lambda c: c.update(default_prompt_id=500),
            "default_prompt_id is 500; allowed: 0 to 127",
        ),
        (
            "config.json",
            lambda c: c["encoder_config"].update(subsampling_factor=4),
            "encoder_config: subsampling_factor is 4; allowed: 8",
        ),
        (
            "config.json",
            lambda c: c["encoder_config"].update(num_attention_heads=5),
            "hidden_size 32 is not even, or not a multiple of num_attention_heads 5",
        ),
        (
            "processor_config.json",
            lambda c: c.update(supported_num_lookahead_tokens=[]),
            "supported_num_lookahead_tokens is ",
        ),
        (
            "processor_config.json",
            lambda c: c.update(default_num_lookahead_tokens=2),
            "default_num_lookahead_tokens is 2; allowed: 13, 6, 3, 1, 0",
        ),
        (
            "processor_config.json",
            lambda c: c.update(prompt_dictionary={"en": 128}),
            "prompt_dictionary must give each language a slot from 0 to 127",
        ),
    ],
)
def test_configs_that_make_no_sense_are_refused(
    tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = make_nemotron_folder(tmp_path / "model", multilingual=True)
    edited(path, change, name)
    with pytest.raises(ModelLoadError, match=message):
        open_model(path, device="cpu", dtype="float32")


@pytest.mark.parametrize(("dtype", "quantization"), [("bfloat16", "none"), ("float32", "int8")])
def test_fewer_bits_stay_close(folder: Path, dtype: str, quantization: str) -> None:
    """Rows of eight chunks, in two streams of a step, against those in float32."""
    frames = log_mel(noise(4.6), NemoFeatureConfig())
    found = []
    for each in ((dtype, quantization), ("float32", "none")):
        model = open_model(folder, device="cpu", dtype=each[0], quantization=each[1]).load()
        assert isinstance(model, TransducingModel)
        with torch.inference_mode():
            found.append(rows_of(model, torch.from_numpy(frames)))
    close, exact = found
    assert close.shape == exact.shape
    error = (close - exact).norm() / exact.norm()
    assert 0 < float(error) < 0.05


def rows_of(model: TransducingModel, frames: torch.Tensor) -> torch.Tensor:
    """All rows of two equal streams."""
    model.make_states(2)
    rows, first, num = [], 0, 0
    while first < frames.shape[1]:
        size = min(chunk_frames(6, is_first=first == 0), frames.shape[1] - first)
        given = ChunkInput(frames[:, first : first + size], size, first == 0, False, Transduce(6), num)
        batch = ChunkBatch((given, given), torch.tensor([1, 0]))
        listened = model.listen(batch)
        model.commit(batch, listened, model.emit(listened, batch))
        rows.append(listened.rows.float())
        first, num = first + size, num + listened.num_rows[0]
    return torch.cat(rows)
