"""Calls that must come, or may beside an answer in a given form, as a grammar in the format the model writes:
whatever its weights, they can be read.

A grammar is llguidance's Lark with JSON schemas beside (`protocols/messages.py`: an "answer"). Marks that are
tokens of the model's are those tokens. Where the model thinks first it may, in front. Read
`engine/execution/grammar.py` for who compiles it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ....protocols.messages import Grammar
from ....protocols.tools import Tool
from .gemma_calls import FUNCTION_GEMMA, GEMMA_4
from .harmony import CHANNEL, CONSTRAIN, END, MESSAGE, START
from .json_calls import DEEPSEEK, HERMES, KIMI, MISTRAL
from .machine import AnswerFormat
from .schemas import STRING, types_of
from .tagged_calls import CODER, GLM, MINIMAX
from .thinking import Thinking

TokenId = Callable[[str], int | None]
"""The id of a token by its name; None where the tokenizer has none of that name."""

_TEXT: Final = r"/(.|\n)*/"
_SHARED: Final = ("$defs", "definitions")
"""Where a schema keeps what its parts refer to; the second is what pydantic 1 writes."""


class _Writer:
    """Pieces of one grammar."""

    def __init__(self, kind: AnswerFormat, token_id: TokenId, *, is_parallel: bool) -> None:
        self.kind = kind
        self.is_parallel = is_parallel
        self._token_id = token_id
        self._tokens = [mark for mark in kind.marks(with_tools=True) if token_id(mark) is not None]
        self._rules: list[str] = []
        self._parts: dict[str, dict[str, Any]] = {}

    def text(self, text: str) -> str:
        """Just that, marks that are tokens as those; JSON's quotes are Lark's."""
        pieces = re.split(f"({'|'.join(map(re.escape, self._tokens))})", text) if self._tokens else [text]
        return " ".join(
            self.mark(piece) if piece in self._tokens else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )

    def has(self, mark: str) -> bool:
        """Whether it is a token."""
        return self._token_id(mark) is not None

    def mark(self, mark: str) -> str:
        """A token if there is one, else its characters."""
        token_id = self._token_id(mark)
        return json.dumps(mark, ensure_ascii=False) if token_id is None else f"<[{token_id}]>"

    def up_to(self, mark: str) -> str:
        """Any text, and the mark behind it."""
        if self.has(mark):
            return f"{self.rule(_TEXT, is_terminal=True)} {self.mark(mark)}"
        return self.rule(_TEXT, options=f"[suffix={json.dumps(mark, ensure_ascii=False)}]")

    def schema(self, schema: dict[str, Any]) -> str:
        """JSON that matches a schema; properties it does not name are left out."""
        if schema.get("properties") and "additionalProperties" not in schema:
            schema = {**schema, "additionalProperties": False}
        name = f"j{len(self._parts)}"
        self._parts[name] = {"json": schema or {"type": "object"}}
        return f"@{name}"

    def part(self, grammar: Grammar) -> str:
        """Another grammar."""
        name = f"j{len(self._parts)}"
        source = json.loads(grammar.source) if grammar.kind == "json_schema" else grammar.source
        self._parts[name] = {"kind": grammar.kind, "source": source}
        return f"@{name}"

    def rule(self, body: str, *, options: str = "", is_terminal: bool = False) -> str:
        """A rule of its own."""
        name = f"{'T' if is_terminal else 'r'}{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def written(self, start: str) -> Grammar:
        """The grammar."""
        lark = "\n".join([f"start: {start}", *self._rules])
        return Grammar("answer", msgspec.json.encode({"lark": lark, "parts": self._parts}).decode())


def call_grammar(
    kind: AnswerFormat,
    tools: Sequence[Tool],
    token_id: TokenId,
    *,
    is_parallel: bool,
    thinking: Thinking,
    form: Grammar | None = None,
) -> Grammar | None:
    """One or more calls of `tools`, or else what `form` says; None where the model has no format for them."""
    if kind.tools is None:
        return None
    writer = _Writer(kind, token_id, is_parallel=is_parallel)
    answer = _WRITERS[kind.tools.name](writer, tools)
    if form is not None:
        answer = _any_of([_message(writer, form), answer])
    return writer.written(f"{_thought(writer, thinking)} {answer}")


def behind_thinking(kind: AnswerFormat, grammar: Grammar, token_id: TokenId, thinking: Thinking) -> Grammar:
    """The same for what follows when the model has thought; itself where it has, or never does."""
    if not kind.has_channels and (kind.thinking is None or thinking != "open"):
        return grammar
    writer = _Writer(kind, token_id, is_parallel=False)
    return writer.written(f"{_thought(writer, thinking)} {_message(writer, grammar)}")


def _message(writer: _Writer, grammar: Grammar) -> str:
    """What is said, and not thought or called."""
    if not writer.kind.has_channels:
        return writer.part(grammar)
    mark = writer.mark
    return f"{mark(CHANNEL)} {writer.text('final')} {mark(MESSAGE)} {writer.part(grammar)}"


def _thought(writer: _Writer, thinking: Thinking) -> str:
    if writer.kind.has_channels:
        mark, text = writer.mark, writer.text
        head = f"{mark(CHANNEL)} {text('analysis')} {mark(MESSAGE)} {writer.up_to(END)}"
        return f"({head} {mark(START)} {text('assistant')})?"
    tags = writer.kind.thinking
    if tags is None or thinking == "closed":
        return ""
    thought = rf"{writer.up_to(tags.end)} /\n{{0,2}}/"
    if thinking == "open":
        return thought
    return f"({writer.mark(tags.start)} {writer.text(tags.title) if tags.title else ''} {thought})?"


def _any_of(choices: Sequence[str]) -> str:
    return f"({' | '.join(choices)})"


def _repeated(writer: _Writer, call: str, between: str = "") -> str:
    if not writer.is_parallel:
        return call
    one = writer.rule(call)
    return f"{one} ({between} {one})*"


def _object(writer: _Writer, tool: Tool, key: str) -> str:
    name = json.dumps(tool.name)
    head = writer.text(f'{{"name": {name}, "{key}": ')
    return f"{head} {writer.schema(tool.parameters)} {writer.text('}')}"


def _hermes(writer: _Writer, tools: Sequence[Tool]) -> str:
    calls = _any_of([_object(writer, tool, "arguments") for tool in tools])
    line = writer.text("\n")
    call = f"{writer.mark(HERMES[0])} {line} {calls} {line} {writer.mark(HERMES[1])}"
    return _repeated(writer, call, line)


def _llama(writer: _Writer, tools: Sequence[Tool]) -> str:
    calls = _any_of([_object(writer, tool, "parameters") for tool in tools])
    return _repeated(writer, calls, writer.text("; "))


def _mistral(writer: _Writer, tools: Sequence[Tool]) -> str:
    mark, _, arguments = map(writer.mark, MISTRAL)
    if not writer.has(MISTRAL[2]):
        calls = _any_of([_object(writer, tool, "arguments") for tool in tools])
        return f"{mark} {writer.text('[')} {_repeated(writer, calls, writer.text(', '))} {writer.text(']')}"
    each = [f"{writer.text(tool.name)} {arguments} {writer.schema(tool.parameters)}" for tool in tools]
    return _repeated(writer, f"{mark} {_any_of(each)}")


def _deepseek(writer: _Writer, tools: Sequence[Tool]) -> str:
    section, call, separator, end, section_end = map(writer.mark, DEEPSEEK)
    each = [f"{writer.text(tool.name)} {separator} {writer.schema(tool.parameters)}" for tool in tools]
    calls = _repeated(writer, f"{call} {_any_of(each)} {end}")
    return f"{section} {calls} {section_end}"


def _kimi(writer: _Writer, tools: Sequence[Tool]) -> str:
    section, call, arguments, end, section_end = map(writer.mark, KIMI)
    number = "/0|[1-9][0-9]?/"
    each = [
        f"{writer.text(f'functions.{tool.name}:')} {number} {arguments} {writer.schema(tool.parameters)}"
        for tool in tools
    ]
    calls = _repeated(writer, f"{call} {_any_of(each)} {end}")
    return f"{section} {calls} {section_end}"


def _harmony(writer: _Writer, tools: Sequence[Tool]) -> str:
    each = [
        f"{writer.text(f'commentary to=functions.{tool.name} ')} {writer.mark(CONSTRAIN)} "
        f"{writer.text('json')} {writer.mark(MESSAGE)} {writer.schema(tool.parameters)}"
        for tool in tools
    ]
    return f"{writer.mark(CHANNEL)} {_any_of(each)}"


def _members(tool: Tool) -> list[tuple[str, bool]]:
    """The arguments a schema names, and whether they must be there."""
    required = tool.parameters.get("required", [])
    return [(key, key in required) for key in tool.parameters.get("properties", {})]


def _value(writer: _Writer, tool: Tool, key: str, end: str, *, line: str = "") -> str:
    """A value as text, and the tag behind it, in a new line where `line` is that."""
    wanted = tool.parameters["properties"][key]
    closing = f"{writer.text(line)} {writer.mark(end)}" if line else writer.mark(end)
    if types_of(tool.parameters, key) == STRING:
        words = wanted.get("enum") if isinstance(wanted, dict) else None
        if words:
            return f"{_any_of([writer.text(str(word)) for word in words])} {closing}"
        return writer.up_to(end) if writer.has(end) else writer.up_to(line + end)
    shared = {name: tool.parameters[name] for name in _SHARED if name in tool.parameters}
    inner = {**shared, **wanted} if isinstance(wanted, dict) else {}
    return f"{writer.schema(inner)} {closing}"


def _tagged(writer: _Writer, tool: Tool, argument: Callable[[str], str], end: str, *, line: str = "") -> str:
    """Arguments in the schema's order, each with a line break behind it."""
    found = []
    for key, is_required in _members(tool):
        one = f"{argument(key)} {_value(writer, tool, key, end, line=line)} {writer.text(chr(10))}"
        found.append(one if is_required else f"({one})?")
    return " ".join(found)


