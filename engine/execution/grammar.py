"""Structured output: how a grammar is compiled, and the matcher each sequence carries.

The work is done by llguidance, which knows the tokens' bytes; this file bounds it (size of source, parser
effort) and gives its failures to the request they belong to. `engine/execution/grammar_store.py` keeps what
is compiled, `engine/execution/logits.py` applies the masks, `engine/execution/sampler.py` advances the
matchers. Knows no model and no scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

import llguidance
import numpy as np
import torch
from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark
from torch import Tensor

from ...protocols.engine.messages import Grammar
from ...protocols.errors import BadRequestError
from ...protocols.shared.panics import PanicError, native_call
from .json_schema import prepared

MAX_SOURCE_BYTES: Final = 64 * 1024
MAX_REGEX_BYTES: Final = 8 * 1024
"""Of a regex, or of all patterns of a schema. Compiled, `a?a?a?…` takes memory with the square of its
length: 40 MB here, 1.7 GB and 13 s at 60 KB."""
MAX_LARK_BYTES: Final = 16 * 1024
"""A rule may be one regex."""
MAX_ANSWER_BYTES: Final = 256 * 1024
"""It may hold the schemas of many tools."""
_LIMIT_OF: Final = {"lark": MAX_LARK_BYTES, "answer": MAX_ANSWER_BYTES}
PARAM: Final = "response_format"
_MAX_MESSAGE = 300
_MAX_CHOICES = 4096
MAX_OPTIONAL: Final = 240
"""Properties of an object that may be left out, one behind the other: of some more of them the library gives
up in the midst of an answer (`max_items_in_row`)."""

_LIMITS: Final = llguidance.LLParserLimits(
    max_items_in_row=1000,  # the most ambiguous grammar takes 0.2 s for a token with so many, the last one
    initial_lexer_fuel=1_000_000,  # about 20 ms
    step_lexer_fuel=100_000,  # at most 12 ms; a class of all letters takes 60 000 with 152 000 tokens
    step_max_items=10_000,  # one row of so many, which takes their square, is 50 ms; real ones are a third
    max_lexer_states=16_000,  # 1 to 2 KB each, per sequence
    max_grammar_size=200_000,
    verbose_errors=False,  # they would quote the schema
)
_UNFORCED: Final = '%llguidance {"no_forcing": true}\n'
"""Else text that must come is offered as the tokenizer would write it: with added tokens (`<think>`) in it,
which the library then does not accept as text."""
_JSON_OPTIONS: Final[llguidance._lib.JsonCompileOptions] = {
    # What those write who lay JSON out: a space, or a line break and an indentation. With more, a model that
    # likes line breaks never gets to the end.
    "whitespace_pattern": r"[\x20\x09]|\x0D?\x0A[\x20\x09]{0,40}",
}


_WALK_TOKENS: Final = 32
_WALK_STRIDES: Final = (7919, 104_729)
"""Primes, so that the tokens tried are of all kinds."""


class GrammarError(ValueError):
    """A matcher cannot go on; the message is for the client of this sequence alone."""


@contextmanager
def _following() -> Iterator[None]:
    """A panic of the library is a failure of the one sequence: its matcher is used no more."""
    try:
        with native_call:
            yield
    except PanicError as error:
        raise GrammarError("the answer cannot follow its grammar: the library failed on it") from error


class GrammarMatcher:
    """Where one sequence stands in its grammar. To be used by one thread."""

    def __init__(self, matcher: llguidance.LLMatcher, end_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._end_ids = tuple(end_ids)

    @property
    @_following()
    def is_complete(self) -> bool:
        """Nothing may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def has_start(self) -> bool:
        """Whether there is an answer, if only the empty one: some token may come next, or the end."""
        return self._matcher.is_accepting() or bool(self._mask(()).any())

    @_following()
    def advance(self, token_ids: Sequence[int]) -> None:
        """These were generated. Raises GrammarError if they do not match."""
        if not self._matcher.consume_tokens(list(token_ids)):
            raise self._error()

    @_following()
    def masks(self, draft: Sequence[int], stop_token_ids: Sequence[int]) -> Tensor:
        """Tokens allowed next, and behind each token of a draft: uint8 [rows, bytes], lowest bit first.

        Rows end before the first token of the draft that is not allowed, or ends the answer. Stop tokens
        are allowed where the answer may end. Raises GrammarError.
        """
        rows = [self._mask(stop_token_ids)]
        consumed = 0
        for token_id in draft:
            if token_id in stop_token_ids or self._matcher.validate_tokens([token_id]) != 1:
                break
            self.advance((token_id,))
            consumed += 1
            if self._matcher.is_stopped():
                break
            rows.append(self._mask(stop_token_ids))
        if consumed and not self._matcher.rollback(consumed):
            raise self._error()
        return torch.from_numpy(np.stack(rows))

    def _mask(self, stop_token_ids: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8).copy()
        if self._matcher.is_error():
            raise self._error()
        for token_id in self._end_ids:
            packed[token_id >> 3] &= 0xFF ^ (1 << (token_id & 7))
        if self._matcher.is_accepting():
            for token_id in stop_token_ids:
                if 0 <= token_id < 8 * len(packed):
                    packed[token_id >> 3] |= 1 << (token_id & 7)
        return packed

    def _error(self) -> GrammarError:
        return GrammarError(f"the answer cannot follow its grammar: {first_line(self._matcher.get_error())}")


