"""Sampling fields → SamplingParams: every field arrives, every value out of range is refused by name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.engine.messages import Grammar, SamplingParams
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.generation import (
    GenerationRequest,
    choice_params,
    fitted,
    sampling_params,
)
from sensorium.protocols.shared.json_body import decoder
from sensorium.protocols.shared.sampling import MAX_SEED, SamplingDefaults

VOCAB = 1000
decode = decoder(GenerationRequest)


def translate(**fields: object) -> SamplingParams:
    request = decode(json.dumps(fields).encode())
    return sampling_params(
        request,
        max_tokens=16 if request.max_tokens is None else request.max_tokens,
        vocab_size=VOCAB,
        logprobs=None,
    )


def test_what_a_request_leaves_open_is_the_models_own() -> None:
    own = SamplingDefaults(temperature=0.6, top_p=0.8, top_k=20, min_p=0.1, repetition_penalty=1.05)

    def asked(**fields: object) -> SamplingParams:
        request = decode(json.dumps(fields).encode())
        return sampling_params(request, max_tokens=1, vocab_size=VOCAB, logprobs=None, defaults=own)

    said = asked()
    assert (said.temperature, said.top_p, said.top_k, said.min_p) == (0.6, 0.8, 20, 0.1)
    assert said.repetition_penalty == 1.05
    own_words = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1}
    plain = SamplingParams(max_tokens=1, top_p=1.0, repetition_penalty=1.0)
    assert asked(**own_words) == plain
    assert asked(**own_words | {"top_k": -1}) == plain


def test_defaults_are_openais() -> None:
    assert translate() == SamplingParams(max_tokens=16, temperature=1.0)
    nulls = dict.fromkeys(GenerationRequest.__struct_fields__)
    assert translate(**nulls) == translate()


def test_ids_count_once() -> None:
    found = translate(
        stop_token_ids=[9, 3, 9, 3] * 200, allowed_token_ids=[7, 7, 1], logit_bias={"7": 1, "07": 2}
    )
    assert (found.stop_token_ids, found.allowed_token_ids) == ((3, 9), (1, 7))
    assert found.logit_bias == ((7, 2.0),)


def test_what_ends_an_answer_may_be_in_it() -> None:
    assert translate(max_tokens=9, stop="a", include_stop_str_in_output=True).includes_stop
    assert not translate(max_tokens=9, stop="a").includes_stop


def test_every_field_arrives() -> None:
    found = translate(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=-5,
        stop=["a", "b"],
        stop_token_ids=[3],
        ignore_eos=True,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.2,
        logit_bias={"12": -100},
        allowed_token_ids=[1, 2],
        prompt_logprobs=3,
        structured_outputs={"regex": "a+"},
        user="somebody",
    )
    assert found == SamplingParams(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.1,
        seed=-5,
        stop=("a", "b"),
        stop_token_ids=(3,),
        ignore_eos=True,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        repetition_penalty=1.2,
        logit_bias=((12, -100.0),),
        allowed_token_ids=(1, 2),
        prompt_logprobs=3,
        grammar=Grammar("regex", "a+"),
    )


@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_off(top_k: int) -> None:
    assert translate(top_k=top_k).top_k == 0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"best_of": 2}, "best_of"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 17}, "min_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"seed": MAX_SEED + 1}, "seed"),
    ({"stop": [""]}, "stop[0]"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop_token_ids": [0, VOCAB]}, "stop_token_ids[1]"),
    ({"stop_token_ids": [5] * (VOCAB + 1)}, "stop_token_ids"),
    ({"allowed_token_ids": [5] * (VOCAB + 1)}, "allowed_token_ids"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"hello": 1}}, "logit_bias.hello"),
    ({"logit_bias": {str(VOCAB): 1}}, f"logit_bias.{VOCAB}"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"priority": 10**6}, "priority"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "x" * 257}, "cache_salt"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"include_stop_str_in_output": True, "stop_token_ids": [3]}, "include_stop_str_in_output"),
    ({"guided_json": {}}, "guided_json"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
    ),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "structured_outputs"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
    ({"structured_outputs": {"json": [1]}}, "structured_outputs.json"),
    ({"structured_outputs": {"json": "not json"}}, "structured_outputs.json"),
    (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        translate(**fields)
    assert caught.value.param == param
    assert f"`{param.split('.')[0].split('[')[0]}" in caught.value.message


SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    ],
)
def test_a_schema_keeps_the_order_of_its_properties(fields: dict[str, Any]) -> None:
    grammar = translate(**fields).grammar
    assert grammar is not None
    assert grammar.kind == "json_schema"
    assert list(json.loads(grammar.source)["properties"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Grammar("json_object")),
        ({"structured_outputs": {"json_object": True}}, Grammar("json_object")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, Grammar("choice", '["yes","no"]')),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, Grammar("lark", 'start: "a"')),
    ],
)
def test_structured_outputs(fields: dict[str, Any], grammar: Grammar | None) -> None:
    assert translate(**fields).grammar == grammar


@given(st.integers(-(2**63), MAX_SEED), st.integers(0, 127))
def test_seeded_choices_differ(seed: int, index: int) -> None:
    params = SamplingParams(max_tokens=1, seed=seed)
    found = choice_params(params, index).seed
    assert found is not None
    assert (found == seed) == (index == 0)
    assert found <= MAX_SEED
    assert choice_params(SamplingParams(max_tokens=1), index).seed is None


@given(st.integers(1, 100), st.integers(0, 100), st.integers(1, 100))
def test_fitted(max_tokens: int, min_tokens: int, room: int) -> None:
    found = fitted(SamplingParams(max_tokens=max_tokens, min_tokens=min(min_tokens, max_tokens)), room)
    assert found.max_tokens == min(max_tokens, room)
    assert found.min_tokens <= found.max_tokens


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.01, 1),
        "top_k": st.integers(0, 100),
        "seed": st.integers(-100, 100),
        "stop": st.text(min_size=1, max_size=5) | st.lists(st.text(min_size=1, max_size=5), max_size=4),
        "presence_penalty": st.floats(-2, 2),
        "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1).map(str), st.floats(-100, 100), max_size=5),
        "max_tokens": st.integers(1, 1000),
        "ignore_eos": st.booleans(),
    },
)


@given(VALUES)
def test_what_is_in_range_goes_through_unchanged(fields: dict[str, Any]) -> None:
    found = msgspec.structs.asdict(translate(**fields))
    for name, value in fields.items():
        if name == "stop":
            assert found["stop"] == ((value,) if isinstance(value, str) else tuple(value))
        elif name == "logit_bias":
            assert found["logit_bias"] == tuple((int(key), bias) for key, bias in value.items())
        else:
            assert found[name] == value


def test_a_schema_that_is_not_utf8_is_refused() -> None:
    body = b'{"response_format": {"type": "json_schema", "json_schema": {"schema": {"a\xff": 1}}}}'
    with pytest.raises(BadRequestError) as caught:
        sampling_params(decode(body), max_tokens=1, vocab_size=VOCAB, logprobs=None)
    assert caught.value.param == "response_format.json_schema.schema"


@pytest.mark.parametrize("schema", ['"' + "[" * 70_000 + '"', "[" + "{}," * 200_000 + "{}]"])
def test_a_schema_that_is_too_long_is_not_read(schema: str) -> None:
    """It would be on the loop, where 12 MB of one took 200 ms."""
    body = b'{"response_format": {"type": "json_schema", "json_schema": {"schema": %b}}}' % schema.encode()
    with pytest.raises(BadRequestError, match="…; allowed: 1 to 65,536 bytes"):
        sampling_params(decode(body), max_tokens=1, vocab_size=VOCAB, logprobs=None)


def test_bounds_are_told_as_whole_numbers() -> None:
    with pytest.raises(BadRequestError, match=r"allowed: 0 to 2147483647$"):
        translate(min_tokens=-1)
    with pytest.raises(BadRequestError, match=r"-9223372036854775808 to 9223372036854775807$"):
        translate(seed=2**63)
    with pytest.raises(BadRequestError, match=r"0 to 2$"):
        translate(temperature=3)


def test_a_penalty_that_would_make_logits_infinite_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"`repetition_penalty`.*0\.01 to 10"):
        translate(repetition_penalty=1e-300)
