"""Answers of a model that says random things match their grammar; what cannot be compiled is named."""

from __future__ import annotations

import json
import re
from functools import cache

import msgspec
import pytest
import torch
from sensorium.engine.execution.grammar import GrammarError
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.execution.logits import RowSpan
from sensorium.engine.execution.sampler import accept, choose
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.planning.plan import SequenceStart
from sensorium.protocols.engine.messages import Grammar, RequestId, Sample, SamplingParams, TokensSampled
from sensorium.protocols.errors import BadRequestError
from support.grammars import matcher_of
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|end|>", "<|turn|>"]
END, TURN = 0, 1
PADDING = 70
"""Rows of the logits past the tokenizer's ids."""


@cache
def tokenizer() -> Tokenizer:
    """A byte-level tokenizer as GPT-2 and Qwen have it, trained on a little JSON."""
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = ['{"name": "Ada", "age": 36, "tags": ["x", "y"], "ok": true}', "yes no maybe, grüße 42 null"]
    result.train_from_iterator(corpus * 20, trainer)
    return result


def vocab_size() -> int:
    return int(tokenizer().get_vocab_size()) + PADDING


@cache
def store() -> GrammarStore:
    return GrammarStore(tokenizer().to_str(), vocab_size=vocab_size(), stop_token_ids=(END, TURN))


def begin(grammar: Grammar, **named: object) -> SequenceState:
    sampling = msgspec.structs.replace(
        SamplingParams(max_tokens=600, stop_token_ids=(END,), temperature=1.0, grammar=grammar), **named
    )
    state = SequenceState(
        SequenceStart(RequestId("r"), (5,), (), Sample(sampling)),
        RuleBook(vocab_size(), torch.device("cpu")).rules_of(sampling),
    )
    state.follow(matcher_of(store(), grammar))
    return state


def step(state: SequenceState, logits: torch.Tensor, draft: tuple[int, ...] = ()) -> TokensSampled:
    span = RowSpan(state, 0, draft)
    return accept(span, choose(logits.clone(), [span])[0])


def babble(state: SequenceState, seed: int) -> TokensSampled:
    """Random logits to the end, a little in favour of what closes JSON."""
    generator = torch.Generator().manual_seed(seed)
    closing = [tokenizer().token_to_id(each) for each in ('"', "}", "]")]
    while True:
        logits = torch.randn(1, vocab_size(), generator=generator) * 2
        logits[0, closing] += 3
        got = step(state, logits)
        assert got.error is None
        if got.finish_reason is not None:
            return got


def text_of(state: SequenceState) -> str:
    assert all(END < token < vocab_size() - PADDING and token != TURN for token in state.generated)
    return str(tokenizer().decode(state.generated, skip_special_tokens=False))


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["good", "bad"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "mood", "tags"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(8))
def test_a_random_model_follows_a_schema(seed: int) -> None:
    state = begin(Grammar("json_schema", json.dumps(SCHEMA)), seed=seed)
    assert babble(state, seed).finish_reason == "stop"
    value = json.loads(text_of(state))
    assert set(value) - {"ok"} == {"name", "age", "mood", "tags"}
    assert len(value["name"]) <= 12
    assert 0 <= value["age"] <= 150
    assert value["mood"] in ("good", "bad")
    assert 1 <= len(value["tags"]) <= 3
    assert all(isinstance(tag, str) and len(tag) <= 5 for tag in value["tags"])
    assert isinstance(value.get("ok", True), bool)


@pytest.mark.parametrize("seed", range(4))
def test_a_random_model_says_some_json_object(seed: int) -> None:
    state = begin(Grammar("json_object"), seed=seed)
    if babble(state, seed).finish_reason == "stop":
        assert isinstance(json.loads(text_of(state)), dict)
    else:
        assert len(state.generated) == 600


@pytest.mark.parametrize("seed", range(5))
def test_a_random_model_follows_regex_choice_and_lark(seed: int) -> None:
    number = begin(Grammar("regex", r"[a-f]{3}-\d{2,4}(ü|é)"), seed=seed)
    assert babble(number, seed).finish_reason == "stop"
    assert re.fullmatch(r"[a-f]{3}-\d{2,4}(ü|é)", text_of(number))
    choices = ["yes", "no", 'may"be\n', "größe / 100%", ""]
    choice = begin(Grammar("choice", json.dumps(choices)), seed=seed)
    assert babble(choice, seed).finish_reason == "stop"
    assert text_of(choice) in choices
    lark = begin(Grammar("lark", 'start: word ("," word)~2\nword: "ja" | "nein"'), seed=seed)
    assert babble(lark, seed).finish_reason == "stop"
    assert re.fullmatch("(ja|nein)(,(ja|nein)){2}", text_of(lark))
    ebnf = begin(Grammar("lark", 'root ::= word ("," word)*\nword ::= "ja" | "nein"'), seed=seed)
    babble(ebnf, seed)
    assert re.match("(ja|nein)(,(ja|nein))*", text_of(ebnf))


