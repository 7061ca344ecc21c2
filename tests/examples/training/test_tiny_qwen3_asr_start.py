"""A network that begins with a smaller one's weights says at first what that one says."""

import torch
from sensorium.engine.models.weights import CHECKPOINTS
from tiny_qwen3_asr_model import TrainedAsr, model_config
from tiny_qwen3_asr_start import start_from
from tokenizers import Tokenizer
from transformers import Qwen3ASRForConditionalGeneration

FOLDER = CHECKPOINTS / "tiny-qwen3-asr"
NUM_FRAMES = 300
NUM_ROWS = 39


def test_the_grown_network_answers_as_the_small_one() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    grown = TrainedAsr(model_config(tokenizer))
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
