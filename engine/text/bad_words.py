"""Words that an answer may not hold, as the sequences of tokens that spell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def bad_word_ids(
    words: Sequence[str], encode: Callable[[str], tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Each as it is written at a beginning and behind a space, as in vLLM; other tokens may spell it, too.

    Both ways count wherever they differ; vLLM leaves out the second where it has another number of tokens.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = word.lstrip(" ") or word
        found |= dict.fromkeys((encode(bare), encode(f" {bare}")))
    return tuple(token_ids for token_ids in found if token_ids)