def compile_grammar(tokenizer: llguidance.LLTokenizer, grammar: Grammar) -> llguidance.LLMatcher:
    """A matcher at its start that has some token to offer. Raises BadRequestError naming what is at fault."""
    try:
        return _compile_whole(tokenizer, grammar)
    except BadRequestError:
        form = _form_in(grammar)
        if form is not None:
            _compile_whole(tokenizer, form)
        raise


def _form_in(grammar: Grammar) -> Grammar | None:
    """What text must be, where calls may come beside it or thoughts in front."""
    if grammar.kind != "answer":
        return None
    for part in json.loads(grammar.source)["parts"].values():
        match part:
            case {"kind": kind, "source": str(source)}:
                return Grammar(kind, source)
            case {"kind": kind, "source": schema}:
                return Grammar(kind, json.dumps(schema))
    return None


def _compile_whole(tokenizer: llguidance.LLTokenizer, grammar: Grammar) -> llguidance.LLMatcher:
    size = _num_bytes(grammar)
    limit = _LIMIT_OF.get(grammar.kind, MAX_SOURCE_BYTES)
    if size > limit:
        raise _bad(grammar, f"{size} bytes are more than the {limit} allowed")
    try:
        lark, parts = _parts(grammar)
        size = 0 if grammar.kind == "lark" else max(_regex_bytes(grammar), _pattern_bytes(parts))
        if size > MAX_REGEX_BYTES:
            raise ValueError(f"its patterns have {size} bytes, more than the {MAX_REGEX_BYTES} allowed")
        if (num := max(_optional_runs(parts), default=0)) > MAX_OPTIONAL:
            raise ValueError(
                f"an object has {num} properties in a row that may be left out, more than the {MAX_OPTIONAL} "
                "allowed; name in `required` those that always come"
            )
        source = json.dumps({"grammars": [{"lark_grammar": _UNFORCED + lark}, *parts]})
    except (ValueError, RecursionError) as error:
        raise _bad(grammar, first_line(str(error))) from None
    matcher = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # some limits, and grammars without any answer, show only here
    if matcher.is_error():
        raise _bad(grammar, first_line(matcher.get_error()))
    if not GrammarMatcher(matcher.deep_copy(), tokenizer.eos_tokens).has_start:
        raise _bad(grammar, "no answer can match it")
    if size or grammar.kind == "lark":
        for stride in _WALK_STRIDES:
            _walk(GrammarMatcher(matcher.deep_copy(), tokenizer.eos_tokens), grammar, stride)
    return matcher


def _walk(matcher: GrammarMatcher, grammar: Grammar, stride: int) -> None:
    """Try the first tokens of some answer, so that a pattern that takes too much effort is refused before
    one begins. Raises BadRequestError."""
    try:
        for step in range(_WALK_TOKENS):
            bits = matcher.masks((), ())[0].numpy()
            allowed = np.flatnonzero(bits)
            if not len(allowed):
                return
            place = int(allowed[(1 + step) * stride % len(allowed)])
            eight = int(bits[place])
            matcher.advance((8 * place + (eight & -eight).bit_length() - 1,))
    except GrammarError as error:
        raise _bad(grammar, str(error)) from None


