"""What an utterance's prompt says beside the audio: words to expect, a sentence, both or nothing.

In the form in which the server puts `keywords` and `prompt` into a prompt. Some of the words are said in
the utterance and some are not, so that a model learns to write them as they are spelt here, and only when
it hears them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from open_text import OpenText, drawn_kind

EMPTY_SHARE: Final = 0.4
KEYWORDS_SHARE: Final = 0.85
"""Up to this draw there are keywords, from `PROMPT_FROM` on there is a prompt."""
PROMPT_FROM: Final = 0.7
MAX_SPOKEN, MAX_OTHERS = 3, 6
ALL_SHARE, MAX_OF_ALL = 0.35, 16
"""In so many contexts nearly everything that is said is told: that they hold answers is learnt there."""
UNCOMMON_WEIGHT: Final = 8


def context(keywords: Sequence[str], prompt: str) -> str:
    """The text of the system message."""
    return "\n".join(part for part in (", ".join(keywords), prompt) if part)


def drawn_context(text: str, words: OpenText, rng: random.Random) -> str:
    """A context for an utterance whose text is known."""
    if rng.random() < EMPTY_SHARE:
        return ""
    spoken_words = prompt_words(
        text, words, rng, MAX_OF_ALL if rng.random() < ALL_SHARE else rng.randint(0, MAX_SPOKEN)
    )
    draw = rng.random()
    keywords: list[str] = []
    if draw < KEYWORDS_SHARE:
        others = [other_word(words, rng) for _ in range(rng.randint(0, MAX_OTHERS))]
        keywords = [*spoken_words, *others]
        rng.shuffle(keywords)
    prompt = ""
    if draw > PROMPT_FROM:
        prompt = words.phrase(drawn_kind(rng), rng)
        if draw > KEYWORDS_SHARE and spoken_words:
            prompt = with_words(prompt, spoken_words, rng)
    return context(keywords, prompt)


def prompt_words(text: str, words: OpenText, rng: random.Random, count: int) -> list[str]:
    """Up to so many of the text's words, mostly those that a listener may not know."""
    spoken = dict.fromkeys(word for each in text.split() if len(word := each.strip("¿?.,")) > 3)
    chosen: list[str] = []
    left = list(spoken)
    while left and len(chosen) < count:
        weights = [1 if word.lower() in words.common else UNCOMMON_WEIGHT for word in left]
        chosen.append(left.pop(rng.choices(range(len(left)), weights)[0]))
    return chosen


def with_words(sentence: str, spoken_words: Sequence[str], rng: random.Random) -> str:
    """The sentence with the words somewhere in it."""
    parts = sentence.split()
    for word in spoken_words:
        parts.insert(rng.randrange(len(parts)), word)
    return " ".join(parts)


def other_word(words: OpenText, rng: random.Random) -> str:
    """A word that nobody needs to have said; half of them are invented."""
    draw = rng.random()
    if draw < 0.5:
        return words.invented.word(rng, held_out=False)
    return rng.choice(words.lists.names) if draw < 0.8 else words.words(1, rng)[0]
