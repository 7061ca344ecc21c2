"""Small word lists for the tests of what training says: the grammar's own words."""

from __future__ import annotations

import random
from typing import Final

from open_text import OpenText
from speech_grammar import Language, load_grammar
from word_lists import Words

VARIANTS: Final = ["Kathryn", "Stephan", "Cesar"]


def open_text(language: Language) -> OpenText:
    """Phrases over a few hundred words."""
    rng = random.Random(1)
    grammar = load_grammar(language)
    sentences = [grammar.training_sentence(rng) for _ in range(400)]
    parts = (word.strip("¿?.,").lower() for sentence in sentences for word in sentence.split())
    words = dict.fromkeys(word for word in parts if len(word) > 1)
    return OpenText(language, Words(list(words), list(grammar.slots["name"]), VARIANTS))
