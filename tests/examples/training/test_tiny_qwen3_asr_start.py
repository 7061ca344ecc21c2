"""A network that begins with a smaller one's weights says at first what that one says."""

from pathlib import Path

import torch
from sensorium.engine.models.embedded import CHECKPOINTS
from tiny_qwen3_asr_model import Shape, TrainedAsr, export, model_config
from tiny_qwen3_asr_start import start_from
from tokenizers import Tokenizer
from transformers import Qwen3ASRForConditionalGeneration

FOLDER = CHECKPOINTS / "tiny-qwen3-asr"
NUM_FRAMES = 300
NUM_ROWS = 39


def test_the_grown_network_answers_as_the_small_one() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    grown = TrainedAsr(model_config(tokenizer, Shape(tower_layers=8, decoder_mlp=1024)))
    start_from(FOLDER, grown, tokenizer)
    small = Qwen3ASRForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32)
    pad = tokenizer.token_to_id("<|audio_pad|>")
    tokens = torch.tensor([[1, 2, *[pad] * NUM_ROWS, 3, 4, 5]])
    features = torch.randn(1, 80, NUM_FRAMES, generator=torch.Generator().manual_seed(0))
    asked = {
        "input_ids": tokens,
        "input_features": features,
        "input_features_mask": torch.ones(1, NUM_FRAMES, dtype=torch.long),
    }
    with torch.no_grad():
        expected, got = (model.eval()(**asked).logits for model in (small, grown.asr))
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)


def test_what_is_exported_and_begun_with_again_is_the_same(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    shape = Shape()
    first = TrainedAsr(model_config(tokenizer, shape))
    start_from(FOLDER, first, tokenizer)
    export(first.asr.state_dict(), tokenizer, shape, tmp_path / "model")
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == (FOLDER / "tokenizer.json").read_bytes()
    again = TrainedAsr(model_config(tokenizer, shape))
    start_from(tmp_path / "model", again, tokenizer)
    for (name, expected), tensor in zip(first.asr.named_parameters(), again.asr.parameters(), strict=True):
        assert torch.equal(expected, tensor), name
