"""Random Qwen3-ASR checkpoints as Hugging Face folders: tiny layers, the published chunk and window sizes.

Weights are made by `transformers` (names and shapes are its own) and scaled so that greedy output is varied
and hangs on the audio. The tokenizer splits text as Qwen's does and has the control tokens of the published
one; the chat template gives what the published one gives for a transcription.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from support.text_folder import (
    END,
    END_OF_MESSAGE,
    SENTENCES,
    QwenShape,
    byte_level_tokenizer,
    qwen3_config,
    randomise,
)
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import (
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRForConditionalGeneration,
    WhisperFeatureExtractor,
)

FloatArray = npt.NDArray[np.float32]

AUDIO_TOKENS = {
    "audio_token": "<|audio_pad|>",
    "audio_bos_token": "<|audio_start|>",
    "audio_eos_token": "<|audio_end|>",
}
TEXT_TAG = "<asr_text>"

_THINKER_NAMES = (
    ("model.multi_modal_projector.linear_", "thinker.audio_tower.proj"),
    ("model.language_model.", "thinker.model."),
    ("model.audio_tower.", "thinker.audio_tower."),
    ("lm_head.", "thinker.lm_head."),
)
"""Prefixes of tensors as `transformers` writes them, and as they were first published."""

CHAT_TEMPLATE = (
    "<|im_start|>system\n"
    "{% for message in messages if message.role == 'system' %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endfor %}<|im_end|>\n"
    "<|im_start|>user\n"
    "{% for message in messages if message.role == 'user' %}{% for part in message.content %}"
    "<|audio_start|><|audio_pad|><|audio_end|>{% endfor %}{% endfor %}<|im_end|>\n"
    "{% for message in messages if message.role == 'assistant' %}<|im_start|>assistant\n"
    "{% for part in message.content %}{{ part.text }}{% endfor %}<|im_end|>\n{% endfor %}"
)

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class AsrShape:
    """The sizes of a checkpoint; the tower's rows are as wide as `text.hidden_size`."""

    text: QwenShape = field(default_factory=lambda: QwenShape(max_positions=1024))
    d_model: int = 24
    num_layers: int = 2
    num_heads: int = 4
    ffn_size: int = 40
    conv_channels: int = 4
    num_mel_bins: int = 128
    activation: str = "gelu"


@functools.cache
def asr_tokenizer(num_text_tokens: int = 320, sentences: tuple[str, ...] = SENTENCES) -> Tokenizer:
    """Qwen's way to split words, the control tokens of audio, and the answer's tag, which shows as text."""
    plain = byte_level_tokenizer(num_text_tokens, tuple(AUDIO_TOKENS.values()), sentences)
    tokenizer = Tokenizer.from_str(plain.to_str())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_tokens([AddedToken(TEXT_TAG, normalized=False, special=False)])
    return tokenizer


def asr_config(shape: AsrShape, tokenizer: Tokenizer | None = None) -> Qwen3ASRConfig:
    """The config of a shape."""
    tokenizer = tokenizer or asr_tokenizer()
    padded = shape.text.vocab_size or tokenizer.get_vocab_size(with_added_tokens=True) + 3
    text = qwen3_config(shape.text, padded)
    return Qwen3ASRConfig(
        audio_config={
            "num_mel_bins": shape.num_mel_bins,
            "encoder_layers": shape.num_layers,
            "encoder_attention_heads": shape.num_heads,
            "encoder_ffn_dim": shape.ffn_size,
            "d_model": shape.d_model,
            "output_dim": shape.text.hidden_size,
            "downsample_hidden_size": shape.conv_channels,
            "activation_function": shape.activation,
        },
        text_config=text.to_dict(),
        tie_word_embeddings=shape.text.tied,
        audio_token_id=tokenizer.token_to_id(AUDIO_TOKENS["audio_token"]),
        eos_token_id=[tokenizer.token_to_id(END), tokenizer.token_to_id(END_OF_MESSAGE)],
        pad_token_id=tokenizer.token_to_id(END),
    )


def make_asr_model(shape: AsrShape, seed: int) -> Qwen3ASRForConditionalGeneration:
    """A random model of a shape, as `transformers` runs it, in float32."""
    model = Qwen3ASRForConditionalGeneration(asr_config(shape)).eval()
    randomise(model, seed)
    return model


