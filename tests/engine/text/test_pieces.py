"""Piece by piece a text has the ids that it has as a whole, whatever a tokenizer does around its tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.text.pieces import PieceEncoder
from sensorium.engine.text.tokenizer import TextTokenizer
from support.text_folder import CONTROL_TOKENS, TEXT_LIKE_TOKENS, byte_level_tokenizer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

NAMES = ("<s>", "</s>", "<s><s", "[x]", "[x]y", "end")
"""One is the beginning of another, and of two that overlap the left one counts."""


def characters(*added: AddedToken) -> Tokenizer:
    """A token for each character, where `▁` is also a space."""
    letters = "▁<>/s[]xyend abcABC\n"
    tokenizer = Tokenizer(models.BPE({each: index for index, each in enumerate(letters)}, []))
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def plain(**flags: bool) -> Tokenizer:
    return characters(*(AddedToken(name, normalized=False, special=True, **flags) for name in NAMES))


def spaced_in_front_once() -> Tokenizer:
    tokenizer = plain()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return tokenizer


def spaced_everywhere() -> Tokenizer:
    tokenizer = plain()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.Lowercase()]
    )
    return tokenizer


def begun() -> Tokenizer:
    tokenizer = plain()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>") or 0)]
    )
    return tokenizer


def mixed() -> Tokenizer:
    """Some take spaces, some are looked for in what was made of the text."""
    return characters(
        AddedToken("<s>", normalized=False, special=True),
        AddedToken("</s>", normalized=False, special=True, rstrip=True),
        AddedToken("[x]", normalized=False, special=False, lstrip=True),
        AddedToken(" a", normalized=False, special=False),
        AddedToken("end", normalized=True, special=False),
        AddedToken("e", normalized=True, special=False, lstrip=True, rstrip=True),
    )


def mixed_and_spaced() -> Tokenizer:
    """What is looked for behind the normalizer is no place to cut at: each piece would be normalized anew."""
    tokenizer = mixed()
    tokenizer.normalizer = normalizers.Prepend("▁")
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "plain": plain,
    "takes spaces on the left": lambda: plain(lstrip=True),
    "takes spaces on the right": lambda: plain(rstrip=True),
    "words only": lambda: plain(single_word=True),
    "spaced in front once": spaced_in_front_once,
    "spaced everywhere": spaced_everywhere,
    "begun": begun,
    "mixed": mixed,
    "mixed and spaced": mixed_and_spaced,
    "none added": characters,
}
TEXTS = st.lists(
    st.sampled_from([*NAMES, " ", "  ", "\n", "<s", ">", "▁", "A", "en", "d", "\ud800", "\udc00", "é"])
    | st.text("abc Ae", max_size=3),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_have_the_ids_of_the_whole(name: str) -> None:
    text = TextTokenizer(TOKENIZERS[name]())
    encoder = PieceEncoder(text, max_chars=60)  # so that much is forgotten, too

    @settings(max_examples=300, deadline=None)
    @given(TEXTS)
    def check(given_text: str) -> None:
        assert encoder.encode(given_text) == text.encode(given_text, allow_special=True)

    check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*CONTROL_TOKENS, *TEXT_LIKE_TOKENS, " ", "a day", "\n", "'s 12"])))
def test_so_it_is_with_a_real_one(parts: list[str]) -> None:
    text = TextTokenizer(byte_level_tokenizer())
    found = PieceEncoder(text).encode("".join(parts))
    assert found == text.encode("".join(parts), allow_special=True)


class Counting(TextTokenizer):
    """Tells what it had to encode."""

    def __init__(self) -> None:
        super().__init__(byte_level_tokenizer())
        self.encoded: list[str] = []

    def encode(self, text: str, *, allow_special: bool) -> tuple[int, ...]:
        self.encoded.append(text)
        return super().encode(text, allow_special=allow_special)


def turn(words: str) -> str:
    return f"<|im_start|>user\n{words}<|im_end|>\n"


def test_a_talk_that_grows_is_encoded_by_its_newest_turn() -> None:
    text = Counting()
    encoder, talk = PieceEncoder(text), ""
    for number in range(50):
        talk += turn(f"question {number}")
        encoder.encode(talk)
        begun, *ended = text.encoded
        assert begun == f"<|im_start|>user\nquestion {number}"
        assert ended == ([] if number else ["<|im_end|>\n"])
        text.encoded.clear()


def test_what_is_kept_is_bounded() -> None:
    text = Counting()
    encoder = PieceEncoder(text, max_chars=2000)
    for number in range(500):
        encoder.encode(turn(f"question {number}"))
        assert encoder.num_chars <= 4000
    text.encoded.clear()
    encoder.encode(turn("question 499"))
    assert text.encoded == [], "the newest is there"
    encoder.encode(turn("question 0"))
    assert text.encoded == ["<|im_start|>user\nquestion 0"]


def test_a_long_piece_is_not_kept() -> None:
    encoder = PieceEncoder(Counting())
    encoder.encode("<|im_end|>" + "word " * 20_000)
    assert not encoder.num_chars
