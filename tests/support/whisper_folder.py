"""Random Whisper checkpoints as Hugging Face folders: small ones for tests, the base shape for benchmarks.

Weights are made by `transformers` (names and shapes are its own) and scaled so that greedy output is
varied: biases and norms are random too, positions and cross-attention matter. The tokenizer is a real
byte-level BPE with Whisper's layout: text, `<|endoftext|>`, control tokens, timestamps.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)
from transformers.models.whisper.tokenization_whisper import LANGUAGES
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and then it sleeps for seven hours.",
    "Turn on the lights in the kitchen, please, and set an alarm for half past six.",
    "Hello there! What's the weather like today? It's twenty-three degrees.",
    "El perro come en la cocina y mañana vamos a la playa con María.",
    "¿Qué hora es? Son las ocho y media de la tarde, señor.",
    "Der Zug fährt um zwanzig nach fünf vom Gleis drei; bitte nicht vergessen!",
    "Schöne Grüße aus München, wir sehen uns übermorgen wieder.",
)


@dataclass(frozen=True)
class WhisperShape:
    """The sizes of a checkpoint. `d_model` must be a multiple of both numbers of heads."""

    d_model: int = 32
    encoder_layers: int = 2
    decoder_layers: int = 2
    encoder_heads: int = 2
    decoder_heads: int = 2
    encoder_ffn: int = 64
    decoder_ffn: int = 64
    window_s: int = 2
    num_mel_bins: int = 80
    max_target_positions: int = 64
    num_text_tokens: int = 320
    languages: tuple[str, ...] = ("en", "zh", "de", "es")
    multilingual: bool = True
    activation: str = "gelu"
    scale_embedding: bool = False

    @property
    def num_timestamps(self) -> int:
        return self.window_s * 50 + 1


WHISPER_BASE = WhisperShape(
    d_model=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_heads=8,
    decoder_heads=8,
    encoder_ffn=2048,
    decoder_ffn=2048,
    window_s=30,
    max_target_positions=448,
    num_text_tokens=50257,
    languages=tuple(LANGUAGES)[:99],
)
"""The published shape of openai/whisper-base (vocabulary 51865)."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids in the order of openai/whisper, behind `num_text_tokens` text tokens."""

    end: int
    start: int
    languages: dict[str, int] = field(default_factory=dict)
    translate: int = 0
    transcribe: int = 0
    previous: int = 0
    no_speech: int = 0
    no_timestamps: int = 0
    vocab_size: int = 0


def special_tokens(shape: WhisperShape) -> SpecialTokens:
    """Where the control tokens of a shape are."""
    end = shape.num_text_tokens
    after = end + 2 + len(shape.languages)
    return SpecialTokens(
        end=end,
        start=end + 1,
        languages={code: end + 2 + index for index, code in enumerate(shape.languages)},
        translate=after,
        transcribe=after + 1,
        previous=after + 3,
        no_speech=after + 4,
        no_timestamps=after + 5,
        vocab_size=after + 6 + shape.num_timestamps,
    )