def _coder(writer: _Writer, tools: Sequence[Tool]) -> str:
    opening, _, _, value_end, function_end, closing = CODER
    line = writer.text("\n")
    each = []
    for tool in tools:
        members = _tagged(writer, tool, lambda key: writer.text(f"<parameter={key}>\n"), value_end, line="\n")
        each.append(f"{writer.text(f'<function={tool.name}>')} {line} {members}")
    call = f"{writer.mark(opening)} {line} {_any_of(each)} {writer.text(function_end)} {line}"
    return _repeated(writer, f"{call} {writer.mark(closing)}", line)


def _minimax(writer: _Writer, tools: Sequence[Tool]) -> str:
    opening, _, _, value_end, invoke_end, closing = MINIMAX
    line = writer.text("\n")
    each = []
    for tool in tools:
        members = _tagged(writer, tool, lambda key: writer.text(f'<parameter name="{key}">'), value_end)
        head = writer.text(f'<invoke name="{tool.name}">')
        each.append(f"{head} {line} {members} {writer.text(invoke_end)} {line}")
    calls = _repeated(writer, _any_of(each))
    return f"{writer.mark(opening)} {line} {calls} {writer.mark(closing)}"


def _glm(writer: _Writer, tools: Sequence[Tool]) -> str:
    opening, key_start, key_end, value_start, value_end, closing = GLM
    line = writer.text("\n")
    mark = writer.mark

    def argument(key: str) -> str:
        return f"{mark(key_start)} {writer.text(key)} {mark(key_end)} {line} {mark(value_start)}"

    each = [f"{writer.text(tool.name)} {line} {_tagged(writer, tool, argument, value_end)}" for tool in tools]
    return _repeated(writer, f"{mark(opening)} {_any_of(each)} {mark(closing)}", line)


