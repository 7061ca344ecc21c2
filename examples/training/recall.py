"""Rows without audio that teach the decoder to go on with a word as its prompt has it.

Of audio with contexts alone it is not learnt: too little of an answer gets likelier by it. Of these rows it
is, and nearly all at once: alone after 7 000 of them, beside audio after some 28 000. How a word begins is
given, since only audio can tell which word is said; what is to be predicted is how words of the prompt go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from contexts import context, other_word, with_words
from open_text import OpenText
from speech_grammar import LANGUAGES, Language

ROWS: Final = 16
MIN_PROMPT_WORDS, MAX_PROMPT_WORDS, MAX_SPOKEN, MAX_PLAIN = 2, 14, 6, 8
KEYWORDS_SHARE: Final = 0.6
"""Of prompts that are a list; the others are a sentence."""
MAX_GAP: Final = 390
"""Positions between prompt and answer, where an utterance of 30 s has its audio."""


@dataclass(frozen=True, slots=True)
class RecallBatch:
    """`inputs`, `positions` and `labels` [rows, length]; a label is what follows its input, or -100."""

    inputs: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor


def recall_batch(
    texts: Mapping[Language, OpenText],
    parts: Callable[[str, Language], tuple[list[int], list[int]]],
    encoded: Callable[[str], list[int]],
    rng: random.Random,
) -> RecallBatch:
    """`ROWS` rows; `parts` gives what is before and behind the audio for a context and a language."""
    rows: list[tuple[list[int], list[int], list[int]]] = []
    for _ in range(ROWS):
        language = rng.choice(LANGUAGES)
        known_text, words = _drawn(texts[language], rng)
        before, after = parts(known_text, language)
        tokens = [*before, *after]
        labels = [-100] * (len(tokens) - 1)
        for index, (word, is_known) in enumerate(words):
            pieces = encoded(f" {word}" if index else word)
            tokens += pieces
            labels += [-100, *(pieces[1:] if is_known else [-100] * (len(pieces) - 1))]
        gap = rng.randint(0, MAX_GAP)
        positions = [index + gap * (index >= len(before)) for index in range(len(tokens))]
        rows.append((tokens[:-1], positions[:-1], labels))
    return RecallBatch(
        in_rows([inputs for inputs, _, _ in rows], 0),
        in_rows([positions for _, positions, _ in rows], 0),
        in_rows([labels for _, _, labels in rows], -100),
    )


def _drawn(words: OpenText, rng: random.Random) -> tuple[str, list[tuple[str, bool]]]:
    """A context, and words of which it has some: whether it has them stands beside each."""
    count = rng.randint(MIN_PROMPT_WORDS, MAX_PROMPT_WORDS)
    prompt_words = list(dict.fromkeys(other_word(words, rng) for _ in range(count)))
    if rng.random() < KEYWORDS_SHARE:
        text = context(prompt_words, "")
    else:
        text = context((), with_words(words.phrase("words", rng), prompt_words, rng))
    spoken = rng.sample(prompt_words, rng.randint(1, min(MAX_SPOKEN, len(prompt_words))))
    answer = [(word, True) for word in spoken]
    answer += [(word, False) for word in words.words(rng.randint(0, MAX_PLAIN), rng)]
    rng.shuffle(answer)
    return text, answer


def in_rows(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    """[rows, longest], with `value` behind the shorter ones."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])