def test_the_answer_ends_where_the_grammar_does_without_a_stop_token() -> None:
    state = begin(Grammar("choice", '["yes"]'), stop_token_ids=())
    got = babble(state, 0)
    assert (got.finish_reason, text_of(state)) == ("stop", "yes")


def test_a_stop_token_is_possible_only_where_the_answer_may_end() -> None:
    state = begin(Grammar("regex", "a+"), temperature=0.0)
    a = tokenizer().token_to_id("a")
    eager = torch.zeros(1, vocab_size())
    eager[0, END] = 9.0
    assert step(state, eager).token_ids == (a,)
    got = step(state, eager)
    assert (got.token_ids, got.finish_reason) == ((), "stop")


def test_only_the_stop_tokens_of_the_request_end_it() -> None:
    """The model's other stop token is no way out of a grammar."""
    state = begin(Grammar("regex", "a+"), temperature=0.0)
    eager = torch.zeros(1, vocab_size())
    eager[0, TURN], eager[0, END] = 9.0, -1.0
    a = tokenizer().token_to_id("a")
    assert [step(state, eager).token_ids for _ in range(3)] == [(a,)] * 3


def test_min_tokens_hold_where_the_grammar_can_go_on() -> None:
    state = begin(Grammar("regex", "a+"), temperature=0.0, min_tokens=3)
    eager = torch.zeros(1, vocab_size())
    eager[0, END] = 9.0
    assert [step(state, eager).finish_reason for _ in range(4)] == [None, None, None, "stop"]


