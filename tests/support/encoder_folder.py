"""Random models that embed texts as Hugging Face folders, and their vectors by `transformers` alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from support.text_folder import byte_level_tokenizer, randomise
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Mode = Literal["cls", "mean", "lasttoken"]
_MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}

COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {},
    "xlm-roberta": {"max_position_embeddings": 130},
    "modernbert": {"num_key_value_heads": 4, "local_attention": 16, "global_attn_every_n_layers": 2},
    "mpnet": {"max_position_embeddings": 130},
}
DECODERS: dict[str, dict[str, Any]] = {
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 9},
}

TEXTS = (
    "The train leaves at twenty past five from platform three.",
    "A cat.",
    "El perro come en la cocina y mañana vamos a la playa con María, que llega hoy de Sevilla.",
    "Turn on the lights in the kitchen, please, and set an alarm for half past six.",
    "今日は天気がいいから、散歩しましょう。",
)


def embedding_tokenizer(start: str | None, end: str | None) -> Tokenizer:
    """Byte-level, with special tokens around each text as a post-processor puts them there."""
    extra = ("<pad>", "<s>", "</s>")
    tokenizer = Tokenizer.from_str(byte_level_tokenizer(extra=extra).to_str())
    template = " ".join(each for each in (start, "$A", end) if each)
    used = [(each, tokenizer.token_to_id(each)) for each in (start, end) if each]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    return tokenizer


def word_piece_tokenizer() -> Tokenizer:
    """BERT's: lower case, pieces of words, `[CLS]` in front and `[SEP]` behind."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,'!?"
    pieces = [*names, *letters, *(f"##{each}" for each in letters), "the", "train", "kitchen", "##ing", "per"]
    tokenizer = Tokenizer(models.WordPiece({each: i for i, each in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(names)
    used = [(each, tokenizer.token_to_id(each)) for each in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=used)
    return tokenizer


def make_embedding_folder(
    path: Path,
    model_type: str,
    *,
    mode: Mode | None = None,
    is_normalized: bool = True,
    has_head: bool = False,
    dtype: torch.dtype = torch.float32,
    **changes: Any,  # noqa: ANN401 (fields of a config)
) -> Path:
    """Write a random checkpoint of an encoder, or of a decoder that embeds; return it. With a `mode` it has
    the files of `sentence-transformers`; `has_head`: it is a whole causal language model."""
    path.mkdir(parents=True, exist_ok=True)
    is_decoder = model_type in DECODERS
    if model_type == "bert":
        tokenizer, end, pad = word_piece_tokenizer(), "[SEP]", "[PAD]"
    else:
        tokenizer = embedding_tokenizer(None if is_decoder else "<s>", "</s>")
        end, pad = "</s>", "<pad>"
    own = {**COMMON, **ENCODERS.get(model_type, {}), **DECODERS.get(model_type, {}), **changes}
    pad_id = 1 if model_type in ("xlm-roberta", "mpnet") else tokenizer.token_to_id(pad)
    config = CONFIG_MAPPING[model_type](
        **own,
        vocab_size=tokenizer.get_vocab_size(with_added_tokens=True),
        pad_token_id=pad_id,
        eos_token_id=tokenizer.token_to_id(end),
        bos_token_id=None,
    )
    kind = AutoModelForCausalLM if has_head else AutoModel
    model = kind.from_config(config, dtype=dtype)
    randomise(model, seed=7)
    with torch.no_grad():  # products that keep their inputs' size, as trained ones do
        for parameter in model.parameters():
            parameter.mul_(0.5 if parameter.dim() > 1 else 1)
    model.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "pad_token": pad}
    (path / "tokenizer_config.json").write_text(json.dumps(names))
    if mode is not None:
        write_modules(path, mode, is_normalized=is_normalized)
    return path


def write_modules(path: Path, mode: Mode, *, is_normalized: bool = True) -> None:
    """The files that say how the folder embeds."""
    names = ["Transformer", "Pooling", *(["Normalize"] if is_normalized else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{name}" if i else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(names)
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 32, **{name: key == mode for key, name in _MODES.items()}}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def reference_vectors(
    path: Path, texts: Sequence[str], mode: Mode, *, dimensions: int | None = None, is_normalized: bool = True
) -> npt.NDArray[np.float32]:
    """Vectors of `texts`, one by one, by the model that `AutoModel` makes of the folder, in float32."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    rows = []
    with torch.inference_mode():
        for text in texts:
            ids = torch.tensor([tokenizer(text, add_special_tokens=True)["input_ids"]])
            hidden = model(input_ids=ids).last_hidden_state[0]
            row = {"cls": hidden[0], "mean": hidden.mean(0), "lasttoken": hidden[-1]}[mode][:dimensions]
            rows.append(torch.nn.functional.normalize(row, dim=0) if is_normalized else row)
    found: npt.NDArray[np.float32] = torch.stack(rows).numpy()
    return found


def cosines(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Of rows, in double precision."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    found: npt.NDArray[np.float64] = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return found
