"""Small real tokenizers, byte-level and SentencePiece-like, and a naive search for stop strings."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "the cat sat on the mat",
    "das Grüne über dem Gelben",
    "語 と 文字 の 列",
    "🎈 and 🎉 and ends. END",
] * 5


@cache
def byte_level_tokenizer() -> Tokenizer:
    """BPE over bytes, whose merges go through the middle of characters; its first two ids are special, and
    one token is added text with a space in it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<|end|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens(["<a b>"])
    return tokenizer


@cache
def word_tokenizer() -> Tokenizer:
    """Words behind a `▁` that stands for the space in front of them."""
    words = ["<unk>", "▁the", "▁cat", "s", "▁", "at"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text in front of the stop string that ends first (of several the longest), and that string."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None
