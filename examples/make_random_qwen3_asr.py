"""Write a Qwen3-ASR folder of the published 0.6B shape with made-up weights, to measure live speech on.

    python examples/make_random_qwen3_asr.py FOLDER [--shape 0.6b|tiny] [--rate 3.3]

What a live update costs hangs on how long answers are, and random weights babble until they are stopped. So a
few weights are set by hand and the others are small beside them: each word leads to the next of a list, one
head of the first layer counts rows of audio against words, and the answer ends when there are `--rate` words
to the second. An answer to more of the same audio begins as the one before did, and each says its language
first. Products have the published sizes, so speed is that of trained weights. 1.9 GB on disk: the output
projection is stored apart from the embedding, and is read once a step either way.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen3ASRForConditionalGeneration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.asr_folder import TEXT_TAG, AsrShape, asr_config, asr_tokenizer, make_asr_folder
from support.text_folder import END_OF_MESSAGE, QWEN3_0_6B, SENTENCES, QwenShape, randomise

SHAPES: Final = {
    "tiny": AsrShape(
        QwenShape(hidden_size=64, head_dim=16, max_positions=4096, tied=False, num_text_tokens=900)
    ),
    "0.6b": AsrShape(
        replace(QWEN3_0_6B, tied=False, max_positions=65_536),
        d_model=896,
        num_layers=18,
        num_heads=14,
        ffn_size=3584,
        conv_channels=480,
    ),
}
ROWS_PER_S: Final = 13
"""The tower's, of audio."""
WORDS: Final = range(450, 850)
"""Tokens that no text has; behind the last comes the first."""
_SYLLABLES: Final = tuple(map("".join, product("bdfgklmnprstvz", "aeiou")))
KIND, COUNT = 0, 1
"""Components of the residual stream that are kept free: what a row is, and how much audio there is for the
words so far."""
NOISE: Final = 0.02
"""Scale of what everything else adds."""
NEXT_LOGIT: Final = 30.0
END_LOGIT: Final = 2000.0


def tokenizer_of(shape: AsrShape) -> Tokenizer:
    """The header's words are a token each, as in the published vocabulary; what is said are words of letters,
    the first with a capital, since live text waits where a number may go on."""
    plain = asr_tokenizer(shape.text.num_text_tokens, (*SENTENCES, *["a\nlanguage English"] * 20))
    described = json.loads(plain.to_str())
    words = {token: f"Ġ{_SYLLABLES[token // 70 % 70]}{_SYLLABLES[token % 70]}" for token in WORDS}
    words[WORDS.start] = words[WORDS.start].replace("Ġ", "ĠM", 1)
    vocabulary = described["model"]["vocab"]
    described["model"]["vocab"] = {words.get(token, text): token for text, token in vocabulary.items()}
    return Tokenizer.from_str(json.dumps(described))


def make_model(shape: AsrShape, tokenizer: Tokenizer, rate: float) -> Qwen3ASRForConditionalGeneration:
    """A model in bfloat16 that says `rate` words a second."""
    model = Qwen3ASRForConditionalGeneration(asr_config(shape, tokenizer)).eval()
    randomise(model, 0)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            if name.startswith("model.language_model.layers."):
                set_layer(name, weight, shape.text)
        weights["model.language_model.norm.weight"].fill_(1.0)
        set_rows(dict(model.model.multi_modal_projector.linear_2.named_parameters()), rate)
        set_words(weights["model.language_model.embed_tokens.weight"], weights["lm_head.weight"], tokenizer)
    return model.to(torch.bfloat16)


def set_layer(name: str, weight: Tensor, shape: QwenShape) -> None:
    """Nothing writes to the two components but the first layer's first head: the mean of `KIND` so far."""
    is_first, part = ".layers.0." in name, name.split(".")[-2]
    if part in {"input_layernorm", "post_attention_layernorm"}:
        weight.fill_(1.0)
    elif part in {"o_proj", "down_proj"}:
        weight *= NOISE
        weight[[KIND, COUNT]] = 0.0
        if part == "o_proj" and is_first:
            weight[COUNT, 0] = 1.0
    elif part == "q_proj" and is_first:
        weight[: shape.head_dim] = 0.0  # looks at everything alike
    elif part == "v_proj" and is_first:
        weight[0] = 0.0
        weight[0, KIND] = 1.0


def set_rows(projector: dict[str, Tensor], rate: float) -> None:
    """All rows of audio are nearly the same, as large as those of words, and each worth so much of one."""
    projector["weight"] *= NOISE
    projector["weight"][[KIND, COUNT]] = 0.0
    projector["bias"] /= projector["bias"].square().mean().sqrt()
    projector["bias"][[KIND, COUNT]] = torch.tensor([rate / ROWS_PER_S, 0.0])


def set_words(embedding: Tensor, output: Tensor, tokenizer: Tokenizer) -> None:
    """Header, words one after the other, and the end where `COUNT` falls below zero."""
    embedding.copy_(embedding / embedding.square().mean(1, keepdim=True).sqrt())
    embedding[:, [KIND, COUNT]] = 0.0
    output *= 0.02
    output[:, [KIND, COUNT]] = 0.0
    newline, language, english = (tokenizer.encode(text).ids for text in ("\n", "language", " English"))
    chain = [*newline, *language, *english, tokenizer.token_to_id(TEXT_TAG), *WORDS]
    for token, following in zip(chain, [*chain[1:], WORDS[0]], strict=True):
        output[following] += embedding[token] * NEXT_LOGIT / embedding.shape[1]
    embedding[WORDS.start : WORDS.stop, KIND] = -1.0
    end = tokenizer.token_to_id(END_OF_MESSAGE)
    output[end] = 0.0
    output[end, COUNT] = -END_LOGIT


def main() -> None:
    """Write the folder and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="0.6b")
    parser.add_argument("--rate", type=float, default=3.3, help="words (a token each) to a second of audio")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    tokenizer = tokenizer_of(shape)
    model = make_model(shape, tokenizer, arguments.rate)
    print(f"wrote {make_asr_folder(arguments.folder, shape=shape, model=model, tokenizer=tokenizer)}")


if __name__ == "__main__":
    main()
