"""Random checkpoints of Nemotron ASR and Parakeet CTC as Hugging Face folders: tiny layers.

Weights are made by `transformers` (names and shapes are its own). The joint's blank is biased: without that a
random transducer gives as many tokens a row as it may.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Nemotron3_5AsrConfig,
    Nemotron3_5AsrForRNNT,
    NemotronAsrStreamingConfig,
    NemotronAsrStreamingFeatureExtractor,
    NemotronAsrStreamingForRNNT,
    ParakeetCTCConfig,
    ParakeetFeatureExtractor,
    ParakeetForCTC,
    PreTrainedConfig,
    PreTrainedModel,
)

FloatArray = npt.NDArray[np.float32]

VOCAB_SIZE = 60
"""With blank, the last id."""
TAGS = ("<en-US>", "<de-DE>")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class ConformerShape:
    """The sizes of an encoder."""

    hidden_size: int = 32
    num_layers: int = 2
    num_heads: int = 4
    ffn_size: int = 48
    channels: int = 6
    num_mel_bins: int = 80
    has_bias: bool = True
    scale_input: bool = True
    sliding_window: int = 71
    decoder_size: int = 24

    def encoder(self) -> dict[str, Any]:
        """As a config has them."""
        return {
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "intermediate_size": self.ffn_size,
            "subsampling_conv_channels": self.channels,
            "num_mel_bins": self.num_mel_bins,
            "attention_bias": self.has_bias,
            "convolution_bias": self.has_bias,
            "scale_input": self.scale_input,
        }


PUBLISHED = ConformerShape(
    hidden_size=1024,
    num_layers=24,
    num_heads=8,
    ffn_size=4096,
    channels=256,
    num_mel_bins=128,
    has_bias=False,
    scale_input=False,
    decoder_size=640,
)
"""The 0.6 billion parameters of the English checkpoint."""


def make_nemotron_folder(
    path: Path,
    shape: ConformerShape | None = None,
    *,
    multilingual: bool = False,
    blank_bias: float = 3.0,
    seed: int = 0,
) -> Path:
    """Write a checkpoint of Nemotron ASR, of one language or several; return its path."""
    shape = shape or ConformerShape()
    options: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "decoder_hidden_size": shape.decoder_size,
        "blank_token_id": VOCAB_SIZE - 1,
        "encoder_config": shape.encoder() | {"sliding_window": shape.sliding_window},
    }
    if multilingual:
        options["encoder_config"]["model_type"] = "nemotron_asr_streaming_encoder"
        config: Any = Nemotron3_5AsrConfig(prompt_intermediate_size=40, **options)
        kind: Any = Nemotron3_5AsrForRNNT
    else:
        config, kind = NemotronAsrStreamingConfig(**options), NemotronAsrStreamingForRNNT
    config.decoder_start_token_id = VOCAB_SIZE - 1
    model = _randomised(kind, config, seed)
    with torch.no_grad():
        # What all rows share says nothing about a token.
        model.joint.head.weight -= model.joint.head.weight.mean(1, keepdim=True)
        model.joint.head.bias[VOCAB_SIZE - 1] += blank_bias
        model.encoder_projector.weight *= 3.0
        for name, parameter in model.decoder.named_parameters():
            if "weight" in name:
                parameter *= 3.0
    model.generation_config.decoder_start_token_id = VOCAB_SIZE - 1
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    model.save_pretrained(path)
    NemotronAsrStreamingFeatureExtractor(feature_size=shape.num_mel_bins).save_pretrained(path)
    lookaheads = [13, 6, 3, 1, 0] if multilingual else [13, 6, 1, 0]
    (path / "processor_config.json").write_text(json.dumps({"supported_num_lookahead_tokens": lookaheads}))
    _tokenizer().save(str(path / "tokenizer.json"))
    return path


def make_parakeet_folder(
    path: Path, shape: ConformerShape | None = None, seed: int = 0, *, is_local: bool = False
) -> Path:
    """Write a checkpoint of Parakeet CTC; return its path.

    One that `is_local` attends to nothing: a row depends on what its convolutions reach, four rows a layer on
    each side and the subsampling's one.
    """
    shape = shape or ConformerShape()
    config = ParakeetCTCConfig(
        vocab_size=VOCAB_SIZE, pad_token_id=VOCAB_SIZE - 1, encoder_config=shape.encoder()
    )
    model = _randomised(ParakeetForCTC, config, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
        for name, parameter in model.named_parameters():
            if is_local and "self_attn.o_proj" in name:
                parameter.zero_()
        model.ctc_head.bias[VOCAB_SIZE - 1] += 0.5
    model.save_pretrained(path)
    ParakeetFeatureExtractor(feature_size=shape.num_mel_bins).save_pretrained(path)
    _tokenizer().save(str(path / "tokenizer.json"))
    return path


def _randomised(kind: Any, config: PreTrainedConfig, seed: int) -> Any:  # noqa: ANN401
    """A model whose rows differ from each other, and follow the audio."""
    torch.manual_seed(seed)
    model: PreTrainedModel = kind(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1 or "bias_" in name:
                is_scale = ".norm" in name and name.endswith("weight")
                parameter.copy_(values * 0.1 + (1.0 if is_scale else 0.0))
            else:
                parameter.copy_(values * (1.2 / parameter[0].numel() ** 0.5))
    return model


def _tokenizer() -> Tokenizer:
    """A SentencePiece-like one of letters, words' beginnings and two tags."""
    pieces = ["<unk>", *(f"▁{letter}" for letter in _LETTERS), *_LETTERS, *TAGS]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer
