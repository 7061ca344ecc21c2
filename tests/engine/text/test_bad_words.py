"""Words become the tokens that spell them, at a beginning and behind a space."""

from __future__ import annotations

from sensorium.engine.text.bad_words import bad_word_ids


def spelt(*words: str) -> list[str]:
    """As a tokenizer of characters has them, one of which is a space with an `a`."""

    def encode(text: str) -> tuple[int, ...]:
        return tuple(map(ord, text.replace(" a", "ä")))

    return ["".join(map(chr, token_ids)) for token_ids in bad_word_ids(words, encode)]


def test_a_word_counts_at_a_beginning_and_behind_a_space_each_once() -> None:
    assert spelt("ab") == spelt(" ab") == spelt("  ab", "ab") == ["ab", "äb"]
    assert spelt("cd") == ["cd", " cd"]
    assert spelt("cd ", "ab") == ["cd ", " cd ", "ab", "äb"]


def test_white_space_may_be_all_there_is() -> None:
    assert spelt("\n") == ["\n", " \n"]
    assert spelt(" ") == [" ", "  "]
