"""Random language models as Hugging Face folders, small ones, of any architecture in `transformers`.

Weights are made by `transformers` (names and shapes are its own) and scaled so that greedy output is
varied. The tokenizer is a real byte-level BPE with Qwen3's control tokens, fast and self-contained; the
chat template is ChatML.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, Qwen3Config
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and then it sleeps for seven hours.",
    "Turn on the lights in the kitchen, please, and set an alarm for half past six.",
    'def hello(name: str) -> None:\n    print(f"Hello, {name}!")\n',
    "El perro come en la cocina y mañana vamos a la playa con María.",
    "Der Zug fährt um zwanzig nach fünf vom Gleis drei; bitte nicht vergessen!",
    "今日は天気がいいから、散歩しましょう。",
)

END, START_OF_MESSAGE, END_OF_MESSAGE = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = (END, START_OF_MESSAGE, END_OF_MESSAGE)
TEXT_LIKE_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Added, but not special: they show when decoded."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class QwenShape:
    """The sizes of a Qwen3 checkpoint, and its variations."""

    hidden_size: int = 32
    intermediate_size: int = 48
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    tied: bool = True
    attention_bias: bool = False
    window: int | None = None
    """Of every other layer, if given."""
    rope: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10_000.0})
    max_positions: int = 512
    num_text_tokens: int = 320
    vocab_size: int | None = None
    """Padded to this, if given, as published ones are; else by three."""


QWEN3_0_6B = QwenShape(
    hidden_size=1024,
    intermediate_size=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    rope={"rope_type": "default", "rope_theta": 1_000_000.0},
    max_positions=40_960,
    num_text_tokens=151_643,
    vocab_size=151_936,
)
"""The published shape of Qwen/Qwen3-0.6B."""


@functools.cache
def byte_level_tokenizer(
    num_text_tokens: int = 320, extra: Sequence[str] = (), sentences: Sequence[str] = SENTENCES
) -> Tokenizer:
    """Bytes, merges as in `sentences`, words no text has up to `num_text_tokens`, then the added tokens and
    `extra`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(num_text_tokens, 400),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    bpe.train_from_iterator((f" {sentence}" for sentence in sentences), trainer)
    if num_text_tokens > bpe.get_vocab_size():
        description = json.loads(bpe.to_str())
        vocabulary = description["model"]["vocab"]
        vocabulary |= {f"Ġw{index}": index for index in range(len(vocabulary), num_text_tokens)}
        bpe = Tokenizer.from_str(json.dumps(description))
    bpe.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in CONTROL_TOKENS])
    bpe.add_tokens([AddedToken(name, normalized=False, special=False) for name in TEXT_LIKE_TOKENS])
    bpe.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in extra])
    return bpe


def write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """`tokenizer.json` and its config with the chat template."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": END_OF_MESSAGE,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))


def qwen3_config(shape: QwenShape, vocab_size: int) -> Qwen3Config:
    """The config of a shape."""
    kinds = ["full_attention", "sliding_attention" if shape.window else "full_attention"]
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
        attention_bias=shape.attention_bias,
        use_sliding_window=shape.window is not None,
        sliding_window=shape.window,
        layer_types=[kinds[layer % 2] for layer in range(shape.num_layers)],
        rope_parameters=dict(shape.rope),
        max_position_embeddings=shape.max_positions,
    )


def make_qwen3_folder(
    path: Path,
    *,
    seed: int = 0,
    shape: QwenShape | None = None,
    max_shard_size: str = "5GB",
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a random Qwen3 checkpoint to `path`; return it."""
    shape = shape or QwenShape()
    tokenizer = byte_level_tokenizer(shape.num_text_tokens)
    vocab_size = shape.vocab_size or tokenizer.get_vocab_size(with_added_tokens=True) + 3
    config = qwen3_config(shape, vocab_size)
    return make_text_folder(
        path, config, seed=seed, max_shard_size=max_shard_size, dtype=dtype, tokenizer=tokenizer
    )


def make_text_folder(
    path: Path,
    config: PreTrainedConfig,
    *,
    seed: int = 0,
    max_shard_size: str = "5GB",
    dtype: torch.dtype = torch.float32,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Write a random checkpoint of any causal language model, with our tokenizer, to `path`; return it."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer or byte_level_tokenizer()
    end = tokenizer.token_to_id(END_OF_MESSAGE)
    config.eos_token_id = end
    for name in ("bos_token_id", "pad_token_id"):
        with suppress(StrictDataclassFieldValidationError):  # some take none but a number
            setattr(config, name, None)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    randomise(model, seed)
    model.generation_config.eos_token_id = [end, tokenizer.token_to_id(END)]
    model.generation_config.pad_token_id = tokenizer.token_to_id(END)
    model.save_pretrained(path, max_shard_size=max_shard_size)
    write_tokenizer(path, tokenizer)
    return path


def randomise(model: PreTrainedModel, seed: int) -> None:
    """Weights that make greedy answers varied: norms and biases are random too."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            is_norm = "norm" in name and name.endswith("weight")
            value = (1.0 if is_norm else 0.0) + 0.2 * noise
        elif "embed" in name or "wte" in name:
            value = 0.3 * noise  # small, else a tied head answers with the token it was fed
        elif "lm_head" in name or "embed_out" in name:
            value = noise * 3.0 / parameter.shape[1] ** 0.5
        else:
            value = noise * 2.0 / parameter[0].numel() ** 0.5
        with torch.no_grad():
            parameter.copy_(value)
    for name, buffer in model.named_buffers():
        if name.endswith("score_correction_bias"):  # of routers: which expert is chosen depends on it
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
