"""What the scripted model answers, by fixed rules over the rendered prompt: it calls tools as it is told to.

The rules cover what other projects' suites ask of a model, so that a failure of theirs is the server's. Pure.
`peers/scripted.py` turns an answer into logits.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

TEMPLATE: Final = (
    "{% if tools %}<|im_start|>tools\n"
    "{% for tool in tools %}{{ tool.function | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n'
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML with tools, calls, results, thoughts and pictures."""
GREETING: Final = "Hello! I am well, and how may I help you today?"
THOUGHT: Final = "This is a greeting."
_THOUGHT_END: Final = b"\n</think>\n\n"
_OUTSIDE: Final[tuple[bytes, ...]] = (
    b"}",
    b"]",
    b'"',
    b",",
    b":",
    b"1",
    b"{",
    b"[",
    b"t",
    b"n",
    b"\n",
    b" ",
    b"a",
)
_BEGUN: Final[tuple[bytes, ...]] = (b"a", b"1", b'"')
_FILLED: Final[tuple[bytes, ...]] = (b'"', b"a", b"1")
"""Which characters are preferred outside a string, in a short one, and in one that is long enough."""
_MESSAGE: Final = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)


@functools.lru_cache(maxsize=64)
def answer(prompt: str) -> str:
    """The whole answer to a prompt that `TEMPLATE` rendered, without its end token.

    Results of tools are reported; else the tool that the question names is called; else the greeting. What
    says "Think" is thought about first.
    """
    turns: list[tuple[str, str]] = _MESSAGE.findall(prompt)
    thought = f"<think>\n{THOUGHT}\n</think>\n\n" if turns and "Think" in turns[-1][1] else ""
    return thought + _content(turns, prompt)


def _content(turns: Sequence[tuple[str, str]], prompt: str) -> str:
    role, text = turns[-1] if turns else ("user", prompt)
    if role == "tool":
        return f"The tool gave this result: {text}"
    tools = [json.loads(line) for name, lines in turns if name == "tools" for line in lines.splitlines()]
    if tools:
        tool = next((each for each in tools if each["name"] in text), None) or next(
            (each for each in tools if set(each["name"].split("_")) & words(text)), None
        )
        if tool is not None:
            call = {"name": tool["name"], "arguments": filled(tool.get("parameters") or {}, text)}
            return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
    if "JSON" in text:
        return json.dumps(dict.fromkeys(re.findall(r"'(\w+)'", text), "Meow."))
    return GREETING


def words(text: str) -> set[str]:
    """The words of a text in lower case."""
    return set(re.findall(r"[a-z]+", text.lower()))


def filled(schema: Mapping[str, Any], text: str) -> Any:  # noqa: ANN401 (a JSON value)
    """A value of `schema`; integers and quoted strings are those of the question, in their order."""
    numbers = iter([int(each) for each in re.findall(r"-?\d+", text)])
    return _value(schema, schema.get("$defs", {}), numbers, iter(re.findall(r"'(.+?)'", text)))


def _value(
    schema: Mapping[str, Any], named: Mapping[str, Any], numbers: Iterator[int], texts: Iterator[str]
) -> Any:  # noqa: ANN401
    if "$ref" in schema:
        return _value(named[schema["$ref"].rpartition("/")[2]], named, numbers, texts)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _value(schema[several][0], named, numbers, texts)
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    match kind:
        case "object":
            return {
                key: _value(each, named, numbers, texts) for key, each in schema.get("properties", {}).items()
            }
        case "array":
            return [_value(schema.get("items", {}), named, numbers, texts)]
        case "integer" | "number":
            return next(numbers, 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return next(texts, "Paris")


def preferences(prompt: str, generated: bytes, pieces: Sequence[bytes], end: int) -> dict[int, float]:
    """How much each token is preferred next, by its id: the script's tokens first, then the end.

    Where a grammar led elsewhere, JSON is completed as shortly as it can be. Text that the script does not
    begin with (a prefilled answer, a prompt of plain text) is continued by the script.
    """
    shortest = _shortest_json(generated, pieces, end)
    script = answer(prompt).encode()
    if script.startswith(generated):
        return shortest | _continued(script[len(generated) :], pieces)
    compact, before = _compact(script), _compact(generated)
    if compact.startswith(before):
        return shortest | _continued(compact[len(before) :], list(map(_compact, pieces)))
    if generated.startswith(b"<think>") and _THOUGHT_END not in generated:  # a grammar may only let it think
        return _continued(_rest(_THOUGHT_END, generated), pieces)
    if generated.lstrip()[:1] in (b"{", b"[", b'"', b"<"):
        return shortest
    return shortest | _continued(_rest(script, generated), pieces)


def _rest(text: bytes, generated: bytes) -> bytes:
    """What of `text` is missing behind its longest beginning that ends what was generated."""
    return text[next(size for size in range(len(text), -1, -1) if generated.endswith(text[:size])) :]


def _continued(rest: bytes, pieces: Sequence[bytes]) -> dict[int, float]:
    """Every token that `rest` begins with, the longest first."""
    return {token: 100.0 + len(each) for token, each in enumerate(pieces) if each and rest.startswith(each)}


def _compact(text: bytes) -> bytes:
    return b"".join(text.split())


def _shortest_json(generated: bytes, pieces: Sequence[bytes], end: int) -> dict[int, float]:
    """The end, or the shortest way to the end of a JSON value; strings get three letters."""
    quotes = [found.start() for found in re.finditer(rb'(?<!\\)"', generated)]
    order = _OUTSIDE
    if len(quotes) % 2:
        order = _BEGUN if len(generated) - quotes[-1] <= 3 else _FILLED
    ranks = {piece: 50.0 - rank for rank, piece in enumerate(order)}
    return {token: ranks[piece] for token, piece in enumerate(pieces) if piece in ranks} | {end: 60.0}