def make_asr_folder(
    path: Path,
    *,
    seed: int = 0,
    shape: AsrShape | None = None,
    model: Qwen3ASRForConditionalGeneration | None = None,
    tokenizer: Tokenizer | None = None,
    max_shard_size: str = "5GB",
) -> Path:
    """Write a checkpoint (random, unless `model` is given, which `tokenizer` is for) with all that belongs to
    it; return its path."""
    shape = shape or AsrShape()
    path.mkdir(parents=True, exist_ok=True)
    model = model or make_asr_model(shape, seed)
    model.save_pretrained(path, max_shard_size=max_shard_size)
    (tokenizer or asr_tokenizer()).save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": END_OF_MESSAGE,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "extra_special_tokens": AUDIO_TOKENS,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    (path / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    Qwen3ASRFeatureExtractor(feature_size=shape.num_mel_bins).save_pretrained(path)
    return path


def make_thinker_folder(hf: Path, path: Path) -> Path:
    """The checkpoint `hf` in the layout that came first: `thinker_config`, `thinker.` tensors, the output
    projection stored beside the embedding, Whisper's extractor, a tokenizer of two files."""
    path.mkdir(parents=True)
    config = json.loads((hf / "config.json").read_text())
    audio, text = config["audio_config"], config["text_config"]
    del audio["max_position_embeddings"]
    audio |= {"model_type": "qwen3_asr_audio_encoder", "max_source_positions": 1500, "conv_chunksize": 500}
    text |= {
        "model_type": "qwen3_asr_text",
        "rope_theta": text.pop("rope_parameters")["rope_theta"],
        "rope_scaling": {"rope_type": "default", "type": "default", "mrope_section": [24, 20, 20]},
    }
    thinker = {"model_type": "qwen3_asr", "audio_token_id": config["audio_token_id"]}
    thinker |= {"audio_config": audio, "text_config": text}
    outer = {"architectures": config["architectures"], "model_type": "qwen3_asr", "support_languages": []}
    (path / "config.json").write_text(json.dumps(outer | {"thinker_config": thinker}))
    generation = {"do_sample": False, "eos_token_id": config["eos_token_id"]}
    (path / "generation_config.json").write_text(json.dumps(generation))

    def renamed(name: str) -> str:
        for new, old in _THINKER_NAMES:
            name = old + name.removeprefix(new) if name.startswith(new) else name
        return name

    tensors = {renamed(name): tensor for name, tensor in load_file(hf / "model.safetensors").items()}
    tensors.setdefault("thinker.lm_head.weight", tensors["thinker.model.embed_tokens.weight"].clone())
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    tokenizer = json.loads((hf / "tokenizer.json").read_text())
    added = {str(token.pop("id")): token for token in tokenizer["added_tokens"]}
    names = {token["content"] for token in added.values()}
    vocabulary = {piece: each for piece, each in tokenizer["model"]["vocab"].items() if piece not in names}
    (path / "vocab.json").write_text(json.dumps(vocabulary))
    merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"])
    (path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges))
    of_tokenizer = json.loads((hf / "tokenizer_config.json").read_text())
    of_tokenizer |= {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added}
    (path / "tokenizer_config.json").write_text(json.dumps(of_tokenizer))
    (path / "chat_template.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    WhisperFeatureExtractor(feature_size=audio["num_mel_bins"]).save_pretrained(path)
    return path


def load_reference(path: Path) -> Qwen3ASRForConditionalGeneration:
    """The folder's model as `transformers` runs it, in float32."""
    return Qwen3ASRForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()


def make_audio(seed: int, seconds: float) -> FloatArray:
    """Mono samples at 16 kHz: by `seed % 3` noise, gliding tones, or near silence and then a shout."""
    random = np.random.default_rng(seed)
    num_samples = round(seconds * 16_000)
    samples = random.standard_normal(num_samples)
    if seed % 3 == 0:
        samples *= 0.1 * np.repeat(random.uniform(0, 2, num_samples // 800 + 1), 800)[:num_samples]
    elif seed % 3 == 1:
        times = np.arange(num_samples) / 16_000
        pitch = random.uniform(80, 400) + random.uniform(-10, 30) * times
        buzz = sum(np.sin(2 * np.pi * pitch * k * times) / k for k in range(1, 9))
        samples = 0.2 * buzz * (1 + np.sin(2 * np.pi * random.uniform(0.5, 4) * times)) + 1e-3 * samples
    else:
        samples[: num_samples * 2 // 3] *= 1e-5
        samples[num_samples * 2 // 3 :] *= 0.3
    return samples.astype(np.float32)