def make_whisper_folder(
    path: Path,
    *,
    seed: int = 0,
    shape: WhisperShape | None = None,
    suppress: Sequence[int] | None = None,
    alignment_heads: Sequence[tuple[int, int]] | None = None,
    max_shard_size: str = "5GB",
    random_weights: bool = True,
) -> Path:
    """Write config, safetensors, tokenizer, generation and preprocessor config to `path`; return it.

    `suppress` defaults to a few text tokens and the control tokens an answer never holds.
    `random_weights=False` leaves the weights out (a folder with configs and tokenizer only).
    """
    shape = shape or WhisperShape()
    ids = special_tokens(shape)
    path.mkdir(parents=True, exist_ok=True)
    config = WhisperConfig(
        vocab_size=ids.vocab_size,
        num_mel_bins=shape.num_mel_bins,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.encoder_heads,
        decoder_attention_heads=shape.decoder_heads,
        encoder_ffn_dim=shape.encoder_ffn,
        decoder_ffn_dim=shape.decoder_ffn,
        max_source_positions=shape.window_s * 50,
        max_target_positions=shape.max_target_positions,
        activation_function=shape.activation,
        scale_embedding=shape.scale_embedding,
        decoder_start_token_id=ids.start,
        pad_token_id=ids.end,
        bos_token_id=ids.end,
        eos_token_id=ids.end,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    if random_weights:
        model = WhisperForConditionalGeneration(config)
        _randomise(model, ids, seed)
        model.save_pretrained(path, max_shard_size=max_shard_size)
    else:
        config.architectures = ["WhisperForConditionalGeneration"]
        config.save_pretrained(path)
    generation = _generation_config(shape, ids, _default_suppress(ids) if suppress is None else suppress)
    if alignment_heads is not None:
        generation["alignment_heads"] = [list(head) for head in alignment_heads]
    (path / "generation_config.json").write_text(json.dumps(generation, indent=2))
    _tokenizer(shape).save_pretrained(path)
    extractor = WhisperFeatureExtractor(feature_size=shape.num_mel_bins, chunk_length=shape.window_s)
    extractor.save_pretrained(path)
    return path


def _default_suppress(ids: SpecialTokens) -> list[int]:
    return [5, 11, ids.start, ids.translate, ids.transcribe, ids.previous, ids.no_speech]


def _generation_config(shape: WhisperShape, ids: SpecialTokens, suppress: Sequence[int]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "begin_suppress_tokens": [220, ids.end],
        "bos_token_id": ids.end,
        "decoder_start_token_id": ids.start,
        "eos_token_id": ids.end,
        "is_multilingual": shape.multilingual,
        "max_length": shape.max_target_positions,
        "no_timestamps_token_id": ids.no_timestamps,
        "pad_token_id": ids.end,
        "prev_sot_token_id": ids.previous,
        "return_timestamps": False,
        "suppress_tokens": list(suppress),
    }
    if shape.multilingual:
        config["lang_to_id"] = {f"<|{code}|>": token_id for code, token_id in ids.languages.items()}
        config["task_to_id"] = {"transcribe": ids.transcribe, "translate": ids.translate}
    return config


def _randomise(model: WhisperForConditionalGeneration, ids: SpecialTokens, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "layer_norm" in name:
            value = (1.0 if name.endswith("weight") else 0.0) + 0.2 * noise
        elif "embed_tokens" in name:
            value = noise * 3.0 / parameter.shape[1] ** 0.5
            value[ids.no_timestamps + 1 :] *= 0.9  # so that answers are text, for the most part
            value[ids.end] *= 1.7  # so that some answers end by themselves
        elif "embed_positions" in name:
            value = noise * (1.5 if "decoder" in name else 0.5)  # else answers repeat one token
        elif name.endswith("bias"):
            value = noise * 0.1
        else:
            fan_in = parameter[0].numel()
            value = noise * 2.0 / fan_in**0.5
        with torch.no_grad():
            parameter.copy_(value)


@functools.cache
def _base_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Bytes and some merges, the same for every shape."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    bpe.train_from_iterator((f" {sentence}" for sentence in SENTENCES), trainer)
    model = json.loads(bpe.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@functools.cache
def _tokenizer(shape: WhisperShape) -> WhisperTokenizer:
    base, merges = _base_vocabulary()
    limit = shape.num_text_tokens
    vocabulary = {token: token_id for token, token_id in base.items() if token_id < limit}
    kept = [(a, b) for a, b in merges if a + b in vocabulary]
    # Words without merges: never produced by encoding, but the vocabulary has its published size.
    vocabulary |= {f"Ġw{index}": index for index in range(len(vocabulary), limit)}
    tokenizer = WhisperTokenizer(
        vocab=vocabulary,
        merges=kept,
        pad_token="<|endoftext|>",
        model_max_length=shape.max_target_positions,
    )
    names = [
        "<|startoftranscript|>",
        *(f"<|{code}|>" for code in shape.languages),
        "<|translate|>",
        "<|transcribe|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|notimestamps|>",
    ]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    stamps = [f"<|{index * 0.02:.2f}|>" for index in range(shape.num_timestamps)]
    tokenizer.add_tokens([AddedToken(stamp, normalized=False) for stamp in stamps])
    return tokenizer
