"""Names and bytes of single tokens: joined they are the text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.text.token_text import TokenPlaces, TokenText
from sensorium.engine.text.tokenizer import TextTokenizer
from support.text_folder import byte_level_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers


def byte_level() -> tuple[TextTokenizer, TokenText]:
    text = TextTokenizer(byte_level_tokenizer())
    return text, TokenText(text)


@given(st.text(max_size=30))
def test_bytes_join_to_the_text(text: str) -> None:
    tokenizer, tokens = byte_level()
    ids = tokenizer.encode(text, allow_special=False)
    assert b"".join(map(tokens.bytes_of, ids)).decode() == text


@given(st.text(max_size=30), st.integers(0, 50))
def test_offsets_are_where_tokens_begin(text: str, start: int) -> None:
    tokenizer, tokens = byte_level()
    ids = tokenizer.encode(text, allow_special=False)
    offsets = TokenPlaces(tokens, start).push(ids)
    places = TokenPlaces(tokens, start)
    assert offsets == [place for token_id in ids for place in places.push([token_id])]
    assert len(offsets) == len(ids)
    for place, token_id in zip(offsets, ids, strict=True):
        name = tokens.name(token_id)
        if "\ufffd" not in name:
            assert text[place - start :].startswith(name)


def test_special_tokens_take_no_room_where_decoding_leaves_them_out() -> None:
    tokenizer, tokens = byte_level()
    ids = tokenizer.encode("a<|im_end|>b<|im_end|>c", allow_special=True)
    assert tokenizer.decode(ids) == "abc"
    assert TokenPlaces(tokens).push(ids) == [0, 1, 1, 2, 2]
    assert TokenPlaces(tokens).push(ids, num_written=3) == [0, 1, 11, 12, 12]


def test_special_tokens_and_padding_rows_have_names() -> None:
    tokenizer, tokens = byte_level()
    end = tokenizer.id_of("<|im_end|>")
    assert end is not None
    assert tokens.name(end) == "<|im_end|>"
    assert tokens.name(10**6) == ""


def test_sentencepiece_names() -> None:
    vocabulary = {"<unk>": 0, "\u2581the": 1, "<0xE4>": 2, "<0xBB>": 3, "<0x8A>": 4}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokens = TokenText(TextTokenizer(backend))
    assert tokens.name(1) == " the"
    assert b"".join(map(tokens.bytes_of, [2, 3, 4])).decode() == "今"
    assert TokenPlaces(tokens).push([2, 3, 4, 1]) == [0, 0, 0, 1]
