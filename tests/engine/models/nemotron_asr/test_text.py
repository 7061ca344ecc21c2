"""Tokens as text and bytes: bytes of characters that have no token, beginnings of words, tags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sensorium.actors.speech.streaming.reader import TokenReader
from sensorium.engine.models.nemotron_asr.text import TransducerText
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.engine.messages import RequestId, Transduced
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.numbered_words import NumberSpeech
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PIECES = ["<unk>", "▁a", "b", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), "<de-DE>"]


@pytest.fixture
def text(tmp_path: Path) -> TransducerText:
    """SentencePiece's, with bytes for what has no piece."""
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return TransducerText(TextTokenizer.from_folder(tmp_path))


def test_bytes_of_tokens_join_to_the_text(text: TransducerText) -> None:
    """A token that is one byte of a character has that byte, and not those of U+FFFD."""
    names = ["▁a", "<0xE2>", "<0x82>", "<0xAC>", "b", "▁a", "<0xC3>", "<0xA9>"]
    token_ids = tuple(PIECES.index(name) for name in names)
    family = replace(NumberSpeech().speech.family, text=text)
    reader = TokenReader(family, TranscriptionOptions(logprobs=True))
    for row, token_id in enumerate(token_ids):
        reader.push(Transduced(RequestId("one"), (token_id,), (row,), (-1.0,), row + 1))
    transcript = reader.transcript(16_000)
    assert transcript.text == "a€b aé"
    assert [token.data for token in transcript.tokens] == [
        *(b"a", b"\xe2", b"\x82", b"\xac", b"b"),
        *(b" a", b"\xc3", b"\xa9"),
    ]
    assert b"".join(token.data for token in transcript.tokens).decode() == transcript.text


def test_a_tag_has_no_text(text: TransducerText) -> None:
    """Nor has a token that stands for no piece, which names no language."""
    tag = PIECES.index("<de-DE>")
    assert text.tags == {tag: "de-DE"}
    assert text.decode((1, tag, 0, 2)) == "ab"
