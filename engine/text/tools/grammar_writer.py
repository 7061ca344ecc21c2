"""Writes one grammar in llguidance's Lark: text, marks, schemas and rules as pieces that are put together.

Knows no format of calls. Read next: `engine/text/tools/grammars.py`, which has them all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ....protocols.engine.messages import Grammar
from ....protocols.errors import BadRequestError
from .machine import AnswerFormat

TokenId = Callable[[str], int | None]
"""The id of a token by its name; None where the tokenizer has none of that name."""

ANY_TEXT: Final = r"/(.|\n)*/"
_MAX_CHARS: Final = 1024 * 1024
"""More than is ever compiled (`engine/execution/grammar.py`): where many arguments refer to one large schema,
each has a copy of it."""


class GrammarWriter:
    """Pieces of one grammar."""

    def __init__(self, kind: AnswerFormat, token_id: TokenId, *, is_parallel: bool) -> None:
        self.kind = kind
        self.is_parallel = is_parallel
        self._token_id = token_id
        self._tokens = [mark for mark in kind.marks(with_tools=True) if token_id(mark) is not None]
        self._split = re.compile(f"({'|'.join(map(re.escape, self._tokens))})").split
        self._rules: list[str] = []
        self._parts: dict[str, dict[str, Any]] = {}
        self._num_chars = 0

    def text(self, text: str) -> str:
        """Just that, marks that are tokens as those; JSON's quotes are Lark's. Raises BadRequestError where
        all is too much."""
        self._count(len(text))
        pieces = self._split(text) if self._tokens else [text]
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

    def up_to(self, mark: str, text: str = ANY_TEXT) -> str:
        """Any text, or what this pattern says of it, and the mark behind it."""
        if self.has(mark):
            return f"{self.rule(text, is_terminal=True)} {self.mark(mark)}"
        return self.rule(text, options=f"[suffix={json.dumps(mark, ensure_ascii=False)}]")

    def schema(self, schema: dict[str, Any] | bool) -> str:
        """JSON that matches a schema. Raises BadRequestError as `text` does."""
        encoded = msgspec.Raw(msgspec.json.encode(schema))
        self._count(len(memoryview(encoded)))
        name = f"j{len(self._parts)}"
        self._parts[name] = {"json": encoded}
        return f"@{name}"

    def arguments(self, parameters: dict[str, Any]) -> str:
        """All arguments of a tool as JSON."""
        return self.schema({"type": "object", **parameters})

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

    def _count(self, num_chars: int) -> None:
        self._num_chars += num_chars
        if self._num_chars > _MAX_CHARS:
            raise BadRequestError("`tools` are too large for calls that must come", param="tools")


def any_of(choices: Sequence[str]) -> str:
    """One of them."""
    return f"({' | '.join(choices)})"
