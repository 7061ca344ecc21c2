"""JSON may be laid out as people do it, and has no room for more white space than that."""

from __future__ import annotations

import json
from functools import cache

import pytest
from sensorium.engine.execution.grammar import GrammarError, GrammarMatcher, GrammarStore
from sensorium.protocols.messages import Grammar
from support.text_folder import byte_level_tokenizer
from tokenizers import Tokenizer


@cache
def tokenizer() -> Tokenizer:
    return byte_level_tokenizer()


@cache
def store() -> GrammarStore:
    size = int(tokenizer().get_vocab_size())
    return GrammarStore(tokenizer().to_str(), vocab_size=size, stop_token_ids=(size - 1,))


def after(text: str) -> GrammarMatcher:
    """Where `text` leads."""
    matcher = store().matcher(Grammar("json_object"))
    matcher.advance(tokenizer().encode(text, add_special_tokens=False).ids)
    return matcher


@pytest.mark.parametrize("indent", [None, 1, 2, 4, 8, "\t"])
def test_json_may_be_laid_out_as_people_do(indent: int | str | None) -> None:
    value = {"name": "Ada", "tags": ["x", {"y": 1}]}
    answer = json.dumps(value, indent=indent)
    for text in (answer, answer.replace("\n", "\r\n"), json.dumps(value, separators=(",", ":"))):
        assert after(text).is_complete


@pytest.mark.parametrize("text", ['{\n\n"a"', '{  "a"', '{ \n"a"', '{"a":\r\r1', '{"a": \t1'])
def test_no_answer_is_spent_on_white_space(text: str) -> None:
    with pytest.raises(GrammarError):
        after(text)
