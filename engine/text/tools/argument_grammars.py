"""Arguments of forced calls where they are written one by one: between tags, or as Gemma does.

Between tags a string stands as it is and all else as JSON, and the reader tells them apart by the tool's
schema (`engine/text/tools/schemas.py`): what matches these grammars it reads as a value that the schema
allows, but for patterns and lengths of strings. Read next: `engine/text/tools/grammars.py`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ....protocols.chat.tools import Tool
from ....protocols.errors import BadRequestError
from .grammar_writer import ANY_TEXT, GrammarWriter, any_of
from .schemas import STRING, Leaf, as_json, as_number, leaves_of, type_of, types_of

_BEGINS: Final = {"array": r"\[", "number": r"\-0-9", "object": "{"}
"""How JSON begins of the types of which not every value may be right."""


def members(tool: Tool) -> list[tuple[str, bool]]:
    """The arguments that a schema names or requires, and whether they must be there."""
    named = tool.parameters.get("properties", {})
    required = [key for key in tool.parameters.get("required", ()) if isinstance(key, str)]
    every = dict.fromkeys((*named, *required))
    return [(key, key in required) for key in every if key in required or named[key] is not False]


def tagged_value(writer: GrammarWriter, tool: Tool, key: str, end: str, *, line: str = "") -> str:
    """A value as text, and the tag behind it, in a new line where `line` is that."""
    closing = f"{writer.text(line)} {writer.mark(end)}" if line else writer.mark(end)
    types, leaves = types_of(tool.parameters, key), leaves_of(tool.parameters, key)
    others: Collection[str] = types - STRING
    if _is_free(leaves):
        others = [kind for kind in _BEGINS if kind in others]
        begins = "".join(_BEGINS[kind] for kind in others)
        text = rf"/\s*([^\s{begins}](.|\n)*)?/" if begins else ANY_TEXT
        found = [writer.up_to(end, text) if writer.has(end) else writer.up_to(line + end, text)]
    else:
        found = []
        for word in _words(leaves):
            is_cut = end in word or (not line and word != word.strip("\n"))
            if is_cut or as_json(word, types) != json.dumps(word, ensure_ascii=False):
                raise unheld(tool, f"{word[:80]!r} for `{key[:80]}`")
            found.append(f"{writer.text(word)} {closing}")
    found += (f"{writer.schema(each)} {closing}" for each in _schemas(leaves, others))
    return any_of(found or [writer.schema(False)])


def gemma_value(writer: GrammarWriter, tool: Tool, key: str, quote: str) -> str:
    """A value as Gemma writes it, strings between marks of its own."""
    mark, leaves = writer.mark(quote), leaves_of(tool.parameters, key)
    found = [f"{mark} {writer.up_to(quote)}"] if _is_free(leaves) else []
    for word in [] if found else _words(leaves):
        if quote in word:
            raise unheld(tool, f"{word[:80]!r} for `{key[:80]}`")
        found.append(f"{mark} {writer.text(word)} {mark}")
    found += map(writer.schema, _schemas(leaves, types_of(tool.parameters, key) - STRING))
    return any_of(found or [writer.schema(False)])


def _is_free(leaves: Sequence[Leaf]) -> bool:
    """Whether any text will do."""
    return any(leaf.values is None and "string" in leaf.types for leaf in leaves)


def _words(leaves: Sequence[Leaf]) -> list[str]:
    listed = (value for leaf in leaves for value in leaf.values or () if isinstance(value, str))
    return list(dict.fromkeys(listed))


def _schemas(leaves: Sequence[Leaf], allowed: Collection[str]) -> Iterator[dict[str, Any]]:
    """What is no text, of these types."""
    for leaf in leaves:
        types = leaf.types.intersection(allowed)
        if leaf.values is not None:
            values = [each for each in leaf.values if type_of(each) in types]
            if values:
                yield {**leaf.schema, "enum": values}
        elif types == leaf.types:
            yield leaf.schema
        elif types:
            named = leaf.schema.get("type")
            kept = named if isinstance(named, list) else sorted(types)
            yield {**leaf.schema, "type": [each for each in kept if as_number(each) in types]}


def unheld(tool: Tool, what: str) -> BadRequestError:
    """What cannot stand in a call of this model's."""
    return BadRequestError(
        f"`tools`: calls of `{tool.name}` that must come cannot have {what}, as this model writes them",
        param="tools",
    )
