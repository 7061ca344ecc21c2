"""Calls that must come, or may beside an answer in a given form, as a grammar in the format the model writes:
whatever its weights, they can be read.

A grammar is llguidance's Lark with JSON schemas beside (`protocols/engine/messages.py`: an "answer"). Marks
that are tokens of the model's are those tokens. Where the model thinks first it may, in front. Read
`engine/execution/grammar.py` for who compiles it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from ....protocols.chat.tools import Tool
from ....protocols.engine.messages import Grammar
from .argument_grammars import gemma_value, members, tagged_value, unheld
from .gemma_calls import FUNCTION_GEMMA, GEMMA_4, written_key
from .grammar_writer import GrammarWriter, TokenId, any_of
from .harmony import CHANNEL, CONSTRAIN, END, MESSAGE, START
from .json_calls import DEEPSEEK, HERMES, KIMI, MISTRAL
from .machine import AnswerFormat
from .tagged_calls import CODER, GLM, MINIMAX, unquoted
from .thinking import Thinking


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
    writer = GrammarWriter(kind, token_id, is_parallel=is_parallel)
    answer = _WRITERS[kind.tools.name](writer, tools)
    if form is not None:
        answer = any_of([_message(writer, form), answer])
    return writer.written(f"{_reasoning(writer, thinking)} {answer}")


def after_thinking(kind: AnswerFormat, grammar: Grammar, token_id: TokenId, thinking: Thinking) -> Grammar:
    """The same for what follows when the model has thought; itself where it has, or never does."""
    if not kind.has_channels and (kind.thinking is None or thinking != "open"):
        return grammar
    writer = GrammarWriter(kind, token_id, is_parallel=False)
    return writer.written(f"{_reasoning(writer, thinking)} {_message(writer, grammar)}")


def _message(writer: GrammarWriter, grammar: Grammar) -> str:
    """What is said, and not thought or called."""
    if not writer.kind.has_channels:
        return writer.part(grammar)
    mark = writer.mark
    return f"{mark(CHANNEL)} {writer.text('final')} {mark(MESSAGE)} {writer.part(grammar)}"


def _reasoning(writer: GrammarWriter, thinking: Thinking) -> str:
    if writer.kind.has_channels:
        mark, text = writer.mark, writer.text
        head = f"{mark(CHANNEL)} {text('analysis')} {mark(MESSAGE)} {writer.up_to(END)}"
        return f"({head} {mark(START)} {text('assistant')})?"
    tags = writer.kind.thinking
    if tags is None or thinking == "closed":
        return ""
    reasoning = rf"{writer.up_to(tags.end)} /\n{{0,2}}/"
    if thinking == "open":
        return reasoning
    return f"({writer.mark(tags.start)} {writer.text(tags.title) if tags.title else ''} {reasoning})?"


def _repeated(writer: GrammarWriter, call: str, between: str = "") -> str:
    if not writer.is_parallel:
        return call
    one = writer.rule(call)
    return f"{one} ({between} {one})*"


def _object(writer: GrammarWriter, tool: Tool, key: str) -> str:
    name = json.dumps(tool.name)
    head = writer.text(f'{{"name": {name}, "{key}": ')
    return f"{head} {writer.arguments(tool.parameters)} {writer.text('}')}"


def _hermes(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    calls = any_of([_object(writer, tool, "arguments") for tool in tools])
    line = writer.text("\n")
    call = f"{writer.mark(HERMES[0])} {line} {calls} {line} {writer.mark(HERMES[1])}"
    return _repeated(writer, call, line)


def _llama(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    calls = any_of([_object(writer, tool, "parameters") for tool in tools])
    return _repeated(writer, calls, writer.text("; "))


def _mistral(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    mark, _, arguments = map(writer.mark, MISTRAL)
    if not writer.has(MISTRAL[2]):
        calls = any_of([_object(writer, tool, "arguments") for tool in tools])
        return f"{mark} {writer.text('[')} {_repeated(writer, calls, writer.text(', '))} {writer.text(']')}"
    each = [f"{writer.text(tool.name)} {arguments} {writer.arguments(tool.parameters)}" for tool in tools]
    return _repeated(writer, f"{mark} {any_of(each)}")


def _deepseek(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    section, call, separator, end, section_end = map(writer.mark, DEEPSEEK)
    each = [f"{writer.text(tool.name)} {separator} {writer.arguments(tool.parameters)}" for tool in tools]
    calls = _repeated(writer, f"{call} {any_of(each)} {end}")
    return f"{section} {calls} {section_end}"


def _kimi(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    section, call, arguments, end, section_end = map(writer.mark, KIMI)
    number = "/0|[1-9][0-9]?/"
    each = [
        f"{writer.text(f'functions.{tool.name}:')} {number} {arguments} {writer.arguments(tool.parameters)}"
        for tool in tools
    ]
    calls = _repeated(writer, f"{call} {any_of(each)} {end}")
    return f"{section} {calls} {section_end}"


def _harmony(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    each = [
        f"{writer.text(f'commentary to=functions.{tool.name} ')} {writer.mark(CONSTRAIN)} "
        f"{writer.text('json')} {writer.mark(MESSAGE)} {writer.arguments(tool.parameters)}"
        for tool in tools
    ]
    return f"{writer.mark(CHANNEL)} {any_of(each)}"


def _tagged(
    writer: GrammarWriter,
    tool: Tool,
    argument: Callable[[str], str],
    end: str,
    *,
    line: str = "",
    holds: Callable[[str], bool],
) -> str:
    """Arguments in the schema's order, each with a line break behind it. Raises BadRequestError for a key
    that the format does not hold."""
    found = []
    for key, is_required in members(tool):
        if not holds(key):
            raise unheld(tool, f"the argument `{key[:80]}`")
        value = tagged_value(writer, tool, key, end, line=line)
        one = f"{argument(key)} {value} {writer.text(chr(10))}"
        found.append(one if is_required else f"({one})?")
    return " ".join(found)


def _fits_tag(key: str) -> bool:
    """Whether an opening tag may have this key."""
    return ">" not in key and unquoted(key) == key


def _coder(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    opening, _, _, value_end, function_end, closing = CODER
    line = writer.text("\n")
    each = []
    for tool in tools:
        arguments = _tagged(
            writer,
            tool,
            lambda key: writer.text(f"<parameter={key}>\n"),
            value_end,
            line="\n",
            holds=_fits_tag,
        )
        each.append(f"{writer.text(f'<function={tool.name}>')} {line} {arguments}")
    call = f"{writer.mark(opening)} {line} {any_of(each)} {writer.text(function_end)} {line}"
    return _repeated(writer, f"{call} {writer.mark(closing)}", line)


def _minimax(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    opening, _, _, value_end, invoke_end, closing = MINIMAX
    line = writer.text("\n")
    each = []
    for tool in tools:
        arguments = _tagged(
            writer, tool, lambda key: writer.text(f'<parameter name="{key}">'), value_end, holds=_fits_tag
        )
        head = writer.text(f'<invoke name="{tool.name}">')
        each.append(f"{head} {line} {arguments} {writer.text(invoke_end)} {line}")
    calls = _repeated(writer, any_of(each))
    return f"{writer.mark(opening)} {line} {calls} {writer.mark(closing)}"


def _glm(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    opening, key_start, key_end, value_start, value_end, closing = GLM
    line = writer.text("\n")
    mark = writer.mark

    def argument(key: str) -> str:
        return f"{mark(key_start)} {writer.text(key)} {mark(key_end)} {line} {mark(value_start)}"

    def holds(key: str) -> bool:
        return key_end not in key and key.strip() == key

    each = [
        f"{writer.text(tool.name)} {line} {_tagged(writer, tool, argument, value_end, holds=holds)}"
        for tool in tools
    ]
    return _repeated(writer, f"{mark(opening)} {any_of(each)} {mark(closing)}", line)


def _gemma(writer: GrammarWriter, tools: Sequence[Tool]) -> str:
    opening, closing, quote = GEMMA_4 if writer.has(GEMMA_4[0]) else FUNCTION_GEMMA
    each = []
    for tool in tools:
        found, comma = [], ""
        for key, is_required in members(tool):
            if not is_required:  # the comma would depend on what stands in front
                continue
            value = gemma_value(writer, tool, key, quote)
            found.append(f"{comma} {writer.text(written_key(key, quote) + ':')} {value}")
            comma = writer.text(",")
        each.append(f"{writer.text(f'call:{tool.name}{{')} {' '.join(found)} {writer.text('}')}")
    return _repeated(writer, f"{writer.mark(opening)} {any_of(each)} {writer.mark(closing)}")


_WRITERS: Final[dict[str, Callable[[GrammarWriter, Sequence[Tool]], str]]] = {
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