def _gemma(writer: _Writer, tools: Sequence[Tool]) -> str:
    opening, closing, quote = GEMMA_4 if writer.has(GEMMA_4[0]) else FUNCTION_GEMMA
    each = []
    for tool in tools:
        found, comma = [], ""
        for key, is_required in _members(tool):
            if not is_required:  # the comma would depend on what stands in front
                continue
            if types_of(tool.parameters, key) == STRING:
                value = f"{writer.mark(quote)} {_value(writer, tool, key, quote)}"
            else:
                value = writer.schema(tool.parameters["properties"][key])
            found.append(f"{comma} {writer.text(key + ':')} {value}")
            comma = writer.text(",")
        each.append(f"{writer.text(f'call:{tool.name}{{')} {' '.join(found)} {writer.text('}')}")
    return _repeated(writer, f"{writer.mark(opening)} {_any_of(each)} {writer.mark(closing)}")


_WRITERS: Final[dict[str, Callable[[_Writer, Sequence[Tool]], str]]] = {
    "hermes": _hermes,
    "qwen3_coder": _coder,
    "llama": _llama,
    "mistral": _mistral,
    "deepseek": _deepseek,
    "glm": _glm,
    "kimi_k2": _kimi,
    "minimax_m2": _minimax,
    "harmony": _harmony,
    "gemma": _gemma,
}
