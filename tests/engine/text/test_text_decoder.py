"""Joins of pieces equal the decode of all ids, for every way of cutting them, and characters stay whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sensorium.engine.text.text_decoder import ByteDecoder, Decode, TextDecoder, WindowedDecoder
from sensorium.engine.text.token_bytes import byte_table
from support.tokenizers import byte_level_tokenizer, word_tokenizer

SPECIAL_ID = 256  # from here on ids have no text


def decode_bytes(token_ids: Sequence[int]) -> str:
    """Byte-level: an id is a byte."""
    return bytes(each for each in token_ids if each < SPECIAL_ID).decode("utf-8", errors="replace")


TABLE = [bytes((byte,)) for byte in range(256)]
DECODERS: dict[str, Callable[[], TextDecoder]] = {
    "bytes": lambda: ByteDecoder(TABLE),
    "window": lambda: WindowedDecoder(decode_bytes),
}
decoders = pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS.keys())

WORDS = ["▁the", "▁a", "b", "▁", "é", "▁語"]


def decode_words(token_ids: Sequence[int]) -> str:
    """SentencePiece-like: the space before the first word is dropped, so ids cannot be decoded alone."""
    words = [WORDS[each % len(WORDS)] for each in token_ids if each < SPECIAL_ID]
    return "".join(words).replace("▁", " ").removeprefix(" ")


def decode_with_byte_tokens(token_ids: Sequence[int]) -> str:
    """As SentencePiece with byte fallback: neighbouring bytes are text only if all of them are."""
    text = ""
    for is_word, run in itertools.groupby(token_ids, key=lambda each: each >= SPECIAL_ID):
        if is_word:
            text += "".join(WORDS[each % len(WORDS)] for each in run).replace("▁", " ")
            continue
        run_bytes = bytes(run)
        try:
            text += run_bytes.decode()
        except UnicodeDecodeError:
            text += "\ufffd" * len(run_bytes)
    return text.removeprefix(" ")


def pieces(token_ids: Sequence[int], cuts: list[int]) -> list[Sequence[int]]:
    edges = [0, *sorted(min(cut, len(token_ids)) for cut in cuts), len(token_ids)]
    return [token_ids[start:end] for start, end in itertools.pairwise(edges)]


texts = st.text(alphabet="aé語🎈 \ufffd", max_size=20)
byte_ids = st.one_of(
    texts.map(lambda text: list(text.encode())), st.lists(st.integers(0, SPECIAL_ID + 2), max_size=40)
)
cuts = st.lists(st.integers(0, 60), max_size=12)


def joined(decoder: TextDecoder, parts: list[Sequence[int]]) -> str:
    return "".join([decoder.push(part) for part in parts]) + decoder.flush()


@decoders
@given(token_ids=byte_ids, cuts=cuts)
def test_joined_pieces_are_the_decode_of_all_bytes(
    make: Callable[[], TextDecoder], token_ids: list[int], cuts: list[int]
) -> None:
    assert joined(make(), pieces(token_ids, cuts)) == decode_bytes(token_ids)
    assert joined(make(), [[token_id] for token_id in token_ids]) == decode_bytes(token_ids)


@given(st.lists(st.integers(0, SPECIAL_ID + 2), max_size=60), cuts)
def test_joined_pieces_are_the_decode_of_all_words(token_ids: list[int], cuts: list[int]) -> None:
    assert joined(WindowedDecoder(decode_words), pieces(token_ids, cuts)) == decode_words(token_ids)


@example("aaé語語🎈", [13])
@given(texts.filter(lambda text: "\ufffd" not in text), cuts)
def test_bytes_between_words_become_characters(text: str, cuts: list[int]) -> None:
    """Even where one more byte makes the text of those before it broken for a while."""
    ids = [each for part in text.split(" ") for each in (*part.encode(), SPECIAL_ID)]
    assert joined(WindowedDecoder(decode_with_byte_tokens), pieces(ids, cuts)) == decode_with_byte_tokens(ids)


@example([*"é".encode(), *"語".encode()[:2], SPECIAL_ID], [])
@given(byte_ids, cuts)
def test_broken_bytes_are_the_same_text_however_they_come(token_ids: list[int], cuts: list[int]) -> None:
    one_by_one = joined(WindowedDecoder(decode_with_byte_tokens), [[each] for each in token_ids])
    assert joined(WindowedDecoder(decode_with_byte_tokens), pieces(token_ids, cuts)) == one_by_one


@given(st.data(), cuts)
def test_real_byte_level_tokenizers(data: st.DataObject, cuts: list[int]) -> None:
    tokenizer = byte_level_tokenizer()
    table = byte_table(tokenizer)
    assert table is not None
    ids = data.draw(
        st.one_of(
            st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=40),
            texts.map(lambda text: tokenizer.encode(text).ids),
        )
    )
    whole = tokenizer.decode(ids)
    assert joined(ByteDecoder(table), pieces(ids, cuts)) == whole
    assert joined(WindowedDecoder(tokenizer.decode), pieces(ids, cuts)) == whole


def test_only_byte_level_tokenizers_have_a_table() -> None:
    assert byte_table(word_tokenizer()) is None


@decoders
@given(text=texts.filter(lambda text: "\ufffd" not in text))
def test_no_piece_holds_half_a_character(make: Callable[[], TextDecoder], text: str) -> None:
    decoder = make()
    for byte in text.encode():
        assert "\ufffd" not in decoder.push([byte])
    assert decoder.flush() == ""


@decoders
def test_a_character_comes_with_its_last_byte(make: Callable[[], TextDecoder]) -> None:
    decoder = make()
    assert [decoder.push([byte]) for byte in "語".encode()] == ["", "", "語"]


@decoders
def test_an_unfinished_character_comes_at_the_end(make: Callable[[], TextDecoder]) -> None:
    decoder = make()
    assert decoder.push(list(b"a\xe8")) == "a"
    assert decoder.flush() == "\ufffd"


def test_a_replacement_character_of_the_models_own_comes_at_once() -> None:
    decoder = ByteDecoder(TABLE)
    assert [decoder.push([byte]) for byte in "\ufffd".encode()] == ["", "", "\ufffd"]


def test_special_tokens_have_no_text_and_lose_no_space() -> None:
    decoder = WindowedDecoder(decode_words)
    assert [decoder.push([token]) for token in (0, *[SPECIAL_ID] * 30, 1)] == ["the", *[""] * 30, " a"]


@pytest.mark.parametrize(
    "text",
    [
        b"A" * 300,
        b"\xff" * 300,
        "\ufffd".encode() * 100,
        "語".encode() * 100,
        b"\x80" * 300,
        b"\xff" * 20 + "🎈語".encode(),
    ],
)
def test_the_cost_of_a_token_and_what_is_held_are_bounded(text: bytes) -> None:
    lengths: list[int] = []

    def decode(token_ids: Sequence[int]) -> str:
        lengths.append(len(token_ids))
        return decode_bytes(token_ids)

    check: Decode = decode
    decoder = WindowedDecoder(check)
    released = ""
    for index, byte in enumerate(text):
        released += decoder.push([byte])
        assert len(decode_bytes(text[: index + 1])) - len(released) <= 9
    assert released + decoder.flush() == decode_bytes(text)
    assert max(lengths) <= 21
    assert sum(lengths) <= 40 * len(text)
