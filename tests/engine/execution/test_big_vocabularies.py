"""Patterns at the size of published vocabularies, whose tokens are in every script."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pytest
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.text.token_bytes import byte_of_character
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError
from support.grammars import matcher_of

NUM_TOKENS = 49_152


@cache
def vocabulary() -> tuple[str, ...]:
    """Texts by id: bytes, letters and pairs of letters of many scripts, the end last."""
    letters = [chr(code) for code in range(0x80, 0xD800) if chr(code).isalpha()]
    ascii_words = [f"{first}{second}" for first in " _az09" for second in "abcdefxyz0189_"]
    digits = [chr(code) for code in range(0x660, 0xFF1A) if chr(code).isdigit()]
    pairs = [f"{first}{second}" for first, second in zip(letters[::2], letters[1::2], strict=False)]
    texts = [*ascii_words, *digits, *letters[::2], *pairs]
    return tuple(dict.fromkeys(texts))[: NUM_TOKENS - 257]


@cache
def store() -> GrammarStore:
    name_of = {byte: character for character, byte in byte_of_character().items()}
    pieces = [bytes([byte]) for byte in range(256)] + [text.encode() for text in vocabulary()]
    vocab = {"".join(map(name_of.__getitem__, piece)): index for index, piece in enumerate(pieces)}
    end = {"id": len(vocab), "content": "<|end|>", "special": True, "normalized": False}
    added = {**end, "single_word": False, "lstrip": False, "rstrip": False}
    description = {
        "version": "1.0",
        "added_tokens": [added],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    return GrammarStore(json.dumps(description), vocab_size=len(vocab) + 1, stop_token_ids=(len(vocab),))


def answer(grammar: Grammar, seed: int, num_tokens: int = 30) -> str:
    """What tokens chosen by chance come to."""
    matcher, chance = matcher_of(store(), grammar), np.random.default_rng(seed)
    written = b""
    for _ in range(num_tokens):
        bits = np.unpackbits(matcher.masks((), ())[0].numpy(), bitorder="little")
        allowed = np.flatnonzero(bits)
        if not len(allowed):
            break
        token_id = int(chance.choice(allowed))
        matcher.advance((token_id,))
        written += bytes([token_id]) if token_id < 256 else vocabulary()[token_id - 256].encode()
    return written.decode(errors="ignore")


@pytest.mark.parametrize(
    "pattern",
    [
        r'"name": "[\w]+"',
        r"#\w+",
        r"https://\w+\.com",
        r"[a-z]+ \p{L}+",
        r"\p{Lu}\p{Ll}+ .{3,40}\.",
        r'"(\p{L}|\p{N}| )*"',
        r"(\w+\s?){1,30}",
        r"x\W+",
    ],
)
def test_classes_of_characters_are_followed(pattern: str) -> None:
    assert len(answer(Grammar("regex", pattern), 1)) > 8


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("lark", r"start: /#\w+/"),
        Grammar("json_schema", json.dumps({"type": "string", "pattern": r"^#\p{L}+$"})),
        Grammar("json_schema", json.dumps({"type": "string", "pattern": r"^\w+@\w+\.com$"})),
        Grammar(
            "answer",
            json.dumps({"lark": 'start: "ab" @j0', "parts": {"j0": {"kind": "regex", "source": r"#\p{L}+"}}}),
        ),
    ],
    ids=lambda grammar: str(grammar.kind),
)
def test_other_grammars_with_such_patterns_are_followed(grammar: Grammar) -> None:
    assert len(answer(grammar, 2)) > 8


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        (r"\d{3}-\d{3}-\d{4}", "[0-9]{3}-[0-9]{3}-[0-9]{4}"),
        (r"\w{12}", "[A-Za-z0-9_]{12}"),
        (r"a[\d_]{9}", "a[0-9_]{9}"),
        (r"\S\s\w", "[^ \t\n\r\f\v][ \t\n\r\f\v][A-Za-z0-9_]"),
    ],
)
def test_classes_by_letter_are_ascii(pattern: str, means: str) -> None:
    for seed in range(4):
        assert re.fullmatch(means, answer(Grammar("regex", pattern), seed))


@pytest.mark.parametrize(
    "pattern", [r"(.{1,1000}){1,1000}", r"ab(\p{L}{1,40}.{1,40}){1,40}", r"(\p{L}*.{1,30}\w){20}"]
)
def test_what_takes_too_much_effort_is_refused_before_an_answer_begins(pattern: str) -> None:
    with pytest.raises(BadRequestError, match="too many expressions"):
        store().compile(Grammar("regex", pattern))
