"""Begin with the weights of a smaller tiny-qwen3-asr instead of random ones.

The grown network hears at first what the small one heard: layers behind the old ones and columns beside them
start as zeros, and a token that the old tokenizer lacks is the mean of the tokens it was written with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import torch
from safetensors.torch import load_file
from tiny_qwen3_asr_model import TrainedAsr
from tokenizers import Tokenizer

_EMBEDDING: Final = "model.language_model.embed_tokens.weight"
_ADDS_TO_STREAM: Final = ("self_attn.out_proj", "self_attn.o_proj", "fc2", "down_proj")
"""What a layer adds to the residual stream goes through one of these."""


def start_from(folder: Path, model: TrainedAsr, tokenizer: Tokenizer) -> None:
    """Fill the network with the folder's weights; ValueError where it is larger than the network."""
    stored = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    old = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own = model.asr.state_dict()
    with torch.no_grad():
        for name, tensor in own.items():
            if name == "lm_head.weight":
                continue
            if name == _EMBEDDING:
                tensor.copy_(_embeddings(stored[name], old, tokenizer))
            elif name in stored:
                _fill(name, tensor, stored[name])
            elif any(f"{part}." in name for part in _ADDS_TO_STREAM):
                tensor.zero_()


def _fill(name: str, tensor: torch.Tensor, stored: torch.Tensor) -> None:
    if any(have < had for have, had in zip(tensor.shape, stored.shape, strict=True)):
        raise ValueError(
            f"{name} is {list(stored.shape)} in the folder and {list(tensor.shape)} in the network"
        )
    if "down_proj" in name:
        tensor.zero_()
    tensor[tuple(slice(size) for size in stored.shape)] = stored


def _embeddings(stored: torch.Tensor, old: Tokenizer, new: Tokenizer) -> torch.Tensor:
    rows: list[torch.Tensor] = []
    known = old.get_vocab(with_added_tokens=True)
    for token in range(new.get_vocab_size(with_added_tokens=True)):
        piece = cast(str, new.id_to_token(token))
        ids = [known[piece]] if piece in known else [known[part] for part in _pieces(piece, old)]
        rows.append(stored[ids].mean(0))
    return torch.stack(rows)


def _pieces(piece: str, old: Tokenizer) -> list[str]:
    """How the old tokenizer writes the bytes of a token."""
    return [token.value for token in old.model.tokenize(piece)]