def _parts(grammar: Grammar) -> tuple[str, list[dict[str, Any]]]:
    """The grammar's Lark, and the grammars it names, as the library takes them."""
    lark, parts = "start: @answer", {"answer": {"kind": grammar.kind, "source": grammar.source}}
    if grammar.kind == "answer":
        answer = json.loads(grammar.source)
        lark, parts = answer["lark"], answer["parts"]
    elif grammar.kind == "json_schema":
        parts["answer"]["source"] = json.loads(grammar.source)
    return lark, [{"name": name, **_part(part)} for name, part in parts.items()]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A grammar inside of another, as the library takes it."""
    match part:
        case {"json": schema} | {"kind": "json_schema", "source": schema}:
            if not isinstance(schema, dict):  # true and false are schemas
                return {"json_schema": {"x-guidance": _JSON_OPTIONS} if schema else {"not": {}}}
            return {"json_schema": {"x-guidance": _JSON_OPTIONS, **prepared(schema)}}
        case {"kind": "json_object"}:
            return {"json_schema": {"type": "object", "x-guidance": _JSON_OPTIONS}}
        case {"kind": "regex", "source": pattern}:
            # \d, \w and \s are ASCII, as the pattern of a JSON schema has them.
            return {"lark_grammar": f"start: /{llguidance.regex_to_lark(pattern, use_ascii='dws')}/"}
        case {"kind": "choice", "source": choices}:
            return {"lark_grammar": _choice(choices)}
    try:
        # EBNF as llama.cpp and xgrammar write it (`root ::= …`) is rewritten; Lark passes as it is.
        return {"lark_grammar": any_to_lark(part["source"])}
    except GbnfToLarkError as error:
        raise ValueError(str(error)) from None


def _choice(source: str) -> str:
    choices = json.loads(source)
    if not isinstance(choices, list) or not choices or not all(isinstance(each, str) for each in choices):
        raise ValueError("a choice is a list of at least one string")
    if len(choices) > _MAX_CHOICES:
        raise ValueError(f"{len(choices)} choices are more than the {_MAX_CHOICES} allowed")
    return "start: " + " | ".join(json.dumps(each, ensure_ascii=False) for each in choices)


def _num_bytes(grammar: Grammar) -> int:
    return len(grammar.source.encode("utf-8", "surrogatepass"))


def compiled_bytes(grammar: Grammar) -> int:
    """Bytes a grammar may take when it is compiled: 0.2 MB for the smallest schema, 1.8 for one of 29 KB."""
    return max((256 << 10) + 64 * _num_bytes(grammar), _regex_bytes(grammar) ** 2)


def _regex_bytes(grammar: Grammar) -> int:
    """Of what is, or may be, regular expressions. Raises RecursionError for JSON nested too deeply."""
    match grammar.kind:
        case "regex" | "lark":
            return _num_bytes(grammar)
        case _:
            return _pattern_bytes(_schema_of(grammar))


def _schema_of(grammar: Grammar) -> object:
    """None for what has none, or is no JSON: the library says what is wrong with it."""
    if grammar.kind not in ("json_schema", "answer"):
        return None
    try:
        return json.loads(grammar.source)
    except ValueError:
        return None


def _pattern_bytes(schema: object) -> int:
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in _patterns(schema))


def _patterns(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if schema.get("kind") in ("regex", "lark") and isinstance(schema.get("source"), str):
            yield schema["source"]  # of a part
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for each in schema.values():
            yield from _patterns(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _patterns(each)


def _optional_runs(schema: object) -> Iterator[int]:
    """Of each object, how many properties in a row may be left out, at most."""
    if isinstance(schema, dict):
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, dict):
            needed = (
                [each for each in required if isinstance(each, str)] if isinstance(required, list) else ()
            )
            runs = groupby(properties, frozenset(needed).__contains__)
            yield max((len(list(run)) for is_needed, run in runs if not is_needed), default=0)
        for each in schema.values():
            yield from _optional_runs(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _optional_runs(each)


def _bad(grammar: Grammar, reason: str) -> BadRequestError:
    if grammar.kind == "answer":
        return BadRequestError(f"`tools`: these cannot be used: {reason}", param="tools")
    return BadRequestError(f"`{PARAM}`: this {grammar.kind} cannot be used: {reason}", param=PARAM)


def first_line(message: str) -> str:
    """The library's messages go on with excerpts of the grammar."""
    if "NoExtension" in message:
        return "no answer can match it"
    if "coerce_one_of" in message:
        return (
            "two alternatives of a `oneOf` may match the same value; tell them apart by type, by a required "
            "property with a `const`, or write `anyOf`"
        )
    if "too many expressions" in message:
        return (
            "its pattern has too many expressions to follow with this vocabulary; use narrower classes of "
            "characters or fewer repetitions"
        )
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.startswith("<")]
    known = next((line for line in lines if line.startswith("error:")), None)
    text = lines[0] if lines else "unknown error"
    if known is not None:
        text = f"{text} ({known.removeprefix('error:').strip()})"
    return text[:_MAX_MESSAGE]
