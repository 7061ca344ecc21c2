"""JSON may be laid out as people do it, and has no room for more white space than that."""

from __future__ import annotations

import json
from functools import cache

import pytest
from sensorium.engine.execution.grammar import MAX_OPTIONAL, GrammarError, GrammarMatcher
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError
from support.grammars import matcher_of
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
    matcher = matcher_of(store(), Grammar("json_object"))
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


def an_object(num_optional: int, *, around: str | None = None, required: tuple[str, ...] = ()) -> Grammar:
    properties = {f"p{number}": {"type": "integer"} for number in range(num_optional)}
    schema: dict[str, object] = {"type": "object", "properties": properties, "required": list(required)}
    return Grammar("json_schema", json.dumps(schema if around is None else {"type": "array", around: schema}))


def test_so_many_properties_may_be_left_out_as_an_answer_can_be_followed_through() -> None:
    for grammar, text in (
        (an_object(MAX_OPTIONAL), "{"),
        (an_object(MAX_OPTIONAL, around="items"), "[{"),
        (an_object(3 * MAX_OPTIONAL, required=(f"p{MAX_OPTIONAL}", f"p{2 * MAX_OPTIONAL}")), "{"),
    ):
        matcher = matcher_of(store(), grammar)
        matcher.advance(tokenizer().encode(text, add_special_tokens=False).ids)
        assert matcher.masks((), ()).any()
    for grammar in (an_object(MAX_OPTIONAL + 1), an_object(MAX_OPTIONAL + 1, around="items")):
        with pytest.raises(BadRequestError, match=f"an object has {MAX_OPTIONAL + 1} properties in a row"):
            store().compile(grammar)