@pytest.mark.parametrize("seed", range(4))
def test_a_draft_never_changes_a_structured_answer(seed: int) -> None:
    """Right, too long, half right, forbidden and unfinished drafts."""
    grammar = Grammar("json_schema", json.dumps(SCHEMA))

    def logits(index: int) -> torch.Tensor:
        made = torch.randn(vocab_size(), generator=torch.Generator().manual_seed(1000 * seed + index)) * 2
        made[[tokenizer().token_to_id(each) for each in ('"', "}", "]")]] += 3
        return made

    def answer(draft: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        state, num_steps = begin(grammar, seed=seed), 0
        while True:
            done = tuple(state.generated)
            rest = draft[len(done) : len(done) + 9] if draft[: len(done)] == done else ()
            rows = torch.stack([logits(len(done) + i) for i in range(len(rest) + 1)])
            got = step(state, rows, rest)
            assert got.error is None
            num_steps += 1
            if got.finish_reason is not None:
                return tuple(state.generated), num_steps

    free, num_steps = answer(())
    again, num_drafted = answer((*free, END))
    assert again == free
    assert num_drafted < num_steps / 2
    for draft in ((*free, 7, 7), free[: len(free) // 2], (*free[:4], END, *free[4:]), (300, 2, 3), (9,) * 20):
        assert answer(draft)[0] == free


def test_a_resumed_sequence_goes_on_where_it_was() -> None:
    grammar = Grammar("choice", '["yes yes", "no"]')
    whole = begin(grammar, temperature=0.0)
    eager = torch.zeros(1, vocab_size())
    eager[0, tokenizer().token_to_id("y")] = 9.0
    step(whole, eager)
    sampling = whole.sampling
    resumed = SequenceState(
        SequenceStart(RequestId("r"), (5,), tuple(whole.generated), Sample(sampling)), whole.rules
    )
    resumed.follow(matcher_of(store(), grammar))
    assert babble(resumed, 1).finish_reason == "stop"
    assert text_of(resumed) == "yes yes"
    with pytest.raises(GrammarError, match="grammar"):
        resumed.follow(matcher_of(store(), Grammar("regex", "[0-9]")))


def either(number: int) -> object:
    """Two kinds of object; all of n of these are 2^n kinds."""
    kinds = (("a", "string"), ("b", "integer"))
    named = [(f"{letter}{number}", each) for letter, each in kinds]
    return {"anyOf": [{"required": [name], "properties": {name: {"type": each}}} for name, each in named]}


def perhaps(number: int) -> object:
    """Two kinds of object that may lack what tells them apart: whatever comes may be of all the 2^n."""
    return {"anyOf": [{"type": "object", "properties": {f"p{number}": {"const": each}}} for each in (1, 2)]}


@pytest.mark.parametrize(
    ("kind", "source", "named"),
    [
        ("json_schema", "{", "Expecting property name"),
        ("json_schema", '{"type": "nonsense"}', "nonsense"),
        ("json_schema", '{"allOf": [{"type": "string"}, {"type": "integer"}]}', "Unsatisfiable"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "minimum"),
        ("json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ("json_schema", '{"$ref": "#/definitions/x"}', "definitions/x"),
        ("json_schema", '{"a":' * 3000 + "1" + "}" * 3000, "recursion"),
        ("json_schema", json.dumps({"enum": ["x" * 70_000]}), "65536"),
        ("json_schema", json.dumps({"allOf": [either(i) for i in range(18)]}), "too large"),
        ("json_schema", json.dumps({"allOf": [perhaps(i) for i in range(10)]}), "Too many items"),
        ("regex", "[a-c", "unclosed"),
        ("regex", "[^\\x00-\\U0010ffff]", "no answer"),
        ("regex", "a?" * 5000, "8192"),
        ("json_schema", json.dumps({"items": [{"pattern": "a?" * 1000}] * 5}), "8192"),
        ("json_schema", json.dumps({"patternProperties": {"a?" * 5000: {}}}), "8192"),
        ("lark", "start: " + '"a"?' * 5000, "16384"),
        ("lark", "start: <|end|>", "no answer"),
        ("choice", "[]", "at least one"),
        ("choice", "3", "list"),
        ("choice", json.dumps([str(i) for i in range(5000)]), "4096"),
        ("lark", "start: nowhere", "nowhere"),
        ("lark", 'root ::= "a" )', "line 1"),
        ("lark", 'start: start "a"', "no answer"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(kind: str, source: str, named: str) -> None:
    bad = msgspec.convert({"kind": kind, "source": source}, Grammar)
    with pytest.raises(BadRequestError, match=re.escape(named)) as caught:
        store().compile(bad)
    assert caught.value.param == "response_format"
    assert kind in caught.value.message
    assert len(caught.value.message) < 400
    # Nothing is kept of it, and others go on.
    with pytest.raises(GrammarError):
        store().matcher(bad)
    store().compile(Grammar("regex", "a"))


def test_a_grammar_that_explodes_on_the_way_fails_its_sequence() -> None:
    """Its automaton is built as the answer goes on, each step with so much effort at most."""
    state, a = begin(Grammar("regex", "(a{1,1000}){1,1000}"), temperature=0.0), tokenizer().token_to_id("a")
    logits = torch.zeros(1, vocab_size())
    logits[0, a] = 9.0
    got = step(state, logits)
    while got.error is None:
        assert got.token_ids == (a,)
        got = step(state, logits)
    assert "too many" in got.error
    assert state.finished
    assert babble(begin(Grammar("choice", '["yes"]')), 0).finish_reason == "stop"


def test_a_matcher_that_fails_takes_nobody_along(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, healthy = begin(Grammar("regex", "a+")), begin(Grammar("choice", '["yes"]'), temperature=0.0)
    assert broken.matcher is not None

    def fail(draft: object, stops: object) -> torch.Tensor:
        raise GrammarError("too complex")

    monkeypatch.setattr(broken.matcher, "masks", fail)
    spans = [RowSpan(broken, 0), RowSpan(healthy, 1)]
    choices = choose(torch.zeros(2, vocab_size()), spans)
    results = [accept(span, choice) for span, choice in zip(spans, choices, strict=True)]
    assert (results[0].error, results[0].fault) == ("too complex", "cannot_follow")
    assert broken.finished
    assert results[1].error is None
    assert "yes".startswith(text_of(healthy))


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("choice", '["a <tool> b"]'),
        Grammar("regex", "a <tool> b"),
        Grammar("json_schema", '{"enum": ["a <tool> b"]}'),
        Grammar("lark", 'start: "a <tool> b"'),
    ],
    ids=lambda grammar: str(grammar.kind),
)
def test_text_may_hold_the_name_of_an_added_token(grammar: Grammar) -> None:
    """Such a token is not its characters; what is offered must be taken."""
    with_tool = Tokenizer.from_str(tokenizer().to_str())
    with_tool.add_tokens([AddedToken("<tool>", special=False)])
    num_ids = int(with_tool.get_vocab_size())
    a_store = GrammarStore(with_tool.to_str(), vocab_size=num_ids, stop_token_ids=(END,))
    matcher = matcher_of(a_store, grammar)
    tokens: list[int] = []
    while len(tokens) < 60:
        bits = matcher.masks((), (END,))[0]
        allowed = [at for at in range(num_ids) if bits[at >> 3] >> (at & 7) & 1]
        if allowed == [END]:
            break
        tokens.append(next(at for at in allowed if at != END))
        matcher.advance(tokens[-1:])
    assert json.dumps("a <tool> b").strip('"') in with_tool.decode(tokens)
